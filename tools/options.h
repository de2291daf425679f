/* options.h - the options of the three programs, from one table (option_table.c).
 *
 * A row holds everything about an option: its name and short alias, the kind of its value, the field of tool_options
 * that it sets, the commands that accept it, and its help. The parser, the suggestions, --help, the manual pages and
 * the shell completion are all generated from the rows. A value follows as `--name=VALUE` or as the next argument;
 * options may come before and after the operands. */
#ifndef AMPC_TOOLS_OPTIONS_H
#define AMPC_TOOLS_OPTIONS_H

#include "passes/passes.h"
#include "tools/commands.h"

typedef enum option_group {
    GROUP_FILES,
    GROUP_PRECISION,
    GROUP_TRAINING,
    GROUP_SHAPES,
    GROUP_EXECUTION,
    GROUP_INSPECT,
    GROUP_GENERAL,
    GROUP_COUNT
} option_group;
extern const char *const option_group_names[GROUP_COUNT];

typedef enum output_format { FORMAT_BY_SUFFIX, FORMAT_IR, FORMAT_ONNX, FORMAT_SVG, FORMAT_DOT } output_format;
typedef enum weights_mode { WEIGHTS_SIDECAR, WEIGHTS_REFERENCE } weights_mode;
typedef enum ops_format { OPS_NOT_PRINTED, OPS_TEXT, OPS_JSON } ops_format;
/* What check prints: the first finding; all findings; also f32 values that f16 cannot hold; every value. */
typedef enum check_report { CHECK_ABORT, CHECK_REPORT, CHECK_RANGE, CHECK_ALL } check_report;
typedef enum check_format { CHECK_TEXT, CHECK_PADDLE } check_format;
typedef enum help_form { HELP_NONE, HELP_SHORT, HELP_ALL, HELP_MAN, HELP_BASH, HELP_ZSH } help_form;

/* The contents of a command line. Strings are in `arena` or in argv. */
typedef struct tool_options {
    arena *arena;
    compile_options pass;
    pass_strings operands; /* the model; the verb of ampc-run is not included */
    /* files */
    const char *output, *emit_list;
    int emit, weights;       /* output_format, weights_mode */
    const char *weights_dir; /* NULL: the directory of the .ir */
    pass_strings inputs;     /* "NAME=FILE" */
    const char *inputs_file; /* .npz, .safetensors */
    const char *checkpoint, *checkpoint_dir, *data, *eval_data, *log, *plot, *tensorboard, *trace, *csv, *html,
        *histogram;
    pass_strings plot_with; /* logs of other runs */
    const char *model;      /* of a recipe, to be exported */
    pass_strings reinit;    /* globs of parameters that --checkpoint leaves alone */
    /* import */
    bool untie;
    pass_strings dims; /* "NAME=SIZE" */
    /* execution */
    const char *schedule, *entry, *device, *best, *early_stop;
    pass_strings metrics;
    double lr; /* negative: the module's initial rate */
    double lr_from, lr_to;
    int64_t epochs, steps, batch, save_every, keep, threads, deterministic, iterations, warmup;
    int64_t workers; /* negative: chosen by the kind of data */
    bool resume, fallback, reset_optimizer, no_scaling, allow_skipped, sync_launch, no_tune;
    /* inspection */
    int print_ops;       /* ops_format */
    int nan_inf, format; /* check_report, check_format */
    bool list_passes, no_verify;
    pass_strings passes;
    /* general */
    int help; /* help_form */
    bool version, quiet, verbose, strict;
    int colour;                 /* console_colour */
    const char *compile_option; /* the first option that only a compilation uses; NULL: none */
} tool_options;

typedef enum option_kind {
    OPTION_SET,   /* bool: true */
    OPTION_CLEAR, /* bool: false */
    OPTION_TEXT,  /* const char * */
    OPTION_ONCE,  /* const char *; two different values are an error */
    OPTION_WORD,  /* int: `value` of one of the words */
    OPTION_INT,   /* int64_t within the limits */
    OPTION_REAL,  /* double within the limits */
    OPTION_TEXTS, /* pass_strings: each use appends one */
    OPTION_LIST   /* pass_strings: comma-separated, appended */
} option_kind;

typedef struct option {
    const char *name; /* without dashes */
    char alias;       /* the short option; 0: none */
    option_kind kind;
    option_group group;
    unsigned commands;      /* COMMAND_...; 0: all */
    bool in_plan;           /* a compiler option that also affects the stages of ampc-run plan */
    size_t field;           /* in tool_options */
    const char *value;      /* placeholder; lower-case alternatives are literal words. OPTION_WORD: from `words` */
    const char *implied;    /* value if the option is written without one; NULL: a value is required */
    const char *initial;    /* the default as printed by help; NULL: none */
    const pass_word *words; /* OPTION_WORD: help prints the first spelling of each value */
    double limits[2];       /* both 0: no limits */
    const char *help;
} option;

extern const pass_word output_formats[];
extern const option option_table[]; /* ends with name NULL */

/* Sets the defaults. Everything parsed later is allocated in `a`. */
tool_options options_default(arena *a);
bool option_applies(const option *row, unsigned commands);
/* Index of the first argument that is neither an option of `commands` nor its value; argc if there is none. */
int options_first_operand(unsigned commands, int argc, char **argv);
/* Fails with AMPC_USAGE, reported. A command without operands (commands.h) accepts none; the other commands require
 * one, unless help, the version or a table is requested. */
ampc_status options_parse(tool_options *o, const command *c, int argc, char **argv, diag *d);
/* Sets the options of a recipe that are options of the command. Each is "--NAME" or "--NAME=VALUE". */
ampc_status options_of_recipe(tool_options *o, const command *c, const char *path, diag *d);

/* The placeholder of a value, such as "fp16|bf16"; NULL for an option without a value. */
const char *option_value(const option *row, arena *a);
/* "--amp=O0|O1|O2|OD", "-o, --output=FILE", "--deterministic[=N]"; if not `full`, the shortest name alone. */
const char *option_synopsis(const option *row, bool full, arena *a);
/* The completions of a value, terminated by NULL: the words of the table, or the literal alternatives of the
 * placeholder. */
const char **option_words(const option *row, arena *a);

/* Splits "NAME=VALUE"; AMPC_USAGE for anything else. `what` is the option named in the message. */
ampc_status options_split(const char *text, const char *what, arena *a, diag *d, const char **name, const char **value);
/* Parses an integer; false unless it is all of `text`. */
bool options_int(const char *text, int64_t *out);

#endif
