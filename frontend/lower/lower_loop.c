/* lower_loop.c - Loop and Scan whose iterations are known at compile time: copies of the body replace the node.
 *
 * lower_or_keep decides for both operators. A node of a model that is only converted stays as it is, unless it carries
 * sequences. Otherwise the node is replaced if the number of iterations is known, which may depend on what each
 * iteration computes; if it turns out not to be, the copies are removed again. */
#include "frontend/lower/lower.h"

#include <string.h>

typedef VEC(ir_value *) values;

typedef struct loop {
    onnx_node *node;
    onnx_body body;
    int fixed, fixed_out; /* inputs and outputs of the body that precede the carried ones */
    int carried, stacked; /* values carried from one iteration to the next, and results stacked over all of them */
    onnx_item *in, *out;  /* [body.n_in], [body.n_out] */
    values *rows;         /* [stacked]: one value for each iteration */
    int trips;            /* iterations so far, of all batch items */
} loop;

/* Opens the body. `first` operands precede the carried ones, of which there are `carried`. */
static bool open_loop(onnx_node *n, loop *l, int first, int inputs)
{
    onnx_importer *im = n->importer;
    const Onnx__GraphProto *g = onnx_graph_attr(n, "body");
    l->node = n;
    if (!onnx_body_open(n, g, &l->body)) return false;
    l->stacked = l->body.n_out - l->fixed_out - l->carried;
    if (l->carried < 0 || l->body.n_in != inputs || l->stacked < 0)
        onnx_reject(n, "its body has %d inputs and %d outputs for %d operands", l->body.n_in, l->body.n_out, n->n_in);
    else if (n->n_out > l->carried + l->stacked)
        onnx_reject(n, "has %d outputs, but its body returns %d", n->n_out, l->carried + l->stacked);
    for (int i = first; i < n->n_in; i++)
        if (!n->in[i] && !n->in_sequence[i]) onnx_reject(n, "input %d is missing", i);
    l->in = arena_array(im->scratch, (size_t)l->body.n_in + 1, sizeof *l->in);
    l->out = arena_array(im->scratch, (size_t)l->body.n_out + 1, sizeof *l->out);
    l->rows = arena_array(im->scratch, (size_t)(l->stacked > 0 ? l->stacked : 0) + 1, sizeof *l->rows);
    for (int i = 0; i < l->carried && !n->failed; i++)
        l->in[l->fixed + i] = (onnx_item){n->in[first + i], n->in_sequence[first + i]};
    return !n->failed;
}

/* ---- an iteration ------------------------------------------------------------------------------ */

static bool same_kind(onnx_item a, onnx_item b)
{
    if (!a.value || !b.value) return !a.value == !b.value;
    return a.value->type.dtype == b.value->type.dtype;
}

static void carry(loop *l)
{
    for (int i = 0; i < l->carried; i++) {
        onnx_item *from = &l->out[l->fixed_out + i], *to = &l->in[l->fixed + i];
        if (!same_kind(*from, *to)) onnx_reject(l->node, "carried value %d changes its type", i);
        *to = *from;
    }
}

static void add_rows(loop *l)
{
    for (int i = 0; i < l->stacked; i++) {
        ir_value *v = l->out[l->fixed_out + l->carried + i].value;
        if (!v) onnx_refuse(l->node, "output %d of its body is a sequence and cannot be stacked", i);
        else vec_push(l->node->importer->scratch, &l->rows[i], v);
    }
}

/* Lowers one copy of the body, whose inputs are set. */
static bool iterate(loop *l)
{
    onnx_node *n = l->node;
    const char *path = arena_printf(n->importer->scratch, "%s/%d/", n->b->loc.node, l->trips);
    if (l->trips == ONNX_MAX_TRIPS) onnx_refuse(n, "has more than %d iterations", ONNX_MAX_TRIPS);
    if (n->failed || !onnx_body_lower(&l->body, path, l->in, l->out)) return false;
    l->trips++;
    carry(l);
    add_rows(l);
    return !n->failed;
}

