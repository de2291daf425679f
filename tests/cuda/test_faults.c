/* test_faults.c - faults that kernels detect on the device: the run fails with the node's name and a message, no parameter changes,
 * and the next run is unaffected. */
#include "ir/graph/ir.h"
#include "tests/session.h"
#include "tests/test.h"

enum { ROWS = 3, CLASSES = 4, RUNS = 4 };

static const char step[] =
    "ampc-ir 3\n"
    "param @w : f32[4,4] = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]\n"
    "state @v : f32[4,4] = zero\nstate @lr : f32[] = 0.5\nstate @one : f32[] = 1\nstate @n : i64[] = 0\n"
    "const @next : i64[] = 1\n"
    "graph @g(@x : f32[3,4], @label : i64[3]) {\nforward:\n"
    "  %y = matmul @x, @w : f32[3,4]\n"
    "  %loss, %lse, %p = softmax_cross_entropy %y, @label : f32[], f32[3], f32[3,4] !Loss \"named\"\n"
    "  output \"loss\" = %loss\n"
    "backward:\n"
    "  %d.y = softmax_cross_entropy_grad @one, %y, %lse, @label : f32[3,4]\n"
    "  %d.w = matmul @x, %d.y {trans_a=true} : f32[4,4]\n"
    "update:\n"
    "  %w1, %v1 = momentum @w, @v, %d.w, @lr : f32[4,4], f32[4,4]\n"
    "  %n1 = add @n, @next : i64[]\n"
    "  store @w, %w1\n  store @v, %v1\n  store @n, %n1\n}\n";

static ampc_status run(rt_session *s, const int64_t *labels, diag *d)
{
    static const float x[ROWS * CLASSES] = {1, 2, 3, 4, 4, 3, 2, 1, 0, 1, 0, 1};
    const rt_tensor in[] = {
        {.name = "x", .dtype = IR_f32, .rank = 2, .dims = {ROWS, CLASSES}, .data = (void *)(uintptr_t)x},
        {.name = "label", .dtype = IR_i64, .rank = 1, .dims = {ROWS}, .data = (void *)(uintptr_t)labels}};
    return rt_session_run(s, "g", in, 2, d);
}

static void read_states(rt_session *s, diag *d, float *to)
{
    static const char *const names[] = {"w", "v"};
    for (int i = 0; i < 2; i++) {
        rt_tensor t;
        assert_int_equal(test_storage(s, names[i], d, &t), AMPC_OK);
        memcpy(to + i * CLASSES * CLASSES, t.data, CLASSES * CLASSES * sizeof *to);
    }
}

/* Alternates between bad and good runs, so that both are walked, captured and replayed. */
TEST(test_labels)
{
    static const int64_t good[] = {0, 3, 1}, bad[][ROWS] = {{0, 3, 4}, {-1, 0, 0}, {0, INT64_MAX, 0}};
    diag *d = diag_new(NULL, NULL);
    ir_module *module = NULL;
    rt_session *s = NULL;
    double steps;
    if (ir_parse(step, strlen(step), "faults.ir", d, &module) != AMPC_OK) fail_msg("%s", diag_first_error(d));
    assert_int_equal(rt_session_open(module, &(rt_session_options){.device = "cuda", .no_tune = true}, d, &s), AMPC_OK);
    for (int i = 0; i < RUNS; i++) {
        float before[2 * CLASSES * CLASSES], after[2 * CLASSES * CLASSES];
        read_states(s, d, before);
        diag *refusal = diag_new(NULL, NULL);
        assert_int_equal(run(s, bad[i % 3], refusal), AMPC_REJECTED);
        assert_non_null(strstr(diag_first_error(refusal), "a label is outside of the classes"));
        assert_non_null(strstr(diag_first_error(refusal), "named"));
        diag_free(refusal);
        read_states(s, d, after);
        assert_memory_equal(before, after, sizeof before);
        if (run(s, good, d) != AMPC_OK) fail_msg("%s", diag_first_error(d));
        read_states(s, d, after);
        assert_memory_not_equal(before, after, sizeof before);
        assert_int_equal(rt_session_get_number(s, "n", d, &steps), AMPC_OK);
        assert_int_equal((int)steps, i + 1);
    }
    rt_session_close(s);
    ir_module_free(module);
    diag_free(d);
}
