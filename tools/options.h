/* options.h - the command lines of the three programs, from one table (option_table.c).
 *
 * A row says everything about an option: its name, what kind of value it takes, where that goes in tool_options, which
 * programs and verbs have it, and what the help says. Parsing, checking, suggestions and both forms of --help come
 * from the rows. Long options take `=VALUE` or the next argument; options may stand before and after the operands. */
#ifndef AMPC_TOOLS_OPTIONS_H
#define AMPC_TOOLS_OPTIONS_H

#include "passes/passes.h"

/* Who has an option. The verbs are those of ampc-run. */
enum {
    FOR_AMPC = 1 << 0,
    FOR_OPT = 1 << 1,
    FOR_INFER = 1 << 2,
    FOR_TRAIN = 1 << 3,
    FOR_EVAL = 1 << 4,
    FOR_GRAD = 1 << 5,
    FOR_BENCH = 1 << 6,
    FOR_EXPORT = 1 << 7,
    FOR_COMPARE = 1 << 8,
    FOR_CHECK = 1 << 9,
    FOR_PLAN = 1 << 10,
    FOR_RUN = FOR_INFER | FOR_TRAIN | FOR_EVAL | FOR_GRAD | FOR_BENCH | FOR_EXPORT | FOR_COMPARE |
              FOR_CHECK | FOR_PLAN,
    FOR_COMPILE = FOR_AMPC | FOR_OPT |
                  FOR_RUN, /* ampc, the passes of ampc-opt, ampc-run on a .onnx */
    FOR_ALL = FOR_COMPILE
};

typedef enum option_group {
    GROUP_FILES,
    GROUP_PRECISION,
    GROUP_TRAINING,
    GROUP_SHAPES,
    GROUP_RUN,
    GROUP_LOOKING,
    GROUP_GENERAL,
    GROUP_COUNT
} option_group;

/* Everything that a command line can say. Strings live in `arena` or in argv. */
typedef struct tool_options {
    arena *arena;
    pass_options pass;
    /* operands: the model; ampc-run reads its verb itself */
    pass_strings operands;
    /* files */
    const char *output, *emit, *emit_list;
    const char *weights_dir; /* NULL: the folder of the .ir */
    int weights;       /* 0: not said, 1: sidecar, 2: reference */
    pass_strings dims; /* "NAME=SIZE" */
    /* ampc-opt */
    pass_strings passes;
    /* looking */
    const char *print_ops; /* "text", "json"; NULL */
    bool list_passes;
    /* importing */
    bool untie;
    /* ampc-run */
    pass_strings inputs;     /* "NAME=FILE" */
    pass_strings plot_with;  /* logs of other runs */
    const char *inputs_file; /* .npz, .safetensors */
    const char *checkpoint, *checkpoint_dir, *data, *eval_data, *log, *plot, *schedule, *profile,
        *entry;
    const char *device, *dump_stage;
    double lr; /* negative: the module's */
    int64_t epochs, steps, batch, save_every, keep, threads, deterministic, iterations, warmup;
    bool resume, fallback, sync_launch, no_tune;
    /* general */
    const char *help; /* "short", "all", "man"; NULL */
    bool version, quiet, verbose, strict;
    int colour; /* 0 auto, 1 always, 2 never */
    /* the first option given that only a compilation understands; NULL: none */
    const char *compile_option;
} tool_options;

typedef enum option_kind {
    OPTION_SET,   /* bool: true */
    OPTION_CLEAR, /* bool: false */
    OPTION_TEXT,  /* const char * */
    OPTION_ONCE,  /* const char *, never two different ones */
    OPTION_WORD,  /* int: `value` of one of the words */
    OPTION_INT,   /* int64_t, low .. high */
    OPTION_REAL,  /* double, low .. high */
    OPTION_TEXTS, /* pass_strings: one more each time */
    OPTION_LIST,  /* pass_strings: comma-separated, appended */
    OPTION_LATER  /* not supported yet: exit 3, unless the value is `initial` */
} option_kind;

typedef pass_word option_word;

typedef struct option {
    const char *name; /* without dashes; one letter: a short option */
    option_kind kind;
    unsigned where; /* FOR_... */
    option_group group;
    size_t offset;       /* in tool_options */
    const char *value;   /* what help calls the value; NULL: takes none */
    const char *initial; /* what help calls the default; NULL: none */
    const char *text;    /* one sentence */
    const char *implied; /* value when there is no `=VALUE`; NULL: the next argument */
    const option_word *words;
    double low, high; /* both 0: no limits */
} option;

extern const option option_table[]; /* ends with name NULL */

/* A program, or a verb of one: what heads its help. */
typedef struct option_program {
    const char *name; /* "ampc-run train" */
    unsigned bit;     /* FOR_... */
    const char *usage, *purpose;
    const char *const *examples; /* NULL ends */
    int operands_min, operands_max;
} option_program;

/* The defaults; everything read later is kept in `a`. */
tool_options options_default(arena *a);
/* Position of the first argument that is neither an option of `where` nor its value; argc when there is none. */
int options_first_operand(unsigned where, int argc, char **argv);
/* AMPC_USAGE, or AMPC_UNSUPPORTED for OPTION_LATER; reported. Help and version may come without operands. */
ampc_status options_parse(tool_options *o, const option_program *p, int argc, char **argv, diag *d);

/* --help (about 20 lines) and --help=all (every option with its sentence), to standard output. */
void options_help(const option_program *p, bool all);
void options_print_exit_codes(void);
/* --help=man: the manual page of a program with one or more verbs. */
void options_man(const char *name, const char *purpose, const option_program *programs, int count);

/* "--amp=O0|O1", "-o FILE", "--deterministic[=T]"; without the value when `value` is false. */
enum { OPTION_TEXT_SIZE = 96 };
void options_spell(const option *row, bool value, char *text, size_t size);
const char *options_group_name(int group);

/* What somebody may have meant by a word that is unknown: of the names offered the one with the least edit distance. */
typedef struct nearest_word {
    const char *word, *best; /* best: NULL while none is near */
    size_t limit;            /* distance that the next one must beat */
} nearest_word;
nearest_word nearest_to(const char *word);
void nearest_offer(nearest_word *n, const char *name);

/* "NAME=VALUE" taken apart; AMPC_USAGE for anything else. `what` names the option in the message. */
ampc_status options_split(const char *text, const char *what, arena *a, diag *d, const char **name,
                          const char **value);
/* A whole number of text, all of it; false otherwise. */
bool options_int(const char *text, int64_t *out);

#endif
