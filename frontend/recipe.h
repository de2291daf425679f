/* recipe.h - reads a recipe (docs/recipe.md): a text file with models, the values that link them, losses, and which
 * optimizer owns which parameters. It may also have options of the programs, which the importer ignores.
 *
 * The models are imported one by one and linked into one graph, @forward, whose outputs are the named values. The rest
 * of the recipe is data of the module (ir/graph/training.h), for the passes that make the training step: its file,
 * those of the models, whose parameters and buffers are named MODEL.*, the losses and the optimizers. */
#ifndef AMPC_FRONTEND_RECIPE_H
#define AMPC_FRONTEND_RECIPE_H

#include "frontend/onnx.h"

/* Whether the path ends in .recipe. */
bool recipe_detect(const char *path);

/* Imports the models of a recipe as one module, like onnx_import. Paths of models are relative to the recipe. */
ampc_status recipe_import(const char *path, const onnx_import_options *o, diag *d, ir_module **out);
/* The same for text in memory; `name` is the path of the recipe. */
ampc_status recipe_import_memory(const char *text, size_t length, const char *name, const onnx_import_options *o,
                                 diag *d, ir_module **out);

/* The words of the option statements. */
typedef struct recipe_option {
    const char *text;
    int line;
} recipe_option;
typedef VEC(recipe_option) recipe_options;
ampc_status recipe_read_options(const char *path, arena *a, diag *d, recipe_options *out);

#endif
