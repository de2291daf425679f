/* rules.h - the rules of a list file as a struct, expanded from rules.def. */
#ifndef AMPC_RULES_H
#define AMPC_RULES_H

#include "ir/base/arena.h"

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
#define TEXT(key, check, values, meaning) const char *key;
#include "passes/amp/rules.def"
} amp_rules;

typedef enum rule_id {
#define CHOICE(key, meaning) RULE_##key,
#define NUMBER(key, meaning) RULE_##key,
#define TEXT(key, check, values, meaning) RULE_##key,
#include "passes/amp/rules.def"
    RULE_COUNT
} rule_id;

extern const amp_rules rules_default;

/* Returns RULE_COUNT if the key is unknown. */
rule_id rules_find(const char *key);
const char *rules_key(rule_id id);
/* Sets the rule; returns false if the value is invalid. A text is not copied. */
bool rules_set(amp_rules *r, rule_id id, const char *value);
/* The value as written in a list file; allocated in the arena. */
const char *rules_print(const amp_rules *r, rule_id id, arena *a);
/* The values of a choice or number for a message, such as "keep, neutral or low"; allocated in the arena. */
const char *rules_values(rule_id id, arena *a);

/* Whether a text of the form "Word, Word(..), ..." contains the word. */
bool rules_text_has(const char *text, const char *word);

#endif
