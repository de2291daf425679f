/* options.h - the options of the three programs, from one table (ir/base/options.def).
 *
 * A row holds everything about an option: its name and short alias, the kind of its value, the field of tool_options
 * that it sets, the commands that accept it, and its help. The parser, the suggestions, --help, the manual pages and
 * the shell completion are all generated from the rows. A value follows as `--name=VALUE` or as the next argument;
 * options may come before and after the operands. */
#ifndef AMPC_TOOLS_OPTIONS_H
#define AMPC_TOOLS_OPTIONS_H

#include "ir/text/file_kind.h"
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

typedef enum weights_mode { WEIGHTS_SIDECAR, WEIGHTS_REFERENCE } weights_mode;
typedef enum ops_format { OPS_NOT_PRINTED, OPS_TEXT, OPS_JSON } ops_format;
/* What check prints: the first finding; all findings; also f32 values that f16 cannot hold; every value. */
typedef enum check_report { CHECK_ABORT, CHECK_REPORT, CHECK_RANGE, CHECK_ALL } check_report;
typedef enum check_format { CHECK_TEXT, CHECK_PADDLE } check_format;
typedef enum help_form { HELP_NONE, HELP_SHORT, HELP_ALL, HELP_MAN, HELP_BASH, HELP_ZSH, HELP_FISH } help_form;

/* The contents of a command line. Strings are in `arena` or in argv. */
typedef struct tool_options {
    arena *arena;
    const program *programs; /* for messages: which of them have an option */
    compile_options pass;
    pass_strings operands; /* the model; the verb of ampc-run is not included */
#define TRAIN(name, member, kind, ...) OPTION_FIELD(member, kind)
#define SESSION TRAIN
#define TOOL TRAIN
#include "ir/base/options.def"
    const char *compile_option; /* the first option that only a compilation uses; NULL: none */
    unsigned char *given;       /* option_given by row of option_table */
} tool_options;

typedef enum option_given { GIVEN_NOT, GIVEN_BY_RECIPE, GIVEN_BY_USER } option_given;

/* What else a command must have for an option to have an effect:
 *     "A|B"      one of these options
 *     "A=WORD"   an option with this value, "A!=WORD" one with another value
 *     "!A"       not this option
 *     ".ir"      a model of this kind
 *     "loss"     a module with a training step, "scaling" one with a loss scale */
typedef struct option_need {
    unsigned commands; /* COMMAND_...; 0: all that have the option */
    const char *what;  /* NULL: nothing */
} option_need;

/* What is written to the file that an option names. */
typedef enum option_writes {
    WRITES_NOTHING = IR_WRITTEN_NOTHING,
    WRITES_SVG = IR_WRITTEN_SVG,
    WRITES_HTML = IR_WRITTEN_HTML,
    WRITES_JSON = IR_WRITTEN_JSON,
    WRITES_CSV = IR_WRITTEN_CSV,
    WRITES_LIST = IR_WRITTEN_LIST,
    WRITES_BY_SUFFIX
} option_writes;

/* Whether a recipe may have the option. A recipe may come from anywhere, so it only describes the network and the
 * training: it neither writes files nor reads others than those in its folder. */
typedef enum option_recipe {
    RECIPE_NEVER,
    RECIPE_DESCRIBES,
    RECIPE_READS,          /* the value is a file */
    RECIPE_READS_OR_DEVICE /* or a device that is built in */
} option_recipe;

/* An option has an effect in the commands, for the kinds of output, and with the further options that its row names.
 * Elsewhere it is an error (effects.c). */
typedef struct option {
    const char *name; /* without dashes */
    char alias;       /* the short option; 0: none */
    option_kind kind;
    option_group group;
    unsigned commands; /* COMMAND_...; 0: all */
    unsigned not_into; /* OUTPUT_...: it has no effect on these */
    option_need needs[3];
    option_writes writes;
    option_recipe in_recipe;
    unsigned of_compiled;   /* COMMAND_...: an option of the compiler that these also use on a compiled module */
    size_t field;           /* in tool_options */
    const char *value;      /* placeholder; lower-case alternatives are literal words. OPTION_WORD: from `words` */
    const char *implied;    /* value if the option is written without one; NULL: a value is required */
    const char *initial;    /* the default as printed by help; NULL: none */
    const pass_word *words; /* OPTION_WORD: help prints the first spelling of each value */
    const char *(*kinds)(int index);          /* what a table has, for {} in help and value (option_text) */
    const struct setting *(*keys)(int index); /* KEY=VALUE in the value; NULL: none */
    double limits[2];                         /* both 0: no limits */
    const char *help;
    const char *others; /* what other programs call it, separated by blanks; NULL: nothing else */
} option;

extern const pass_word output_kinds[]; /* suffixes without the dot; ends with word NULL */
extern const option option_table[];    /* ends with name NULL */

/* The defaults of these commands. Everything parsed later is allocated in `a`. */
tool_options options_default(const program *programs, unsigned commands, arena *a);
bool option_applies(const option *row, unsigned commands);
/* Index of the first argument that is neither an option of `commands` nor its value; argc if there is none. */
int options_first_operand(unsigned commands, int argc, char **argv);
/* Fails with AMPC_USAGE, reported. A command without operands (commands.h) accepts none; the other commands require
 * one, unless help, the version or a table is requested. */
ampc_status options_parse(tool_options *o, const command *c, int argc, char **argv, diag *d);
/* Refuses an output that would replace a file of another kind. AMPC_USAGE. */
ampc_status options_check_replaced(const tool_options *o, const command *c, diag *d);
/* Sets the options of a recipe that are options of the command. Each is "--NAME" or "--NAME=VALUE". */
ampc_status options_of_recipe(tool_options *o, const command *c, const char *path, diag *d);

/* Whether only the importer or the passes read the option, and the command has no other use of it. */
bool option_compiles(const option *row, const command *c);
/* Whether the command prints a table or help, for which it needs no model. */
bool options_only_print(const tool_options *o);
/* The row of a name; NULL: no option of these commands. A name of one letter is an alias. */
const option *option_find(const char *name, unsigned commands);

/* ---- effects.c: options that could have no effect ---- */

/* The kind of output that the options name, OUTPUT_...; 0: the suffix is unknown. */
unsigned options_output(const tool_options *o);
/* Fails with AMPC_USAGE if the command cannot write this kind of output, or if an option of the command line (not of a
 * recipe) cannot have an effect. */
ampc_status options_check(const tool_options *o, const command *c, diag *d);
/* The same for what only the module tells: whether it trains, and with a loss scale. */
ampc_status options_check_module(const tool_options *o, const command *c, const ir_module *m, diag *d);

/* A text of the row: {, } is replaced by the kinds, separated so; { or } by "a, b or c". */
const char *option_text(const option *row, const char *text, arena *a);
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
