/* report.c - what the compiler reports: explanations, statistics, the summary line and the op table. */
#include "ir/base/json_writer.h"
#include "passes/amp/colour.h"

#include <stdio.h>
#include <string.h>

/* ---- model nodes: all IR nodes with the same ONNX name --------------------------------------- */

typedef struct model_node {
    const char *op, *name;
    const ir_node *first;
    bool low;      /* some node computes in low precision */
    bool floats;   /* has a float result */
    amp_rule rule; /* of the first coloured f32 node */
} model_node;

typedef struct model_nodes {
    VEC(model_node *) items;
    strmap *by_name;
} model_nodes;

static model_node *model_node_of(model_nodes *list, const ir_node *n, arena *a)
{
    model_node *m = strmap_get(list->by_name, n->loc.node);
    if (m) return m;
    m = arena_alloc(a, sizeof *m);
    *m = (model_node){.op = n->loc.op, .name = n->loc.node, .first = n};
    strmap_put(list->by_name, n->loc.node, m);
    vec_push(a, &list->items, m);
    return m;
}

static bool is_f32_black(amp_rule r)
{
    return r == AMP_LISTED_BLACK || r == AMP_F32_COMPUTE || r == AMP_F32_COMPUTE_MIXED || r == AMP_NODE ||
           r == AMP_TENSOR || r == AMP_UNLISTED || r == AMP_UNSUPPORTED || r == AMP_NAMED || r == AMP_OD ||
           r == AMP_RANGE || r == AMP_INITIALIZER || r == AMP_INIT_MAX;
}

void amp_count(const ir_graph *g, const amp_scope *s)
{
    compile_report *report = s->report;
    if (!report) return;
    model_nodes list = {.by_name = strmap_new(s->arena)};
    for (const ir_node *n = g->first; n && n->phase == IR_FORWARD; n = n->next) {
        if (!n->loc.op || ir_op_has(n->op, IR_CONVERTS)) continue;
        model_node *m = model_node_of(&list, n, s->arena);
        const amp_entry *e = &s->entries[n->id];
        for (int i = 0; i < n->n_out; i++) m->floats |= ir_dtype_is_float(n->out[i]->type.dtype);
        m->low |= ir_dtype_is_low(e->compute_dtype);
        if (m->rule <= AMP_F64 && !ir_dtype_is_low(e->compute_dtype)) m->rule = e->rule;
    }
    for (size_t i = 0; i < list.items.count; i++) {
        const model_node *m = list.items.items[i];
        if (!m->floats) continue;
        report->float_ops++;
        if (m->low) report->low_ops++;
        else if (s->off || m->rule <= AMP_OPAQUE) report->f32_other++;
        else if (is_f32_black(m->rule)) report->f32_black++;
        else report->f32_gray++;
    }
}

/* ---- summary --------------------------------------------------------------------------------- */

static const char *low_name(const compile_options *o) { return o->low == IR_bf16 ? "bf16" : "fp16"; }

const char *pass_summary(const compile *c, arena *a)
{
    const compile_options *o = c->options;
    const compile_report *s = &c->report;
    int f32 = s->f32_black + s->f32_gray + s->f32_other;
    const char *reasons = "";
    if (f32) {
        const struct {
            int count;
            const char *text;
        } parts[] = {{s->f32_black, "black"}, {s->f32_gray, "gray"}, {s->f32_other, "as written"}};
        for (int i = 0; i < 3; i++)
            if (parts[i].count)
                reasons = arena_printf(a, "%s%s%d %s", reasons, *reasons ? ", " : " (", parts[i].count, parts[i].text);
        reasons = arena_printf(a, "%s)", reasons);
    }
    const char *text = arena_printf(a, "%d/%d float ops in %s, %d fp32%s, %d casts inserted", s->low_ops, s->float_ops,
                                    o->level == PASS_O0 ? "low precision" : low_name(o), f32, reasons,
                                    s->casts_inserted);
    if (o->plain_runtime) return text; /* most casts of weights are stored weights, and the step is another runtime's */
    return arena_printf(a, "%s (%.1f MB/step%s), %d removed", text, (double)s->cast_bytes / 1e6,
                        s->cast_symbolic ? ", symbolic dims counted as 1" : "", s->casts_removed);
}

/* ---- operator statistics --------------------------------------------------------------------- */

typedef struct op_calls {
    const char *op;
    int f16, bf16, f32, other;
} op_calls;

ir_graph *pass_primary(const ir_module *m)
{
    static const ir_graph_role roles[] = {IR_GRAPH_train_step, IR_GRAPH_train};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (ir_graph_by_role(m, roles[i])) return ir_graph_by_role(m, roles[i]);
    return m->graphs.count ? m->graphs.items[0] : NULL;
}

