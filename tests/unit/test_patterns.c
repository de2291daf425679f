/* test_patterns.c - tests pass patterns with random graphs: every spelling of LayerNorm and GELU that the generator
 * produces becomes one node, and whether or not a defective spelling is recognized, its outputs stay equal, in f64. */
#include "scratch.h"

#include "ir/graph/ir.h"
#include "passes/passes.h"
#include "tests/compile.h"
#include "runtime/session/session.h"

#include <math.h>

enum { RANK = 3, ROWS = 2, COLUMNS = 3, DEPTH = 4, ELEMENTS = ROWS * COLUMNS * DEPTH, GRAPHS = 3000 };

typedef struct generator {
    ir_builder b;
    ir_module *m;
    ir_value *x, *other;      /* inputs of equal shape */
    ir_value *centred, *mean; /* that may be shared */
    uint64_t state;
    bool near; /* something may be wrong */
    int wrong; /* number of defects */
    int outputs;
    int axis;
    bool tanh;
} generator;

/* ---- choices --------------------------------------------------------------------------------- */

static unsigned roll(generator *g, unsigned sides)
{
    g->state = g->state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(g->state >> 33) % sides;
}

static bool goes_wrong(generator *g)
{
    bool wrong = g->near && roll(g, 16) == 0;
    g->wrong += wrong;
    return wrong;
}

static ir_value *get_x(generator *g) { return goes_wrong(g) ? g->other : g->x; }

static ir_value *constant(generator *g, double v)
{
    if (!goes_wrong(g)) return ir_scalar(&g->b, IR_f64, v);
    if (roll(g, 2)) return ir_scalar(&g->b, IR_f64, v * (roll(g, 2) ? 1.001 : -1));
    ir_type type = ir_type_make(IR_f64, 1, (int64_t[]){DEPTH}); /* several values */
    double many[DEPTH] = {v, v, v * 1.5, v};
    return ir_constant(&g->b, "many", &type, many);
}

/* Sometimes adds a use outside the pattern. */
static ir_value *tap(generator *g, ir_value *v)
{
    char name[16];
    if (!goes_wrong(g)) return v;
    snprintf(name, sizeof name, "tap%d", g->outputs++);
    ir_output(&g->b, name, v);
    return v;
}

static ir_value *binary(generator *g, ir_op op, ir_value *a, ir_value *b)
{
    bool commutes = op == IR_OP_add || op == IR_OP_mul;
    bool swapped = commutes ? roll(g, 2) : goes_wrong(g);
    return tap(g, swapped ? ir_binary(&g->b, op, b, a) : ir_binary(&g->b, op, a, b));
}

/* Halves v by a multiplication or a division. */
static ir_value *halve(generator *g, ir_value *v)
{
    return roll(g, 2) ? binary(g, IR_OP_mul, v, constant(g, 0.5)) : binary(g, IR_OP_div, v, constant(g, 2));
}

/* ---- LayerNorm ------------------------------------------------------------------------------- */

static ir_value *mean(generator *g, ir_value *v)
{
    int64_t axes[RANK];
    int count = 0;
    bool wrong = goes_wrong(g);
    for (int i = 0; i < RANK; i++)
        if (wrong ? i <= g->axis : i >= g->axis) axes[count++] = i;
    ir_node *n = ir_new(&g->b, IR_OP_reduce_mean, 1, v);
    ir_set_list(n, IR_ATTR(reduce_mean, axes), axes, count);
    return tap(g, ir_done(&g->b, n));
}

static ir_value *get_mean(generator *g)
{
    if (!g->mean || roll(g, 2)) g->mean = mean(g, get_x(g));
    return g->mean;
}

static ir_value *get_centred(generator *g)
{
    if (!g->centred || roll(g, 2)) g->centred = binary(g, IR_OP_sub, get_x(g), get_mean(g));
    return g->centred;
}

static ir_value *guarded(generator *g)
{
    ir_value *square = roll(g, 2) ? binary(g, IR_OP_pow, get_centred(g), constant(g, 2))
                                  : binary(g, IR_OP_mul, get_centred(g), get_centred(g));
    return binary(g, IR_OP_add, mean(g, square), constant(g, 0x1p-7));
}

static ir_value *deviation(generator *g)
{
    ir_value *v = guarded(g);
    return tap(g, roll(g, 2) ? ir_unary(&g->b, IR_OP_sqrt, v) : binary(g, IR_OP_pow, v, constant(g, 0.5)));
}

static ir_value *inverse(generator *g)
{
    switch (roll(g, 3)) {
    case 0: return tap(g, ir_unary(&g->b, IR_OP_reciprocal, deviation(g)));
    case 1: return binary(g, IR_OP_div, constant(g, 1), deviation(g));
    default: return binary(g, IR_OP_pow, guarded(g), constant(g, -0.5));
    }
}

