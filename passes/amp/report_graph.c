/* report_graph.c - writes a report as JSON: what --stats and --explain print, and the forward graph after all passes.
 * A table is an object with `columns` and `rows`; in rows, texts are positions in `strings`, and -1 is nothing. */
#include "ir/base/json_writer.h"
#include "ir/ops/formulas.h"
#include "passes/amp/cost.h"
#include "passes/amp/explain.h"

#include <string.h>

typedef struct edge {
    int from, to; /* rows of nodes; from -1: a weight */
    const ir_value *value;
    int cast; /* the cast between them; -1: none */
} edge;

typedef struct node_row {
    const char *kind; /* node, part, input, output, added (by the compiler) */
    const char *name, *op, *place;
    const node_report *report; /* NULL: has no precision of its own */
    const ir_type *type;       /* of its first result */
} node_row;

typedef struct cast_row {
    const ir_node *node;
    int from; /* a row of nodes; -1: a weight */
} cast_row;

typedef struct graph_report {
    const ir_module *module;
    const compile *compile;
    arena *arena;
    json_writer *writer;
    VEC(node_row) nodes;
    VEC(edge) edges;
    VEC(cast_row) casts;
    VEC(const char *) strings;
    strmap *string_numbers, *seen_edges;
} graph_report;

/* A graph while its nodes are visited. */
typedef struct visit {
    graph_report *r;
    const struct visit *enclosing; /* NULL: not a subgraph */
    const ir_graph *graph;
    const ir_region *region;
    const ir_node *owner;
    int *rows;   /* by node id: row of its model node; of an inserted cast, its number in casts; -1: neither */
    int *inputs; /* by value id: row of an input, plus one */
} visit;

/* ---- the graph ------------------------------------------------------------------------------- */

static bool is_inserted_cast(const ir_node *n) { return ir_op_has(n->op, IR_CONVERTS) && !n->loc.op; }
static bool is_shown(const ir_node *n) { return n->phase == IR_FORWARD && !ir_op_has(n->op, IR_STORES); }

static int add_node(graph_report *r, node_row row)
{
    vec_push(r->arena, &r->nodes, row);
    return (int)r->nodes.count - 1;
}

static const ir_type *result_type(const ir_node *n) { return n->n_out > 0 ? &n->out[0]->type : NULL; }

static int row_of(visit *v, const ir_node *n)
{
    graph_report *r = v->r;
    const node_report *report = amp_node_report(&r->compile->report, n, r->arena);
    if (is_inserted_cast(n)) {
        if (!pass_is_counted_cast(n)) return -1;
        vec_push(r->arena, &r->casts, ((cast_row){.node = n, .from = -1}));
        return (int)r->casts.count - 1;
    }
    if (report) {
        node_row *row = &r->nodes.items[report->number];
        row->type = result_type(n); /* of the last node that the operator was lowered to */
        return report->number;
    }
    const char *place = amp_graph_place(v->graph, r->arena);
    if (ir_op_has(n->op, IR_NAMED)) {
        const char *name = n->attr[IR_ATTR(output, name)].s;
        return add_node(r, (node_row){"output", name, "output", place, NULL, &ir_in(n, 0)->type});
    }
    const char *op = n->loc.op ? n->loc.op : ir_op_label(n->op, n->attr);
    const char *name = n->loc.op ? n->loc.node : n->n_out > 0 ? n->out[0]->name : op;
    return add_node(r, (node_row){"added", name, op, place, NULL, result_type(n)});
}

/* The value that v is a copy of: through casts and captures. *cast is the last counted one of these; *at becomes the
 * visit of the graph that the value is in. */
static const ir_value *origin_of(const visit **at, const ir_value *v, int *cast)
{
    for (*cast = -1;;) {
        const visit *here = *at;
        if (v->kind == IR_VALUE_RESULT && is_inserted_cast(v->def)) {
            if (*cast < 0) *cast = here->rows[v->def->id];
            v = ir_in(v->def, 0);
            continue;
        }
        if (v->kind != IR_VALUE_INPUT || !here->enclosing) return v;
        size_t i = 0;
        while (i < here->graph->inputs.count && here->graph->inputs.items[i] != v) i++;
        const int operand = i < here->graph->inputs.count ? ir_capture_of(here->region, i) : -1;
        if (operand < 0) return NULL; /* the operator passes it */
        v = ir_in(here->owner, operand);
        *at = here->enclosing;
    }
}

static int source_row(const visit *v, const ir_value *value)
{
    if (value->kind == IR_VALUE_STORAGE) return -1;
    if (value->kind == IR_VALUE_RESULT) return v->rows[value->def->id];
    int *row = &v->inputs[value->id];
    if (!*row) *row = add_node(v->r, (node_row){"input", value->name, "input", "", NULL, &value->type}) + 1;
    return *row - 1;
}

