/* cut.c - translates the costs of labels to a network, and its minimum cut back to labels.
 *
 * HIGH is the source's side, LOW the sink's. An arc a -> b of capacity c costs c if a is HIGH and b is LOW. All costs
 * of the problem have this form:
 *   vertex v          v -> sink: the cost of HIGH; source -> v: the cost of LOW (the smaller of both is always paid)
 *   value             producer -> d (down), d -> each reader (never): d is LOW as soon as a reader is LOW
 *                     u -> producer (up), each reader -> u (never): u is HIGH as soon as a reader is HIGH
 *   constant          u -> d (both)
 * A single reader replaces d and u. Pinned vertices are the source or the sink themselves, and merged vertices are one
 * vertex. "Never" is one more than the sum of all other costs. */
#include "passes/amp/cut.h"
#include "passes/amp/maxflow.h"

#include <assert.h>

enum { NOT_PINNED = -1 };
#define NO_PRODUCER UINT32_MAX

typedef struct vertex {
    uint32_t parent; /* union-find; a root is its own parent */
    int64_t cost[2]; /* by label, of this vertex without those merged with it */
    int pin;         /* valid for roots: NOT_PINNED or a label */
} vertex;

typedef struct pair {
    uint32_t high, low;
    int64_t cost;
} pair;

typedef struct value {
    uint32_t producer;   /* NO_PRODUCER: a constant */
    int64_t cost[2];     /* by label of the reader that needs a conversion; for a constant, [0] is `both` */
    size_t first, count; /* range in `readers` */
} value;

struct cut {
    arena *arena;
    VEC(vertex) vertices;
    VEC(pair) pairs;
    VEC(value) values;
    VEC(uint32_t) readers;
};

cut *cut_new(arena *a)
{
    cut *c = arena_alloc(a, sizeof *c);
    c->arena = a;
    return c;
}

static uint32_t count_vertices(const cut *c) { return (uint32_t)c->vertices.count; }

static uint32_t root(const cut *c, uint32_t v)
{
    vertex *all = c->vertices.items;
    while (all[v].parent != v) v = all[v].parent = all[all[v].parent].parent;
    return v;
}

uint32_t cut_vertex(cut *c, int64_t high, int64_t low)
{
    uint32_t v = count_vertices(c);
    vertex added = {v, {high, low}, NOT_PINNED};
    vec_push(c->arena, &c->vertices, added);
    return v;
}

void cut_pin(cut *c, uint32_t v, cut_label label)
{
    int *pin = &c->vertices.items[root(c, v)].pin;
    assert(*pin == NOT_PINNED || *pin == (int)label);
    *pin = (int)label;
}

bool cut_is_pinned(const cut *c, uint32_t v, cut_label label)
{
    return c->vertices.items[root(c, v)].pin == (int)label;
}

void cut_merge(cut *c, uint32_t a, uint32_t b)
{
    a = root(c, a);
    b = root(c, b);
    if (a == b) return;
    vertex *all = c->vertices.items;
    assert(all[a].pin == NOT_PINNED || all[b].pin == NOT_PINNED || all[a].pin == all[b].pin);
    if (all[a].pin == NOT_PINNED) all[a].pin = all[b].pin;
    all[b].parent = a;
}

void cut_pair(cut *c, uint32_t high, uint32_t low, int64_t cost)
{
    pair added = {high, low, cost};
    vec_push(c->arena, &c->pairs, added);
}

void cut_value(cut *c, uint32_t producer, int64_t down, int64_t up)
{
    value added = {producer, {up, down}, c->readers.count, 0};
    vec_push(c->arena, &c->values, added);
}

void cut_constant(cut *c, int64_t both)
{
    value added = {NO_PRODUCER, {both, both}, c->readers.count, 0};
    vec_push(c->arena, &c->values, added);
}

void cut_reader(cut *c, uint32_t v)
{
    vec_push(c->arena, &c->readers, v);
    c->values.items[c->values.count - 1].count++;
}

/* ---- cost of a labelling --------------------------------------------------------------------- */

static int64_t sum(int64_t a, int64_t b) { return a == CUT_FORBIDDEN || b == CUT_FORBIDDEN ? CUT_FORBIDDEN : a + b; }

/* `reads[label]`: whether the value has a reader with that label. */
static int64_t value_cost(const value *x, cut_label producer, const bool *reads)
{
    if (x->producer == NO_PRODUCER) return reads[CUT_HIGH] && reads[CUT_LOW] ? x->cost[0] : 0;
    cut_label other = producer == CUT_HIGH ? CUT_LOW : CUT_HIGH;
    return reads[other] ? x->cost[other] : 0;
}

cut_label cut_label_of(const cut *c, const cut_label *labels, uint32_t v) { return labels[root(c, v)]; }

