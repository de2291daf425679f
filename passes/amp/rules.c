/* rules.c - reads and prints the rules of rules.def. */
#include "passes/amp/rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The words of each choice, terminated by NULL. */
/* clang-format off */
#define CHOICE(key, meaning) static const char *const words_##key[] = {
#define WORD(name, word) word,
#define END NULL};
#include "passes/amp/rules.def"
/* clang-format on */

const amp_rules rules_default = {
#define TEXT(name, check, values, meaning) .name = "",
#include "passes/amp/rules.def"
};

const char *rules_key(rule_id id)
{
    static const char *const keys[] = {
#define CHOICE(key, meaning) #key,
#define NUMBER(key, meaning) #key,
#define TEXT(key, check, values, meaning) #key,
#include "passes/amp/rules.def"
    };
    return keys[id];
}

rule_id rules_find(const char *key)
{
    rule_id id = 0;
    while (id < RULE_COUNT && strcmp(rules_key(id), key) != 0) id++;
    return id;
}

/* The index of the word, or -1. */
static int find_word(const char *const *words, const char *word)
{
    for (int i = 0; words[i]; i++)
        if (strcmp(words[i], word) == 0) return i;
    return -1;
}

/* Returns -1 unless the value is a number above 0. */
static int64_t read_number(const char *value)
{
    char *end;
    if (strcmp(value, "off") == 0) return 0;
    errno = 0;
    long long n = strtoll(value, &end, 10);
    return *end || end == value || errno || n < 1 ? -1 : n;
}

bool rules_set(amp_rules *r, rule_id id, const char *value)
{
    int64_t n = 0;
    switch (id) {
        /* clang-format off */
#define CHOICE(key, meaning) \
    case RULE_##key: \
        n = find_word(words_##key, value); \
        if (n >= 0) r->key = (enum rule_##key)n; \
        break;
#define NUMBER(key, meaning) \
    case RULE_##key: \
        n = read_number(value); \
        if (n >= 0) r->key = n; \
        break;
#define TEXT(key, check, values, meaning) \
    case RULE_##key: r->key = value; break;
#include "passes/amp/rules.def"
    /* clang-format on */
    case RULE_COUNT: break;
    }
    return n >= 0;
}

const char *rules_print(const amp_rules *r, rule_id id, arena *a)
{
    switch (id) {
        /* clang-format off */
#define CHOICE(key, meaning) \
    case RULE_##key: return words_##key[r->key];
#define NUMBER(key, meaning) \
    case RULE_##key: return r->key ? arena_printf(a, "%lld", (long long)r->key) : "off";
#define TEXT(key, check, values, meaning) \
    case RULE_##key: return r->key;
#include "passes/amp/rules.def"
    /* clang-format on */
    case RULE_COUNT: break;
    }
    return "";
}

static const char *join_words(const char *const *words, arena *a)
{
    const char *text = words[0];
    for (int i = 1; words[i]; i++) text = arena_printf(a, "%s%s%s", text, words[i + 1] ? ", " : " or ", words[i]);
    return text;
}

const char *rules_values(rule_id id, arena *a)
{
    switch (id) {
        /* clang-format off */
#define CHOICE(key, meaning) \
    case RULE_##key: return join_words(words_##key, a);
#include "passes/amp/rules.def"
    /* clang-format on */
    default: return "a number above 0 or off";
    }
}

bool rules_text_has(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *p = text; (p = strstr(p, word)); p += length)
        if ((p == text || p[-1] == ' ' || p[-1] == ',') && strchr(" ,(", p[length])) return true;
    return false;
}
