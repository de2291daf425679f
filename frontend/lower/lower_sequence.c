/* lower_sequence.c - sequences whose length is known, and optionals. Only their items exist in the graph. */
#include "frontend/lower/lower.h"

#include <string.h>

/* ---- sequences --------------------------------------------------------------------------------- */

/* Its items are set by the caller. NULL: too long, which is reported. */
static onnx_sequence *new_sequence(onnx_node *n, int count)
{
    arena *a = n->importer->scratch;
    enum { ITEMS_PER_NODE = 64 };
    if (count > ONNX_MAX_TRIPS) onnx_refuse(n, "sequences of more than %d items are not supported", ONNX_MAX_TRIPS);
    else onnx_charge(n, count / ITEMS_PER_NODE);
    if (n->failed) return NULL;
    onnx_sequence *s = arena_alloc(a, sizeof *s);
    *s = (onnx_sequence){.count = count, .items = arena_array(a, (size_t)count + 1, sizeof *s->items)};
    return s;
}

static onnx_item operand(const onnx_node *n, int i)
{
    return i < n->n_in ? (onnx_item){n->in[i], n->in_sequence[i]} : (onnx_item){0};
}

/* Operand i, a sequence; NULL after reporting that it is none. */
static const onnx_sequence *sequence_at(onnx_node *n, int i)
{
    const onnx_sequence *s = operand(n, i).sequence;
    if (s && !s->is_optional) return s;
    onnx_reject(n, "input %d is not a sequence", i);
    return NULL;
}

/* Reports an operand that is not a tensor. */
static bool is_tensor(onnx_node *n, int i)
{
    if (!operand(n, i).value) onnx_reject(n, "input %d is not a tensor", i);
    return !n->failed;
}

/* The items of a sequence of tensors have one element type. */
static void check_items(onnx_node *n, const onnx_sequence *s)
{
    for (int i = 1; i < s->count && !n->failed; i++) {
        const ir_value *a = s->items[0].value, *b = s->items[i].value;
        if (!a || !b || a->type.dtype != b->type.dtype) onnx_reject(n, "the items of a sequence differ in type");
    }
}

void onnx_lower_sequence_construct(onnx_node *n)
{
    onnx_sequence *s = new_sequence(n, n->n_in);
    for (int i = 0; i < n->n_in && is_tensor(n, i); i++) s->items[i].value = n->in[i];
    if (!n->failed) check_items(n, s);
    n->out_sequence[0] = s;
}

void onnx_lower_sequence_empty(onnx_node *n)
{
    onnx_int(n, "dtype", ONNX_float32);
    n->out_sequence[0] = new_sequence(n, 0);
}

void onnx_lower_sequence_length(onnx_node *n)
{
    const onnx_sequence *s = sequence_at(n, 0);
    const ir_type scalar = ir_type_scalar(IR_i64);
    if (s) n->out[0] = ir_constant(n->b, n->proto->output[0], &scalar, &(int64_t){s->count});
}

/* The position that operand i states, counted from the end if it is negative: 0 to `last`. */
static int position(onnx_node *n, int i, int count, int last)
{
    const int64_t at = is_tensor(n, i) ? onnx_const_int(n, i, 0) : 0;
    if (at < -count || at > last) onnx_reject(n, "position %lld in a sequence of %d items", (long long)at, count);
    return n->failed ? 0 : (int)(at < 0 ? at + count : at);
}

void onnx_lower_sequence_at(onnx_node *n)
{
    const onnx_sequence *s = sequence_at(n, 0);
    const int at = s ? position(n, 1, s->count, s->count - 1) : 0;
    if (n->failed) return;
    n->out[0] = s->items[at].value;
    n->out_sequence[0] = s->items[at].sequence;
}

void onnx_lower_sequence_insert(onnx_node *n)
{
    const onnx_sequence *s = sequence_at(n, 0);
    if (!s || !is_tensor(n, 1)) return;
    const int at = n->n_in > 2 ? position(n, 2, s->count, s->count) : s->count;
    onnx_sequence *longer = n->failed ? NULL : new_sequence(n, s->count + 1);
    if (!longer) return;
    memcpy(longer->items, s->items, (size_t)at * sizeof *s->items);
    longer->items[at] = operand(n, 1);
    memcpy(longer->items + at + 1, s->items + at, (size_t)(s->count - at) * sizeof *s->items);
    check_items(n, longer);
    n->out_sequence[0] = longer;
}

