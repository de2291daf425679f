/* tool.h - what the commands share: the state of a program, and MODEL -> module. */
#ifndef AMPC_TOOLS_TOOL_H
#define AMPC_TOOLS_TOOL_H

#include "tools/console.h"
#include "tools/options.h"

typedef struct tool {
    console console;
    diag *diag;
    arena *arena;           /* until the program ends; a failed allocation ends it with AMPC_NO_MEMORY */
    const command *command; /* the one that runs */
    tool_options o;
    compile *compile;        /* NULL until a model is compiled, or passes run */
    bool foreign;            /* carry along operators that are not supported: to convert or explain */
    ir_module *module;       /* freed at the end */
    const char *weights_dir; /* directory against which the module's weight files are opened */
} tool;

/* Runs a program by its name and returns its exit status. Exported for main.c. */
AMPC_API int program_main(const char *name, int argc, char **argv);

/* Imports and compiles a .onnx into t->module; explanations go to standard output, or to standard error if the module
 * itself is written to standard output. */
ampc_status tool_compile(tool *t, const char *path);
/* MODEL of ampc-run: compiles a .onnx, parses and verifies anything else. */
ampc_status tool_open_model(tool *t, const char *path);
/* AMPC_USAGE unless --dump-after names a pass, or a stage of the plan if the command is plan. */
ampc_status tool_check_dump(tool *t);

/* "NAME=SIZE" of --dim. */
ampc_status tool_parse_dim(tool *t, const char *text, const char **name, int64_t *size);
/* The module as text, without a seal, to standard output. */
ampc_status tool_print_module(tool *t);

bool tool_ends_with(const char *text, const char *ending);
/* The directory part of a path, "." when it has none. */
const char *tool_folder(const char *path, arena *a);
double tool_seconds(void); /* monotonic */

#endif
