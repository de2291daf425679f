/* list_rules.c - the [rules] of a list file: one row a rule with the words that it takes. What colouring and cast
 * insertion do differently from profile to profile is said here as data; nothing asks for a profile by name. */
#include "passes/amp/list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct choice {
    const char *key;
    size_t field;         /* int of amp_rules: position of the word */
    const char *words[4]; /* the first is the value of a list without the rule */
} choice;

#define CHOICE(key) #key, offsetof(amp_rules, key)
static const choice choices[] = {
    {CHOICE(gray), {"any-fp32", "last-producer"}},
    {CHOICE(orphan), {"keep", "neutral", "low"}},
    {CHOICE(unlisted), {"fp32", "error"}},
    {CHOICE(f32_inside), {"honour", "ignore", "promised"}},
    {CHOICE(user_cast), {"honoured", "gray"}},
    {CHOICE(fixed_dtype_ops), {"untouched", "listed"}},
    {CHOICE(integer_ops), {"untouched", "listed"}},
    {CHOICE(unsupported_at), {"any", "O2", "never"}},
    {CHOICE(subgraphs), {"yes", "no", "O2"}},
    {CHOICE(control), {"model", "listed"}},
    {CHOICE(outer_casts), {"shared", "own"}},
    {CHOICE(promote), {"off", "on"}},
    {CHOICE(loss), {"fp32", "as-coloured"}},
    {CHOICE(constants), {"convert", "cast"}},
    {CHOICE(black_params), {"kept", "low"}},
    {CHOICE(od), {"custom", "strict"}},
    {CHOICE(stats), {"remaining", "inserted"}},
    {CHOICE(counters), {"n", "n+1"}},
    {CHOICE(attention), {"whole", "as-coloured"}},
    {CHOICE(range), {"on", "off"}},
};

/* Rules whose value is a number above 0, or `off`. */
static const struct {
    const char *key;
    size_t field; /* int64_t of amp_rules */
} limits[] = {{CHOICE(depth)}, {CHOICE(residual)}};

/* Rules whose value is free text: amp_list_rule. */
static const char *const texts[] = {"pins",       "promises",       "unsupported",     "fp32_names", "attributes",
                                    "cast_names", "dtype_attribute", "levels",     "scaling",    "patterns"};

enum {
    CHOICES = sizeof choices / sizeof *choices,
    LIMITS = sizeof limits / sizeof *limits,
    TEXTS = sizeof texts / sizeof *texts
};

const char *amp_rule_key(int i)
{
    if (i < CHOICES) return choices[i].key;
    if (i < CHOICES + LIMITS) return limits[i - CHOICES].key;
    return i < CHOICES + LIMITS + TEXTS ? texts[i - CHOICES - LIMITS] : NULL;
}

bool amp_rule_known(const char *key)
{
    for (int i = 0; amp_rule_key(i); i++)
        if (strcmp(amp_rule_key(i), key) == 0) return true;
    return false;
}

static bool read_limit(const char *value, int64_t *out)
{
    char *end;
    errno = 0;
    long long n = strcmp(value, "off") == 0 ? 0 : strtoll(value, &end, 10);
    bool off = strcmp(value, "off") == 0;
    if (!off && (*end || end == value || errno || n < 1)) return false;
    *out = n;
    return true;
}

bool amp_rule_set(amp_list *l, const char *key, const char *value)
{
    for (int i = 0; i < CHOICES; i++) {
        if (strcmp(choices[i].key, key) != 0) continue;
        int word = 0;
        while (word < 4 && choices[i].words[word] && strcmp(choices[i].words[word], value) != 0) word++;
        if (word == 4 || !choices[i].words[word]) return false;
        *(int *)((char *)&l->rule + choices[i].field) = word;
    }
    for (int i = 0; i < LIMITS; i++)
        if (strcmp(limits[i].key, key) == 0 && !read_limit(value, (int64_t *)((char *)&l->rule + limits[i].field)))
            return false;
    strmap_put(l->rules, key, arena_strdup(l->arena, value));
    return true;
}

const char *amp_rule_print(const amp_list *l, int i)
{
    const char *said = strmap_get(l->rules, amp_rule_key(i));
    if (said || i >= CHOICES + LIMITS) return said ? said : "";
    return i < CHOICES ? choices[i].words[0] : "off";
}

const char *amp_list_rule(const amp_list *l, const char *key)
{
    const char *text = strmap_get(l->rules, key);
    return text ? text : "";
}

bool amp_list_rule_names(const amp_list *l, const char *key, const char *word)
{
    size_t length = strlen(word);
    const char *text = amp_list_rule(l, key);
    for (const char *p = text; (p = strstr(p, word)); p += length)
        if ((p == text || p[-1] == ' ' || p[-1] == ',') && strchr(" ,(", p[length])) return true;
    return false;
}

bool amp_list_inside(const amp_list *l, const ir_node *n)
{
    if (!(ir_op_get(n->op)->traits & IR_F32_INSIDE)) return false;
    if (l->rule.f32_inside != INSIDE_PROMISED) return !l->rule.f32_inside;
    return n->loc.op && amp_list_rule_names(l, "promises", n->loc.op);
}