/* A scale or bias with the normalized dimensions, possibly after ones. Defect: a shape that merely broadcasts. */
static ir_value *weight(generator *g, const char *name)
{
    static const int64_t dims[RANK] = {ROWS, COLUMNS, DEPTH};
    int64_t shape[RANK];
    int first = roll(g, 2) ? 0 : g->axis;
    for (int i = first; i < RANK; i++) shape[i - first] = i < g->axis ? 1 : dims[i];
    if (goes_wrong(g)) shape[roll(g, (unsigned)(RANK - first))] = 1;
    ir_type type = ir_type_make(IR_f64, RANK - first, shape);
    double values[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++) values[i] = 0.25 + roll(g, 16) / 8.0;
    return ir_constant(&g->b, name, &type, values);
}

static ir_value *normal(generator *g)
{
    return roll(g, 2) ? binary(g, IR_OP_div, get_centred(g), deviation(g))
                      : binary(g, IR_OP_mul, get_centred(g), inverse(g));
}

static ir_value *factor(generator *g, ir_value *scale)
{
    return roll(g, 2) ? binary(g, IR_OP_mul, inverse(g), scale) : binary(g, IR_OP_div, scale, deviation(g));
}

static ir_value *scaled(generator *g)
{
    ir_value *scale = weight(g, "scale");
    switch (roll(g, 4)) {
    case 0: return binary(g, IR_OP_mul, normal(g), scale);
    case 1: return binary(g, IR_OP_mul, get_centred(g), factor(g, scale));
    case 2: return binary(g, IR_OP_div, binary(g, IR_OP_mul, get_centred(g), scale), deviation(g));
    default: return binary(g, IR_OP_mul, binary(g, IR_OP_mul, get_centred(g), scale), inverse(g));
    }
}

static ir_value *layer_norm(generator *g)
{
    g->axis = (int)roll(g, RANK);
    ir_value *s, *scale;
    switch (roll(g, 6)) {
    case 0: return normal(g);
    case 1: return scaled(g);
    case 2: return binary(g, IR_OP_add, normal(g), weight(g, "bias"));
    case 3: return binary(g, IR_OP_add, scaled(g), weight(g, "bias"));
    case 4:
        scale = weight(g, "scale"), s = factor(g, scale);
        return binary(g, IR_OP_sub, binary(g, IR_OP_mul, get_x(g), s), binary(g, IR_OP_mul, get_mean(g), s));
    default:
        scale = weight(g, "scale"), s = factor(g, scale);
        ir_value *offset = binary(g, IR_OP_sub, weight(g, "bias"), binary(g, IR_OP_mul, get_mean(g), s));
        return binary(g, IR_OP_add, binary(g, IR_OP_mul, get_x(g), s), offset);
    }
}

/* ---- GELU ------------------------------------------------------------------------------------ */

static ir_value *product(generator *g, ir_value *a, ir_value *b) { return binary(g, IR_OP_mul, a, b); }

static ir_value *square(generator *g)
{
    return roll(g, 2) ? binary(g, IR_OP_pow, get_x(g), constant(g, 2)) : product(g, get_x(g), get_x(g));
}

static ir_value *cube(generator *g)
{
    return roll(g, 2) ? binary(g, IR_OP_pow, get_x(g), constant(g, 3)) : product(g, square(g), get_x(g));
}

static ir_value *slope(generator *g)
{
    ir_value *ratio = roll(g, 2) ? product(g, square(g), constant(g, 0.044715))
                                 : product(g, product(g, get_x(g), constant(g, 0.044715)), get_x(g));
    return binary(g, IR_OP_add, ratio, constant(g, 1));
}

static ir_value *polynomial(generator *g)
{
    switch (roll(g, 3)) {
    case 0: return binary(g, IR_OP_add, get_x(g), product(g, cube(g), constant(g, 0.044715)));
    case 1: {
        ir_value *part = product(g, get_x(g), constant(g, 0.044715));
        return binary(g, IR_OP_add, get_x(g), product(g, part, square(g)));
    }
    default: return product(g, get_x(g), slope(g));
    }
}

static ir_value *sign(generator *g)
{
    static const double root = 0.7978845608028654;
    ir_op op = goes_wrong(g) ? IR_OP_sigmoid : g->tanh ? IR_OP_tanh : IR_OP_erf;
    ir_value *v;
    if (!g->tanh)
        v = roll(g, 2) ? binary(g, IR_OP_div, get_x(g), constant(g, sqrt(2)))
                       : product(g, get_x(g), constant(g, sqrt(0.5)));
    else
        v = roll(g, 2) ? product(g, polynomial(g), constant(g, root))
                       : product(g, product(g, get_x(g), constant(g, root)), slope(g));
    return tap(g, ir_unary(&g->b, op, v));
}

static ir_value *gelu(generator *g)
{
    g->tanh = roll(g, 2);
    ir_value *half = roll(g, 4) ? NULL : product(g, sign(g), constant(g, 0.5));
    if (half) return product(g, get_x(g), binary(g, IR_OP_add, half, constant(g, 0.5)));
    ir_value *share = binary(g, IR_OP_add, sign(g), constant(g, 1));
    switch (roll(g, 3)) {
    case 0: return product(g, get_x(g), halve(g, share));
    case 1: return product(g, halve(g, get_x(g)), share);
    default: return halve(g, product(g, get_x(g), share));
    }
}