/* ---- results ----------------------------------------------------------------------------------- */

static ir_value *concat(onnx_node *n, const values *parts, int axis)
{
    if (parts->count == 1) return parts->items[0];
    ir_node *node = ir_new_array(n->b, IR_OP_concat, (int)parts->count, parts->items, 0);
    ir_set_int(node, IR_ATTR(concat, axis), axis);
    return ir_done(n->b, node);
}

/* x with a new axis of size 1. */
static ir_value *unsqueeze(onnx_node *n, ir_value *x, int axis)
{
    ir_dim dims[IR_MAX_RANK];
    if (!x) return NULL;
    if (x->type.rank >= ONNX_MAX_RANK) {
        onnx_refuse(n, "results of rank %d are not supported", x->type.rank + 1);
        return NULL;
    }
    memcpy(dims, x->type.dims, (size_t)axis * sizeof *dims);
    dims[axis] = 1;
    memcpy(dims + axis + 1, x->type.dims + axis, (size_t)(x->type.rank - axis) * sizeof *dims);
    return ir_reshape(n->b, x, dims, x->type.rank + 1);
}

/* Values as one, along a new axis. */
static ir_value *stack(onnx_node *n, const values *rows, int axis, bool reversed)
{
    values parts = {0};
    for (size_t i = 0; i < rows->count && !n->failed; i++)
        vec_push(n->importer->scratch, &parts, unsqueeze(n, rows->items[reversed ? rows->count - 1 - i : i], axis));
    return n->failed ? NULL : concat(n, &parts, axis);
}

/* The types of what the body returns, from a copy that is removed again. */
static bool probe(loop *l, ir_type *types)
{
    onnx_importer *im = l->node->importer;
    ir_node *before = im->graph->last;
    const int streams = im->streams;
    const size_t stores = im->stores.count;
    const char *path = arena_printf(im->scratch, "%s/", l->node->b->loc.node);
    const bool lowered = onnx_body_lower(&l->body, path, l->in, l->out);
    for (int i = 0; i < l->stacked && lowered; i++) {
        const ir_value *v = l->out[l->fixed_out + l->carried + i].value;
        if (v) types[i] = v->type;
        else onnx_refuse(l->node, "output %d of its body is a sequence and cannot be stacked", i);
    }
    onnx_remove_after(im, before);
    im->streams = streams;
    im->stores.count = stores;
    return !l->node->failed;
}

/* The declared sizes of a result of the node replace those of a body that is never run. */
static ir_value *nothing(onnx_node *n, int result, const ir_type *row, int axis)
{
    const Onnx__TypeProto__Tensor *t = onnx_tensor_type(onnx_find_declared(n, n->proto->output[result]));
    const bool declared = t && t->shape && (int)t->shape->n_dim == row->rank + 1;
    ir_dim dims[IR_MAX_RANK];
    if (row->rank >= ONNX_MAX_RANK) onnx_refuse(n, "results of rank %d are not supported", row->rank + 1);
    for (int i = 0, from = 0; i <= row->rank && !n->failed; i++) {
        const Onnx__TensorShapeProto__Dimension *d = declared ? t->shape->dim[i] : NULL;
        dims[i] = i == axis ? 0 : row->dims[from++];
        if (i != axis && d && d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
            d->dim_value >= 0)
            dims[i] = d->dim_value;
    }
    return n->failed ? NULL : ir_expand(n->b, ir_scalar(n->b, row->dtype, 0), dims, row->rank + 1);
}

static void put_carried(loop *l)
{
    for (int i = 0; i < l->carried && i < l->node->n_out; i++) {
        l->node->out[i] = l->in[l->fixed + i].value;
        l->node->out_sequence[i] = l->in[l->fixed + i].sequence;
    }
}

/* Result i of the stacked ones; `type` of a row, if there was no iteration. */
static void put_stacked(loop *l, int i, int axis, bool reversed, const ir_type *type)
{
    onnx_node *n = l->node;
    const int result = l->carried + i;
    if (result >= n->n_out || n->failed) return;
    n->out[result] = l->trips ? stack(n, &l->rows[i], axis, reversed) : nothing(n, result, type, axis);
}