static bool reads_param(const ir_node *n)
{
    const ir_value *v = ir_in(n, 0);
    return v->kind == IR_VALUE_STORAGE && v->storage->kind == IR_PARAM;
}

/* At level O2 the low copy of a parameter is not counted as a cast. */
bool pass_is_counted_cast(const ir_node *n)
{
    if (!ir_op_has(n->op, IR_CONVERTS) || n->loc.op) return false;
    const char *level = n->graph->module->training.level;
    return !(level && strcmp(level, pass_levels[PASS_O2].word) == 0 && reads_param(n));
}

static void count_casts(const ir_graph *g, const int64_t *sizes, pass_casts *casts)
{
    for (const ir_node *n = g->first; n && n->phase == IR_FORWARD; n = n->next) {
        if (!pass_is_counted_cast(n)) continue;
        const ir_type *t = &ir_out(n, 0)->type;
        casts->symbolic |= !ir_type_is_static(t);
        casts->count++;
        casts->bytes += (int64_t)pass_elements(g->module, t, sizes) * (int64_t)ir_dtype_size(t->dtype);
    }
}

pass_casts pass_count_casts(const ir_graph *g)
{
    pass_casts casts = {0};
    const int64_t *sizes = pass_symbol_sizes(g->module, 1, g->module->arena);
    for (const ir_graph *each = g; each; each = ir_next_graph_in(g, each)) count_casts(each, sizes, &casts);
    return casts;
}

/* The precision of a model node is that of the first float operand of its IR nodes; NO_DTYPE if there is none. */
static ir_dtype precision_of(const ir_node *n)
{
    for (int i = 0; i < ir_declared_operands(n); i++)
        if (ir_in(n, i) && ir_dtype_is_float(ir_in(n, i)->type.dtype)) return ir_in(n, i)->type.dtype;
    return n->n_out > 0 && ir_dtype_is_float(n->out[0]->type.dtype) ? n->out[0]->type.dtype : IR_NO_DTYPE;
}

typedef struct pass_calls {
    VEC(op_calls) items;
    pass_casts casts;
} pass_calls;

static op_calls *calls_of(pass_calls *calls, const char *op, arena *a)
{
    size_t at = 0; /* few operators: insertion sort */
    while (at < calls->items.count && strcmp(calls->items.items[at].op, op) < 0) at++;
    if (at < calls->items.count && strcmp(calls->items.items[at].op, op) == 0) return &calls->items.items[at];
    op_calls fresh = {.op = op};
    vec_push(a, &calls->items, fresh);
    op_calls *items = calls->items.items;
    for (size_t i = calls->items.count - 1; i > at; i--) items[i] = items[i - 1];
    items[at] = fresh;
    return &items[at];
}

typedef struct seen_node { /* an operator that was lowered to several nodes is one call */
    const char *op;
    ir_dtype type;
} seen_node;

static void count_calls(const ir_graph *g, pass_calls *calls, arena *a)
{
    VEC(seen_node *) nodes = {0};
    strmap *seen = strmap_new(a);
    for (const ir_node *n = g->first; n && n->phase == IR_FORWARD; n = n->next) {
        if (!n->loc.op) continue;
        seen_node *s = strmap_get(seen, n->loc.node);
        if (!s) {
            s = arena_alloc(a, sizeof *s);
            *s = (seen_node){n->loc.op, IR_NO_DTYPE};
            strmap_put(seen, n->loc.node, s);
            vec_push(a, &nodes, s);
        }
        if (s->type == IR_NO_DTYPE) s->type = precision_of(n);
    }
    for (size_t i = 0; i < nodes.count; i++) {
        op_calls *c = calls_of(calls, nodes.items[i]->op, a);
        ir_dtype t = nodes.items[i]->type;
        (*(t == IR_f16 ? &c->f16 : t == IR_bf16 ? &c->bf16 : t == IR_f32 ? &c->f32 : &c->other))++;
    }
}

/* Calls by operator, sorted by name, in the graph and its subgraphs. */
const pass_calls *pass_count_calls(const ir_graph *g, arena *a)
{
    pass_calls *calls = arena_alloc(a, sizeof *calls);
    *calls = (pass_calls){.casts = pass_count_casts(g)};
    for (const ir_graph *each = g; each; each = ir_next_graph_in(g, each)) count_calls(each, calls, a);
    return calls;
}

static const pass_calls *counted_calls(const ir_graph *g, const compile *c, arena *a)
{
    return c->report.inserted ? c->report.inserted : pass_count_calls(g, a);
}