static void add_edge(const visit *v, const ir_value *operand, int to)
{
    int cast;
    const visit *at = v;
    graph_report *r = v->r;
    const ir_value *value = operand ? origin_of(&at, operand, &cast) : NULL;
    if (!value) return;
    const int from = source_row(at, value);
    if (cast >= 0) r->casts.items[cast].from = from;
    if (from == to) return;
    const char *key = arena_printf(r->arena, "%d %d %d %s", from, to, cast, value->name);
    if (strmap_get(r->seen_edges, key)) return;
    strmap_put(r->seen_edges, key, r);
    vec_push(r->arena, &r->edges, ((edge){from, to, value, cast}));
}

static void visit_graph(graph_report *r, const ir_graph *g, visit *v)
{
    v->r = r;
    v->graph = g;
    v->rows = arena_array(r->arena, g->node_ids + 1, sizeof *v->rows);
    v->inputs = arena_array(r->arena, g->value_ids + 1, sizeof *v->inputs);
    for (const ir_node *n = g->first; n; n = n->next) v->rows[n->id] = is_shown(n) ? row_of(v, n) : -1;
    for (const ir_node *n = g->first; n; n = n->next) {
        if (!is_shown(n) || is_inserted_cast(n)) continue;
        for (int i = 0; i < n->n_in; i++) add_edge(v, ir_in(n, i), v->rows[n->id]);
        for (int i = 0; i < n->n_regions; i++) {
            visit inner = {.enclosing = v, .region = &n->regions[i], .owner = n};
            visit_graph(r, n->regions[i].graph, &inner);
        }
    }
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void write_text(graph_report *r, const char *text)
{
    uintptr_t number = text ? (uintptr_t)strmap_get(r->string_numbers, text) : 0;
    if (text && !number) {
        vec_push(r->arena, &r->strings, text);
        number = r->strings.count;
        strmap_put(r->string_numbers, text, (void *)number);
    }
    json_write_integer(r->writer, NULL, (int64_t)number - 1);
}

static void write_type(graph_report *r, const ir_type *t)
{
    write_text(r, t ? ir_type_print(r->module, t, r->arena) : NULL);
}

static void write_dtype(graph_report *r, ir_dtype t) { write_text(r, t == IR_NO_DTYPE ? NULL : amp_precision_name(t)); }

static void begin_table(graph_report *r, const char *name, const char *const *columns)
{
    json_begin(r->writer, name, '{');
    json_begin(r->writer, "columns", '[');
    for (; *columns; columns++) json_write_string(r->writer, NULL, *columns);
    json_end(r->writer, ']');
    json_begin(r->writer, "rows", '[');
}

static void end_table(graph_report *r)
{
    json_end(r->writer, ']');
    json_end(r->writer, '}');
}

/* The row of the node that a part was fused into: it precedes its parts. */
static int whole_of(const node_report *n, const graph_report *r)
{
    int at = n->number;
    while (n->part_of && at >= 0 && r->nodes.items[at].report->part_of) at--;
    return n->part_of ? at : -1;
}

static void write_node(graph_report *r, const node_row *n)
{
    const node_report *p = n->report;
    json_begin(r->writer, NULL, '[');
    write_text(r, n->kind);
    write_text(r, n->name);
    write_text(r, n->op);
    write_text(r, n->place);
    write_type(r, n->type);
    write_text(r, p ? ir_colour_name(p->colour) : NULL);
    write_dtype(r, p ? p->type : IR_NO_DTYPE);
    write_dtype(r, p ? p->writes : IR_NO_DTYPE);
    write_text(r, p ? p->rule : NULL);
    write_text(r, p ? p->cause : NULL);
    write_text(r, p ? p->alone_in : NULL);
    json_write_integer(r->writer, NULL, p ? whole_of(p, r) : -1);
    json_end(r->writer, ']');
}

static void write_nodes(graph_report *r)
{
    static const char *const columns[] = {"kind",   "name", "op",    "place",    "type",    "colour", "dtype",
                                          "writes", "rule", "cause", "alone_in", "part_of", NULL};
    begin_table(r, "nodes", columns);
    for (size_t i = 0; i < r->nodes.count; i++) write_node(r, &r->nodes.items[i]);
    end_table(r);
}

/* The last columns of an edge: what is read. */
static void end_edge(graph_report *r, const edge *e)
{
    write_text(r, e->value->name);
    write_type(r, &e->value->type);
    json_write_integer(r->writer, NULL, e->cast);
    json_end(r->writer, ']');
}

static void write_edges(graph_report *r)
{
    static const char *const columns[] = {"from", "to", "tensor", "type", "cast", NULL};
    begin_table(r, "edges", columns);
    for (size_t i = 0; i < r->edges.count; i++) {
        const edge *e = &r->edges.items[i];
        if (e->value->kind == IR_VALUE_STORAGE) continue;
        json_begin(r->writer, NULL, '[');
        json_write_integer(r->writer, NULL, e->from);
        json_write_integer(r->writer, NULL, e->to);
        end_edge(r, e);
    }
    end_table(r);
}

/* A row for each node that reads the weight. */
static void write_weights(graph_report *r)
{
    static const char *const columns[] = {"node", "tensor", "type", "cast", NULL};
    begin_table(r, "weights", columns);
    for (size_t i = 0; i < r->edges.count; i++) {
        const edge *e = &r->edges.items[i];
        if (e->value->kind != IR_VALUE_STORAGE || e->value->storage->kind == IR_STATE) continue;
        json_begin(r->writer, NULL, '[');
        json_write_integer(r->writer, NULL, e->to);
        end_edge(r, e);
    }
    end_table(r);
}

static void write_casts(graph_report *r)
{
    static const char *const columns[] = {"node", "tensor", "from", "to", "bytes", NULL};
    const int64_t *sizes = pass_symbol_sizes(r->module, 1, r->arena);
    begin_table(r, "casts", columns);
    for (size_t i = 0; i < r->casts.count; i++) {
        const ir_node *n = r->casts.items[i].node;
        const ir_type *type = &n->out[0]->type;
        json_begin(r->writer, NULL, '[');
        json_write_integer(r->writer, NULL, r->casts.items[i].from);
        write_text(r, ir_in(n, 0)->name);
        write_dtype(r, ir_in(n, 0)->type.dtype);
        write_dtype(r, type->dtype);
        json_write_integer(r->writer, NULL,
                           (int64_t)pass_elements(r->module, type, sizes) * (int64_t)ir_dtype_size(type->dtype));
        json_end(r->writer, ']');
    }
    end_table(r);
}

static void write_strings(const graph_report *r)
{
    json_begin(r->writer, "strings", '[');
    for (size_t i = 0; i < r->strings.count; i++) json_write_string(r->writer, NULL, r->strings.items[i]);
    json_end(r->writer, ']');
}

/* ---- the head -------------------------------------------------------------------------------- */

static void write_counts(json_writer *w, const compile *c, arena *a)
{
    const compile_report *s = &c->report;
    json_write_string(w, "summary", pass_summary(c, a));
    json_begin(w, "counts", '{');
    json_write_integer(w, "float_ops", s->float_ops);
    json_write_integer(w, "low", s->low_ops);
    json_write_integer(w, "fp32_black", s->f32_black);
    json_write_integer(w, "fp32_gray", s->f32_gray);
    json_write_integer(w, "fp32_as_written", s->f32_other);
    json_write_integer(w, "casts_inserted", s->casts_inserted);
    json_write_integer(w, "casts_removed", s->casts_removed);
    json_write_bool(w, "symbolic", s->cast_symbolic);
    json_end(w, '}');
}

static void write_cost(json_writer *w, const char *key, const ir_device *device, int64_t cost, arena *a)
{
    json_begin(w, key, '{');
    json_write_integer(w, "cost", cost);
    json_write_string(w, "text", cost_print(device, cost, a));
    json_end(w, '}');
}

static void write_predicted(json_writer *w, const compile *c, arena *a)
{
    const pass_costs *p = &c->report.predicted;
    if (!c->device || c->options->level == PASS_O0) return;
    json_begin(w, "predicted", '{');
    json_write_string(w, "device", c->device->name);
    json_write_string(w, "unit", c->device->measure == DEVICE_TIME ? "ps" : "bytes");
    write_cost(w, "placed", c->device, p->cut, a);
    write_cost(w, "greedy", c->device, p->greedy, a);
    write_cost(w, "fp32", c->device, p->f32, a);
    json_end(w, '}');
}

void pass_write_report(json_writer *w, const ir_module *m, const compile *c, arena *a)
{
    const ir_graph *g = pass_primary(m);
    graph_report r = {.module = m, .compile = c, .arena = a, .writer = w, .string_numbers = strmap_new(a)};
    r.seen_edges = strmap_new(a);
    json_write_string(w, "level", pass_levels[c->options->level].word);
    json_write_string(w, "dtype", amp_precision_name(c->options->level == PASS_O0 ? IR_f32 : c->options->low));
    if (c->list->base) json_write_string(w, "profile", c->list->base);
    write_counts(w, c, a);
    write_predicted(w, c, a);
    for (size_t i = 0; i < c->report.nodes.count; i++) {
        const node_report *n = c->report.nodes.items[i];
        add_node(&r, (node_row){n->part_of ? "part" : "node", n->name, n->op, n->place, n, NULL});
    }
    if (g) {
        visit v = {.region = NULL};
        amp_write_stats(w, "stats", g, c, a);
        visit_graph(&r, g, &v);
    }
    write_nodes(&r);
    write_edges(&r);
    write_weights(&r);
    write_casts(&r);
    write_strings(&r);
}