/* ---- the decision ------------------------------------------------------------------------------ */

/* Whether the model is only converted, and the node can be written as it is: no written opset has Scan with a batch. */
static bool is_kept(const onnx_node *n)
{
    bool tensors = true;
    for (int i = 0; i < n->n_in; i++) tensors &= !n->in_sequence[i];
    return n->importer->options->emit_opset && tensors && n->row->lower != onnx_lower_scan_batch;
}

/* `unroll` returns false if the iterations are not known at compile time, because of `*reason`. */
static void lower_or_keep(onnx_node *n, bool (*unroll)(onnx_node *n, const char **reason))
{
    onnx_importer *im = n->importer;
    ir_node *before = im->graph->last;
    const int streams = im->streams;
    const size_t stores = im->stores.count;
    const char *reason = "";
    if (is_kept(n)) {
        onnx_keep_opaque(n);
        return;
    }
    if (unroll(n, &reason) || n->failed) return;
    onnx_remove_after(im, before);
    im->streams = streams;
    im->stores.count = stores;
    onnx_lower_at_run_time(n, reason);
}

/* ---- Loop -------------------------------------------------------------------------------------- */

/* The only element of a value, if it is known. */
static bool is_known(const onnx_node *n, const ir_value *v, int64_t *out)
{
    const ir_const_value *c = v ? ir_const_get(n->importer->consts, v) : NULL;
    if (!c || c->count != 1 || !c->ints || ir_dim_is_symbolic(c->ints[0])) return false;
    *out = c->ints[0];
    return true;
}

static void set_iteration(loop *l, int64_t index)
{
    const ir_type scalar = ir_type_scalar(IR_i64);
    l->in[0].value = ir_constant(l->node->b, "iteration", &scalar, &index);
    l->in[1].value = ir_scalar(l->node->b, IR_bool, 1);
}

static bool finish_loop(loop *l)
{
    ir_type *types = arena_array(l->node->importer->scratch, (size_t)l->stacked + 1, sizeof *types);
    put_carried(l);
    if (!l->trips) set_iteration(l, 0);
    if (!l->trips && l->stacked && !probe(l, types)) return true;
    for (int i = 0; i < l->stacked; i++) put_stacked(l, i, 0, false, &types[i]);
    return true;
}

static bool unroll_loop(onnx_node *n, const char **reason)
{
    loop l = {.fixed = 2, .fixed_out = 1, .carried = n->n_in > 2 ? n->n_in - 2 : 0};
    int64_t trips = INT64_MAX;
    bool condition = true;
    if (!open_loop(n, &l, 2, 2 + l.carried)) return true;
    *reason = "the number of iterations";
    if (onnx_in(n, 0) && (!is_known(n, n->in[0], &trips) || trips > ONNX_MAX_TRIPS)) return false;
    *reason = "the condition";
    if (onnx_in(n, 1) && !onnx_is_decided(n, n->in[1], &condition)) return false;
    for (int64_t i = 0; condition && i < trips; i++) {
        set_iteration(&l, i);
        if (!iterate(&l)) return true;
        if (i + 1 < trips && !onnx_is_decided(n, l.out[0].value, &condition)) return false;
    }
    return finish_loop(&l);
}

void onnx_lower_loop(onnx_node *n) { lower_or_keep(n, unroll_loop); }

/* ---- Scan -------------------------------------------------------------------------------------- */

/* Entry i of a list attribute; 0 if it is absent. */
static int64_t entry(onnx_node *n, const char *attribute, int i, int count)
{
    const onnx_list list = onnx_ints(n, attribute);
    if (list.present && list.count != count)
        onnx_reject(n, "attribute '%s' has %d entries, not %d", attribute, list.count, count);
    return list.present && i < list.count ? list.items[i] : 0;
}

