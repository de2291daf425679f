/* lower_recurrent.c - LSTM, GRU, RNN: for each direction, one matmul for the inputs of all steps and one `recurrent`
 * node. */
#include "frontend/lower/lower.h"

#include <strings.h>

enum { LAYOUT_SINCE = 14, MAX_ACTIVATIONS = 3, IN_B = 3, IN_LENGTHS = 4, IN_H = 5, IN_C = 6, IN_P = 7 };

typedef struct activation {
    int word;
    double alpha, beta;
} activation;

typedef struct network {
    onnx_node *n;
    int cell, gates, directions, activations;
    bool reverse, batch_first, late; /* late: linear_before_reset */
    double clip;
    ir_dim hidden;
    ir_value *x;                                /* [T,B,I] */
    activation activation[2 * MAX_ACTIVATIONS]; /* those of the second direction come last */
} network;

/* ---- attributes ------------------------------------------------------------------------------ */

static const char *const operators[IR_OP_COUNT] = {
#define EMIT(operator, op, rule) [IR_OP_##op] = #operator,
#include "frontend/onnx.def"
};

static onnx_activation from_op(ir_op op)
{
    const ir_op_info *info = ir_op_get(op);
    return (onnx_activation){operators[op], info->n_attr, info->n_attr > 0 ? info->attr[0].initial.f : 0,
                             info->n_attr > 1 ? info->attr[1].initial.f : 0};
}

onnx_activation onnx_activation_of(int word)
{
    static const ir_op ops[] = {
#define CELL(op) [IR_WORD(activation, op)] = IR_OP_##op,
#include "ir/ops/formulas.def"
    };
    switch (word) {
    case IR_WORD(activation, affine): return (onnx_activation){"Affine", 2, 1, 0};
    case IR_WORD(activation, scaled_tanh): return (onnx_activation){"ScaledTanh", 2, 1, 1};
    default: return from_op(ops[word]);
    }
}

int onnx_activation_find(const char *name)
{
    for (int i = 0; name && ir_words_activation[i]; i++)
        if (!strcasecmp(onnx_activation_of(i).name, name)) return i;
    return -1;
}

static const int default_words[][MAX_ACTIVATIONS] = {
    [IR_WORD(cell, rnn)] = {IR_WORD(activation, tanh), IR_WORD(activation, tanh), IR_WORD(activation, tanh)},
    [IR_WORD(cell, gru)] = {IR_WORD(activation, sigmoid), IR_WORD(activation, tanh), IR_WORD(activation, tanh)},
    [IR_WORD(cell, lstm)] = {IR_WORD(activation, sigmoid), IR_WORD(activation, tanh), IR_WORD(activation, tanh)},
};

static int find_function(onnx_node *n, const char *name)
{
    const int word = onnx_activation_find(name);
    if (word < 0) onnx_reject(n, "activation %s does not exist", name ? name : "with a NUL byte");
    return word < 0 ? 0 : word;
}

/* Each list of parameters is consumed, in order, by the activations that have such a parameter. */
typedef struct parameters {
    const float *items;
    int count, next;
} parameters;

static double next_parameter(parameters *p, double otherwise)
{
    return p->next < p->count ? (double)p->items[p->next++] : otherwise;
}

static void read_activations(network *w)
{
    onnx_node *n = w->n;
    const int count = w->activations * w->directions;
    const Onnx__AttributeProto *names = onnx_attr(n, "activations", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS);
    parameters alpha = {0}, beta = {0};
    alpha.items = onnx_floats(n, "activation_alpha", &alpha.count);
    beta.items = onnx_floats(n, "activation_beta", &beta.count);
    if (names && names->n_strings != (size_t)count)
        onnx_reject(n, "has %zu activations, not %d", names->n_strings, count);
    for (int i = 0; i < count && !n->failed; i++) {
        activation *a = &w->activation[i];
        a->word = names ? find_function(n, onnx_bytes_text(names->strings[i]))
                        : default_words[w->cell][i % w->activations];
        const onnx_activation f = onnx_activation_of(a->word);
        a->alpha = f.parameters > 0 ? next_parameter(&alpha, f.alpha) : 0;
        a->beta = f.parameters > 1 ? next_parameter(&beta, f.beta) : 0;
    }
}

