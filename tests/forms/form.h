/* form.h - random uses of ONNX operators: a table with one generator per operator.
 *
 * A generator makes all its decisions with choose() (tests/fuzz/choices.h): shapes, attributes, operands that are left
 * out, and whether a list is an attribute or an operand, which the opset decides. It adds one node to a drawing, a
 * model under construction whose operands have values. For example
 *
 *     static void draw_softmax(drawing *w, const form *f)
 *     {
 *         node n = {0};
 *         const tensor x = any_operand(w, f, 1, 5);
 *         node_operand(w, &n, &x);
 *         if (choose(w->c, 3)) node_int(&n, "axis", any_axis(w, x.rank));
 *         form_add(w, f, &n, 1);
 *     }
 *     const form forms_norm[] = {{"Softmax", draw_softmax, "f", -3, 3, NULL}, ... {0}};
 *
 * Generators need not compute the types and shapes of results: form_add imports the model and reads them
 * there. A family has a file forms_FAMILY.c with the table forms_FAMILY, and a line in families.def. Users of the tables
 * are the gradient test (test_forms.c) and the comparison with another runtime (tests/fuzz/differential.py). */
#ifndef TESTS_FORMS_FORM_H
#define TESTS_FORMS_FORM_H

#include "frontend/read/tensor.h"
#include "tests/fuzz/choices.h"
#include "tests/unit/model_writer.h"

enum { FORM_OPERANDS = 16, FORM_SYMBOLS = 2, FORM_POOL = 32, FORM_INPUTS = 64, FORM_MAX_RANK = 5 };

/* Also used for the shape of a tensor that is not there yet (push_size, push_axis). */
typedef struct tensor {
    char name[12];
    int type, rank; /* rank -1: unknown, because the importer refuses the node */
    int64_t dims[ONNX_MAX_RANK];
    int symbol[ONNX_MAX_RANK]; /* 0: the size is written in the model; I + 1: symbol I; -1: an expression in symbols */
} tensor;

/* The elements of a new operand: between low and high. */
typedef struct values {
    double low, high;
} values;

/* How the node gets an operand in the gradient test. */
typedef enum form_role {
    FORM_GIVEN,    /* an input of the model */
    FORM_STORED,   /* an initializer */
    FORM_COMPUTED, /* the negative of an initializer, NAME.minus */
    FORM_ROLES
} form_role;

typedef struct form_input {
    tensor t;
    void *data;
    bool varied; /* the gradient test compares the derivative with respect to it */
    form_role role;
} form_input;

typedef struct drawing {
    choices *c;
    model m;
    int exact;      /* for gradients: the type of all floats; operands are distinct inputs of the model. Or 0 */
    unsigned roles; /* of exact operands: the role of all of them, or from FORM_ROLES on mixed ones */
    bool special;   /* some values are NaN or infinite */
    bool nests;     /* bodies contain further bodies */
    int type;       /* element type of the node being drawn, one of the form's */
    int64_t sizes[FORM_SYMBOLS]; /* of the symbols N and M */
    tensor pool[FORM_POOL];      /* results so far, and inputs */
    int n_pool;
    form_input inputs[FORM_INPUTS];
    int n_inputs;
    tensor results[FORM_POOL]; /* of all nodes */
    bool used[FORM_POOL];      /* whether results[i] is an operand */
    bool random[FORM_POOL];    /* whether results[i] depends on a random generator */
    int n_results, made;
    char operands[FORM_OPERANDS][12]; /* names of the last node's operands; "": left out */
    int n_operands;
    bool is_complete;  /* the last node has been added */
    char refusal[512]; /* the importer's error for the last node; "" if it accepts the model */
} drawing;

typedef struct form {
    const char *op;
    void (*draw)(drawing *w, const struct form *f);
    const char *types;       /* of drawing.type: f float, F float32, i int32 and int64, s small integers, b bool */
    double low, high;        /* of the elements of operands, usually */
    const char *no_gradient; /* why no operand has a gradient; NULL if one has */
    bool random;             /* the values of its results are random */
} form;

/* ---- tables ---- */

#define FAMILY(name) extern const form forms_##name[];
#include "tests/forms/families.def"