static bool is_reverse(onnx_node *n, const char *attribute, int i, int count)
{
    const int64_t direction = entry(n, attribute, i, count);
    if (direction != 0 && direction != 1) onnx_reject(n, "direction %lld is not 0 or 1", (long long)direction);
    return direction == 1;
}

/* The slices of x along an axis, without that axis. */
static void slices(onnx_node *n, ir_value *x, int axis, values *out)
{
    const int count = (int)x->type.dims[axis];
    ir_dim dims[IR_MAX_RANK], *sizes = arena_array(n->importer->scratch, (size_t)count + 1, sizeof *sizes);
    ir_value *const one = x;
    ir_node *node = NULL;
    memcpy(dims, x->type.dims, (size_t)axis * sizeof *dims);
    memcpy(dims + axis, x->type.dims + axis + 1, (size_t)(x->type.rank - axis - 1) * sizeof *dims);
    for (int i = 0; i < count; i++) sizes[i] = 1;
    if (count > 1) {
        node = ir_new_array(n->b, IR_OP_split, 1, &one, count);
        ir_set_int(node, IR_ATTR(split, axis), axis);
        ir_set_list(node, IR_ATTR(split, sizes), sizes, count);
        if (!ir_done_all(n->b, node)) return;
    }
    for (int i = 0; i < count; i++)
        vec_push(n->importer->scratch, out, ir_reshape(n->b, node ? node->out[i] : x, dims, x->type.rank - 1));
}

typedef struct scan {
    loop loop;
    int inputs;      /* sliced operands */
    int64_t length;  /* of their axis */
    bool *backwards; /* [inputs] */
    values *slices;  /* [inputs] */
} scan;

/* Slices an operand. False: its size is not known. */
static bool slice_input(scan *s, int i, ir_value *x, int axis)
{
    onnx_node *n = s->loop.node;
    const ir_dim size = x->type.dims[axis];
    if (ir_dim_is_symbolic(size)) return false;
    if (s->length >= 0 && s->length != size)
        onnx_reject(n, "its scan inputs have %lld and %lld slices", (long long)s->length, (long long)size);
    else if (size > ONNX_MAX_TRIPS) onnx_refuse(n, "has more than %d iterations", ONNX_MAX_TRIPS);
    s->length = size;
    s->slices[i] = (values){0};
    if (!n->failed) slices(n, x, axis, &s->slices[i]);
    return true;
}

/* Lowers `count` iterations over the slices. */
static void scan_slices(scan *s, int64_t count)
{
    loop *l = &s->loop;
    for (int64_t t = 0; t < count && !l->node->failed; t++) {
        for (int i = 0; i < s->inputs; i++)
            l->in[l->carried + i].value = s->slices[i].items[s->backwards[i] ? count - 1 - t : t];
        iterate(l);
    }
}

static bool open_scan(onnx_node *n, scan *s, int first)
{
    const int64_t inputs = onnx_int(n, "num_scan_inputs", 0);
    arena *a = n->importer->scratch;
    *s = (scan){.length = -1};
    if (inputs < 1 || inputs > n->n_in - first) {
        onnx_reject(n, "num_scan_inputs is %lld, but there are %d operands", (long long)inputs, n->n_in - first);
        return false;
    }
    s->inputs = (int)inputs;
    s->loop.carried = n->n_in - first - s->inputs;
    s->backwards = arena_array(a, (size_t)s->inputs, sizeof *s->backwards);
    s->slices = arena_array(a, (size_t)s->inputs, sizeof *s->slices);
    for (int i = first; i < n->n_in; i++)
        if (!n->in[i]) onnx_reject(n, "input %d is not a tensor", i);
    return open_loop(n, &s->loop, first, n->n_in - first);
}

/* The inputs of a body that is never run: slices of zeros. */
static void set_probe_inputs(scan *s, const ir_type *slice)
{
    loop *l = &s->loop;
    for (int i = 0; i < s->inputs; i++) {
        ir_value *zero = ir_scalar(l->node->b, slice[i].dtype, 0);
        l->in[l->carried + i].value = ir_expand(l->node->b, zero, slice[i].dims, slice[i].rank);
    }
}

