/* maxflow.c - minimum cut by push-relabel (Goldberg and Tarjan 1988), first phase only.
 *
 * A preflow pushes as much as possible from the source. Every vertex with excess pushes along arcs that go one step
 * down to the sink (height[from] == height[to] + 1), and is relabelled when there are none. Active vertices wait in
 * a FIFO queue; each remembers its current arc. After work proportional to the size of the network, heights are set
 * to exact distances from the sink, which also retires vertices that cannot reach it any more (Cherkassky and
 * Goldberg 1997). Excess that remains is on the source's side; the cut is known without returning it. Arcs are
 * stored by vertex in compressed rows. The worst case is O(V^3); on the networks of placement.c the work is a small
 * multiple of V + E. */
#include "passes/amp/maxflow.h"

#include <assert.h>

typedef struct input_arc {
    uint32_t from, to;
    int64_t capacity, back;
} input_arc;

typedef struct arc {
    uint32_t to, twin; /* twin: the reverse arc */
    int64_t residual;
} arc;

struct maxflow {
    arena *arena;
    uint32_t vertices, source, sink;
    VEC(input_arc) input;
    arc *arcs;
    uint32_t *first;   /* [vertices + 1]: arcs of v are first[v] .. first[v+1]-1 */
    uint32_t *current; /* by vertex: current arc */
    uint32_t *height;  /* lower bound of the distance to the sink; `vertices`: cannot reach it */
    int64_t *excess;
    uint32_t *queue; /* ring buffer with `vertices` entries; each vertex occurs at most once */
    bool *waiting;
    uint32_t head, waits;
    size_t work; /* since heights were last exact */
};

maxflow *maxflow_new(uint32_t vertices, arena *a)
{
    maxflow *m = arena_alloc(a, sizeof *m);
    *m = (maxflow){.arena = a, .vertices = vertices};
    return m;
}

void maxflow_arc(maxflow *m, uint32_t from, uint32_t to, int64_t capacity, int64_t back)
{
    assert(from < m->vertices && to < m->vertices && capacity >= 0 && back >= 0);
    if (from == to || (!capacity && !back)) return;
    input_arc added = {from, to, capacity, back};
    vec_push(m->arena, &m->input, added);
}

/* Sorts both directions of all arcs by the vertex they leave. */
static void build_rows(maxflow *m)
{
    size_t n = m->input.count;
    m->first = arena_array(m->arena, (size_t)m->vertices + 2, sizeof *m->first);
    uint32_t *end = m->first + 1; /* end of the filled part of each row */
    for (size_t i = 0; i < n; i++) {
        if (m->input.items[i].from + 1 < m->vertices) end[m->input.items[i].from + 1]++;
        if (m->input.items[i].to + 1 < m->vertices) end[m->input.items[i].to + 1]++;
    }
    for (uint32_t v = 1; v < m->vertices; v++) end[v] += end[v - 1];
    m->arcs = arena_array(m->arena, 2 * n + 1, sizeof *m->arcs);
    for (size_t i = 0; i < n; i++) {
        const input_arc *e = &m->input.items[i];
        uint32_t there = end[e->from]++, back = end[e->to]++;
        m->arcs[there] = (arc){e->to, back, e->capacity};
        m->arcs[back] = (arc){e->from, there, e->back};
    }
}

static void enqueue(maxflow *m, uint32_t v)
{
    if (m->waiting[v] || v == m->source || v == m->sink) return;
    uint32_t place = m->head + m->waits++;
    m->queue[place < m->vertices ? place : place - m->vertices] = v;
    m->waiting[v] = true;
}

static uint32_t dequeue(maxflow *m)
{
    uint32_t v = m->queue[m->head];
    m->head = m->head + 1 < m->vertices ? m->head + 1 : 0;
    m->waits--;
    m->waiting[v] = false;
    return v;
}

static void push(maxflow *m, uint32_t from, arc *a, int64_t amount)
{
    a->residual -= amount;
    m->arcs[a->twin].residual += amount;
    m->excess[from] -= amount;
    m->excess[a->to] += amount;
    enqueue(m, a->to);
}

/* Sets heights to distances from the sink over arcs with residual capacity. `order` is scratch. */
static void measure_heights(maxflow *m, uint32_t *order)
{
    for (uint32_t v = 0; v < m->vertices; v++) {
        m->height[v] = m->vertices;
        m->current[v] = m->first[v];
    }
    uint32_t count = 0;
    m->height[m->sink] = 0;
    order[count++] = m->sink;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t v = order[i];
        for (uint32_t k = m->first[v]; k < m->first[v + 1]; k++) {
            uint32_t u = m->arcs[k].to;
            if (m->height[u] < m->vertices || u == m->source || !m->arcs[m->arcs[k].twin].residual) continue;
            m->height[u] = m->height[v] + 1;
            order[count++] = u;
        }
    }
    m->work = 0;
}

/* Relabels v to the lowest height from which it can push; `vertices` if there is none. */
static void lift(maxflow *m, uint32_t v)
{
    uint32_t height = m->vertices;
    for (uint32_t k = m->first[v]; k < m->first[v + 1]; k++) {
        if (!m->arcs[k].residual || m->height[m->arcs[k].to] + 1 >= height) continue;
        height = m->height[m->arcs[k].to] + 1;
        m->current[v] = k;
    }
    m->height[v] = height;
    m->work += m->first[v + 1] - m->first[v] + 12; /* constant measured: a relabel costs more than its arcs */
}

static void discharge(maxflow *m, uint32_t v)
{
    while (m->excess[v] > 0 && m->height[v] < m->vertices) {
        if (m->current[v] == m->first[v + 1]) {
            lift(m, v);
            continue;
        }
        arc *a = &m->arcs[m->current[v]];
        if (!a->residual || m->height[v] != m->height[a->to] + 1) {
            m->current[v]++;
            continue;
        }
        push(m, v, a, a->residual < m->excess[v] ? a->residual : m->excess[v]);
    }
}

int64_t maxflow_solve(maxflow *m, uint32_t source, uint32_t sink)
{
    assert(!m->arcs && source != sink && source < m->vertices && sink < m->vertices);
    m->source = source;
    m->sink = sink;
    build_rows(m);
    m->current = arena_array(m->arena, m->vertices, sizeof *m->current);
    m->height = arena_array(m->arena, m->vertices, sizeof *m->height);
    m->excess = arena_array(m->arena, m->vertices, sizeof *m->excess);
    m->queue = arena_array(m->arena, m->vertices, sizeof *m->queue);
    m->waiting = arena_array(m->arena, m->vertices, sizeof *m->waiting);
    uint32_t *order = arena_array(m->arena, m->vertices, sizeof *order);
    for (uint32_t k = m->first[source]; k < m->first[source + 1]; k++)
        if (m->arcs[k].residual) push(m, source, &m->arcs[k], m->arcs[k].residual);
    size_t length = 2 * m->input.count + 6 * (size_t)m->vertices;
    measure_heights(m, order);
    while (m->waits) {
        discharge(m, dequeue(m));
        if (m->work > length) measure_heights(m, order);
    }
    measure_heights(m, order);
    return m->excess[sink];
}

bool maxflow_on_sink_side(const maxflow *m, uint32_t v) { return m->height[v] < m->vertices; }
