/* golden.h - a folder of tests/goldens: its files, its model compiled for training, its inputs. */
#ifndef TESTS_GOLDEN_H
#define TESTS_GOLDEN_H

#include "passes/passes.h"
#include "runtime/data/npz.h"
#include "runtime/session/session.h"

#include <jansson.h>

enum { GOLDEN_STEPS = 6, GOLDEN_INPUTS = 16 };

typedef struct golden_precision {
    const char *name;
    pass_level level;
    ir_dtype low;
    double floor; /* of the error that low precision is allowed */
} golden_precision;

extern const golden_precision golden_precisions[]; /* ends with a row without name */

typedef struct golden {
    char name[96]; /* FOLDER PRECISION */
    const golden_precision *precision;
    bool fuse_attention; /* set before it is compiled */
    char folder[1024];
    json_t *meta;
    rt_arrays arrays;
    diag *diag;
    ir_module *module;
    rt_session *session;
} golden;

void golden_load(golden *g);
ampc_status golden_compile(golden *g);
/* The inputs of an entry graph from the golden's arrays; how many. */
int golden_inputs(const golden *g, const char *graph, rt_tensor inputs[GOLDEN_INPUTS]);
/* Runs an entry graph of a session of the module. */
void golden_run(const golden *g, rt_session *s, const char *graph);
/* A gradient that overflows asks for a smaller scale, as ampc-run grad does. */
void golden_run_gradient(const golden *g, rt_session *s);
/* An error of PyTorch's own arithmetic in the case's precision, from meta.json. */
double golden_reference_error(const golden *g, const char *what);

typedef bool golden_choice(int folder, const golden *g);

/* A program: one test for each folder and precision that is chosen (NULL: each), or for those that match its argument
 * ("vit *"). `test` gets the golden as its state; what it left in the golden is released. The exit code. */
int golden_main(int argc, char **argv, const char *group, golden_choice *is_chosen, void (*test)(void **state));

#endif