static ir_type without_axis(ir_type t, int axis)
{
    t.rank--;
    for (int i = axis; i < t.rank; i++) t.dims[i] = t.dims[i + 1];
    return t;
}

/* ---- Scan from opset 9 on ---- */

/* Reads the axis and direction of each operand and slices them. False: a size is not known. */
static bool slice_inputs(scan *s, ir_type *types)
{
    onnx_node *n = s->loop.node;
    for (int i = 0; i < s->inputs; i++) {
        ir_value *x = n->in[s->loop.carried + i];
        const int axis = onnx_axis(n, entry(n, "scan_input_axes", i, s->inputs), x->type.rank);
        s->backwards[i] = is_reverse(n, "scan_input_directions", i, s->inputs);
        if (n->failed) return true;
        types[i] = without_axis(x->type, axis);
        if (!slice_input(s, i, x, axis)) return false;
    }
    return true;
}

static bool unroll_scan(onnx_node *n, const char **reason)
{
    scan s;
    loop *l = &s.loop;
    if (!open_scan(n, &s, 0)) return true;
    ir_type *types = arena_array(n->importer->scratch, (size_t)(s.inputs + l->stacked), sizeof *types);
    *reason = "the number of iterations";
    if (!slice_inputs(&s, types)) return false;
    scan_slices(&s, s.length);
    if (n->failed) return true;
    put_carried(l);
    if (!l->trips) set_probe_inputs(&s, types);
    if (!l->trips && !probe(l, types)) return true;
    for (int i = 0; i < l->stacked && !n->failed; i++) {
        const int rank = l->trips ? l->rows[i].items[0]->type.rank : types[i].rank;
        const int axis = onnx_axis(n, entry(n, "scan_output_axes", i, l->stacked), rank + 1);
        const bool reversed = is_reverse(n, "scan_output_directions", i, l->stacked);
        if (!n->failed) put_stacked(l, i, axis, reversed, &types[i]);
    }
    return true;
}

void onnx_lower_scan(onnx_node *n) { lower_or_keep(n, unroll_scan); }

/* ---- Scan of opset 8: axis 0 is the batch, axis 1 is sliced ---- */

typedef struct batch {
    scan scan;
    int64_t size, length;
    int64_t *lengths; /* [size] */
    values *items;    /* [carried + inputs]: operands by batch item */
    values *results;  /* [carried + stacked] */
} batch;

/* The lengths of the batch items. False: they are not known. */
static bool read_lengths(batch *b)
{
    onnx_node *n = b->scan.loop.node;
    const ir_const_value *c = onnx_in(n, 0) ? ir_const_get(n->importer->consts, n->in[0]) : NULL;
    if (onnx_in(n, 0) && (!c || !c->ints)) return false;
    if (c && c->count != b->size)
        onnx_reject(n, "%lld lengths for %lld sequences", (long long)c->count, (long long)b->size);
    b->lengths = arena_array(n->importer->scratch, (size_t)b->size, sizeof *b->lengths);
    for (int64_t i = 0; i < b->size && !n->failed; i++) {
        b->lengths[i] = c ? onnx_size(n, c->ints[i], "a length") : b->length;
        if (b->lengths[i] < 0 || b->lengths[i] > b->length)
            onnx_reject(n, "length %lld of a sequence is not in 0..%lld", (long long)b->lengths[i],
                        (long long)b->length);
    }
    return true;
}