static cut_label producer_label(const cut *c, const cut_label *labels, const value *x)
{
    return x->producer == NO_PRODUCER ? CUT_HIGH : cut_label_of(c, labels, x->producer);
}

int64_t cut_cost(const cut *c, const cut_label *labels)
{
    int64_t cost = 0;
    for (uint32_t v = 0; v < count_vertices(c); v++)
        cost = sum(cost, c->vertices.items[v].cost[cut_label_of(c, labels, v)]);
    for (size_t i = 0; i < c->pairs.count; i++) {
        const pair *p = &c->pairs.items[i];
        if (cut_label_of(c, labels, p->high) == CUT_HIGH && cut_label_of(c, labels, p->low) == CUT_LOW)
            cost = sum(cost, p->cost);
    }
    for (size_t i = 0; i < c->values.count; i++) {
        const value *x = &c->values.items[i];
        bool reads[2] = {false, false};
        for (size_t k = 0; k < x->count; k++) reads[cut_label_of(c, labels, c->readers.items[x->first + k])] = true;
        cost = sum(cost, value_cost(x, producer_label(c, labels, x), reads));
    }
    return cost;
}

/* ---- cost of changing one label -------------------------------------------------------------- */

static void change(int64_t *flip, int64_t after, int64_t before)
{
    *flip = *flip == CUT_FORBIDDEN || after == CUT_FORBIDDEN ? CUT_FORBIDDEN : *flip + after - before;
}

/* `times[v]`: number of times root v reads the value; all zero before and after the call. */
static void flip_value(const cut *c, const value *x, const cut_label *labels, size_t *times, int64_t *flips)
{
    const uint32_t *readers = c->readers.items + x->first;
    size_t readings[2] = {0, 0};
    for (size_t k = 0; k < x->count; k++) {
        uint32_t v = root(c, readers[k]);
        readings[labels[v]]++;
        times[v]++;
    }
    cut_label label = producer_label(c, labels, x);
    uint32_t producer = x->producer == NO_PRODUCER ? NO_PRODUCER : root(c, x->producer);
    int64_t before = value_cost(x, label, (bool[2]){readings[0] > 0, readings[1] > 0});
    for (size_t k = 0; k <= x->count; k++) {
        uint32_t v = k < x->count ? root(c, readers[k]) : producer;
        if (v == NO_PRODUCER || (k < x->count && (times[v] == 0 || v == producer))) continue;
        size_t moved = times[v], after[2] = {readings[0], readings[1]};
        after[labels[v]] -= moved;
        after[!labels[v]] += moved;
        cut_label other = label == CUT_HIGH ? CUT_LOW : CUT_HIGH;
        int64_t cost = value_cost(x, v == producer ? other : label, (bool[2]){after[0] > 0, after[1] > 0});
        change(&flips[v], cost, before);
        times[v] = 0;
    }
}

void cut_flips(const cut *c, const cut_label *labels, int64_t *flips)
{
    uint32_t count = count_vertices(c);
    size_t *times = arena_array(c->arena, count + 1, sizeof *times);
    for (uint32_t v = 0; v < count; v++) flips[v] = 0;
    for (uint32_t v = 0; v < count; v++) {
        const int64_t *cost = c->vertices.items[v].cost;
        cut_label l = cut_label_of(c, labels, v);
        change(&flips[root(c, v)], cost[!l], cost[l]);
    }
    for (size_t i = 0; i < c->pairs.count; i++) {
        const pair *p = &c->pairs.items[i];
        uint32_t high = root(c, p->high), low = root(c, p->low);
        bool is_high = labels[high] == CUT_HIGH, is_low = labels[low] == CUT_LOW;
        if (high == low) continue;
        change(&flips[high], !is_high && is_low ? p->cost : 0, is_high && is_low ? p->cost : 0);
        change(&flips[low], is_high && !is_low ? p->cost : 0, is_high && is_low ? p->cost : 0);
    }
    for (size_t i = 0; i < c->values.count; i++) flip_value(c, &c->values.items[i], labels, times, flips);
    for (uint32_t v = 0; v < count; v++) flips[v] = flips[root(c, v)];
}

/* ---- the network ----------------------------------------------------------------------------- */

enum { SOURCE, SINK, FIRST };

typedef struct network {
    const cut *problem;
    maxflow *flow;
    uint32_t *place; /* by root: its vertex in the network */
    uint32_t next;   /* next free vertex */
    int64_t never;
} network;

static uint32_t place_of(const network *n, uint32_t v) { return n->place[root(n->problem, v)]; }

static void join(network *n, uint32_t from, uint32_t to, int64_t cost)
{
    assert(cost != CUT_FORBIDDEN || from != SOURCE);
    maxflow_arc(n->flow, from, to, cost == CUT_FORBIDDEN ? n->never : cost, 0);
}

