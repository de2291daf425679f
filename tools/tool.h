/* tool.h - what the programs share: the frame of main, and MODEL -> module. */
#ifndef AMPC_TOOLS_TOOL_H
#define AMPC_TOOLS_TOOL_H

#include "tools/console.h"
#include "tools/options.h"

typedef struct tool {
    console console;
    diag *diag;
    arena *arena; /* until the program ends; a failed allocation ends it with AMPC_NO_MEMORY */
    tool_options o;
    pass_stats stats;
    bool foreign;            /* carry along operators that are not supported: to convert or explain */
    ir_module *module;       /* freed at the end */
    const char *weights_dir; /* folder against which the module's weight files are opened */
} tool;

/* The programs, which main.c calls from outside of the library. */
AMPC_API int program_ampc(int argc, char **argv);
AMPC_API int program_ampc_opt(int argc, char **argv);
AMPC_API int program_ampc_run(int argc, char **argv);

/* Runs a program and returns its exit status. */
int tool_main(int argc, char **argv, ampc_status (*run)(tool *t, int argc, char **argv));
/* Parses the command line and answers --help and --version. *done: nothing else is to do. */
ampc_status tool_parse(tool *t, const option_program *p, int argc, char **argv, bool *done);

/* Imports and compiles a .onnx into t->module; what the compiler explains goes to standard output, or to standard
 * error when that is taken. */
ampc_status tool_compile(tool *t, const char *path);
/* ampc-run's MODEL: compiles a .onnx, parses and verifies anything else. */
ampc_status tool_open_model(tool *t, const char *path);

bool tool_ends_with(const char *text, const char *ending);
/* The folder part of a path, "." when it has none. */
const char *tool_folder(const char *path, arena *a);
double tool_seconds(void); /* of a clock that never goes back */

#endif
