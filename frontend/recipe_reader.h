/* recipe_reader.h - the state of reading a recipe, for recipe*.c only. */
#ifndef AMPC_FRONTEND_RECIPE_READER_H
#define AMPC_FRONTEND_RECIPE_READER_H

#include "frontend/recipe.h"
#include "ir/build/link.h"
#include "ir/text/parser.h"

typedef enum recipe_kind { RECIPE_MODEL, RECIPE_VALUE, RECIPE_INPUT, RECIPE_LOSS } recipe_kind;
#define RECIPE_KIND(kind) (1u << (kind))
enum { RECIPE_VALUES = RECIPE_KIND(RECIPE_VALUE) | RECIPE_KIND(RECIPE_INPUT) };

typedef struct recipe_name {
    recipe_kind kind;
    const char *name;
    ir_token at;     /* where it is defined */
    ir_linked model; /* RECIPE_MODEL */
    ir_value *value; /* RECIPE_VALUE; RECIPE_INPUT: NULL until its type is known */
    bool used;
} recipe_name;

typedef struct recipe {
    ir_parser p; /* tokens and messages; its module is the one that is made */
    const onnx_import_options *options;
    ir_linker linker;
    strmap *names;
    VEC(recipe_name *) defined; /* in order */
    VEC(ir_module *) models;    /* to be freed */
    int trainers;
} recipe;

/* ---- recipe_reader.c ---- */

/* The caller frees *text. */
ampc_status recipe_read_file(const char *path, char **text, size_t *length, diag *d);

/* Reads a name that is not yet defined. */
ampc_status recipe_define(recipe *r, const char *what, recipe_kind kind, recipe_name **out);
/* Reads the name of something defined; `kinds` has a bit for each kind allowed. */
ampc_status recipe_find(recipe *r, const char *what, unsigned kinds, recipe_name **out);
/* Reads a plus or minus sign, which before a number or name is the beginning of a number. Returns it, or 0. */
char recipe_accept_sign(recipe *r, const char *signs);
/* Reads a value, or a sum of values with factors: SUM = [SIGN] FACTOR {SIGN FACTOR}, FACTOR = [NUMBER "*"] NAME. *name
 * is the name if it is only that, else NULL. */
ampc_status recipe_read_sum(recipe *r, ir_value **out, recipe_name **name);
/* Inputs, models and losses that nothing reads are mistakes. An input that only a loss reads gets its type there. */
ampc_status recipe_check_used(recipe *r);
/* Makes the value known by the name, and an output. */
void recipe_bind(recipe *r, recipe_name *n, ir_value *v);

/* ---- recipe_options.c: skips the statement, whose first word is the current token ---- */

ampc_status recipe_skip_options(recipe *r);

/* ---- recipe_training.c: the statement after its first word ---- */

ampc_status recipe_read_loss(recipe *r);
ampc_status recipe_read_train(recipe *r);

#endif