/* Splits the operands into batch items. False: a size is not known. */
static bool split_batch(batch *b)
{
    onnx_node *n = b->scan.loop.node;
    const int count = n->n_in - 1, carried = b->scan.loop.carried;
    b->items = arena_array(n->importer->scratch, (size_t)count, sizeof *b->items);
    for (int i = count; i-- > 0 && !n->failed;) {
        const ir_type *t = &n->in[1 + i]->type;
        if (t->rank < (i < carried ? 1 : 2)) onnx_reject(n, "input %d has rank %d", 1 + i, t->rank);
        if (n->failed) return true;
        if (ir_dim_is_symbolic(t->dims[0]) || (i >= carried && ir_dim_is_symbolic(t->dims[1]))) return false;
        if (i == count - 1) b->size = t->dims[0], b->length = t->dims[1];
        if (t->dims[0] != b->size || (i >= carried && t->dims[1] != b->length))
            onnx_reject(n, "the sizes of its operands differ");
        if (b->size < 1 || b->size > ONNX_MAX_TRIPS)
            onnx_refuse(n, "a batch of %lld is not supported", (long long)b->size);
        if (!n->failed) slices(n, n->in[1 + i], 0, &b->items[i]);
    }
    return n->failed || read_lengths(b);
}

/* The rows of a result, and zeros for those beyond the end of the sequence. */
static ir_value *padded_rows(batch *b, int i, const ir_type *type)
{
    loop *l = &b->scan.loop;
    onnx_node *n = l->node;
    values parts = {0};
    ir_dim dims[IR_MAX_RANK] = {b->length - (int64_t)l->rows[i].count};
    if (type->rank > ONNX_MAX_RANK - 2) onnx_refuse(n, "results of rank %d are not supported", type->rank + 2);
    if (n->failed) return NULL;
    memcpy(dims + 1, type->dims, (size_t)type->rank * sizeof *dims);
    if (l->rows[i].count) vec_push(n->importer->scratch, &parts, stack(n, &l->rows[i], 0, false));
    if (dims[0] || !l->rows[i].count)
        vec_push(n->importer->scratch, &parts, ir_expand(n->b, ir_scalar(n->b, type->dtype, 0), dims, type->rank + 1));
    return concat(n, &parts, 0);
}

static void scan_item(batch *b, int64_t item)
{
    scan *s = &b->scan;
    loop *l = &s->loop;
    arena *a = l->node->importer->scratch;
    ir_type *types = arena_array(a, (size_t)(s->inputs + l->stacked), sizeof *types);
    for (int i = 0; i < l->carried; i++) l->in[i].value = b->items[i].items[item];
    for (int i = 0; i < s->inputs && !l->node->failed; i++) {
        ir_value *x = b->items[l->carried + i].items[item];
        l->node->failed |= !x;
        if (!x) return;
        types[i] = without_axis(x->type, 0);
        slice_input(s, i, x, 0);
    }
    memset(l->rows, 0, (size_t)l->stacked * sizeof *l->rows);
    scan_slices(s, b->lengths[item]);
    if (!l->node->failed && !b->lengths[item]) {
        set_probe_inputs(s, types);
        probe(l, types);
    }
    for (int i = 0; i < l->carried; i++) vec_push(a, &b->results[i], l->in[i].value);
    for (int i = 0; i < l->stacked && !l->node->failed; i++)
        vec_push(a, &b->results[l->carried + i],
                 padded_rows(b, i, b->lengths[item] ? &l->rows[i].items[0]->type : &types[i]));
}

static bool unroll_batch(onnx_node *n, const char **reason)
{
    batch b;
    memset(&b, 0, sizeof b);
    if (!open_scan(n, &b.scan, 1)) return true;
    const loop *l = &b.scan.loop;
    *reason = "the number of iterations";
    if (!split_batch(&b)) return false;
    b.results = arena_array(n->importer->scratch, (size_t)(l->carried + l->stacked) + 1, sizeof *b.results);
    for (int i = 0; i < b.scan.inputs; i++) b.scan.backwards[i] = is_reverse(n, "directions", i, b.scan.inputs);
    for (int64_t i = 0; i < b.size && !n->failed; i++) scan_item(&b, i);
    for (int i = 0; i < n->n_out && !n->failed; i++) n->out[i] = stack(n, &b.results[i], 0, false);
    return true;
}

void onnx_lower_scan_batch(onnx_node *n) { lower_or_keep(n, unroll_batch); }
