/* block_sequence.c - sequences and optionals in a block. */
#include "tests/forms/block.h"

typedef struct sequence {
    char name[12];
    tensor item; /* the type and dims of all items; in a function also one of them */
    int count;
} sequence;

/* Declares an input or output of a body. */
static void declare_sequence(block *b, uint32_t field, const char *name, int type)
{
    wire tensor_type = {0}, item = {0}, list = {0}, proto = {0}, info = {0};
    wire_int(&tensor_type, 1, type);
    wire_message(&item, 1, &tensor_type);
    wire_message(&list, 1, &item);
    wire_message(&proto, 4, &list);
    wire_text(&info, 1, name);
    wire_message(&info, 2, &proto);
    wire_message(&b->m->graph, field, &info);
}

/* Adds a node that returns a sequence. */
static void add_sequence(block *b, node *n, const char *op, sequence *s, int count)
{
    const tensor made = block_add(b, n, op, &s->item);
    memcpy(s->name, made.name, sizeof s->name);
    s->count = count;
}

static void insert(block *b, sequence *s)
{
    node n = {0};
    const tensor x = block_like(b, &s->item);
    wire_text(&n, 1, s->name);
    node_operand(b->w, &n, &x);
    if (choose(b->w->c, 2)) {
        const tensor at = block_scalar(b, ONNX_int64, choose(b->w->c, 2 * s->count + 1) - s->count);
        node_operand(b->w, &n, &at);
    }
    add_sequence(b, &n, "SequenceInsert", s, s->count + 1);
}

static void erase(block *b, sequence *s)
{
    node n = {0};
    wire_text(&n, 1, s->name);
    if (choose(b->w->c, 2)) {
        const tensor at = block_scalar(b, ONNX_int64, choose(b->w->c, 2 * s->count) - s->count);
        node_operand(b->w, &n, &at);
    }
    add_sequence(b, &n, "SequenceErase", s, s->count - 1);
}

static void map(block *b, sequence *s)
{
    node n = {0};
    model m;
    block inner = block_body(b, &m);
    wire_text(&n, 1, s->name);
    const tensor x = block_any(b);
    node_operand(b->w, &n, &x);
    const tensor item = block_declare(&inner, &s->item, false), other = block_declare(&inner, &x, false);
    block_push(&inner, &other);
    block_push(&inner, &item);
    block_fill(&inner, 1 + choose(b->w->c, 3));
    const tensor t = block_any(&inner), result = block_own(&inner, &t);
    block_output(&inner, &result);
    node_graph(&n, "body", &m);
    s->item = result;
    add_sequence(b, &n, "SequenceMap", s, s->count);
}

/* Wraps the sequence and unwraps it again. */
static void wrap(block *b, sequence *s)
{
    node wrapping = {0}, taking = {0}, asking = {0}, n = {0};
    wire_text(&wrapping, 1, s->name);
    add_sequence(b, &wrapping, "Optional", s, s->count);
    wire_text(&asking, 1, s->name);
    const tensor flag = {.type = ONNX_bool}, number = {.type = b->w->type};
    const tensor there = block_add(b, &asking, "OptionalHasElement", &flag);
    node_operand(b->w, &n, &there);
    node_int(&n, "to", b->w->type);
    const tensor one = block_add(b, &n, "Cast", &number);
    block_push(b, &one);
    wire_text(&taking, 1, s->name);
    add_sequence(b, &taking, "OptionalGetElement", s, s->count);
}

/* A Loop that carries the sequence and inserts an item in each iteration. */
static void grow(block *b, sequence *s)
{
    const int trips = choose(b->w->c, 3);
    const tensor count = block_scalar(b, ONNX_int64, trips), index = {.type = ONNX_int64}, flag = {.type = ONNX_bool};
    node n = {0};
    model m;
    block inner = block_body(b, &m);
    sequence carried = *s;
    node_operand(b->w, &n, &count);
    node_operand(b->w, &n, NULL);
    wire_text(&n, 1, s->name);
    inner.index = block_declare(&inner, &index, true);
    inner.trips = trips;
    const tensor given = block_declare(&inner, &flag, true);
    snprintf(carried.name, sizeof carried.name, "t%d", b->w->made++);
    declare_sequence(&inner, 11, carried.name, s->item.type);
    block_condition(&inner, &given, -1);
    block_fill(&inner, choose(b->w->c, 2));
    insert(&inner, &carried);
    declare_sequence(&inner, 12, carried.name, s->item.type);
    node_graph(&n, "body", &m);
    add_sequence(b, &n, "Loop", s, s->count + trips);
}

