/* draw.c - prints the forward graph for Graphviz: boxes in the colour of the lists, casts as small diamonds, inputs and
 * outputs as ellipses, weights as cylinders, subgraphs of If, Loop and Scan in frames. It shows the graph after all
 * passes, one statement per line. */
#include "ir/ops/formulas.h"
#include "passes/amp/explain.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct drawing {
    const ir_module *module;
    const compile_report *report;
    arena *arena;
    VEC(char) text;
    int graphs; /* number of graphs begun so far */
} drawing;

/* A graph: the primary one, or a subgraph in the frame of its node. Its number makes the ids of its nodes unique. */
typedef struct picture {
    drawing *d;
    const ir_graph *graph;
    const char *prefix;
    bool *drawn; /* by value id: storage whose cylinder is drawn */
} picture;

/* Graphviz attributes by colour. */
static const char *const styles[] = {
    [IR_WHITE] = "fillcolor=white", [IR_BLACK] = "fillcolor=gray15, fontcolor=white",
    [IR_GRAY] = "fillcolor=gray75", [IR_CLEAR] = "fillcolor=white, style=\"filled,dashed\", color=gray50",
    [IR_KEEP] = "style=dotted",
};

/* ---- text ------------------------------------------------------------------------------------ */

static void add(drawing *d, const char *s)
{
    for (; *s; s++) vec_push(d->arena, &d->text, *s);
}

__attribute__((format(printf, 2, 3))) static void addf(drawing *d, const char *format, ...)
{
    char text[96];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    add(d, text);
}

/* In a quoted string, a backslash starts an escape and '&' an entity. Control bytes become blanks. */
static void add_escaped(drawing *d, const char *s)
{
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') vec_push(d->arena, &d->text, '\\');
        if (*s == '&') add(d, "&amp;");
        else vec_push(d->arena, &d->text, (unsigned char)*s < 0x20 || *s == 0x7f ? ' ' : *s);
    }
}

static void add_label(drawing *d, const char *const *lines, int count)
{
    add(d, "label=\"");
    for (int i = 0; i < count; i++) {
        if (i) add(d, "\\n");
        add_escaped(d, lines[i]);
    }
    add(d, "\"");
}

/* ---- the graph ------------------------------------------------------------------------------- */

static bool is_inserted_cast(const ir_node *n) { return ir_op_has(n->op, IR_CONVERTS) && !n->loc.op; }

static void draw_node(const picture *p, const ir_node *n)
{
    drawing *d = p->d;
    addf(d, "  %sn%u [", p->prefix, n->id);
    if (is_inserted_cast(n)) {
        const char *type = ir_dtype_name(n->out[0]->type.dtype);
        add_label(d, &type, 1);
        add(d, ", shape=diamond, width=0.3, height=0.3, margin=0, fontsize=8, fillcolor=khaki];\n");
        return;
    }
    const char *op = n->loc.op ? n->loc.op : ir_op_label(n->op, n->attr);
    const char *type = n->n_out > 0 ? ir_type_print(d->module, &n->out[0]->type, d->arena) : "";
    const char *lines[] = {op, type, n->loc.op ? n->loc.node : ""};
    add_label(d, lines, n->loc.op && *n->loc.node ? 3 : 2);
    const node_report *r = amp_node_report(d->report, n, d->arena);
    add(d, ", ");
    add(d, styles[r ? r->colour : ir_op_get(ir_op_like(n->op, n->attr))->colour]);
    add(d, "];\n");
}

static void draw_leaf(const picture *p, const ir_value *v, char letter, const char *shape)
{
    const char *lines[] = {v->name, ir_type_print(p->d->module, &v->type, p->d->arena)};
    addf(p->d, "  %s%c%u [", p->prefix, letter, v->id);
    add_label(p->d, lines, 2);
    addf(p->d, ", shape=%s, fillcolor=aliceblue];\n", shape);
}

static void draw_edges(const picture *p, const ir_node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        const ir_value *v = ir_in(n, i);
        if (!v) continue;
        bool storage = v->kind == IR_VALUE_STORAGE;
        if (storage && !p->drawn[v->id]) draw_leaf(p, v, 's', "cylinder");
        p->drawn[v->id] = true;
        addf(p->d, "  %s%c%u -> %sn%u;\n", p->prefix,
             v->kind == IR_VALUE_RESULT ? 'n'
             : storage                  ? 's'
                                        : 'i',
             v->kind == IR_VALUE_RESULT ? v->def->id : v->id, p->prefix, n->id);
    }
}

static void draw_output(const picture *p, const ir_node *n)
{
    const char *type = ir_type_print(p->d->module, &ir_in(n, 0)->type, p->d->arena);
    const char *lines[] = {n->attr[IR_ATTR(output, name)].s, type};
    addf(p->d, "  %sn%u [", p->prefix, n->id);
    add_label(p->d, lines, 2);
    add(p->d, ", shape=ellipse, fillcolor=aliceblue];\n");
}

static void draw_graph(drawing *d, const ir_graph *g, const char *prefix);

/* Draws a region in a frame, with dashed lines from its results to the node. */
static void draw_region(const picture *p, const ir_node *n, const ir_graph *g)
{
    drawing *d = p->d;
    const char *prefix = arena_printf(d->arena, "b%d", ++d->graphs);
    addf(d, "  subgraph cluster_%s {\n  ", prefix);
    add_label(d, &g->name, 1);
    add(d, ";\n");
    draw_graph(d, g, prefix);
    add(d, "  }\n");
    for (const ir_node *out = g->first; out; out = out->next)
        if (ir_op_has(out->op, IR_NAMED))
            addf(d, "  %sn%u -> %sn%u [style=dashed];\n", prefix, out->id, p->prefix, n->id);
}

static void draw_statement(const picture *p, const ir_node *n)
{
    if (ir_op_has(n->op, IR_NAMED)) draw_output(p, n);
    else draw_node(p, n);
    draw_edges(p, n);
    for (int i = 0; i < n->n_regions; i++) draw_region(p, n, n->regions[i].graph);
}

static void draw_graph(drawing *d, const ir_graph *g, const char *prefix)
{
    picture p = {d, g, prefix, arena_array(d->arena, g->value_ids + 1, sizeof *p.drawn)};
    for (size_t i = 0; i < g->inputs.count; i++)
        if (ir_value_used(g->inputs.items[i])) draw_leaf(&p, g->inputs.items[i], 'i', "ellipse");
    for (const ir_node *n = g->first; n; n = n->next)
        if (n->phase == IR_FORWARD && !ir_op_has(n->op, IR_STORES)) draw_statement(&p, n);
}

const char *pass_draw(const ir_module *m, const compile *c, arena *a)
{
    const ir_graph *g = pass_primary(m);
    if (!g) return "digraph {}\n";
    drawing d = {.module = m, .report = &c->report, .arena = a};
    add(&d, "digraph \"");
    add_escaped(&d, g->name);
    add(&d, "\" {\n  node [shape=box, style=filled, fillcolor=white, fontname=\"sans-serif\", fontsize=10];\n"
            "  edge [arrowsize=0.6];\n");
    draw_graph(&d, g, "");
    add(&d, "}\n");
    vec_push(a, &d.text, '\0');
    return d.text.items;
}