static void read_attributes(network *w)
{
    static const char *const directions[] = {"forward", "reverse", "bidirectional", NULL};
    onnx_node *n = w->n;
    const int direction = onnx_word(n, "direction", directions, 0);
    w->gates = w->cell == IR_WORD(cell, rnn) ? 1 : w->cell == IR_WORD(cell, gru) ? 3 : 4;
    w->activations = w->cell == IR_WORD(cell, rnn) ? 1 : w->cell == IR_WORD(cell, gru) ? 2 : 3;
    w->directions = direction == 2 ? 2 : 1;
    w->reverse = direction == 1;
    if (n->opset >= LAYOUT_SINCE) {
        const int64_t layout = onnx_int(n, "layout", 0);
        if (layout != 0 && layout != 1) onnx_reject(n, "layout is %lld, not 0 or 1", (long long)layout);
        w->batch_first = layout == 1;
    }
    if (w->cell == IR_WORD(cell, gru)) w->late = onnx_bool(n, "linear_before_reset", false);
    if (onnx_has(n, "clip")) {
        w->clip = onnx_float(n, "clip", 0);
        if (!(w->clip > 0)) onnx_reject(n, "clip is %g, not above 0", w->clip);
    }
    read_activations(w);
}

/* ---- operands -------------------------------------------------------------------------------- */

static void expect(onnx_node *n, int i, const char *name, ir_dim a, ir_dim b, ir_dim c, int rank)
{
    const ir_value *v = onnx_in(n, i);
    if (!v || n->failed) return;
    ir_type shape = ir_type_make(v->type.dtype, rank, (ir_dim[]){a, b, c});
    if (ir_type_may_have_shape(n->dims, &v->type, &shape)) return;
    arena *scratch = n->importer->scratch;
    onnx_reject(n, "%s must be %s, is %s", name, ir_type_print(n->importer->module, &shape, scratch),
                ir_type_print(n->importer->module, &v->type, scratch));
}

static void check_shapes(network *w)
{
    onnx_node *n = w->n;
    const ir_type *x = &n->in[0]->type, *r = &n->in[2]->type;
    if (x->rank != 3) onnx_reject(n, "X has %d dimensions, not 3", x->rank);
    else if (r->rank != 3) onnx_reject(n, "R has %d dimensions, not 3", r->rank);
    if (n->failed) return;
    w->hidden = r->dims[2];
    const ir_dim d = w->directions, h = w->hidden, batch = x->dims[w->batch_first ? 0 : 1],
                 rows = ir_dim_mul(n->dims, h, w->gates);
    const int64_t size = onnx_int(n, "hidden_size", -1);
    if (onnx_has(n, "hidden_size") && !ir_dim_may_equal(n->dims, h, ir_dim_number(size)))
        onnx_reject(n, "hidden_size is %lld, but R has another", (long long)size);
    expect(n, 1, "W", d, rows, x->dims[2], 3);
    expect(n, 2, "R", d, rows, h, 3);
    expect(n, IN_B, "B", d, ir_dim_mul(n->dims, rows, 2), 0, 2);
    expect(n, IN_LENGTHS, "sequence_lens", batch, 0, 0, 1);
    expect(n, IN_H, "initial_h", w->batch_first ? batch : d, w->batch_first ? d : batch, h, 3);
    expect(n, IN_C, "initial_c", w->batch_first ? batch : d, w->batch_first ? d : batch, h, 3);
    expect(n, IN_P, "P", d, ir_dim_mul(n->dims, h, 3), 0, 2);
}