static bool is_op(const char *must, const char *op) { return must && strcmp(must, op) == 0; }

static sequence start_sequence(block *b, const char *must)
{
    const tensor x = block_any(b);
    sequence s = {.item = x};
    node n = {0};
    const bool fits = x.rank && !x.symbol[0] && x.dims[0] > 0 && !b->sealed;
    if (is_op(must, "SequenceEmpty") || (!must && rarely(b->w->c, 4))) {
        node_int(&n, "dtype", x.type);
        add_sequence(b, &n, "SequenceEmpty", &s, 0);
    } else if (fits && (is_op(must, "SplitToSequence") || (!must && choose(b->w->c, 2)))) {
        const bool keep = choose(b->w->c, 2);
        node_operand(b->w, &n, &x);
        node_int(&n, "axis", choose(b->w->c, 2) ? 0 : -x.rank);
        node_int_or_default(b->w, &n, "keepdims", keep, 1);
        s.item = block_row(&x);
        if (keep) s.item = block_stacked(&s.item, 1, 0);
        add_sequence(b, &n, "SplitToSequence", &s, (int)x.dims[0]);
    } else {
        const int count = 1 + choose(b->w->c, 3);
        for (int i = 0; i < count; i++) {
            const tensor t = i ? block_like(b, &x) : x;
            node_operand(b->w, &n, &t);
        }
        add_sequence(b, &n, "SequenceConstruct", &s, count);
    }
    return s;
}

/* Makes the sequence a tensor again. */
static void end_sequence(block *b, sequence *s, const char *must)
{
    const int way = is_op(must, "SequenceAt")           ? 0
                    : is_op(must, "ConcatFromSequence") ? 1
                    : is_op(must, "SequenceLength")     ? 2
                                                        : choose(b->w->c, 4);
    node n = {0};
    tensor t = s->item;
    wire_text(&n, 1, s->name);
    if (way == 2) {
        const tensor number = {.type = ONNX_int64}, one = {.type = b->w->type};
        const tensor length = block_add(b, &n, "SequenceLength", &number);
        node cast = {0};
        node_operand(b->w, &cast, &length);
        node_int(&cast, "to", b->w->type);
        t = block_add(b, &cast, "Cast", &one);
    } else if (way == 1 && t.rank < FORM_MAX_RANK) {
        const bool make = choose(b->w->c, 2) || !t.rank;
        const int axis = choose(b->w->c, t.rank + make);
        node_int(&n, "axis", either_sign(b->w, axis, t.rank + make));
        node_int_or_default(b->w, &n, "new_axis", make, 0);
        if (make) t = block_stacked(&t, s->count, axis);
        else if (t.symbol[axis]) t.symbol[axis] = -1;
        if (!make) t.dims[axis] *= s->count;
        t = block_add(b, &n, "ConcatFromSequence", &t);
    } else {
        const tensor at = block_scalar(b, ONNX_int64, choose(b->w->c, 2 * s->count) - s->count);
        node_operand(b->w, &n, &at);
        t = block_add(b, &n, "SequenceAt", &t);
    }
    block_push(b, &t);
}

void block_sequence(block *b, const char *must)
{
    const int opset = b->w->m.opset;
    if (opset < 11) return;
    sequence s = start_sequence(b, must);
    for (int i = choose(b->w->c, 3); i-- > 0;) {
        const int way = choose(b->w->c, 5);
        if (way == 0 && s.count > 1) erase(b, &s);
        else if (way == 1 && opset >= 17 && b->depth < BLOCK_DEPTH && !b->sealed) map(b, &s);
        else if (way == 2 && opset >= 15) wrap(b, &s);
        else if (way == 3 && opset >= 13 && b->depth < BLOCK_DEPTH) grow(b, &s);
        else insert(b, &s);
    }
    if (is_op(must, "SequenceInsert") || !s.count) insert(b, &s);
    if (is_op(must, "SequenceMap")) map(b, &s);
    if (must && strncmp(must, "Optional", 8) == 0) wrap(b, &s);
    if (is_op(must, "SequenceErase")) insert(b, &s), erase(b, &s);
    end_sequence(b, &s, must);
    b->w->n_operands = 0; /* those of another operator */
}
