/* commands.h - the three programs and their commands, from one table (command_table.c).
 *
 * A command is a program without verbs, or one verb of ampc-run. Dispatch, help, manual pages and shell completion are
 * generated from the rows. */
#ifndef AMPC_TOOLS_COMMANDS_H
#define AMPC_TOOLS_COMMANDS_H

#include "ir/base/diag.h"

#include <stdbool.h>

/* Which commands accept an option. */
enum {
    COMMAND_AMPC = 1 << 0,
    COMMAND_OPT = 1 << 1,
    COMMAND_INFER = 1 << 2,
    COMMAND_TRAIN = 1 << 3,
    COMMAND_EVAL = 1 << 4,
    COMMAND_GRAD = 1 << 5,
    COMMAND_BENCH = 1 << 6,
    COMMAND_PLAN = 1 << 7,
    COMMAND_EXPORT = 1 << 8,
    COMMAND_LR_FIND = 1 << 9,
    COMMAND_CHECK = 1 << 10,
    COMMAND_COMPARE = 1 << 11,
    COMMAND_PREDICT = 1 << 12,
    COMMAND_INFO = 1 << 13,
    COMMAND_CALIBRATE = 1 << 14,
    COMMAND_TUNE = 1 << 15,
    COMMAND_RUN = COMMAND_INFER | COMMAND_TRAIN | COMMAND_EVAL | COMMAND_GRAD | COMMAND_BENCH | COMMAND_PLAN |
                  COMMAND_EXPORT | COMMAND_LR_FIND | COMMAND_CHECK | COMMAND_COMPARE | COMMAND_PREDICT | COMMAND_INFO |
                  COMMAND_CALIBRATE | COMMAND_TUNE
};

/* Kinds of output: what -o FILE names. Each command has the set that it writes. */
enum {
    OUTPUT_NONE = 1 << 0, /* no -o */
    OUTPUT_STDOUT = 1 << 1,
    OUTPUT_IR = 1 << 2,
    OUTPUT_ONNX = 1 << 3,
    OUTPUT_SVG = 1 << 4,
    OUTPUT_DOT = 1 << 5,
    OUTPUT_NPZ = 1 << 6,
    OUTPUT_CSV = 1 << 7,
    OUTPUT_SAFETENSORS = 1 << 8,
    OUTPUT_HTML = 1 << 9,
    OUTPUT_JSON = 1 << 10,
    OUTPUT_ONNX_TRAIN = 1 << 11, /* a training step; no suffix chooses it */
    OUTPUT_LIST = 1 << 12,
    OUTPUT_DRAWING = OUTPUT_SVG | OUTPUT_DOT,
    OUTPUT_REPORT = OUTPUT_HTML | OUTPUT_JSON
};

struct tool;
struct run_context;

typedef struct command_example {
    const char *line, *purpose; /* line NULL ends the list */
} command_example;

typedef struct command {
    const char *name;                                  /* "ampc", "ampc-run train" */
    unsigned bit;                                      /* COMMAND_... */
    const char *operands;                              /* the part of the synopsis after the name; NULL: no operands */
    const char *purpose;                               /* one sentence */
    const char *details;                               /* further sentences for the manual page; NULL: none */
    command_example examples[6];                       /* ends with an empty one */
    ampc_status (*run)(struct tool *t);                /* without a session; NULL: run_in_session */
    ampc_status (*run_session)(struct run_context *c); /* with a session open on the model */
    bool plan_only;                                    /* the session only plans: no weights, no device */
    bool as_spelled;                                   /* compiles in fp32, and patterns as the model spells them */
    bool by_node;     /* examines each operator, so none becomes a part of an attention */
    unsigned outputs; /* OUTPUT_...; 0: the command has no option -o */
} command;

typedef struct program {
    const char *name;
    const char *purpose; /* starts in lower case, follows the name */
    const char *details; /* for the manual page */
    const command *commands;
    int count; /* more than one: commands are verbs */
} program;

extern const program program_table[]; /* ends with name NULL */

/* Entries of the FILES and ENVIRONMENT sections of the manual pages. */
typedef struct command_fact {
    const char *name; /* NULL ends the list */
    unsigned commands;
    const char *text;
} command_fact;
extern const command_fact command_files[], command_environment[];

/* "train" of "ampc-run train"; NULL for a program without verbs. */
const char *command_verb(const command *c); /* options.c */
unsigned program_commands(const program *p);

#endif
