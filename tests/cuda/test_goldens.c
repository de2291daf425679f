/* test_goldens.c - whole networks on the CUDA backend, compared with the CPU.
 *
 * For each folder of tests/goldens and each precision, one module is opened on both devices. The gradients of the first step, as
 * one vector, must satisfy ||cuda - cpu|| / ||cpu|| <= 1e-4 (fp32), 2e-3 (fp16), 1e-2 (bf16) or twice the error of the precision
 * itself, whichever is larger. Then there are training steps, submitted without waiting on CUDA: the first run of a plan is walked,
 * those with other sets of inputs are captured, later ones replay captured graphs. Their losses must agree within four times that
 * bound. Cases that the importer rejects are tested by train_golden. */
#include "runtime/plan/plan.h"
#include "runtime/train/stepper.h"
#include "tests/rows.h"
#include "tests/train/golden.h"
#include "tests/tier.h"

#include <math.h>

enum { STEPS = RT_SLOTS + 2 };

static double bound_of(const golden *g)
{
    if (g->precision->level == PASS_O0) return 1e-4;
    return fmax(g->precision->low == IR_f16 ? 2e-3 : 1e-2, 2 * golden_reference_error(g, "grad_rel2_all"));
}

static double element(const rt_tensor *t, size_t i)
{
    return ir_load_f64(t->dtype, (const char *)t->data + i * ir_dtype_size(t->dtype));
}

static void add_distance(const rt_tensor *a, const rt_tensor *b, double *difference, double *norm)
{
    size_t n = 1;
    assert_int_equal(a->rank, b->rank);
    for (int i = 0; i < b->rank; i++) n *= (size_t)b->dims[i];
    for (size_t i = 0; i < n; i++) {
        double x = element(a, i), y = element(b, i);
        *difference += (x - y) * (x - y);
        *norm += y * y;
    }
}

/* Gradients are multiplied by the loss scale, if any, which is equal on both sides. */
static void check_gradients(const golden *g, rt_session *cuda, rt_session *cpu)
{
    double difference = 0, norm = 0, a, b;
    golden_run_gradient(g, cuda);
    golden_run_gradient(g, cpu);
    if (ir_storage_find(g->module, "loss_scale")) {
        assert_int_equal(rt_session_get_number(cuda, "loss_scale", g->diag, &a), AMPC_OK);
        assert_int_equal(rt_session_get_number(cpu, "loss_scale", g->diag, &b), AMPC_OK);
        assert_true(a == b);
    }
    int gradients = 0;
    for (int i = 0; i < rt_session_output_count(cpu); i++) {
        const rt_tensor *y = rt_session_output_at(cpu, i);
        if (strncmp(y->name, "grad/", 5) != 0) continue;
        const rt_tensor *x = rt_session_output(cuda, y->name);
        assert_non_null(x);
        assert_non_null(x->data);
        add_distance(x, y, &difference, &norm);
        gradients++;
    }
    assert_true(gradients > 0);
    double error = sqrt(difference / norm);
    if (!(error <= bound_of(g))) print_error("gradients differ by %.3g, allowed %.3g\n", error, bound_of(g));
    assert_true(error <= bound_of(g));
}

static void check_losses(const golden *g, rt_session *cuda, rt_session *cpu)
{
    const ir_graph *step = ir_graph_by_role(g->module, IR_GRAPH_train_step);
    const char *name = ir_output_name(ir_output_by_role(step, IR_OUTPUT_loss));
    const rt_readback loss = {name, RT_READBACK_OUTPUT};
    int64_t runs[STEPS];
    rt_tensor inputs[GOLDEN_INPUTS];
    int n = golden_inputs(g, "train_step", inputs);
    assert_int_equal(rt_stepper_select(cuda, g->module, NULL, 0, g->diag), AMPC_OK);
    assert_int_equal(rt_session_select_scalars(cuda, "train_step", &loss, 1, g->diag), AMPC_OK);
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(rt_session_submit(cuda, "train_step", inputs, n, g->diag, &runs[i]), AMPC_OK);
    for (int i = 0; i < STEPS; i++) {
        double x;
        golden_run(g, cpu, "train_step");
        double y = element(rt_session_output(cpu, name), 0);
        assert_int_equal(rt_session_collect(cuda, runs[i], g->diag, &x), AMPC_OK);
        double error = fabs(x - y) / fabs(y);
        if (!(error <= 4 * bound_of(g))) print_error("step %d: loss %.9g, on the processor %.9g\n", i, x, y);
        assert_true(error <= 4 * bound_of(g));
    }
}

static void test_case(void **state)
{
    golden *g = *state;
    rt_session *cpu = NULL;
    golden_load(g);
    g->fuse_attention = true;
    assert_int_equal(golden_compile(g), AMPC_OK);
    const rt_session_options on_cuda = {.device = "cuda", .no_tune = true}, on_cpu = {.device = "cpu", .threads = 2};
    assert_int_equal(rt_session_open(g->module, &on_cuda, g->diag, &g->session), AMPC_OK);
    assert_int_equal(rt_session_open(g->module, &on_cpu, g->diag, &cpu), AMPC_OK);
    check_gradients(g, g->session, cpu);
    check_losses(g, g->session, cpu);
    rt_session_close(cpu);
}

enum { FOLDER_PARTS = 3 /* below the full tier */ };

/* Below the full tier, a third of the folders is due, each with one of the low types, and the next time with the other. */
static bool is_chosen(int folder, const golden *g)
{
    if (!tier_is_reduced()) return true;
    const size_t turn = (size_t)folder + tier_seed() / FOLDER_PARTS;
    return tier_is_due((size_t)folder, FOLDER_PARTS) &&
           (g->precision->level == PASS_O0 || (g->precision->low == IR_f16) == (turn % 2 != 0));
}

int main(int argc, char **argv)
{
    tier_print_part("networks", FOLDER_PARTS);
    return golden_main(argc, argv, "goldens on cuda", is_chosen, test_case);
}