/* Elements [start, start + size) of an axis. */
static ir_value *part(network *w, ir_value *v, int axis, ir_dim start, ir_dim size)
{
    ir_dim starts[IR_MAX_RANK] = {0}, sizes[IR_MAX_RANK];
    int64_t steps[IR_MAX_RANK];
    if (!v || (start == 0 && size == v->type.dims[axis])) return v;
    for (int i = 0; i < v->type.rank; i++) sizes[i] = v->type.dims[i], steps[i] = 1;
    starts[axis] = start, sizes[axis] = size;
    ir_node *n = ir_new(w->n->b, IR_OP_slice, 1, v);
    ir_set_list(n, IR_ATTR(slice, start), starts, v->type.rank);
    ir_set_list(n, IR_ATTR(slice, size), sizes, v->type.rank);
    ir_set_list(n, IR_ATTR(slice, step), steps, v->type.rank);
    return ir_done(w->n->b, n);
}

/* Direction d of an operand, as a matrix of these dimensions; NULL if it is absent. */
static ir_value *direction_of(network *w, int i, int axis, int d, ir_dim rows, ir_dim columns)
{
    ir_value *v = part(w, onnx_in(w->n, i), axis, d, 1);
    return v ? ir_reshape(w->n->b, v, (ir_dim[]){rows, columns}, 2) : NULL;
}

static ir_value *initial_state(network *w, int i, int d)
{
    return direction_of(w, i, w->batch_first ? 1 : 0, d, w->x->type.dims[1], w->hidden);
}

/* v in the type of the cell state. */
static ir_value *widened(network *w, ir_value *v)
{
    return v ? ir_cast(w->n->b, v, w->x->type.dtype == IR_f64 ? IR_f64 : IR_f32) : NULL;
}

static ir_value *flattened(network *w, ir_value *v, int gates)
{
    return v ? ir_reshape(w->n->b, v, (ir_dim[]){ir_dim_mul(w->n->dims, w->hidden, gates)}, 1) : NULL;
}

/* Rows [0, count) of both biases, Wb + Rb. */
static ir_value *sum_of_rows(network *w, ir_value *both, int count)
{
    ir_value *recurrent = part(w, both, 0, w->gates, count);
    return ir_binary(w->n->b, IR_OP_add, part(w, both, 0, 0, count), recurrent);
}