/* ---- before and after ------------------------------------------------------------------------ */

static ir_module *generate(scratch *t, unsigned seed, bool near, int *wrong)
{
    generator g = {.m = ir_module_new(), .state = seed, .near = near};
    ir_graph *graph = ir_graph_new(g.m, "g");
    ir_type type = ir_type_make(IR_f64, RANK, (int64_t[]){ROWS, COLUMNS, DEPTH});
    g.x = ir_graph_input(graph, "x", &type);
    g.other = ir_graph_input(graph, "other", &type);
    g.b = ir_builder_at_end(graph, t->d);
    roll(&g, 2);
    ir_value *y = roll(&g, 2) ? layer_norm(&g) : gelu(&g);
    if (!y) fail_msg("seed %u: %s", seed, diag_first_error(t->d));
    ir_output(&g.b, "y", y);
    *wrong = g.wrong;
    return g.m;
}

static int count_nodes(const ir_module *m)
{
    int count = 0;
    for (const ir_node *n = m->graphs.items[0]->first; n; n = n->next)
        count += n->op != IR_OP_output && n->op != IR_OP_reshape && n->op != IR_OP_expand;
    return count;
}

static rt_session *run(scratch *t, ir_module *m)
{
    double x[ELEMENTS], other[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++) x[i] = sin(3 * i) * 2, other[i] = cos(2 * i);
    const rt_tensor in[] = {{"x", IR_f64, RANK, {ROWS, COLUMNS, DEPTH}, x},
                            {"other", IR_f64, RANK, {ROWS, COLUMNS, DEPTH}, other}};
    rt_session *s;
    ampc_status status = rt_session_open(m, &(rt_session_options){.threads = 1}, t->d, &s);
    if (status == AMPC_OK) status = rt_session_run(s, "g", in, 2, t->d);
    if (status != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    return s;
}

static void expect_equal(rt_session *a, rt_session *b, unsigned seed)
{
    assert_int_equal(rt_session_output_count(a), rt_session_output_count(b));
    for (int i = 0; i < rt_session_output_count(a); i++) {
        const rt_tensor *x = rt_session_output_at(a, i), *y = rt_session_output(b, x->name);
        int64_t count = 1;
        assert_int_equal(x->rank, y->rank);
        for (int k = 0; k < x->rank; k++) count *= x->dims[k];
        for (int64_t k = 0; k < count; k++) {
            double p = ((const double *)x->data)[k], q = ((const double *)y->data)[k];
            bool same = p == q || (isnan(p) && isnan(q)) || fabs(p - q) <= 1e-9 * fmax(1, fabs(p));
            if (!same) fail_msg("seed %u: output %s is %.17g, not %.17g", seed, x->name, q, p);
        }
    }
}

/* Returns whether a pattern was recognized; in either case asserts that the outputs are equal. */
static bool recognises(scratch *t, ir_module *m, unsigned seed)
{
    compile_options o = compile_options_default();
    arena *a = arena_new(0);
    ir_module *copy;
    const char *text = ir_print(m, a);
    assert_int_equal(ir_parse(text, strlen(text), "copy.ir", t->d, &copy), AMPC_OK);
    o.pipeline.verify_each = o.pipeline.roundtrip_each = true;
    if (test_pass(m, "patterns", &o, t->d) != AMPC_OK) fail_msg("seed %u: %s", seed, diag_first_error(t->d));
    bool recognised = count_nodes(m) < count_nodes(copy);
    if (recognised) {
        rt_session *before = run(t, copy), *after = run(t, m);
        expect_equal(before, after, seed);
        rt_session_close(before);
        rt_session_close(after);
    }
    ir_module_free(copy);
    arena_free(a);
    return recognised;
}

TEST_SCRATCH(every_way_is_recognised)
{
    for (unsigned seed = 0; seed < GRAPHS / 4; seed++) {
        int wrong;
        ir_module *m = generate(t, seed, false, &wrong);
        if (!recognises(t, m, seed) || count_nodes(m) != 1) {
            arena *a = arena_new(0);
            print_error("%s", ir_print(m, a));
            arena_free(a);
            fail_msg("seed %u: not recognised", seed);
        }
        ir_module_free(m);
    }
}

TEST_SCRATCH(near_misses_keep_their_outputs)
{
    int recognised = 0, misses = 0;
    for (unsigned seed = 0; seed < GRAPHS; seed++) {
        int wrong;
        ir_module *m = generate(t, seed, true, &wrong);
        bool found = recognises(t, m, seed);
        recognised += found;
        misses += wrong && !found;
        ir_module_free(m);
    }
    assert_true(recognised > GRAPHS / 20 && misses > GRAPHS / 2);
}
