/* test_golden.c - whole networks against PyTorch: outputs, loss, every gradient by name, BN state, six SGD steps.
 *
 * Each folder of tests/goldens holds a model and what PyTorch autograd computes for it in double precision (README
 * there). fp32: max|a-b| / max|b| per tensor, outputs and BN state 1e-5, gradients 1e-4 (those that are zero in exact
 * arithmetic against the norm of all gradients), SGD losses max(1e-5, 4 x what PyTorch's own f32 reaches). O1: the
 * gradients as one vector within 4 x the error of rounding matmul operands alone, at least 0.02 (fp16), 0.05 (bf16),
 * and visibly not fp32. A step trains the same bits whichever outputs it computes. */
#include "runtime/train/stepper.h"
#include "tests/test.h"
#include "tests/train/golden.h"

#include <math.h>

/* ---- comparing ------------------------------------------------------------------------------- */

static double element(const rt_tensor *t, size_t i)
{
    return ir_load_f64(t->dtype, (const char *)t->data + i * ir_dtype_size(t->dtype));
}

static double reference(const rt_array *a, size_t i)
{
    return ir_load_f64(a->dtype, (const char *)a->data + i * ir_dtype_size(a->dtype));
}

typedef struct distance {
    double max_difference, max_reference; /* over one tensor */
    double squares_difference, squares_reference;
} distance;

static distance compare(const rt_tensor *t, const rt_array *a)
{
    distance d = {0};
    size_t n = a->bytes / ir_dtype_size(a->dtype), m = 1;
    for (int i = 0; i < t->rank; i++) m *= (size_t)t->dims[i];
    assert_int_equal(n, m);
    for (size_t i = 0; i < n; i++) {
        double x = element(t, i), y = reference(a, i), difference = fabs(x - y);
        if (isnan(difference)) difference = INFINITY;
        d.max_difference = fmax(d.max_difference, difference);
        d.max_reference = fmax(d.max_reference, fabs(y));
        d.squares_difference += difference * difference;
        d.squares_reference += y * y;
    }
    return d;
}

static bool has_prefix(const char *s, const char *prefix) { return strncmp(s, prefix, strlen(prefix)) == 0; }

static bool is_zero_gradient(const golden *g, const char *name)
{
    json_t *names = json_object_get(g->meta, "zero_grad");
    for (size_t i = 0; i < json_array_size(names); i++)
        if (strcmp(json_string_value(json_array_get(names, i)), name) == 0) return true;
    return false;
}

static double gradient_norm(const golden *g)
{
    double squares = 0;
    for (size_t i = 0; i < g->arrays.count; i++)
        for (size_t k = 0; has_prefix(g->arrays.items[i].name, "grad/") &&
                           k < g->arrays.items[i].bytes / ir_dtype_size(g->arrays.items[i].dtype);
             k++)
            squares += pow(reference(&g->arrays.items[i], k), 2);
    return sqrt(squares);
}

/* The output of the graph to which a golden array belongs; NULL if it is not a result. */
static const rt_tensor *result_of(const golden *g, const char *key)
{
    char name[300];
    if (has_prefix(key, "output/")) return rt_session_output(g->session, key + 7);
    if (has_prefix(key, "grad/") || has_prefix(key, "gradin/")) return rt_session_output(g->session, key);
    if (!has_prefix(key, "bn/")) return NULL;
    snprintf(name, sizeof name, "buf/%s", key + 3);
    return rt_session_output(g->session, name);
}

static void check_fp32(const golden *g)
{
    double norm = gradient_norm(g);
    int failures = 0;
    for (size_t i = 0; i < g->arrays.count; i++) {
        const rt_array *a = &g->arrays.items[i];
        if (has_prefix(a->name, "input/") || strcmp(a->name, "label") == 0 || strcmp(a->name, "sgd_loss") == 0 ||
            strcmp(a->name, "loss") == 0)
            continue;
        const rt_tensor *t = result_of(g, a->name);
        if (!t) {
            print_error("%s: no result\n", a->name);
            failures++;
            continue;
        }
        distance d = compare(t, a);
        bool gradient = has_prefix(a->name, "grad"), zero = gradient && is_zero_gradient(g, a->name + 5);
        double error = d.max_difference / (zero ? norm : d.max_reference > 0 ? d.max_reference : 1);
        if (error <= (gradient ? 1e-4 : 1e-5)) continue;
        print_error("%s: error %.3g (max|a-b| %.3g, max|b| %.3g)\n", a->name, error, d.max_difference, d.max_reference);
        failures++;
    }
    assert_int_equal(failures, 0);
}

