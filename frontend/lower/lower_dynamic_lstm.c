/* lower_dynamic_lstm.c - DynamicQuantizeLSTM of com.microsoft: an LSTM whose weights are bytes and which quantises its
 * input, as a whole, and its state before each step.
 *
 * onnxruntime divides the sequences of a batch among its threads, and each part of the state has a range of its own.
 * Here, the parts are those of as many threads as there are sequences: one sequence, unless onnxruntime would not
 * divide them.
 *
 * The node is replaced by a graph of ONNX operators that is made here: for each direction a Scan, whose body quantises
 * the state and runs one step of an LSTM. So steps are unrolled, or run in a loop if their number is not known. */
#include "frontend/lower/lower.h"

#include <string.h>
#include <strings.h>

enum {
    LSTM_X,
    LSTM_W,
    LSTM_R,
    LSTM_B,
    LSTM_LENGTHS,
    LSTM_H,
    LSTM_C,
    LSTM_P,
    LSTM_W_SCALE,
    LSTM_R_SCALE = 10,
    LSTM_OPERANDS = 12,
    BODY_OPSET = 13,    /* of the operators that the graph has */
    DIVIDED_FROM = 2,   /* sequences; */
    ALWAYS_FROM = 5,    /* or these, if the state is longer */
    DIVIDED_UP_TO = 256 /* elements of the state */
};

/* ---- operands ---------------------------------------------------------------------------------- */

/* One element per direction, or per direction and column, in a shape that broadcasts to the weights. */
static ir_value *per_direction(onnx_node *n, ir_value *v, const ir_type *w)
{
    const ir_type *t = &v->type;
    const bool columns = t->rank == 2;
    const ir_dim dims[] = {w->dims[0], 1, columns ? w->dims[2] : 1};
    if ((t->rank != 1 && t->rank != 2) || t->dims[0] != w->dims[0] || (columns && t->dims[1] != w->dims[2]))
        onnx_reject(n, "a scale or zero point does not fit its weights");
    return n->failed ? NULL : ir_reshape(n->b, v, dims, 3);
}

/* Weights of bytes [directions, from, gates] as floats [directions, gates, from], which LSTM has. */
static ir_value *lstm_weights(onnx_node *n, int i, int scale)
{
    ir_value *w = n->in[i], *step = onnx_held_scale(n, scale);
    if (w->type.rank != 3) onnx_reject(n, "operand %d has %d dimensions, not 3", i, w->type.rank);
    if (n->failed || !step) return NULL;
    ir_value *v = onnx_centred(n, w, per_direction(n, n->in[scale + 1], &w->type));
    v = ir_binary(n->b, IR_OP_mul, v, per_direction(n, step, &w->type));
    return v ? ir_transpose(n->b, v, (const int64_t[]){0, 2, 1}) : NULL;
}

/* x with zeros, which do not change its range, in the steps that no sequence has. */
static ir_value *within_lengths(onnx_node *n, ir_value *x, ir_value *lengths)
{
    if (!lengths || x->type.rank != 3 || lengths->type.rank != 1) return x;
    const ir_dim steps = x->type.dims[0];
    ir_node *longest = ir_new(n->b, IR_OP_reduce_max, 1, lengths);
    ir_set_list(longest, IR_ATTR(reduce_max, axes), (const int64_t[]){0}, 1);
    ir_set_bool(longest, IR_ATTR(reduce_max, keepdims), false);
    ir_value *step = onnx_iota(n, lengths->type.dtype, steps);
    ir_value *has = ir_binary(n->b, IR_OP_less, step, ir_done(n->b, longest));
    has = has ? ir_reshape(n->b, has, (const ir_dim[]){steps, 1, 1}, 3) : NULL;
    return ir_done(n->b, ir_new(n->b, IR_OP_where, 3, has, x, ir_scalar_like(n->b, x, 0)));
}

