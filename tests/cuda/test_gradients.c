/* test_gradients.c - weight gradients in the type of their operands on CUDA: plans as text; values compared with the CPU, which
 * keeps f32; and a gradient that is finite only in f32. */
#include "tests/unit/plan_text.h"

#include "ir/base/philox.h"
#include "kernels/cpu/isa.h"
#include "tests/session.h"

#include <math.h>

#define STATES \
    "param @w : f32[16,8] = zero\nparam @b : f32[8] = zero\nstate @lr : f32[] = 0.5\nstate @scale : f32[] = 4\n"

/* A layer's gradients; `use` is inserted between the backward and the check of %dw and %db. */
#define LAYER(type, use) \
    STATES "graph @g(@x : " type "[N,16], @dy : " type "[N,8]) {\n" \
           "backward:\n  %dw = matmul @x, @dy {trans_a=true, out=f32} : f32[16,8]\n" \
           "  %db = reduce_sum @dy {axes=[0], keepdims=false, out=f32} : f32[8]\n" use \
           "update:\n  %uw, %ub, %inf = check_finite_and_unscale %dw, %db, @scale : f32[16,8], f32[8], bool[]\n" \
           "  output \"inf\" = %inf\n" \
           "  %w1 = sgd @w, %uw, @lr, %inf : f32[16,8]\n  store @w, %w1\n" \
           "  %b1 = sgd @b, %ub, @lr, %inf : f32[8]\n  store @b, %b1\n}\n"

#define UPDATES \
    "        %w1 : f32[16,8]\n" \
    "   3  sgd                  @b, %db, @lr, %inf, @scale\n        %b1 : f32[8]\noutput \"inf\"\n"

/* The bias gradient has the same type, so it stays in the matmul epilogue. */
TEST(a_product_makes_low_gradients)
{
    plan_text_expect("cuda", LAYER("bf16", ""),
                     "plan @g N=2: 4 steps\n"
                     "   0  matmul               @x, @dy, _\n"
                     "        %dw : bf16[16,8]\n"
                     "        %db : bf16[8]\n"
                     "   1  check_finite_and_unscale %dw, %db, @scale\n"
                     "        %inf : bool[]\n"
                     "   2  sgd                  @w, %dw, @lr, %inf, @scale\n" UPDATES);
}

TEST(f32_operands_make_f32_gradients)
{
    plan_text_expect("cuda", LAYER("f32", ""),
                     "plan @g N=2: 4 steps\n"
                     "   0  matmul               @x, @dy, _\n"
                     "        %dw : f32[16,8]\n"
                     "        %db : f32[8]\n"
                     "   1  check_finite_and_unscale %dw, %db, @scale\n"
                     "        %inf : bool[]\n"
                     "   2  sgd                  @w, %dw, @lr, %inf, @scale\n" UPDATES);
}

/* A sum stays in f32 if no matmul of the plan reads its operand, or if that matmul stays in f32. */
TEST(sums_alone_stay)
{
    plan_text_expect("cuda",
                     STATES "graph @g(@x : f16[N,16], @dy : f16[N,8], @z : f16[N,8]) {\n"
                            "backward:\n  %dw = matmul @x, @dy {trans_a=true, out=f32} : f32[16,8]\n"
                            "  %db = reduce_sum @z {axes=[0], keepdims=false, out=f32} : f32[8]\n"
                            "update:\n  %uw, %ub, %inf = check_finite_and_unscale %dw, %db, @scale :"
                            " f32[16,8], f32[8], bool[]\n  output \"inf\" = %inf\n"
                            "  %w1 = sgd @w, %uw, @lr, %inf : f32[16,8]\n  store @w, %w1\n"
                            "  %b1 = sgd @b, %ub, @lr, %inf : f32[8]\n  store @b, %b1\n}\n",
                     "plan @g N=2: 6 steps\n"
                     "   0  matmul               @x, @dy, _\n        %dw : f16[16,8]\n"
                     "   1  reduce_sum           @z\n        %db : f32[8]\n"
                     "   2  check_finite_and_unscale %dw, @scale\n        %inf' : bool[]\n"
                     "   3  check_finite_and_unscale %db, @scale, %inf'\n        %inf : bool[]\n"
                     "   4  sgd                  @w, %dw, @lr, %inf, @scale\n        %w1 : f32[16,8]\n"
                     "   5  sgd                  @b, %db, @lr, %inf, @scale\n        %b1 : f32[8]\n"
                     "output \"inf\"\n");
}