static void check_low(const golden *g)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < g->arrays.count; i++) {
        const rt_array *a = &g->arrays.items[i];
        if (!has_prefix(a->name, "grad/")) continue;
        const rt_tensor *t = result_of(g, a->name);
        assert_non_null(t);
        distance d = compare(t, a);
        difference += d.squares_difference;
        norm += d.squares_reference;
    }
    double error = sqrt(difference / norm);
    double bound = fmax(4 * golden_reference_error(g, "grad_rel2_all"), g->precision->floor);
    if (!(error <= bound)) print_error("gradient error %.4g, allowed %.4g\n", error, bound);
    assert_true(error <= bound);
    assert_true(error > 1e-5); /* visibly not fp32 */
}

static void check_sgd(golden *g)
{
    const rt_array *losses = rt_arrays_find(&g->arrays, "sgd_loss");
    double bound = fmax(1e-5, 4 * golden_reference_error(g, "sgd_loss"));
    for (int i = 0; i < GOLDEN_STEPS; i++) {
        golden_run(g, g->session, "train_step");
        const ir_graph *step = ir_graph_by_role(g->module, IR_GRAPH_train_step);
        const rt_tensor *loss = rt_session_output(g->session, ir_output_name(ir_output_by_role(step, IR_OUTPUT_loss)));
        assert_non_null(loss);
        double expected = reference(losses, (size_t)i), error = fabs(element(loss, 0) - expected) / fabs(expected);
        if (!(error <= bound)) print_error("step %d: loss %.9g, expected %.9g\n", i, element(loss, 0), expected);
        assert_true(error <= bound);
    }
}

/* Bytes of all storage, malloc'ed. */
static char *storage_bytes(const golden *g, rt_session *s, size_t *n)
{
    char *bytes = NULL;
    *n = 0;
    for (int i = 0; i < rt_session_storage_count(s); i++) {
        rt_tensor t;
        assert_int_equal(rt_session_read(s, i, g->diag, &t), AMPC_OK);
        size_t size = ir_dtype_size(t.dtype);
        for (int k = 0; k < t.rank; k++) size *= (size_t)t.dims[k];
        bytes = realloc(bytes, *n + size + 1);
        assert_non_null(bytes);
        memcpy(bytes + *n, t.data, size);
        *n += size;
    }
    return bytes;
}

enum { SELECTED_STEPS = 2 };

/* Everything that a session holds after some steps, with the outputs that training needs alone, or with all. */
static char *train_selected(const golden *g, bool selected, size_t *n)
{
    const rt_session_options options = {.device = "cpu", .threads = 2};
    rt_session *s = NULL;
    assert_int_equal(rt_session_open(g->module, &options, g->diag, &s), AMPC_OK);
    if (selected) assert_int_equal(rt_stepper_select(s, g->module, NULL, 0, g->diag), AMPC_OK);
    for (int i = 0; i < SELECTED_STEPS; i++) golden_run(g, s, "train_step");
    assert_true(!selected || rt_session_output_count(s) <= 2);
    char *bytes = storage_bytes(g, s, n);
    rt_session_close(s);
    return bytes;
}

/* Training does not depend on which other outputs are computed. */
static void check_selection(const golden *g)
{
    size_t n, again;
    char *all = train_selected(g, false, &n), *few = train_selected(g, true, &again);
    assert_int_equal(n, again);
    assert_memory_equal(all, few, n);
    free(all);
    free(few);
}

static void test_case(void **state)
{
    golden *g = *state;
    golden_load(g);
    g->fuse_attention = true;
    assert_int_equal(golden_compile(g), AMPC_OK);
    rt_session_options options = {.device = "cpu", .threads = 2};
    assert_int_equal(rt_session_open(g->module, &options, g->diag, &g->session), AMPC_OK);
    golden_run_gradient(g, g->session);
    if (g->precision->level == PASS_O0) check_fp32(g);
    else check_low(g);
    if (g->precision->level == PASS_O0) check_sgd(g);
    check_selection(g);
}

int main(int argc, char **argv) { return golden_main(argc, argv, "golden", NULL, test_case); }