/* A vertex that has `label` as soon as a reader of x has it. */
static uint32_t gather(network *n, const value *x, cut_label label)
{
    const uint32_t *readers = n->problem->readers.items + x->first;
    uint32_t terminal = label == CUT_LOW ? SINK : SOURCE, opposite = label == CUT_LOW ? SOURCE : SINK;
    if (x->count == 1) return place_of(n, readers[0]);
    for (size_t k = 0; k < x->count; k++)
        if (place_of(n, readers[k]) == terminal) return terminal;
    uint32_t v = n->next++;
    for (size_t k = 0; k < x->count; k++) {
        uint32_t r = place_of(n, readers[k]);
        if (r != opposite) maxflow_arc(n->flow, label == CUT_LOW ? v : r, label == CUT_LOW ? r : v, n->never, 0);
    }
    return v;
}

static void join_value(network *n, const value *x)
{
    if (x->count == 0) return;
    if (x->producer == NO_PRODUCER) {
        if (!x->cost[0] || x->count == 1) return;
        uint32_t low = gather(n, x, CUT_LOW);
        join(n, gather(n, x, CUT_HIGH), low, x->cost[0]);
        return;
    }
    uint32_t producer = place_of(n, x->producer);
    if (x->cost[CUT_LOW] && producer != SINK) join(n, producer, gather(n, x, CUT_LOW), x->cost[CUT_LOW]);
    if (x->cost[CUT_HIGH] && producer != SOURCE) join(n, gather(n, x, CUT_HIGH), producer, x->cost[CUT_HIGH]);
}

static int64_t finite(int64_t cost) { return cost == CUT_FORBIDDEN ? 0 : cost; }

/* One more than the sum of all finite costs. */
static int64_t price_of_never(const cut *c)
{
    int64_t all = 1;
    for (size_t i = 0; i < c->vertices.count; i++)
        all += finite(c->vertices.items[i].cost[0]) + finite(c->vertices.items[i].cost[1]);
    for (size_t i = 0; i < c->pairs.count; i++) all += finite(c->pairs.items[i].cost);
    for (size_t i = 0; i < c->values.count; i++)
        all += finite(c->values.items[i].cost[0]) + finite(c->values.items[i].cost[1]);
    assert(all > 0 && all < (int64_t)1 << 61);
    return all;
}

/* Pins vertices that pinned readers force, readers before their producers. Otherwise an arc of capacity "never" could
 * leave the source, and excesses could exceed 2^63. */
static void pin_forced(cut *c)
{
    for (size_t i = c->values.count; i-- > 0;) {
        const value *x = &c->values.items[i];
        for (size_t k = 0; k < x->count && x->cost[CUT_HIGH] == CUT_FORBIDDEN; k++)
            if (cut_is_pinned(c, c->readers.items[x->first + k], CUT_HIGH)) cut_pin(c, x->producer, CUT_HIGH);
    }
}

static uint32_t number_roots(network *n)
{
    const cut *c = n->problem;
    uint32_t next = FIRST;
    for (uint32_t v = 0; v < count_vertices(c); v++) {
        if (root(c, v) != v) continue;
        int pin = c->vertices.items[v].pin;
        n->place[v] = pin == CUT_HIGH ? SOURCE : pin == CUT_LOW ? SINK : next++;
    }
    return next;
}

static void join_vertices(network *n)
{
    const cut *c = n->problem;
    for (uint32_t v = 0; v < count_vertices(c); v++) {
        uint32_t place = place_of(n, v);
        const int64_t *cost = c->vertices.items[v].cost;
        if (place < FIRST) continue;
        int64_t less = cost[CUT_HIGH] < cost[CUT_LOW] ? cost[CUT_HIGH] : cost[CUT_LOW];
        join(n, place, SINK, cost[CUT_HIGH] - less);
        join(n, SOURCE, place, cost[CUT_LOW] - less);
    }
}

void cut_solve(cut *c, cut_label *labels)
{
    pin_forced(c);
    uint32_t count = count_vertices(c);
    network n = {.problem = c, .never = price_of_never(c)};
    n.place = arena_array(c->arena, (size_t)count + 1, sizeof *n.place);
    n.next = number_roots(&n);
    n.flow = maxflow_new(n.next + 2 * (uint32_t)c->values.count, c->arena);
    join_vertices(&n);
    for (size_t i = 0; i < c->pairs.count; i++) {
        const pair *p = &c->pairs.items[i];
        join(&n, place_of(&n, p->high), place_of(&n, p->low), p->cost);
    }
    for (size_t i = 0; i < c->values.count; i++) join_value(&n, &c->values.items[i]);
    maxflow_solve(n.flow, SOURCE, SINK);
    for (uint32_t v = 0; v < count; v++)
        labels[v] = place_of(&n, v) != SOURCE && maxflow_on_sink_side(n.flow, place_of(&n, v)) ? CUT_LOW : CUT_HIGH;
}