/* Checks the types of %dw and %db in the plan of a graph. */
static void expect_types(const char *text, ir_dtype dw, ir_dtype db)
{
    plan_text t;
    int found = 0;
    plan_text_open(&t, "cuda", text);
    if (plan_text_make(&t, true) != AMPC_OK) fail_msg("%s", diag_first_error(t.d));
    for (int i = 0; i < t.plan->n_steps; i++)
        for (int k = 0; k < t.plan->steps[i]->n_out; k++) {
            const rt_step *s = t.plan->steps[i];
            const uint32_t value = s->out_value[k];
            if (value == RT_NO_VALUE || t.plan->values[value].derived) continue;
            const char *name = t.plan->values[value].value->name;
            const bool is_dw = strcmp(name, "dw") == 0;
            if (!is_dw && strcmp(name, "db") != 0) continue;
            if (s->out[k].dtype != (is_dw ? dw : db))
                fail_msg("%%%s is %s in the plan of\n%s", name, ir_dtype_name(s->out[k].dtype), text);
            found++;
        }
    assert_int_equal(found, 2);
    plan_text_close(&t);
}

TEST(what_others_read_stays)
{
    expect_types(LAYER("f16", ""), IR_f16, IR_f16);
    expect_types(LAYER("f16", "  output \"grad/w\" = %dw\n"), IR_f32, IR_f32);
    expect_types(LAYER("f16", "  output \"grad/b\" = %db\n"), IR_f16, IR_f32);
    expect_types(LAYER("f16", "  %n = global_norm %dw : f32[]\n  output \"n\" = %n\n"), IR_f32, IR_f32);
    /* the unscaled gradients are read, so the check writes them, in f32 */
    expect_types(STATES "graph @g(@x : f16[N,16], @dy : f16[N,8]) {\n"
                        "backward:\n  %dw = matmul @x, @dy {trans_a=true, out=f32} : f32[16,8]\n"
                        "  %db = reduce_sum @dy {axes=[0], keepdims=false, out=f32} : f32[8]\n"
                        "update:\n  %uw, %ub, %inf = check_finite_and_unscale %dw, %db, @scale :"
                        " f32[16,8], f32[8], bool[]\n  output \"inf\" = %inf\n  output \"uw\" = %uw\n"
                        "  %b1 = sgd @b, %ub, @lr, %inf : f32[8]\n  store @b, %b1\n}\n",
                 IR_f32, IR_f32);
    /* no check would detect an overflow from rounding */
    expect_types(STATES "graph @g(@x : f16[N,16], @dy : f16[N,8]) {\n"
                        "backward:\n  %dw = matmul @x, @dy {trans_a=true, out=f32} : f32[16,8]\n"
                        "  %db = reduce_sum @dy {axes=[0], keepdims=false, out=f32} : f32[8]\n"
                        "update:\n  %w1 = sgd @w, %dw, @lr : f32[16,8]\n  store @w, %w1\n"
                        "  %b1 = sgd @b, %db, @lr : f32[8]\n  store @b, %b1\n}\n",
                 IR_f32, IR_f32);
}

#define CONV(use) \
    "param @w : f32[16,8,3,3] = zero\nparam @b : f32[16] = zero\nstate @lr : f32[] = 0.5\nstate @scale : f32[] = 4\n" \
    "graph @g(@x : f16[N,8,6,6], @dy : f16[N,16,4,4]) {\nbackward:\n" \
    "  %dw, %db = conv_grad_weight @dy, @x {shape=[16,8,3,3], strides=[1,1], pads=[0,0,0,0], dilations=[1,1]," \
    " out=f32} : f32[16,8,3,3], f32[16]\n" use \
    "update:\n  %uw, %ub, %inf = check_finite_and_unscale %dw, %db, @scale : f32[16,8,3,3], f32[16], bool[]\n" \
    "  output \"inf\" = %inf\n" \
    "  %w1 = sgd @w, %uw, @lr, %inf : f32[16,8,3,3]\n  store @w, %w1\n" \
    "  %b1 = sgd @b, %ub, @lr, %inf : f32[16]\n  store @b, %b1\n}\n"

/* A convolution computes both of its gradients in one type. */
TEST(convolutions_make_low_gradients)
{
    expect_types(CONV(""), IR_f16, IR_f16);
    expect_types(CONV("  output \"grad/w\" = %dw\n"), IR_f32, IR_f32);
    expect_types(CONV("  output \"grad/b\" = %db\n"), IR_f32, IR_f32);
}

