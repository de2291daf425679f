/* test_maxflow.c - minimum cuts, compared with all cuts of small networks and, on large ones, with their certificate:
 * the capacity of the returned cut equals the flow, which proves both optimal. */
#include "ir/base/philox.h"
#include "passes/amp/maxflow.h"
#include "tests/test.h"

enum { SMALL = 9, MAX_ARCS = 600000 };

typedef struct test_arc {
    uint32_t from, to;
    int64_t capacity, back;
} test_arc;

typedef struct network {
    arena *arena;
    uint32_t vertices, count;
    test_arc *arcs;
    uint64_t drawn, seed;
} network;

static uint32_t draw(network *n, uint32_t below) { return philox_word(n->seed, 1, n->drawn++) % below; }

static network open_network(uint32_t vertices, uint64_t seed)
{
    network n = {.arena = arena_new(0), .vertices = vertices, .seed = seed};
    n.arcs = arena_array(n.arena, vertices > SMALL ? MAX_ARCS : 64, sizeof *n.arcs);
    return n;
}

static void add(network *n, uint32_t from, uint32_t to, int64_t capacity, int64_t back)
{
    assert_true(n->count < MAX_ARCS);
    n->arcs[n->count++] = (test_arc){from, to, capacity, back};
}

static maxflow *solve(const network *n, int64_t *value)
{
    maxflow *m = maxflow_new(n->vertices, n->arena);
    for (uint32_t i = 0; i < n->count; i++)
        maxflow_arc(m, n->arcs[i].from, n->arcs[i].to, n->arcs[i].capacity, n->arcs[i].back);
    *value = maxflow_solve(m, 0, 1);
    return m;
}

/* Bit v of `sink_side`: v is on the sink's side. */
static int64_t capacity_of(const network *n, uint32_t sink_side)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < n->count; i++) {
        bool from = sink_side >> n->arcs[i].from & 1, to = sink_side >> n->arcs[i].to & 1;
        sum += !from && to ? n->arcs[i].capacity : from && !to ? n->arcs[i].back : 0;
    }
    return sum;
}

TEST(equals_the_best_of_all_cuts)
{
    for (uint64_t seed = 0; seed < 3000; seed++) {
        network n = open_network(2 + (uint32_t)seed % (SMALL - 1), seed);
        for (uint32_t i = 0, arcs = draw(&n, 30); i < arcs; i++)
            add(&n, draw(&n, n.vertices), draw(&n, n.vertices), draw(&n, 12), draw(&n, 3) ? 0 : draw(&n, 12));
        int64_t best = INT64_MAX, value;
        uint32_t smallest = UINT32_MAX, found = 0;
        for (uint32_t side = 0; side < 1u << n.vertices; side++)
            if ((side & 3) == 2 && capacity_of(&n, side) < best) best = capacity_of(&n, side);
        for (uint32_t side = 0; side < 1u << n.vertices; side++)
            if ((side & 3) == 2 && capacity_of(&n, side) == best) smallest &= side; /* minimum cuts form a lattice */
        const maxflow *m = solve(&n, &value);
        for (uint32_t v = 0; v < n.vertices; v++) found |= (uint32_t)maxflow_on_sink_side(m, v) << v;
        assert_int_equal(value, best);
        assert_int_equal(found, smallest);
        arena_free(n.arena);
    }
}

static void check_certificate(network *n)
{
    int64_t value, capacity = 0;
    const maxflow *m = solve(n, &value);
    for (uint32_t i = 0; i < n->count; i++) {
        bool from = maxflow_on_sink_side(m, n->arcs[i].from), to = maxflow_on_sink_side(m, n->arcs[i].to);
        capacity += !from && to ? n->arcs[i].capacity : from && !to ? n->arcs[i].back : 0;
    }
    assert_false(maxflow_on_sink_side(m, 0));
    assert_true(maxflow_on_sink_side(m, 1));
    assert_int_equal(capacity, value);
    arena_free(n->arena);
}

TEST(long_chains)
{
    network n = open_network(60000, 7);
    add(&n, 0, 2, (int64_t)1 << 40, 0);
    for (uint32_t v = 2; v < n.vertices; v++) { /* every vertex diverts some of the flow along the chain */
        add(&n, v, 1, 1 + draw(&n, 5), 0);
        if (v + 1 < n.vertices) add(&n, v, v + 1, 100000 + draw(&n, 1000), 100000);
    }
    check_certificate(&n);
}

TEST(wide_layers)
{
    network n = open_network(20002, 8);
    for (uint32_t v = 2; v < n.vertices; v++) {
        if (draw(&n, 4) == 0) add(&n, 0, v, draw(&n, 1000), 0);
        if (draw(&n, 4) == 0) add(&n, v, 1, draw(&n, 1000), 0);
        for (int k = 0; k < 4; k++) add(&n, v, 2 + draw(&n, n.vertices - 2), draw(&n, 300), draw(&n, 300));
    }
    check_certificate(&n);
}

TEST(nothing_flows)
{
    network n = open_network(2, 0);
    int64_t value;
    const maxflow *m = solve(&n, &value);
    assert_int_equal(value, 0);
    assert_false(maxflow_on_sink_side(m, 0));
    arena_free(n.arena);
}