const form *form_find(const char *op); /* NULL: no generator */
/* The first opset from 7 on in which the operator can be imported; 0: none. */
int form_since(const char *op);
/* Calls `each` for every form; stops and returns false if it does. */
bool form_each(bool (*each)(const form *f, void *user), void *user);

/* Calls `each` for every line of other.txt, with the number of its operands. */
void forms_other_each(void (*each)(const form *f, int operands));

/* ---- a model ---- */

drawing drawing_start(choices *c, int opset);
void drawing_free(drawing *w);
/* Adds a node of the form, or of any form that the opset has. Returns false if the importer refuses it. */
bool drawing_add(drawing *w, const form *f);
const form *drawing_any_form(drawing *w);
/* The file of the model; its outputs are the results that no node reads, and some or all of the others. The indices of the
 * outputs in w->results go to `outputs`, their number to *n. */
wire drawing_file(drawing *w, int outputs[FORM_POOL], int *n, bool all);

/* ---- generators of several families (forms_pointwise.c) ---- */

void draw_unary(drawing *w, const form *f);
void draw_binary(drawing *w, const form *f); /* operands that broadcast */
void draw_chain(drawing *w, const form *f);  /* one or more operands that broadcast */

/* ---- operands ---- */

/* Returns a tensor of w->type with a rank from `min` to `max`, usually an existing one. */
tensor any_operand(drawing *w, const form *f, int min, int max);
/* Returns a new tensor of w->type with the shape of `shape` and the form's values. */
tensor new_operand(drawing *w, const form *f, const tensor *shape);
/* Returns a tensor of w->type that broadcasts with x, in both directions. */
tensor broadcast_operand(drawing *w, const form *f, const tensor *x);
/* Returns a tensor of w->type that broadcasts to the shape of x. */
tensor smaller_operand(drawing *w, const form *f, const tensor *x);
/* Returns a new tensor of any type and values; `varied` as in form_input. */
tensor new_tensor(drawing *w, int type, values v, const tensor *shape, bool varied);
/* These return a constant, an initializer or the result of a Constant node: an int64 list; a scalar; a tensor. */
tensor new_list(drawing *w, const int64_t *items, int n);
tensor new_scalar(drawing *w, int type, double value);
tensor new_numbers(drawing *w, int type, const tensor *shape, const double *items);

/* Returns a scalar of w->type that is a constant, or varied in the gradient test. */
tensor new_setting(drawing *w, double value);

void push_size(tensor *shape, int64_t size);
void push_axis(tensor *shape, const tensor *x, int axis); /* the same size, by symbol if it is one */
int64_t count_of(const tensor *shape);                    /* number of elements */
tensor any_shape(drawing *w, int min, int max);
tensor fixed_shape(int rank, const int64_t *dims);

int64_t any_size(drawing *w);                        /* 0 is rare */
int64_t some_size(drawing *w);                       /* at least 1 */
int any_axis(drawing *w, int rank);                  /* from -rank to rank - 1; rank > 0 */
int64_t either_sign(drawing *w, int axis, int rank); /* the axis, sometimes counted from the end */
double any_real(drawing *w, double low,
                double high); /* a multiple of 0.1, which no operand of a gradient test equals */
int draw_type(drawing *w, const char *types);

/* ---- nodes ---- */

void node_operand(drawing *w, node *n, const tensor *x); /* NULL: left out */
/* Adds an attribute, unless the value is the default and the draw omits it. */
void node_int_or_default(drawing *w, node *n, const char *name, int64_t value, int64_t otherwise);
void node_float_or_default(drawing *w, node *n, const char *name, double value, double otherwise);
void node_list(node *n, const char *name, const int64_t *items, int count);
/* Adds a list that is an attribute before opset `since` and an operand from then on. */
void node_list_since(drawing *w, node *n, int since, const char *name, const int64_t *items, int count);
/* Adds the node with its results, and their types and shapes as the importer sees them. Consumes the node. */
void form_add(drawing *w, const form *f, node *n, int results);
/* The same for nodes that are already in the model: `made` are their results. */
void form_results(drawing *w, const form *f, const tensor *made, int results);

#endif