/* ---- graphs -------------------------------------------------------------------------------------- */

enum { MAX_NODES = 48, MAX_NAMES = 24, MAX_ATTRIBUTES = 8 };

/* "a,,b" -> a, none, b */
static char **names_of(arena *a, const char *list, size_t *n)
{
    char **names = arena_array(a, MAX_NAMES, sizeof *names);
    for (*n = 0; list && *list;) {
        const size_t length = strcspn(list, ",");
        names[(*n)++] = arena_printf(a, "%.*s", (int)length, list);
        list += length;
        if (*list == ',' && !*++list) names[(*n)++] = "";
    }
    return names;
}

static Onnx__ValueInfoProto **infos_of(arena *a, const char *list, size_t *n)
{
    char **names = names_of(a, list, n);
    Onnx__ValueInfoProto **infos = arena_array(a, MAX_NAMES, sizeof *infos);
    for (size_t i = 0; i < *n; i++) {
        infos[i] = arena_alloc(a, sizeof **infos);
        onnx__value_info_proto__init(infos[i]);
        infos[i]->name = names[i];
    }
    return infos;
}

static Onnx__GraphProto *graph_new(arena *a, const char *inputs, const char *outputs)
{
    Onnx__GraphProto *g = arena_alloc(a, sizeof *g);
    onnx__graph_proto__init(g);
    g->node = arena_array(a, MAX_NODES, sizeof *g->node);
    g->input = infos_of(a, inputs, &g->n_input);
    g->output = infos_of(a, outputs, &g->n_output);
    return g;
}

static Onnx__NodeProto *add_node(arena *a, Onnx__GraphProto *g, const char *op, const char *in, const char *out)
{
    Onnx__NodeProto *p = arena_alloc(a, sizeof *p);
    onnx__node_proto__init(p);
    p->op_type = arena_strdup(a, op);
    p->input = names_of(a, in, &p->n_input);
    p->output = names_of(a, out, &p->n_output);
    p->attribute = arena_array(a, MAX_ATTRIBUTES, sizeof *p->attribute);
    return g->node[g->n_node++] = p;
}

static Onnx__AttributeProto *add_attribute(arena *a, Onnx__NodeProto *p, const char *name,
                                           Onnx__AttributeProto__AttributeType type)
{
    Onnx__AttributeProto *made = arena_alloc(a, sizeof *made);
    onnx__attribute_proto__init(made);
    made->name = arena_strdup(a, name);
    made->has_type = true;
    made->type = type;
    return p->attribute[p->n_attribute++] = made;
}

