/* model.h - random ONNX models, for fuzz_onnx_graph.c.
 *
 * `drawing` is a model under construction; its pool has the tensors that the next node may have as operands.
 * The type and shape of each tensor are tracked to make most operands valid. Some shapes are only guesses;
 * the importer decides whether they are right. */
#ifndef TESTS_FUZZ_MODEL_H
#define TESTS_FUZZ_MODEL_H

#include "tests/fuzz/choices.h"
#include "tests/unit/model_writer.h"

enum { FLOAT = 1, INT32 = 6, INT64 = 7, BOOL = 9, HALF = 10, DOUBLE = 11, BFLOAT = 16 }; /* ONNX type codes */
enum { MAX_POOL = 48, MAX_RANK = 6, SYMBOL_N = -1, SYMBOL_M = -2, UNKNOWN = -3 };

typedef struct tensor {
    char name[12];
    int type, rank;
    int64_t dims[MAX_RANK]; /* negative: a symbol */
} tensor;

typedef struct drawing {
    choices *c;
    model m;
    tensor pool[MAX_POOL];
    int n_pool, made;
} drawing;

/* ---- tensors ---- */

/* Returns a tensor with a new name, which is not in the pool yet. */
tensor fresh_tensor(drawing *w, int type, int rank, const int64_t *dims);
/* Adds the tensor to the pool; replaces another one if the pool is full. */
tensor *pool_add(drawing *w, const tensor *t);
/* Creates a tensor of that type and shape without operands. */
tensor new_source(drawing *w, int type, int rank, const int64_t *dims);
/* Creates a tensor of random float type and sizes without operands. */
tensor new_float(drawing *w, int rank);
/* Returns a float tensor of at least that rank, usually an existing one. */
tensor pick_float(drawing *w, int rank);
/* Returns a second operand that broadcasts with x. */
tensor pick_like(drawing *w, const tensor *x);

int64_t draw_size(drawing *w);
int64_t draw_dim(drawing *w); /* a size or a symbol */
int draw_axis(drawing *w, const tensor *x);
/* Returns the same axis, sometimes counted from the end. */
int64_t axis_or_negative(drawing *w, const tensor *x, int axis);

/* ---- nodes ---- */

/* "2,3" */
const char *format_list(const int64_t *items, int n, char text[128]);
/* Writes numbers as an initializer or a Constant node and returns its name. */
const char *add_numbers(drawing *w, const int64_t *items, int n, char name[12]);
/* Adds a list that is an attribute before opset `since` and an operand from then on, appended to `operands`. */
void add_list(drawing *w, int since, const char *attribute, const int64_t *items, int n, char operands[128],
              wire *attributes);
/* Adds a node with one result to the pool. Consumes `attributes`. */
tensor add_node(drawing *w, const char *op, const char *operands, wire *attributes, int type, int rank,
                const int64_t *dims);

/* Adds a random node of any family. */
void draw_node(drawing *w);

/* The families of nodes that move elements (model_moves.c). */
void draw_movement(drawing *w);
void draw_split(drawing *w);
void draw_gather(drawing *w);
void draw_shape(drawing *w);

#endif