/* The bias of all gates, Wb + Rb. With linear_before_reset, *inner is Rb of the last gate, and not added. */
static ir_value *bias_of(network *w, int d, ir_value **inner)
{
    ir_value *both = direction_of(w, IN_B, 0, d, 2 * w->gates, w->hidden);
    if (!both) return NULL;
    if (!w->late) return flattened(w, sum_of_rows(w, both, w->gates), w->gates);
    ir_value *sums = sum_of_rows(w, both, 2), *parts[] = {sums, part(w, both, 0, 2, 1)};
    *inner = flattened(w, part(w, both, 0, 5, 1), 1);
    if (!parts[0] || !parts[1]) return NULL;
    return flattened(w, ir_done(w->n->b, ir_new_array(w->n->b, IR_OP_concat, 2, parts, 0)), w->gates);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void set_activation(ir_node *node, int attr, const activation *a)
{
    ir_set_int(node, attr, a->word);
    ir_set_float(node, attr + 1, a->alpha);
    ir_set_float(node, attr + 2, a->beta);
}

static void set_attributes(network *w, ir_node *node, int d)
{
    const activation *a = &w->activation[d * w->activations];
    ir_set_int(node, IR_ATTR(recurrent, cell), w->cell);
    ir_set_bool(node, IR_ATTR(recurrent, reverse), w->reverse || d == 1);
    if (w->cell == IR_WORD(cell, lstm))
        ir_set_bool(node, IR_ATTR(recurrent, input_forget), onnx_bool(w->n, "input_forget", false));
    ir_set_bool(node, IR_ATTR(recurrent, linear_before_reset), w->late);
    ir_set_float(node, IR_ATTR(recurrent, clip), w->clip);
    set_activation(node, IR_ATTR(recurrent, f), &a[0]);
    if (w->activations > 1) set_activation(node, IR_ATTR(recurrent, g), &a[1]);
    if (w->activations > 2) set_activation(node, IR_ATTR(recurrent, h), &a[2]);
}

/* The recurrent node of direction d; NULL after an error. */
static ir_node *direction(network *w, int d)
{
    onnx_node *n = w->n;
    const ir_dim rows = ir_dim_mul(n->dims, w->hidden, w->gates);
    ir_value *inner = NULL, *bias = bias_of(w, d, &inner);
    if (n->failed || (onnx_in(n, IN_B) && !bias)) return NULL;
    ir_value *weight = direction_of(w, 1, 0, d, rows, w->x->type.dims[2]);
    ir_value *sums = weight ? ir_matmul(n->b, w->x, weight, bias, false, true) : NULL;
    ir_value *peepholes = widened(w, direction_of(w, IN_P, 0, d, 3, w->hidden));
    ir_value *c = widened(w, initial_state(w, IN_C, d)), *h = initial_state(w, IN_H, d);
    ir_value *recurrent = direction_of(w, 2, 0, d, rows, w->hidden);
    ir_node *node = ir_new(n->b, IR_OP_recurrent, 7, sums, recurrent, inner, h, c, peepholes, onnx_in(n, IN_LENGTHS));
    if (!node) return NULL;
    set_attributes(w, node, d);
    return ir_done_all(n->b, node) ? node : NULL;
}

/* The results of the directions with an axis for them. */
static ir_value *joined(network *w, ir_node *const *nodes, int result, int axis)
{
    ir_value *parts[2];
    for (int d = 0; d < w->directions; d++) {
        const ir_type *type = &nodes[d]->out[result]->type;
        ir_dim dims[IR_MAX_RANK];
        for (int i = 0; i <= type->rank; i++) dims[i] = i < axis ? type->dims[i] : i > axis ? type->dims[i - 1] : 1;
        parts[d] = ir_reshape(w->n->b, nodes[d]->out[result], dims, type->rank + 1);
        if (!parts[d]) return NULL;
    }
    if (w->directions == 1) return parts[0];
    ir_node *n = ir_new_array(w->n->b, IR_OP_concat, 2, parts, 0);
    ir_set_int(n, IR_ATTR(concat, axis), axis);
    return ir_done(w->n->b, n);
}

static void set_results(network *w, ir_node *const *nodes)
{
    onnx_node *n = w->n;
    if (onnx_result_is_used(n, 0)) {
        ir_value *y = joined(w, nodes, IR_OUT(recurrent, y), w->batch_first ? 2 : 1);
        n->out[0] = y && w->batch_first ? ir_transpose(n->b, y, (int64_t[]){1, 0, 2, 3}) : y;
    }
    if (onnx_result_is_used(n, 1)) n->out[1] = joined(w, nodes, IR_OUT(recurrent, last_h), w->batch_first ? 1 : 0);
    if (!onnx_result_is_used(n, 2)) return;
    ir_value *c = joined(w, nodes, IR_OUT(recurrent, last_c), w->batch_first ? 1 : 0);
    n->out[2] = c ? ir_cast(n->b, c, w->x->type.dtype) : NULL;
}

/* n->arg: the cell. */
void onnx_lower_recurrent(onnx_node *n)
{
    network w = {.n = n, .cell = n->arg};
    ir_node *nodes[2] = {NULL, NULL};
    read_attributes(&w);
    if (!n->failed) check_shapes(&w);
    if (n->failed) return;
    w.x = w.batch_first ? ir_transpose(n->b, n->in[0], (int64_t[]){1, 0, 2}) : n->in[0];
    for (int d = 0; d < w.directions && w.x; d++)
        if (!(nodes[d] = direction(&w, d))) return;
    if (w.x) set_results(&w, nodes);
}
