/* placement.c - measures minimum-cut placement, including network construction, on graphs of 100,000 nodes.
 *
 * Prints one row of a Markdown table per graph and device with the minimum of ROUNDS runs. Part of tools/bench. */
#include "ir/base/philox.h"
#include "passes/amp/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NODES = 100000, ROUNDS = 3, WIDTH = 512 };

typedef struct making {
    ir_builder b;
    ir_value *w, *bias;
    uint64_t drawn;
} making;

static uint32_t draw(making *k, uint32_t below) { return philox_word(3, 4, k->drawn++) % below; }

static ir_value *binary(making *k, ir_op op, ir_value *x, ir_value *y) { return ir_binary(&k->b, op, x, y); }

/* Transformer blocks: normalization, matmuls, softmax and residual additions. */
static void make_decoder(making *k, ir_value *x)
{
    for (int i = 0; i < NODES; i += 20) {
        ir_value *square = binary(k, IR_OP_mul, x, x);
        ir_value *mean = ir_reduce_sum(&k->b, square, (int64_t[]){1}, 1, true);
        ir_value *norm = binary(k, IR_OP_div, x, ir_unary(&k->b, IR_OP_sqrt, mean));
        norm = binary(k, IR_OP_mul, norm, k->bias);
        ir_value *q = binary(k, IR_OP_add, ir_matmul(&k->b, norm, k->w, NULL, false, false), k->bias);
        ir_value *v = binary(k, IR_OP_add, ir_matmul(&k->b, norm, k->w, NULL, false, false), k->bias);
        ir_value *p = ir_unary(&k->b, IR_OP_softmax, binary(k, IR_OP_mul, q, k->bias));
        ir_value *y = ir_matmul(&k->b, p, v, NULL, false, false);
        x = binary(k, IR_OP_add, x, y);
        y = ir_unary(&k->b, IR_OP_gelu, ir_matmul(&k->b, x, k->w, NULL, false, false));
        y = ir_matmul(&k->b, binary(k, IR_OP_add, y, k->bias), k->w, NULL, false, false);
        y = ir_unary(&k->b, IR_OP_relu, binary(k, IR_OP_add, y, k->bias));
        x = binary(k, IR_OP_add, x, y);
    }
    ir_output(&k->b, "y", x);
}

/* One chain of unconstrained nodes between two matmuls, with an occasional black node. */
static void make_chain(making *k, ir_value *x)
{
    static const ir_op ops[] = {IR_OP_relu, IR_OP_tanh, IR_OP_neg, IR_OP_sigmoid};
    for (int i = 0; i < NODES; i++) {
        if (i % 20000 == 10000) x = ir_unary(&k->b, IR_OP_exp, x);
        else if (i % 20000 == 19999) x = ir_matmul(&k->b, x, k->w, NULL, false, false);
        else x = ir_unary(&k->b, ops[i % 4], x);
    }
    ir_output(&k->b, "y", x);
}

/* Each node reads any of the last thousand values. */
static void make_random(making *k, ir_value *x)
{
    ir_value **values = calloc(NODES + 1, sizeof *values);
    values[0] = x;
    for (int i = 1; i <= NODES; i++) {
        ir_value *a = values[i - 1 - (int)draw(k, (uint32_t)(i < 1000 ? i : 1000))], *c = values[i - 1];
        uint32_t kind = draw(k, 20);
        values[i] = kind < 3   ? ir_matmul(&k->b, a, k->w, NULL, false, false)
                    : kind < 4 ? ir_unary(&k->b, IR_OP_exp, a)
                    : kind < 6 ? ir_unary(&k->b, IR_OP_softmax, a)
                    : kind < 9 ? ir_unary(&k->b, IR_OP_relu, a)
                               : binary(k, kind < 14 ? IR_OP_add : IR_OP_mul, a, c);
    }
    ir_output(&k->b, "y", values[NODES]);
    free(values);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int count_nodes(const ir_graph *g)
{
    int count = 0;
    for (const ir_node *n = g->first; n; n = n->next) count++;
    return count;
}

static void measure(const char *name, void (*make)(making *, ir_value *), const ir_device *device)
{
    diag *d = diag_new(NULL, NULL);
    ir_module *m = ir_module_new();
    ir_graph *g = ir_graph_new(m, "infer");
    ir_type type = ir_type_make(IR_f32, 2, (int64_t[]){WIDTH, WIDTH}),
            row = ir_type_make(IR_f32, 1, (int64_t[]){WIDTH});
    making k = {.b = ir_builder_at_end(g, d)};
    k.w = ir_graph_storage(g, ir_storage_new(m, IR_PARAM, "w", &type));
    k.bias = ir_graph_storage(g, ir_storage_new(m, IR_PARAM, "b", &row));
    make(&k, ir_graph_input(g, "x", &type));
    double colour_state = 1e9, placement_state = 1e9;
    pass_costs costs = {0};
    for (int i = 0; i < ROUNDS && diag_status(d) == AMPC_OK; i++) {
        arena *a = arena_new(0);
        compile_options o = compile_options_default();
        compile *c;
        if (compile_load(&o, a, d, &c) != AMPC_OK) break;
        c->device = device;
        amp_scope scope = {.compile = c, .arena = a};
        double start = seconds();
        amp_colour(g, &scope);
        double coloured = seconds();
        costs = amp_place(g, &scope, false);
        double placed = seconds();
        if (coloured - start < colour_state) colour_state = coloured - start;
        if (placed - coloured < placement_state) placement_state = placed - coloured;
        arena_free(a);
    }
    printf("| %s | %d | %s | %.1f | %.1f | %.3f |\n", name, count_nodes(g), device->name, colour_state * 1e3,
           placement_state * 1e3, (double)costs.cut / (double)(costs.greedy ? costs.greedy : 1));
    fflush(stdout);
    ir_module_free(m);
    diag_free(d);
}

int main(void)
{
    printf("| graph | nodes | device | colouring, ms | minimum cut, ms | cost, part of greedy "
           "|\n|---|---|---|---|---|---|\n");
    for (const ir_device *device = device_table; device->name; device++) {
        measure("decoder", make_decoder, device);
        measure("chain", make_chain, device);
        measure("random", make_random, device);
    }
    return 0;
}
