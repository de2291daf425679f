/* tool.h - state and functions that all commands share, including MODEL -> module. */
#ifndef AMPC_TOOLS_TOOL_H
#define AMPC_TOOLS_TOOL_H

#include "ir/ops/custom.h"
#include "tools/console.h"
#include "tools/options.h"

typedef struct tool {
    console console;
    diag *diag;
    arena *arena;           /* lives until the program ends; a failed allocation ends it with AMPC_NO_MEMORY */
    const command *command; /* the current one */
    custom_ops *custom;     /* operators of plug-ins */
    tool_options o;
    compile *compile;        /* NULL until a model is compiled or passes run */
    bool accept_opaque;      /* unsupported operators: to convert or explain */
    ir_module *module;       /* freed at the end */
    const char *weights_dir; /* directory that the module's weight files are relative to */
    int stopped_by;          /* a signal that ended the command in order; 0: none */
} tool;

/* Runs a program by its name and returns its exit status. Exported for main.c. */
AMPC_API int program_main(const char *name, int argc, char **argv);

/* Loads the plug-ins of --operators; before a model is opened. */
ampc_status tool_load_operators(tool *t);
/* Imports and compiles a .onnx file into t->module. Explanations go to standard output, or to standard error if the
 * module itself is written to standard output. */
ampc_status tool_compile(tool *t, const char *path);
/* MODEL of ampc-run: compiles a .onnx, parses and verifies anything else. */
ampc_status tool_open_model(tool *t, const char *path);
/* Fails with AMPC_USAGE unless --dump-after names a pass or, for the command plan, a stage of the plan. */
ampc_status tool_check_dump(tool *t);

/* Replaces --dtype=auto by the type for the device, with a note if that is fp32 (precision.c). */
ampc_status tool_choose_dtype(tool *t, const char *path);
/* Notes that another type is much faster on the device than that of the module, unless --dtype=auto chose it. */
ampc_status tool_note_speed(const tool *t);

/* Parses "NAME=SIZE" of --dim. */
ampc_status tool_parse_dim(tool *t, const char *text, const char **name, int64_t *size);
/* Prints the module as text, without a seal, to standard output. */
ampc_status tool_print_module(tool *t);

bool tool_ends_with(const char *text, const char *ending);
/* The directory part of a path; "." if it has none. */
const char *tool_folder(const char *path, arena *a);
double tool_seconds(void); /* monotonic */

#endif
