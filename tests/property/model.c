/* model.c - writes a graph as an ONNX model in the way exporters do: computed sizes come from Shape nodes. */
#include "tests/property/random.h"
#include "tests/unit/model_writer.h"

#include <inttypes.h>
#include <stdarg.h>

const char *const symbol_names[SYMBOLS] = {"N", "T", "A"};

typedef struct writer {
    const graph *g;
    model m;
    int names;
    char text[256][32]; /* names that live as long as the writer */
} writer;

__attribute__((format(printf, 2, 3))) static const char *name(writer *w, const char *format, ...)
{
    va_list args;
    char *to = w->text[w->names++ % 256];
    va_start(args, format);
    vsnprintf(to, sizeof *w->text, format, args);
    va_end(args);
    return to;
}

static const char *value(writer *w, int v) { return name(w, v < w->g->n_inputs ? "x%d" : "v%d", v); }

static const char *fresh(writer *w) { return name(w, "t%d", w->names); }

static const char *integers(writer *w, int count, const int64_t *items)
{
    const char *to = fresh(w);
    model_tensor(&w->m, tensor_new(to, 7, name(w, "%d", count), items, (size_t)count * sizeof *items));
    return to;
}

static const char *integer(writer *w, int64_t n) { return integers(w, 1, &n); }

static wire real(const writer *w, const char *to, const char *dims, double v)
{
    float single = (float)v;
    return w->g->f64 ? tensor_new(to, 11, dims, &v, sizeof v) : tensor_new(to, 1, dims, &single, sizeof single);
}

/* Adds a node without attributes and with up to three operands. */
static const char *call(writer *w, const char *op, const char *a, const char *b, const char *c)
{
    char in[128];
    const char *to = fresh(w);
    snprintf(in, sizeof in, "%s%s%s%s%s", a, b ? "," : "", b ? b : "", c ? "," : "", c ? c : "");
    model_node(&w->m, op, in, to);
    return to;
}

static const char *concat(writer *w, const char *parts)
{
    const char *to = fresh(w);
    node n = node_new("Concat", parts, to);
    node_int(&n, "axis", 0);
    model_add(&w->m, &n);
    return to;
}

/* i64[1] */
static const char *size_of(writer *w, int v, int axis)
{
    return call(w, "Gather", call(w, "Shape", value(w, v), NULL, NULL), integer(w, axis), NULL);
}

static const char *bound_value(writer *w, const bound *b)
{
    if (b->value < 0) return integer(w, b->number);
    const char *size = call(w, "Add", size_of(w, b->value, b->axis), integer(w, b->add), NULL);
    return b->div == 1 ? size : call(w, "Div", size, integer(w, b->div), NULL);
}

static const char *bound_list(writer *w, const bound *b, int count)
{
    char parts[256] = "";
    for (int i = 0; i < count; i++)
        snprintf(parts + strlen(parts), sizeof parts - strlen(parts), "%s%s", i ? "," : "", bound_value(w, &b[i]));
    return concat(w, parts);
}

/* ---- operators ---- */