static void add_int(arena *a, Onnx__NodeProto *p, const char *name, int64_t value)
{
    Onnx__AttributeProto *made = add_attribute(a, p, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    made->has_i = true;
    made->i = value;
}

/* As many equal numbers, or 0, 1, .. if they rise. */
static void add_ints(arena *a, Onnx__NodeProto *p, const char *name, size_t count, int64_t first, bool rising)
{
    Onnx__AttributeProto *made = add_attribute(a, p, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    made->ints = arena_array(a, count, sizeof *made->ints);
    for (made->n_ints = 0; made->n_ints < count; made->n_ints++)
        made->ints[made->n_ints] = first + (rising ? (int64_t)made->n_ints : 0);
}

/* ---- a step -------------------------------------------------------------------------------------- */

typedef struct quantised {
    onnx_node *n;
    arena *a;
    int directions;
    bool reverse, bias, peepholes, lengths, divided, sequences; /* sequences: the first result is used */
} quantised;

static const Onnx__AttributeProto *attribute_of(const onnx_node *n, const char *name)
{
    for (size_t i = 0; i < n->proto->n_attribute; i++)
        if (strcmp(n->proto->attribute[i]->name, name) == 0) return n->proto->attribute[i];
    return NULL;
}

/* How many numbers of a list of parameters the first `count` activations read; `which`: alpha, beta. */
static size_t parameters_of(const Onnx__AttributeProto *names, size_t count, int which)
{
    size_t n = 0;
    for (size_t i = 0; names && i < count && i < names->n_strings; i++) {
        const int word = onnx_activation_find(onnx_bytes_text(names->strings[i]));
        n += word >= 0 && onnx_activation_of(word).parameters > which;
    }
    return n;
}

/* The part of a list attribute that belongs to direction d. */
static void add_part(const quantised *q, Onnx__NodeProto *p, int d, const char *name, size_t before)
{
    const Onnx__AttributeProto *all = attribute_of(q->n, name);
    if (!all) return;
    onnx_ignore(q->n, name);
    Onnx__AttributeProto *part = add_attribute(q->a, p, name, all->type);
    *part = *all;
    size_t *n = all->n_strings ? &part->n_strings : &part->n_floats;
    const size_t from = before < *n ? before : *n;
    if (q->directions == 2) *n = d ? *n - from : from;
    if (d && part->strings) part->strings += from;
    if (d && part->floats) part->floats += from;
}

static void add_activations(const quantised *q, Onnx__NodeProto *p, int d)
{
    const Onnx__AttributeProto *names = attribute_of(q->n, "activations");
    const size_t count = 3;
    if (names && names->n_strings != count * (size_t)q->directions)
        onnx_reject(q->n, "has %zu activations, not %d", names->n_strings, 3 * q->directions);
    add_part(q, p, d, "activations", count);
    add_part(q, p, d, "activation_alpha", parameters_of(names, count, 0));
    add_part(q, p, d, "activation_beta", parameters_of(names, count, 1));
    static const char *const same[] = {"clip", "input_forget", "hidden_size"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        const Onnx__AttributeProto *one = attribute_of(q->n, same[i]);
        if (!one) continue;
        onnx_ignore(q->n, same[i]);
        p->attribute[p->n_attribute++] = (Onnx__AttributeProto *)(uintptr_t)one;
    }
}

/* h in bytes of its range and 0, as floats. */
static void add_quantisation(const quantised *q, Onnx__GraphProto *g)
{
    static const char *const lines[][3] = {
        {"Min", "lowest,zero", "low"},    {"Max", "highest,zero", "high"}, {"Sub", "high,low", "range"},
        {"Equal", "range,zero", "empty"}, {"Div", "range,levels", "step"}, {"Where", "empty,one,step", "scale"},
        {"Div", "low,scale", "start"},    {"Sub", "zero,start", "place"},  {"Clip", "place,zero,levels", "inside"},
        {"Round", "inside", "whole"},
    };
    static const char *const ends[][2] = {{"ReduceMin", "lowest"}, {"ReduceMax", "highest"}};
    for (int i = 0; i < 2; i++) {
        Onnx__NodeProto *p = add_node(q->a, g, ends[i][0], "h", ends[i][1]);
        add_ints(q->a, p, "axes", q->divided ? 1 : 2, q->divided, true);
        add_int(q->a, p, "keepdims", 0);
    }
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) add_node(q->a, g, lines[i][0], lines[i][1], lines[i][2]);
    add_int(q->a, add_node(q->a, g, "Cast", "whole", "point"), "to", ONNX_uint8);
    add_int(q->a, add_node(q->a, g, "QuantizeLinear", "h,scale,point", "bytes"), "axis", 0);
    add_int(q->a, add_node(q->a, g, "DequantizeLinear", "bytes,scale,point", "state"), "axis", 0);
}

/* h, c -> the next ones, and the row of results. With lengths, the state of a sequence that has ended no longer
 * changes, and what the ranges see of it is 0 if there are rows of results. */
static Onnx__GraphProto *body_of(const quantised *q, int d)
{
    arena *a = q->a;
    Onnx__GraphProto *g = q->lengths ? graph_new(a, "h,c,last,x,t", "h_next,c_next,last_next,row")
                                     : graph_new(a, "h,c,x", "h_next,c_next,h_next");
    add_quantisation(q, g);
    add_node(a, g, "Unsqueeze", "x,axis", "x_row");
    add_node(a, g, "Unsqueeze", "state,axis", "h_row");
    add_node(a, g, "Unsqueeze", "c,axis", "c_row");
    const char *operands = arena_printf(a, "x_row,w%d,r%d,%s,,h_row,c_row%s", d, d,
                                        q->bias ? arena_printf(a, "b%d", d) : "",
                                        q->peepholes ? arena_printf(a, ",p%d", d) : "");
    add_activations(q, add_node(a, g, "LSTM", operands, ",h2,c2"), d);
    add_node(a, g, "Squeeze", "h2,axis", q->lengths ? "h3" : "h_next");
    add_node(a, g, "Squeeze", "c2,axis", q->lengths ? "c3" : "c_next");
    if (!q->lengths) return g;
    add_node(a, g, "Less", "t,ends", "goes_on");
    add_node(a, g, "Where", "goes_on,h3,last", "last_next");
    add_node(a, g, "Where", "goes_on,c3,c", "c_next");
    add_node(a, g, "Where", "goes_on,h3,zero", "row");
    add_node(a, g, "Identity", q->sequences ? "row" : "last_next", "h_next");
    return g;
}

/* ---- the graph ----------------------------------------------------------------------------------- */

/* One tensor per direction: w -> w0, w1. */
static void add_split(const quantised *q, Onnx__GraphProto *g, const char *name)
{
    const char *parts = arena_printf(q->a, q->directions == 2 ? "%s0,%s1" : "%s0", name, name);
    add_int(q->a, add_node(q->a, g, "Split", name, parts), "axis", 0);
}

static void add_direction(const quantised *q, Onnx__GraphProto *g, int d)
{
    arena *a = q->a;
    const bool backwards = q->reverse || d == 1, turned = backwards && q->lengths;
    const size_t rows = q->lengths ? 2 : 1;
    const char *x = "x";
    add_node(a, g, "Squeeze", arena_printf(a, "h%d,axis", d), arena_printf(a, "start_h%d", d));
    add_node(a, g, "Squeeze", arena_printf(a, "c%d,axis", d), arena_printf(a, "start_c%d", d));
    if (turned) { /* each sequence by itself */
        x = arena_printf(a, "x%d", d);
        Onnx__NodeProto *p = add_node(a, g, "ReverseSequence", "x,lengths", x);
        add_int(a, p, "batch_axis", 1);
        add_int(a, p, "time_axis", 0);
    }
    Onnx__NodeProto *scan = add_node(a, g, "Scan",
                                     q->lengths ? arena_printf(a, "start_h%d,start_c%d,start_last,%s,steps", d, d, x)
                                                : arena_printf(a, "start_h%d,start_c%d,%s", d, d, x),
                                     q->lengths ? arena_printf(a, "end_h%d,end_c%d,result_h%d,rows%d", d, d, d, d)
                                                : arena_printf(a, "result_h%d,end_c%d,rows%d", d, d, d));
    Onnx__AttributeProto *body = add_attribute(a, scan, "body", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH);
    body->g = body_of(q, d);
    add_int(a, scan, "num_scan_inputs", (int64_t)rows);
    if (backwards && !turned) {
        add_ints(a, scan, "scan_input_directions", rows, 1, false);
        add_ints(a, scan, "scan_output_directions", 1, 1, false);
    }
    if (turned) {
        Onnx__NodeProto *p = add_node(a, g, "ReverseSequence", arena_printf(a, "rows%d,lengths", d),
                                      arena_printf(a, "turned%d", d));
        add_int(a, p, "batch_axis", 1);
        add_int(a, p, "time_axis", 0);
    }
    if (q->lengths) /* a sequence without a step has no state */
        add_node(a, g, "Where", arena_printf(a, "any,end_c%d,zero", d), arena_printf(a, "result_c%d", d));
    const char *sequence = arena_printf(a, turned ? "turned%d,axis1" : "rows%d,axis1", d);
    add_node(a, g, "Unsqueeze", sequence, arena_printf(a, "y%d", d));
    add_node(a, g, "Unsqueeze", arena_printf(a, "result_h%d,axis", d), arena_printf(a, "last_h%d", d));
    add_node(a, g, "Unsqueeze", arena_printf(a, q->lengths ? "result_c%d,axis" : "end_c%d,axis", d),
             arena_printf(a, "last_c%d", d));
}

/* `inputs`: their names. */
static Onnx__GraphProto *whole_graph(const quantised *q, const char *inputs)
{
    static const char *const results[][2] = {{"y", "y"}, {"last_h", "y_h"}, {"last_c", "y_c"}};
    arena *a = q->a;
    Onnx__GraphProto *g = graph_new(a, inputs, "y,y_h,y_c");
    static const char *const split[] = {"w", "r", "h", "c"};
    for (int i = 0; i < 4; i++) add_split(q, g, split[i]);
    if (q->bias) add_split(q, g, "b");
    if (q->peepholes) add_split(q, g, "p");
    for (int d = 0; d < q->directions; d++) add_direction(q, g, d);
    for (int i = 0; i < 3; i++) {
        const char *from = results[i][0];
        const char *parts = arena_printf(a, q->directions == 2 ? "%s0,%s1" : "%s0", from, from);
        add_int(a, add_node(a, g, "Concat", parts, results[i][1]), "axis", i == 0);
    }
    return g;
}

typedef struct bound {
    const char *names;
    onnx_item items[MAX_NAMES];
    int count;
} bound;

static void bind(const quantised *q, bound *b, const char *name, ir_value *v)
{
    b->names = b->count ? arena_printf(q->a, "%s,%s", b->names, name) : name;
    b->items[b->count++].value = v;
    if (!v) q->n->failed = true;
}

static ir_value *axis_value(onnx_node *n, int64_t axis)
{
    const ir_type type = ir_type_make(IR_i64, 1, (const ir_dim[]){1});
    return ir_constant(n->b, "axis", &type, &axis);
}

static ir_value *zeros(onnx_node *n, const ir_dim *dims, int rank)
{
    return ir_expand(n->b, ir_scalar(n->b, IR_f32, 0), dims, rank);
}

static void bind_lengths(const quantised *q, bound *b, const ir_dim *state)
{
    onnx_node *n = q->n;
    ir_value *lengths = n->in[LSTM_LENGTHS], *ends = ir_reshape(n->b, lengths, (const ir_dim[]){state[1], 1}, 2);
    bind(q, b, "lengths", ir_cast(n->b, lengths, IR_i64));
    bind(q, b, "ends", ends);
    bind(q, b, "steps", onnx_iota(n, lengths->type.dtype, n->in[LSTM_X]->type.dims[0]));
    bind(q, b, "any", ends ? ir_binary(n->b, IR_OP_greater, ends, ir_scalar_like(n->b, ends, 0)) : NULL);
    bind(q, b, "start_last", zeros(n, state + 1, 2));
}

/* Lowers the graph in place of the node. */
static void lower_graph(const quantised *q, bound *b)
{
    onnx_node *n = q->n;
    onnx_importer *im = n->importer;
    const int opset = im->opset;
    const strmap *composites = im->composites;
    const Onnx__GraphProto *g = whole_graph(q, b->names);
    onnx_body body = {.node = n,
                      .scope = {.graph = g,
                                .bindings = strmap_new(im->scratch),
                                .made = true,
                                .path = arena_printf(im->scratch, "%s/", n->b->loc.node)},
                      .n_in = (int)g->n_input,
                      .n_out = (int)g->n_output};
    onnx_item out[3];
    if (n->failed) return;
    im->opset = BODY_OPSET;
    im->composites = NULL;
    const bool lowered = onnx_body_lower(&body, body.scope.path, b->items, out);
    im->opset = opset;
    im->composites = composites;
    for (int i = 0; i < n->n_out && lowered; i++) n->out[i] = out[i].value;
}

static void check_operands(quantised *q)
{
    onnx_node *n = q->n;
    const int ranks[] = {3, 3, 3, 2, 1, 3, 3, 2};
    if (n->n_in != LSTM_OPERANDS) onnx_reject(n, "has %d operands, not %d", n->n_in, LSTM_OPERANDS);
    for (int i = 0; i <= LSTM_P && !n->failed; i++)
        if (onnx_in(n, i) && n->in[i]->type.rank != ranks[i])
            onnx_reject(n, "operand %d has %d dimensions, not %d", i, n->in[i]->type.rank, ranks[i]);
    for (int i = 0; i <= LSTM_P && !n->failed; i++)
        if (onnx_in(n, i) && i != LSTM_X && i != LSTM_LENGTHS && n->in[i]->type.dims[0] != q->directions)
            onnx_reject(n, "operand %d is not of %d directions", i, q->directions);
}

void onnx_lower_dynamic_lstm(onnx_node *n)
{
    static const char *const words[] = {"forward", "reverse", "bidirectional", NULL};
    const int direction = onnx_word(n, "direction", words, 0);
    quantised q = {.n = n, .a = n->importer->scratch, .directions = direction == 2 ? 2 : 1, .reverse = direction == 1};
    check_operands(&q);
    if (n->failed) return;
    const ir_dim state[] = {q.directions, n->in[LSTM_X]->type.dims[1], n->in[LSTM_R]->type.dims[1]};
    q.bias = onnx_in(n, LSTM_B);
    q.peepholes = onnx_in(n, LSTM_P);
    q.lengths = onnx_in(n, LSTM_LENGTHS);
    q.sequences = *n->proto->output[0];
    q.divided = ir_dim_is_symbolic(state[1]) || state[1] >= ALWAYS_FROM ||
                (state[1] >= DIVIDED_FROM && !ir_dim_is_symbolic(state[2]) && state[2] <= DIVIDED_UP_TO);
    const onnx_bytes_of_range x = onnx_dynamic_quantized(n, within_lengths(n, n->in[LSTM_X], onnx_in(n, LSTM_LENGTHS)));
    if (n->failed || !x.bytes) return;
    bound b = {.names = ""};
    bind(&q, &b, "x", ir_binary(n->b, IR_OP_mul, onnx_centred(n, x.bytes, x.zero), x.scale));
    bind(&q, &b, "w", lstm_weights(n, LSTM_W, LSTM_W_SCALE));
    bind(&q, &b, "r", lstm_weights(n, LSTM_R, LSTM_R_SCALE));
    bind(&q, &b, "h", onnx_in(n, LSTM_H) ? n->in[LSTM_H] : zeros(n, state, 3));
    bind(&q, &b, "c", onnx_in(n, LSTM_C) ? n->in[LSTM_C] : zeros(n, state, 3));
    if (q.bias) bind(&q, &b, "b", n->in[LSTM_B]);
    if (q.peepholes) bind(&q, &b, "p", n->in[LSTM_P]);
    if (q.lengths) bind_lengths(&q, &b, state);
    bind(&q, &b, "axis", axis_value(n, 0));
    bind(&q, &b, "axis1", axis_value(n, 1));
    bind(&q, &b, "zero", ir_scalar(n->b, IR_f32, 0));
    bind(&q, &b, "one", ir_scalar(n->b, IR_f32, 1));
    bind(&q, &b, "levels", ir_scalar(n->b, IR_f32, UINT8_MAX));
    if (!n->failed) lower_graph(&q, &b);
}
