/* order.c - sorts the nodes of a graph that are not in an order in which they can run.
 *
 * Every reader of the graph then sees them in order; only the copying of bytes from the file asks where a node was. */
#include "frontend/lower/lower.h"

/* ---- what a node reads ------------------------------------------------------------------------- */

typedef struct sorter {
    onnx_importer *im;
    const Onnx__GraphProto *graph;
    const strmap *producers; /* name -> position of its node + 1; more than n_node: no node */
    VEC(size_t) reads;       /* nodes that the node in question reads, also in its subgraphs */
} sorter;

static void add_name(sorter *s, const char *name)
{
    const uintptr_t producer = *name ? (uintptr_t)strmap_get(s->producers, name) : 0;
    if (producer && producer <= s->graph->n_node) vec_push(s->im->scratch, &s->reads, producer - 1);
}

/* A name that a subgraph defines is not the name of a value of an enclosing graph. */
static void add_node(sorter *s, const Onnx__NodeProto *p);

static void add_graph(sorter *s, const Onnx__GraphProto *g)
{
    for (size_t i = 0; i < g->n_node; i++) add_node(s, g->node[i]);
    for (size_t i = 0; i < g->n_output; i++) add_name(s, g->output[i]->name);
}

static void add_node(sorter *s, const Onnx__NodeProto *p)
{
    for (size_t i = 0; i < p->n_input; i++) add_name(s, p->input[i]);
    for (size_t i = 0; i < p->n_attribute; i++) {
        if (p->attribute[i]->g) add_graph(s, p->attribute[i]->g);
        for (size_t k = 0; k < p->attribute[i]->n_graphs; k++) add_graph(s, p->attribute[i]->graphs[k]);
    }
}

static bool is_sorted(sorter *s)
{
    for (size_t i = 0; i < s->graph->n_node; i++) {
        s->reads.count = 0;
        add_node(s, s->graph->node[i]);
        for (size_t k = 0; k < s->reads.count; k++)
            if (s->reads.items[k] >= i) return false;
    }
    return true;
}

/* ---- the order --------------------------------------------------------------------------------- */

typedef enum mark { NEW, OPEN, DONE } mark;

/* A depth-first walk: each node follows those it reads, otherwise the order is that of the file. Returns a node on a
 * cycle, or SIZE_MAX. */
static size_t walk(sorter *s, size_t *order)
{
    const size_t n = s->graph->n_node;
    mark *marks = arena_array(s->im->scratch, n, sizeof *marks);
    VEC(size_t) work = {0};
    size_t done = 0;
    for (size_t first = n; first-- > 0;) vec_push(s->im->scratch, &work, first);
    while (work.count) {
        const size_t at = work.items[work.count - 1];
        if (marks[at] != NEW) work.count--;
        if (marks[at] == OPEN) order[done++] = at, marks[at] = DONE;
        if (marks[at] == DONE) continue;
        marks[at] = OPEN;
        s->reads.count = 0;
        add_node(s, s->graph->node[at]);
        for (size_t k = s->reads.count; k-- > 0;) {
            if (marks[s->reads.items[k]] == OPEN) return s->reads.items[k];
            if (marks[s->reads.items[k]] == NEW) vec_push(s->im->scratch, &work, s->reads.items[k]);
        }
    }
    return SIZE_MAX;
}

size_t onnx_sort_nodes(onnx_importer *im, const Onnx__GraphProto *g, const strmap *producers, bool *sorted)
{
    sorter s = {.im = im, .graph = g, .producers = producers};
    *sorted = is_sorted(&s);
    if (*sorted) return SIZE_MAX;
    const onnx_order own = {g, arena_array(im->scratch, g->n_node, sizeof *own.position)};
    Onnx__NodeProto **nodes = arena_array(im->scratch, g->n_node, sizeof *nodes);
    const size_t cyclic = walk(&s, own.position);
    if (cyclic != SIZE_MAX) return cyclic;
    for (size_t i = 0; i < g->n_node; i++) nodes[i] = g->node[own.position[i]];
    for (size_t i = 0; i < g->n_node; i++) g->node[i] = nodes[i];
    vec_push(im->scratch, &im->orders, own);
    return SIZE_MAX;
}

size_t onnx_position_in_file(const onnx_importer *im, const Onnx__GraphProto *g, size_t node)
{
    for (size_t i = 0; i < im->orders.count; i++)
        if (im->orders.items[i].graph == g) return im->orders.items[i].position[node];
    return node;
}