static const char *join(writer *w, const int64_t *items, int count)
{
    char list[128] = "";
    for (int i = 0; i < count; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%" PRId64, i ? "," : "", items[i]);
    char *to = w->text[w->names++ % 256];
    snprintf(to, sizeof *w->text, "%.31s", list);
    return to;
}

static void slice(writer *w, const step *s)
{
    char in[256];
    int64_t axes[MAX_RANK];
    for (int i = 0; i < s->count; i++) axes[i] = s->axes[i];
    const char *starts = bound_list(w, s->a, s->count), *ends = bound_list(w, s->b, s->count);
    snprintf(in, sizeof in, "%s,%s,%s,%s,%s", value(w, s->in[0]), starts, ends, integers(w, s->count, axes),
             integers(w, s->count, s->list));
    model_node(&w->m, "Slice", in, value(w, s->out[0]));
}

static void split(writer *w, const step *s)
{
    char in[128], out[64];
    snprintf(out, sizeof out, "%s,%s", value(w, s->out[0]), value(w, s->out[1]));
    snprintf(in, sizeof in, "%s", value(w, s->in[0]));
    if (s->kind == SPLIT) {
        const bound rest = {.value = s->in[0], .axis = s->axis, .add = -s->a[0].number, .div = 1};
        const char *sizes = bound_list(w, (bound[]){s->a[0], rest}, 2);
        snprintf(in, sizeof in, "%s,%s", value(w, s->in[0]), sizes);
    }
    node n = node_new("Split", in, out);
    node_int(&n, "axis", s->axis);
    if (s->kind == CHUNK) node_int(&n, "num_outputs", 2);
    model_add(&w->m, &n);
}

static void pool(writer *w, const step *s)
{
    int k = s->count;
    node n = node_new(s->kind == MAX_POOL ? "MaxPool" : "AveragePool", value(w, s->in[0]), value(w, s->out[0]));
    node_ints(&n, "kernel_shape", join(w, s->list, k));
    node_ints(&n, "strides", join(w, s->list + k, k));
    if (s->kind == MAX_POOL) node_ints(&n, "dilations", join(w, s->list + 2 * k, k));
    node_ints(&n, "pads", join(w, s->list + 3 * k, 2 * k));
    node_int(&n, "ceil_mode", s->ceil);
    if (s->kind == AVG_POOL) node_int(&n, "count_include_pad", s->count_pad);
    model_add(&w->m, &n);
}

static void reduce(writer *w, const step *s)
{
    bool operand = s->kind == SUM || w->g->opset >= 18;
    const char *x = value(w, s->in[0]);
    node n = node_new(s->kind == SUM ? "ReduceSum" : "ReduceMean",
                      operand ? name(w, "%s,%s", x, integers(w, s->count, s->list)) : x, value(w, s->out[0]));
    if (!operand) node_ints(&n, "axes", join(w, s->list, s->count));
    node_int(&n, "keepdims", s->keep);
    model_add(&w->m, &n);
}

static void merge(writer *w, const step *s)
{
    char parts[256] = "";
    int x = s->in[0], rank = w->g->rank[x];
    for (int a = 0; a < rank; a++) {
        if (a == s->axis + 1) continue;
        const char *size = a != s->axis ? size_of(w, x, a)
                           : s->infer   ? integer(w, -1)
                                        : call(w, "Mul", size_of(w, x, a), size_of(w, x, a + 1), NULL);
        snprintf(parts + strlen(parts), sizeof parts - strlen(parts), "%s%s", a ? "," : "", size);
    }
    node n = node_new("Reshape", name(w, "%s,%s", value(w, x), concat(w, parts)), value(w, s->out[0]));
    if (!s->infer) node_int(&n, "allowzero", 1);
    model_add(&w->m, &n);
}

static void with_attribute(writer *w, const step *s, const char *op, const char *in, const char *attribute, int64_t v)
{
    node n = node_new(op, in, value(w, s->out[0]));
    if (attribute) node_int(&n, attribute, v);
    model_add(&w->m, &n);
}

static void add_range(writer *w, const step *s)
{
    const int rank = w->g->rank[s->in[0]];
    const char *size = call(w, "Squeeze", size_of(w, s->in[0], rank - 1), NULL, NULL), *cast = fresh(w);
    const char *zero = call(w, "Squeeze", integer(w, 0), NULL, NULL);
    const char *one = call(w, "Squeeze", integer(w, 1), NULL, NULL);
    node n = node_new("Cast", call(w, "Range", zero, size, one), cast);
    node_int(&n, "to", w->g->f64 ? 11 : 1);
    model_add(&w->m, &n);
    model_node(&w->m, "Add", name(w, "%s,%s", value(w, s->in[0]), cast), value(w, s->out[0]));
}

static void fill(writer *w, const step *s)
{
    const char *filled = fresh(w);
    node n = node_new("ConstantOfShape", call(w, "Shape", value(w, s->in[0]), NULL, NULL), filled);
    node_tensor(&n, "value", real(w, "two", "1", 2));
    model_add(&w->m, &n);
    model_node(&w->m, "Mul", name(w, "%s,%s", value(w, s->in[0]), filled), value(w, s->out[0]));
}

static void pad(writer *w, const step *s)
{
    const char *amount = fresh(w), *pads = integers(w, 2 * s->count, s->list);
    model_tensor(&w->m, real(w, amount, "", (double)s->value));
    node n = node_new("Pad", name(w, "%s,%s,%s", value(w, s->in[0]), pads, amount), value(w, s->out[0]));
    node_text(&n, "mode", s->mode);
    model_add(&w->m, &n);
}

static void write_step(writer *w, const step *s)
{
    const char *x = value(w, s->in[0]), *two = s->n_in > 1 ? name(w, "%s,%s", x, value(w, s->in[1])) : NULL;
    switch (s->kind) {
    case SLICE: slice(w, s); break;
    case PAD: pad(w, s); break;
    case SPLIT:
    case CHUNK: split(w, s); break;
    case CONCAT: with_attribute(w, s, "Concat", two, "axis", s->axis); break;
    case TRANSPOSE: {
        node n = node_new("Transpose", x, value(w, s->out[0]));
        node_ints(&n, "perm", join(w, s->list, s->count));
        model_add(&w->m, &n);
        break;
    }
    case MERGE: merge(w, s); break;
    case FLATTEN: with_attribute(w, s, "Flatten", x, "axis", s->axis); break;
    case UNSQUEEZE: with_attribute(w, s, "Unsqueeze", name(w, "%s,%s", x, integer(w, s->axis)), NULL, 0); break;
    case SQUEEZE: with_attribute(w, s, "Squeeze", name(w, "%s,%s", x, integer(w, s->axis)), NULL, 0); break;
    case EXPAND: {
        const char *shape = call(w, "Shape", value(w, s->in[1]), NULL, NULL);
        with_attribute(w, s, "Expand", name(w, "%s,%s", x, shape), NULL, 0);
        break;
    }
    case TILE: with_attribute(w, s, "Tile", name(w, "%s,%s", x, integers(w, s->count, s->list)), NULL, 0); break;
    case TRILU: {
        const char *k = fresh(w);
        model_tensor(&w->m, tensor_new(k, 7, "", &s->number, sizeof s->number));
        with_attribute(w, s, "Trilu", name(w, "%s,%s", x, k), "upper", s->upper);
        break;
    }
    case GATHER: {
        const char *indices = integers(w, s->count, s->list);
        with_attribute(w, s, "Gather", name(w, "%s,%s", x, indices), "axis", s->axis);
        break;
    }
    case MAX_POOL:
    case AVG_POOL: pool(w, s); break;
    case GLOBAL_POOL: with_attribute(w, s, "GlobalAveragePool", x, NULL, 0); break;
    case SUM:
    case MEAN: reduce(w, s); break;
    case SOFTMAX: with_attribute(w, s, "Softmax", x, "axis", s->axis); break;
    case RANGE: add_range(w, s); break;
    case FILL: fill(w, s); break;
    case ADD: with_attribute(w, s, "Add", two, NULL, 0); break;
    case MUL: with_attribute(w, s, "Mul", two, NULL, 0); break;
    case NEG: with_attribute(w, s, "Neg", x, NULL, 0); break;
    case RELU: with_attribute(w, s, "Relu", x, NULL, 0); break;
    case SIN: with_attribute(w, s, "Sin", x, NULL, 0); break;
    case KINDS: break;
    }
}

/* ---- the model ---- */

static void write_inputs(writer *w)
{
    const graph *g = w->g;
    for (int i = 0; i < g->n_inputs; i++) {
        char dims[64] = "";
        for (int a = 0; a < g->rank[i]; a++) {
            char one[24];
            snprintf(one, sizeof one, "%" PRId64, g->dims[i][a]);
            snprintf(dims + strlen(dims), sizeof dims - strlen(dims), "%s%s", a ? "," : "",
                     g->dims[i][a] < 0 ? symbol_names[-1 - g->dims[i][a]] : one);
        }
        model_input(&w->m, value(w, i), g->f64 ? 11 : 1, dims);
    }
}

static const char *half_square(writer *w, const char *x)
{
    const char *half = fresh(w), *sum = fresh(w);
    model_tensor(&w->m, real(w, half, "", 0.5));
    node n = node_new("ReduceSum", call(w, "Mul", call(w, "Mul", x, x, NULL), half, NULL), sum);
    node_int(&n, "keepdims", 0);
    model_add(&w->m, &n);
    return sum;
}

model_bytes graph_model(const graph *g)
{
    writer w = {.g = g, .m = model_new(g->opset)};
    const char *loss = NULL;
    write_inputs(&w);
    for (int i = 0; i < g->n_steps; i++) write_step(&w, &g->steps[i]);
    for (int v = g->n_inputs; v < g->n_values; v++) {
        if (g->read[v]) continue;
        const char *one = half_square(&w, value(&w, v));
        loss = loss ? call(&w, "Add", loss, one, NULL) : one;
        model_output(&w.m, value(&w, v), g->f64 ? 11 : 1, NULL);
    }
    model_node(&w.m, "Identity", loss, "loss");
    model_output(&w.m, "loss", g->f64 ? 11 : 1, NULL);
    wire file = model_finish(&w.m);
    return (model_bytes){file.bytes, file.size};
}

/* ---- as text ---- */

static void print_bound(const bound *b)
{
    if (b->value < 0) printf(" %" PRId64, b->number);
    else printf(" (v%d[%d]%+" PRId64 ")/%" PRId64, b->value, b->axis, b->add, b->div);
}

void graph_print(const graph *g, const int64_t *sizes)
{
    static const char *const names[KINDS] = {
        "slice",   "pad",     "split", "chunk", "concat", "transpose", "merge",    "flatten",     "unsqueeze",
        "squeeze", "expand",  "tile",  "trilu", "gather", "max_pool",  "avg_pool", "global_pool", "sum",
        "mean",    "softmax", "range", "fill",  "add",    "mul",       "neg",      "relu",        "sin"};
    printf("opset %d, %s, sizes", g->opset, g->f64 ? "f64" : "f32");
    for (int i = 0; i < SYMBOLS && sizes; i++) printf(" %s=%" PRId64, symbol_names[i], sizes[i]);
    for (int i = 0; i < g->n_inputs; i++) {
        printf("\n  v%d: input", i);
        for (int a = 0; a < g->rank[i]; a++) {
            if (g->dims[i][a] < 0) printf(" %s", symbol_names[-1 - g->dims[i][a]]);
            else printf(" %" PRId64, g->dims[i][a]);
        }
    }
    for (int i = 0; i < g->n_steps; i++) {
        const step *s = &g->steps[i];
        printf("\n  v%d: %s v%d", s->out[0], names[s->kind], s->in[0]);
        if (s->n_in > 1) printf(" v%d", s->in[1]);
        printf(" axis %d number %" PRId64 " mode %s flags %d%d%d%d%d list", s->axis, s->number, s->mode ? s->mode : "-",
               s->upper, s->ceil, s->count_pad, s->keep, s->infer);
        for (int k = 0; k < (s->kind == PAD ? 2 : s->kind == MAX_POOL || s->kind == AVG_POOL ? 5 : 1) * s->count; k++)
            printf(" %" PRId64, s->list[k]);
        for (int k = 0; k < s->count && s->kind == SLICE; k++) {
            printf("; axis %d", s->axes[k]);
            print_bound(&s->a[k]);
            print_bound(&s->b[k]);
        }
        if (s->kind == SPLIT) print_bound(&s->a[0]);
    }
    printf("\n");
}