static void write_calls(json_writer *w, const char *key, const pass_calls *calls)
{
    json_begin(w, key, '{');
    json_write_integer(w, "casts", calls->casts.count);
    json_write_integer(w, "cast_bytes", calls->casts.bytes);
    json_begin(w, "ops", '{');
    for (size_t i = 0; i < calls->items.count; i++) {
        const op_calls *c = &calls->items.items[i];
        json_begin(w, c->op, '{');
        json_write_integer(w, "fp16", c->f16);
        json_write_integer(w, "bf16", c->bf16);
        json_write_integer(w, "fp32", c->f32);
        json_write_integer(w, "other", c->other);
        json_end(w, '}');
    }
    json_end(w, '}');
    json_end(w, '}');
}

void amp_write_stats(json_writer *w, const char *key, const ir_graph *g, const compile *c, arena *a)
{
    write_calls(w, key, counted_calls(g, c, a));
}

static const char *centred(const char *text, int width, arena *a)
{
    static const char bar[] = "------------------------------------------------------------";
    int rest = width - (int)strlen(text), left = rest / 2;
    return arena_printf(a, "%.*s%s%.*s", left, bar, text, rest - left, bar);
}

/* Prints a table in the format of PaddlePaddle's operator statistics. */
void pass_print_stats(const ir_module *m, const compile *c, FILE *f, arena *a)
{
    const ir_graph *g = pass_primary(m);
    if (!g) return;
    const pass_calls *calls = counted_calls(g, c, a);
    if (c->options->json) {
        json_writer w = {.file = f};
        write_calls(&w, NULL, calls);
        putc('\n', f);
        return;
    }
    fprintf(f, "<%s>\n<%s>\n<%s | %s | %s | %s | %s>\n", centred(" op list of all blocks ", 120, a),
            centred(" op list ", 120, a), centred(" Op Name ", 40, a), centred(" FP16 Calls ", 17, a),
            centred(" BF16 Calls ", 17, a), centred(" FP32 Calls", 17, a), centred(" Other Calls ", 17, a));
    for (size_t i = 0; i < calls->items.count; i++) {
        const op_calls *row = &calls->items.items[i];
        diag_print(f, "  %-40s|  %-17d|  %-17d|  %-17d|  %d\n", row->op, row->f16, row->bf16, row->f32, row->other);
    }
    fprintf(f, "<%s>\n\n", centred(arena_printf(a, " op count: %zu ", calls->items.count), 120, a));
}

/* ---- the op table ---------------------------------------------------------------------------- */

static const char *slot_list(const ir_slot *slots, int n, arena *a)
{
    const char *text = "";
    for (int i = 0; i < n; i++) {
        const char *mark = slots[i].kind == IR_SLOT_OPT                                    ? "?"
                           : slots[i].kind == IR_SLOT_INS || slots[i].kind == IR_SLOT_OUTS ? "..."
                                                                                           : "";
        text = arena_printf(a, "%s%s%s%s", text, i ? ", " : "", slots[i].name, mark);
    }
    return text;
}

static void print_op_json(FILE *f, const ir_op_info *op, bool gradient, arena *a)
{
    json_writer w = {.file = f};
    json_begin(&w, NULL, '{');
    json_write_string(&w, "op", op->name);
    json_write_string(&w, "colour", ir_colour_name(op->colour));
    json_write_bool(&w, "gradient", gradient);
    json_write_bool(&w, "f32_inside", op->traits & IR_F32_COMPUTE);
    json_write_string(&w, "in", slot_list(op->in, op->n_in, a));
    json_write_string(&w, "out", slot_list(op->out, op->n_out, a));
    json_write_string(&w, "attributes", slot_list(op->attr, op->n_attr, a));
    json_end(&w, '}');
}

static void print_op(FILE *f, const ir_op_info *op, bool gradient, arena *a)
{
    fprintf(f, "%-28s %-6s %-8s %-6s %s -> %s {%s}\n", op->name, ir_colour_name(op->colour), gradient ? "yes" : "no",
            op->traits & IR_F32_COMPUTE ? "f32" : "", slot_list(op->in, op->n_in, a), slot_list(op->out, op->n_out, a),
            slot_list(op->attr, op->n_attr, a));
}

void pass_print_ops(FILE *f, bool json, arena *a)
{
    if (!json) fprintf(f, "%-28s %-6s %-8s %-6s %s\n", "op", "colour", "gradient", "inside", "slots");
    for (int i = 0; i < IR_OP_COUNT; i++) {
        if (json) fputs(i ? ",\n " : "[\n ", f);
        (json ? print_op_json : print_op)(f, ir_op_get((ir_op)i), pass_has_gradient((ir_op)i), a);
    }
    if (json) fputs("\n]\n", f);
}
