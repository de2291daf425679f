/* diag.h - errors, warnings, remarks and notes with a location.
 *
 * Libraries never print; a diag passes each finished message to its sink. Reporting an error returns its code, so the
 * idiom is `return diag_error(d, AMPC_REJECTED, loc, "...")`. */
#ifndef AMPC_DIAG_H
#define AMPC_DIAG_H

#include "ampc_status.h"
#include "ir/base/option_id.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum diag_level { DIAG_ERROR, DIAG_WARNING, DIAG_REMARK, DIAG_NOTE } diag_level;

/* What the name in a location is the name of, with the word that messages have for it. */
#define DIAG_KINDS(X) \
    X(NODE, "node") \
    X(TENSOR, "tensor") /* of a file of weights, or of a host */ \
    X(PARAMETER, "parameter") \
    X(CONSTANT, "constant") \
    X(STATE, "state") \
    X(INPUT, "input")       /* of a model */ \
    X(FIELD, "field")       /* of the samples of a data set */ \
    X(ARRAY, "array")       /* of a .npz file */ \
    X(ENTRY, "entry")       /* of an archive */ \
    X(METADATA, "metadata") /* of a .safetensors file */ \
    X(OPERATOR, "operator") /* that a host registers */

typedef enum diag_kind {
#define KIND(name, word) DIAG_##name,
    DIAG_KINDS(KIND)
#undef KIND
} diag_kind;

/* What a user can do about a message: set an option, to `value` or to an item KEY=VALUE (NULL: a value that the user
 * chooses), `purpose` (NULL: that removes the cause), such as "for inference mode". */
typedef struct diag_remedy {
    option_id option;
    const char *key, *value, *purpose;
} diag_remedy;

/* A location: a named part of a file (diag_named), such as a model node (diag_node), a text position (`file`, `line`,
 * `column`, 1-based, with the source line for the caret), or just a file. Any part may be absent (NULL, 0). `kind`,
 * `name` and `op` are set by the functions below only, so that no name is without its kind. `about` is the option whose
 * text is wrong. The remedy comes with it. */
typedef struct diag_loc {
    const char *file;
    diag_kind kind;
    const char *name;
    const char *op; /* of a node: the ONNX operator type as in the model */
    int line, column;
    const char *text; /* the source line, without its newline; NULL: no caret */
    option_id about;
    diag_remedy remedy;
} diag_loc;

#define DIAG_NOWHERE ((diag_loc){0})
#define DIAG_FILE(path) ((diag_loc){.file = (path)})

/* A node; `name` and `op` may be NULL. Only the folders that have the node call it, others ir_diag_loc. */
static inline diag_loc diag_node(const char *file, const char *name, const char *op)
{
    return (diag_loc){.file = file, .kind = DIAG_NODE, .name = name, .op = op};
}

/* Something else that has a name; NULL: only the file. */
static inline diag_loc diag_named(const char *file, diag_kind kind, const char *name)
{
    return (diag_loc){.file = file, .kind = kind, .name = name};
}

/* The text of an option, such as DIAG_OPTION(loss). */
#define DIAG_OPTION(option) ((diag_loc){.about = OPTION_##option})

/* The same about something in a file. */
static inline diag_loc diag_about(diag_loc loc, option_id option)
{
    loc.about = option;
    return loc;
}

static inline diag_loc diag_with(diag_loc loc, diag_remedy remedy)
{
    loc.remedy = remedy;
    return loc;
}
/* A location with a remedy, such as DIAG_USE(loc, OPTION_mode, .value = "eval"). */
#define DIAG_USE(loc, ...) diag_with((loc), (diag_remedy){__VA_ARGS__})

const char *diag_kind_word(diag_kind kind); /* "node" */

typedef struct diag diag;
/* Receives each message without a trailing newline; messages with a caret contain newlines. */
typedef void diag_sink(void *user, diag_level level, const char *message);

diag *diag_new(diag_sink *sink, void *user); /* NULL sink: no output; returns NULL if out of memory */
void diag_free(diag *d);
void diag_set_strict(diag *d, bool strict); /* warnings become errors (AMPC_REJECTED) */
/* Receives the location of each message before the sink receives its text, with the same `user`; NULL: nothing does. */
typedef void diag_watcher(void *user, diag_level level, const diag_loc *loc);
void diag_set_watcher(diag *d, diag_watcher *watcher);

/* How a front end speaks of options. Messages know them only by their ids. */
struct text_buffer;
typedef struct diag_words {
    const char *(*name)(option_id option); /* NULL: the front end does not have it, and prints no such remedy */
    /* Appends "use --OPTION=VALUE". NULL: "set OPTION to VALUE" */
    void (*remedy)(struct text_buffer *t, const char *option, const diag_remedy *remedy);
} diag_words;
void diag_set_words(diag *d, const diag_words *words); /* NULL: names as in options.def */
/* Sets the words of `other`, which then receives messages of d. */
void diag_share_words(diag *d, const diag *other);
/* What the front end calls the option, for messages about several ones. */
const char *diag_option_name(const diag *d, option_id option);

/* Text: "FILE: KIND 'NAME' (OP): error: MESSAGE" or "FILE:LINE:COL: error: MESSAGE\n LINE\n ^"; MESSAGE is
 * "OPTION: TEXT; REMEDY". Names are escaped (control and invisible characters, invalid UTF-8) and truncated to 128
 * characters. */
ampc_status diag_error(diag *d, ampc_status code, diag_loc loc, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Reports a failed system call by errno: "WHAT: REASON" and AMPC_IO, or "WHAT: out of memory" and AMPC_NO_MEMORY. */
ampc_status diag_errno(diag *d, diag_loc loc, const char *what);
/* Reports an error that another diag has reported, with its location and caret as they are. Returns the code. */
ampc_status diag_repeat(diag *d, ampc_status code, const char *message);
ampc_status diag_verror(diag *d, ampc_status code, diag_loc loc, const char *format, va_list args);
/* Returns AMPC_OK, or AMPC_REJECTED if strict. */
ampc_status diag_warning(diag *d, diag_loc loc, const char *format, ...) __attribute__((format(printf, 3, 4)));
void diag_remark(diag *d, diag_loc loc, const char *format, ...) __attribute__((format(printf, 3, 4)));
void diag_note(diag *d, diag_loc loc, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The part of a finished message about a node that follows "node 'NAME' (OP): error: "; the whole message if that does
 * not occur. */
const char *diag_message_text(const char *message);

/* Prints like fprintf, escaped like the text of messages: for reports that show names from files. */
void diag_print(FILE *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What was reported so far: the code of the first error (AMPC_OK: none), the counts, and the text of the first error
 * (never NULL). A pass that lists all failures reports each and returns diag_status. */
ampc_status diag_status(const diag *d);
size_t diag_count(const diag *d, diag_level level);
const char *diag_first_error(const diag *d);
/* The location of the first error: its parts up to `column`, until the next call that reports or clears. */
const diag_loc *diag_first_loc(const diag *d);
void diag_clear(diag *d);

AMPC_API const char *ampc_status_name(ampc_status s);     /* "AMPC_REJECTED" */
AMPC_API const char *ampc_status_sentence(ampc_status s); /* from AMPC_STATUS_MAP */

#define TRY(expr) \
    do { \
        ampc_status try_status_ = (expr); \
        if (try_status_ != AMPC_OK) return try_status_; \
    } while (0)

#endif