void onnx_lower_sequence_erase(onnx_node *n)
{
    const onnx_sequence *s = sequence_at(n, 0);
    if (s && !s->count) onnx_reject(n, "the sequence is empty");
    if (n->failed) return;
    const int at = n->n_in > 1 ? position(n, 1, s->count, s->count - 1) : s->count - 1;
    onnx_sequence *shorter = n->failed ? NULL : new_sequence(n, s->count - 1);
    if (!shorter) return;
    memcpy(shorter->items, s->items, (size_t)at * sizeof *s->items);
    memcpy(shorter->items + at, s->items + at + 1, (size_t)(s->count - at - 1) * sizeof *s->items);
    n->out_sequence[0] = shorter;
}

/* ---- between tensors and sequences --------------------------------------------------------------- */

/* x with an axis of size 1 added or removed. */
static ir_value *with_axis(onnx_node *n, ir_value *x, int axis, bool add)
{
    ir_dim dims[IR_MAX_RANK];
    int rank = 0;
    if (!x) return NULL;
    for (int i = 0; i < x->type.rank + add; i++)
        if (add && i == axis) dims[rank++] = 1;
        else if (add || i != axis) dims[rank++] = x->type.dims[i - (add && i > axis)];
    return ir_reshape(n->b, x, dims, rank);
}

void onnx_lower_concat_from_sequence(onnx_node *n)
{
    const onnx_sequence *s = sequence_at(n, 0);
    const bool added = onnx_bool(n, "new_axis", false);
    if (!onnx_has(n, "axis")) onnx_reject(n, "attribute 'axis' is missing");
    if (s && !s->count) onnx_reject(n, "the sequence is empty");
    if (s && s->count && !s->items[0].value) onnx_reject(n, "the items are not tensors");
    if (n->failed) return;
    const int rank = s->items[0].value->type.rank + added, axis = onnx_axis(n, onnx_int(n, "axis", 0), rank);
    if (rank > ONNX_MAX_RANK) onnx_refuse(n, "rank %d is not supported", rank);
    ir_value **parts = arena_array(n->importer->scratch, (size_t)s->count, sizeof(ir_value *));
    for (int i = 0; i < s->count && !n->failed; i++) {
        parts[i] = s->items[i].value;
        if (parts[i]->type.rank != rank - added) onnx_reject(n, "the items differ in rank");
        else if (added) parts[i] = with_axis(n, parts[i], axis, true);
    }
    if (n->failed) return;
    if (s->count == 1) n->out[0] = parts[0];
    if (s->count == 1) return;
    ir_node *node = ir_new_array(n->b, IR_OP_concat, s->count, parts, 0);
    ir_set_int(node, IR_ATTR(concat, axis), axis);
    n->out[0] = ir_done(n->b, node);
}

/* The sizes of the parts of an axis: as listed, or all the same except for the last. */
static onnx_list part_sizes(onnx_node *n, int64_t size)
{
    const onnx_list list = onnx_const_list(n, 1);
    if (!n->failed && list.present && (n->in[1]->type.rank || !onnx_numeric(n, list, "the size of a part")))
        return list;
    const int64_t each = list.present && list.count ? list.items[0] : 1;
    if (!n->failed && each < 1) onnx_reject(n, "the size of a part is %lld", (long long)each);
    const int64_t count = n->failed ? 0 : size / each + (size % each != 0);
    if (count > ONNX_MAX_TRIPS) onnx_refuse(n, "sequences of more than %d items are not supported", ONNX_MAX_TRIPS);
    if (n->failed) return (onnx_list){0};
    ir_dim *sizes = arena_array(n->importer->scratch, (size_t)count + 1, sizeof *sizes);
    for (int64_t i = 0; i < count; i++) sizes[i] = i + 1 < count || size % each == 0 ? each : size % each;
    return (onnx_list){sizes, (int)count, true};
}

static void split_into(onnx_node *n, onnx_sequence *s, int axis, onnx_list sizes, bool keep)
{
    ir_node *node = NULL;
    if (s->count > 1) {
        node = ir_new_array(n->b, IR_OP_split, 1, n->in, s->count);
        ir_set_int(node, IR_ATTR(split, axis), axis);
        ir_set_list(node, IR_ATTR(split, sizes), sizes.items, sizes.count);
        n->failed |= !ir_done_all(n->b, node);
    }
    for (int i = 0; i < s->count && !n->failed; i++) {
        ir_value *part = node ? node->out[i] : n->in[0];
        s->items[i].value = keep ? part : with_axis(n, part, axis, false);
    }
}

