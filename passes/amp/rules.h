/* rules.h - the rules of a list file as a struct, expanded from rules.def. */
#ifndef AMPC_RULES_H
#define AMPC_RULES_H

#include "ir/ops/settings.h"

/* enum rule_gray { GRAY_ANY_F32, GRAY_LAST_PRODUCER }; ... */
#define CHOICE(key, meaning) \
    enum rule_##key \
    {
#define WORD(name, word) name,
#define END \
    } \
    ;
#include "passes/amp/rules.def"

typedef struct amp_rules {
#define CHOICE(key, meaning) enum rule_##key key;
#define NUMBER(key, meaning) int64_t key;
#define REAL(key, meaning) double key;
#define TEXT(key, check, values, meaning) const char *key;
#include "passes/amp/rules.def"
} amp_rules;

typedef enum rule_id {
#define CHOICE(key, meaning) RULE_##key,
#define NUMBER(key, meaning) RULE_##key,
#define REAL(key, meaning) RULE_##key,
#define TEXT(key, check, values, meaning) RULE_##key,
#include "passes/amp/rules.def"
    RULE_COUNT
} rule_id;

extern const amp_rules rules_default;
extern const setting rules_rows[RULE_COUNT]; /* of amp_rules, by rule_id */

/* Whether a text of the form "Word, Word(..), ..." contains the word. */
bool rules_text_has(const char *text, const char *word);

#endif