/* ---- values ------------------------------------------------------------------------------------------ */

enum { ROWS = 32, DEEP = 16, WIDE = 8, PARAMETERS = DEEP * WIDE, RUNS = 4 /* walked, captured twice, replayed */ };

typedef struct trained {
    float w[PARAMETERS], b[WIDE];
    bool found_inf;
} trained;

/* Trains with elements of magnitude `size`. */
static trained train(const char *device, const char *text, float size)
{
    trained result;
    uint16_t x[ROWS * DEEP], dy[ROWS * WIDE];
    char *whole;
    rt_tensor t;
    ir_module *module;
    rt_session *s;
    diag *d = diag_new(NULL, NULL);
    assert_true(asprintf(&whole, "ampc-ir 3\n%s", text) > 0);
    if (ir_parse(whole, strlen(whole), "train.ir", d, &module) != AMPC_OK) fail_msg("%s", diag_first_error(d));
    free(whole);
    if (rt_session_open(module, &(rt_session_options){.device = device, .threads = 1, .no_tune = true}, d, &s) !=
        AMPC_OK)
        fail_msg("%s", diag_first_error(d));
    for (int i = 0; i < ROWS * DEEP; i++) x[i] = ir_f32_to_f16(size * philox_unit(philox_word(1, 2, (uint64_t)i)));
    for (int i = 0; i < ROWS * WIDE; i++) dy[i] = ir_f32_to_f16(size * philox_unit(philox_word(3, 4, (uint64_t)i)));
    const rt_tensor in[] = {{.name = "x", .dtype = IR_f16, .rank = 2, .dims = {ROWS, DEEP}, .data = x},
                            {.name = "dy", .dtype = IR_f16, .rank = 2, .dims = {ROWS, WIDE}, .data = dy}};
    for (int i = 0; i < RUNS; i++)
        if (rt_session_run(s, "g", in, 2, d) != AMPC_OK) fail_msg("%s", diag_first_error(d));
    result.found_inf = *(const bool *)rt_session_output(s, "inf")->data;
    assert_int_equal(test_storage(s, "w", d, &t), AMPC_OK);
    memcpy(result.w, t.data, sizeof result.w);
    assert_int_equal(test_storage(s, "b", d, &t), AMPC_OK);
    memcpy(result.b, t.data, sizeof result.b);
    rt_session_close(s);
    ir_module_free(module);
    diag_free(d);
    return result;
}

/* Whether any value deviates from its expected value by more than `relative`. */
static bool differs(const float *values, const float *expected, int n, double relative)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(values[i] - expected[i]) <= relative * fabs(expected[i]))) return true;
    return false;
}

/* Each gradient is rounded to f16 exactly once. */
TEST(gradients_are_rounded_once)
{
    const double half_unit = 0x1p-11, exact = 0x1p-20;
    cpu_isa_limit(CPU_ISA_avx512); /* products of f16 in AMX tiles lack up to 2^-16 of a term (gemm_amx.c) */
    const trained cuda = train("cuda", LAYER("f16", ""), 1), cpu = train("cpu", LAYER("f16", ""), 1);
    const trained wide = train("cuda", "unfused\n" LAYER("f16", ""), 1);
    assert_false(cuda.found_inf || cpu.found_inf);
    assert_false(differs(cuda.w, cpu.w, PARAMETERS, half_unit + exact) ||
                 differs(cuda.b, cpu.b, WIDE, half_unit + exact));
    assert_true(differs(cuda.w, cpu.w, PARAMETERS, exact) && differs(cuda.b, cpu.b, WIDE, exact));
    assert_false(differs(wide.w, cpu.w, PARAMETERS, exact) || differs(wide.b, cpu.b, WIDE, exact));
}

/* Gradients beyond 65504 are finite only in f32: the check detects the overflow from rounding, and nothing is updated. */
TEST(overflow_is_found)
{
    const trained cuda = train("cuda", LAYER("f16", ""), 200), cpu = train("cpu", LAYER("f16", ""), 200);
    assert_true(cuda.found_inf);
    assert_false(cpu.found_inf);
    for (int i = 0; i < PARAMETERS; i++) assert_true(cuda.w[i] == 0 && cpu.w[i] != 0);
    for (int i = 0; i < WIDE; i++) assert_true(cuda.b[i] == 0 && cpu.b[i] != 0);
}