void onnx_lower_split_to_sequence(onnx_node *n)
{
    const bool keep = onnx_bool(n, "keepdims", true) || n->n_in > 1;
    if (!is_tensor(n, 0) || (n->n_in > 1 && !is_tensor(n, 1))) return;
    const ir_type *x = &n->in[0]->type;
    const int axis = onnx_axis(n, onnx_int(n, "axis", 0), x->rank);
    const int64_t size = n->failed ? 0 : onnx_size(n, x->dims[axis], "the size of the axis");
    const onnx_list sizes = n->failed ? (onnx_list){0} : part_sizes(n, size);
    int64_t sum = 0;
    for (int i = 0; i < sizes.count && !n->failed; i++) {
        if (sizes.items[i] < 0 || sizes.items[i] > size) onnx_reject(n, "part %d is too large or too small", i);
        sum += sizes.items[i];
    }
    if (!n->failed && sum != size)
        onnx_reject(n, "the parts have %lld elements, the axis %lld", (long long)sum, (long long)size);
    onnx_sequence *s = n->failed ? NULL : new_sequence(n, sizes.count);
    if (!s) return;
    split_into(n, s, axis, sizes, keep);
    n->out_sequence[0] = s;
}

/* ---- SequenceMap ------------------------------------------------------------------------------- */

static bool check_map(onnx_node *n, const onnx_body *b, const onnx_sequence *first)
{
    if (b->n_in != n->n_in || b->n_out < n->n_out)
        onnx_reject(n, "its body has %d inputs and %d outputs, the node %d and %d", b->n_in, b->n_out, n->n_in,
                    n->n_out);
    for (int i = 1; i < n->n_in; i++) {
        const onnx_item item = operand(n, i);
        if (item.sequence && item.sequence->count != first->count) onnx_reject(n, "the sequences differ in length");
        if (!item.sequence && !item.value) onnx_reject(n, "input %d is missing", i);
    }
    return !n->failed;
}

void onnx_lower_sequence_map(onnx_node *n)
{
    arena *a = n->importer->scratch;
    const onnx_sequence *first = sequence_at(n, 0);
    onnx_body b;
    if (!first || !onnx_body_open(n, onnx_graph_attr(n, "body"), &b) || !check_map(n, &b, first)) return;
    onnx_item *in = arena_array(a, (size_t)b.n_in, sizeof *in), *out = arena_array(a, (size_t)b.n_out + 1, sizeof *out);
    onnx_sequence **results = arena_array(a, (size_t)n->n_out + 1, sizeof *results);
    for (int i = 0; i < n->n_out; i++) n->out_sequence[i] = results[i] = new_sequence(n, first->count);
    for (int k = 0; k < first->count && !n->failed; k++) {
        for (int i = 0; i < b.n_in; i++) in[i] = n->in_sequence[i] ? n->in_sequence[i]->items[k] : operand(n, i);
        if (!onnx_body_lower(&b, arena_printf(a, "%s/%d/", n->b->loc.node, k), in, out)) return;
        for (int i = 0; i < n->n_out; i++) results[i]->items[k] = out[i];
    }
    for (int i = 0; i < n->n_out && !n->failed; i++) check_items(n, results[i]);
}

/* ---- optionals ---------------------------------------------------------------------------------
 * A value that is not an optional counts as one with an element, in every opset: a Loop may return it for one. */

void onnx_lower_optional(onnx_node *n)
{
    onnx_attr(n, "type", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TYPE_PROTO);
    onnx_sequence *s = new_sequence(n, n->n_in);
    if (!s) return;
    s->is_optional = true;
    s->items[0] = operand(n, 0);
    n->out_sequence[0] = s;
}

static bool is_optional(onnx_item item) { return item.sequence && item.sequence->is_optional; }

void onnx_lower_optional_get_element(onnx_node *n)
{
    onnx_item item = operand(n, 0);
    if (is_optional(item) && !item.sequence->count) onnx_reject(n, "the optional is empty");
    if (is_optional(item) && !n->failed) item = item.sequence->items[0];
    n->out[0] = item.value;
    n->out_sequence[0] = item.sequence;
}

void onnx_lower_optional_has_element(onnx_node *n)
{
    const onnx_item item = operand(n, 0);
    const bool there = is_optional(item) ? item.sequence->count : item.value || item.sequence;
    n->out[0] = ir_scalar(n->b, IR_bool, there);
}
