/* link.h - copies the graphs of models into one graph that calls them, in any number of calls.
 *
 * All calls of a model share its storage, which is named MODEL.NAME. Values and nodes of a call are named CALL.NAME and
 * CALL/NODE (CALL/NAME if the name begins with a slash). The symbols of a model are replaced by the dimensions of the
 * arguments, and all types are inferred again. Each call reads the buffers that the previous call of the model has
 * updated; ir_link_stores stores those of the last one. Random numbers differ between calls.
 */
#ifndef AMPC_LINK_H
#define AMPC_LINK_H

#include "ir/graph/ir.h"

/* A size for the symbols of that name, in all models and inputs. */
typedef struct ir_link_size {
    const char *name;
    int64_t size;
    bool used;
} ir_link_size;

typedef struct ir_linker {
    ir_graph *graph;  /* that calls */
    const char *file; /* the location of all copied nodes */
    arena *scratch;
    diag *diag;
    int64_t streams; /* of random numbers, used so far */
    int64_t nodes;   /* copied so far */
    ir_link_size *sizes;
    int n_sizes;
    VEC(ir_value *) current; /* by storage id of the module: the value after the calls so far, or NULL */
} ir_linker;

typedef struct ir_linked {
    ir_linker *linker;
    const ir_graph *model; /* of another module */
    const char *name;
    ir_storage **storage; /* by storage id of the model */
} ir_linked;

typedef struct ir_argument {
    ir_value *value;  /* NULL: an input of the linker's graph, made with the type that the model declares */
    const char *name; /* of the input; for messages */
} ir_argument;

/* Copies the storage of the model. AMPC_UNSUPPORTED: the model has nodes that cannot be copied. */
ampc_status ir_link_model(ir_linker *l, const ir_graph *model, const char *name, ir_linked *out);
/* Appends a copy of the model's nodes. args has an entry for each input of the model; `results` receives the value of
 * each output, in order. Errors are reported at `where`. */
ampc_status ir_link_call(ir_linked *l, const char *call, diag_loc where, ir_argument *args, ir_value **results);
/* The dimension of a symbol in the linker's graph: its size, if there is one. */
ir_dim ir_link_symbol(ir_linker *l, const char *name);
void ir_link_stores(ir_linker *l);

#endif
