/* settings.h - reads KEY=VALUE,.. by a table of keys: what follows the name of a loss, an optimizer, a schedule, ..
 *
 * A table is the only place that knows a key: reading, messages, help and manual pages come from its row. */
#ifndef AMPC_SETTINGS_H
#define AMPC_SETTINGS_H

#include "ir/base/diag.h"

#include <float.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the value is, and the member that it is stored in. */
typedef enum setting_kind {
    SETTING_REAL,  /* double */
    SETTING_WHOLE, /* double with the value of an integer */
    SETTING_COUNT, /* int64_t */
    SETTING_SEED,  /* uint64_t, any */
    SETTING_REALS, /* const char *: A/B/.., for settings_numbers */
    SETTING_SIZE,  /* int64_t[2]: AxB */
    SETTING_WORD,  /* int: position in the words */
    SETTING_TEXT,  /* const char *, not empty */
    SETTING_FLAG   /* bool: the key has no value */
} setting_kind;

/* Bounds that are not in the range. */
#define SETTING_ABOVE_0 DBL_TRUE_MIN
#define SETTING_BELOW_1 (1 - DBL_EPSILON / 2)
#define SETTING_F32 -FLT_MAX, FLT_MAX
#define SETTING_F32_ABOVE_0 FLT_TRUE_MIN, FLT_MAX

typedef struct setting {
    const char *key;
    size_t at; /* of the member */
    setting_kind kind;
    double low, high;  /* numbers */
    const char *words; /* SETTING_WORD: separated by '|'; numbers: the word for 0, or NULL */
    const char *help;
    const char *initial; /* the value of a key that is not given; NULL: 0, nothing, or what depends on others */
} setting;

/* Rows of a table. */
#define SETTING(type, key, member, kind, help, ...) SETTING_FROM(type, key, member, kind, NULL, help, __VA_ARGS__)
#define SETTING_FROM(type, key, member, kind, initial, help, ...) \
    { \
        key, offsetof(type, member), SETTING_##kind, __VA_ARGS__, NULL, help, initial \
    }
#define SETTING_WORDS(type, key, member, words, help) SETTING_WORDS_FROM(type, key, member, words, NULL, help)
#define SETTING_WORDS_FROM(type, key, member, words, initial, help) \
    { \
        key, offsetof(type, member), SETTING_WORD, 0, 0, words, help, initial \
    }
#define SETTING_OTHER(type, key, member, kind, help) \
    { \
        key, offsetof(type, member), SETTING_##kind, 0, 0, NULL, help, NULL \
    }

/* What is read, with which keys: an option; or the line of a file, where errors are AMPC_REJECTED; or something else,
 * for messages that begin with "WHAT: " or "WHAT 'TEXT': ". */
typedef struct settings {
    option_id option;
    diag_loc line;
    const char *what, *text;
    const setting *rows; /* at most 64 */
    size_t count;
    const char *keys; /* those accepted, separated by blanks; NULL: all */
    const char *of;   /* whose keys they are, for messages; NULL: of the option */
    uint64_t given;   /* bit i: rows[i] has been read */
} settings;

/* Whether `word` is one of those in the list, which are separated by one character. */
bool settings_listed(const char *list, const char *word);
/* The row of a key that is accepted, or NULL. */
const setting *settings_find(const settings *s, const char *key);
/* The same; reports an unknown key. */
ampc_status settings_key(const settings *s, const char *key, diag *d, const setting **row);
/* Sets the members that have an initial value. */
void settings_defaults(const setting *rows, size_t count, void *into);
/* Reads KEY or KEY=VALUE into the struct of the table. Modifies the item, which texts refer to. Fails with AMPC_USAGE,
 * reported. */
ampc_status settings_set(settings *s, char *item, void *into, diag *d);
/* Reads KEY=VALUE,..; NULL: nothing. */
ampc_status settings_read(settings *s, char *text, void *into, diag *d);
/* Reads one value into *member, such as one that has no key: the row's is for messages. NULL: it is missing. */
ampc_status settings_value(const settings *s, const setting *row, const char *value, void *member, diag *d);
/* Reports "unknown WHAT 'NAME': expected A, B or C", of a table by index, NULL past the last. `hint` is what
 * others mean by the name; NULL: nothing. */
ampc_status settings_unknown(option_id option, const char *what, const char *name, const char *(*names)(int index),
                             const char *hint, diag *d);
/* The numbers in A/B/..; the first `most` of them are stored. */
size_t settings_numbers(const char *text, double *out, size_t most);

/* For help: "KEY=FORM" and what a value is, such as "an integer from 0 to 9". */
enum { SETTING_TEXT_SIZE = 160 };
const char *setting_form(const setting *row, char text[SETTING_TEXT_SIZE]);
const char *setting_expected(const setting *row, char text[SETTING_TEXT_SIZE]);
/* The value of a member of the struct, as it is read, except of pairs and seeds. */
const char *setting_print(const setting *row, const void *of, char text[SETTING_TEXT_SIZE]);
/* What the form does not say: what a number is, and the value of a key that is not given. May be empty. */
const char *setting_notes(const setting *row, char text[SETTING_TEXT_SIZE]);

#endif
