/* rules.c - the rules of rules.def as keys of a list file. */
#include "passes/amp/rules.h"

#include <string.h>

/* clang-format off */
const setting rules_rows[RULE_COUNT] = {
#define CHOICE(key, meaning) {#key, offsetof(amp_rules, key), SETTING_WORD, 0, 0,
#define WORD(name, word) word "|"
#define END , NULL, NULL},
#define NUMBER(key, meaning) {#key, offsetof(amp_rules, key), SETTING_COUNT, 1, DBL_MAX, "off", NULL, NULL},
#define REAL(key, meaning) {#key, offsetof(amp_rules, key), SETTING_REAL, FLT_TRUE_MIN, DBL_MAX, "off", NULL, NULL},
#define TEXT(key, check, values, meaning) SETTING_OTHER(amp_rules, #key, key, TEXT, NULL),
#include "passes/amp/rules.def"
};
/* clang-format on */

const amp_rules rules_default = {
#define TEXT(name, check, values, meaning) .name = "",
#include "passes/amp/rules.def"
};

bool rules_text_has(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *p = text; (p = strstr(p, word)); p += length)
        if ((p == text || p[-1] == ' ' || p[-1] == ',') && strchr(" ,(", p[length])) return true;
    return false;
}
