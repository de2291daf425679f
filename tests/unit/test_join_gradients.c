/* test_join_gradients.c - an update that computes its gradient (runtime/plan/join_gradients.c) has the result of the two
 * steps, bit for bit unless oneDNN multiplies the matrices, for each optimizer and any number of threads, and changes
 * nothing if it is skipped. */
#include "ir/base/philox.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/onednn.h"
#include "tests/unit/session_fixture.h"

#include <math.h>

enum { M = 230, C = 130, WEIGHTS = M * C * 9, X = 8 * C * 9, DY = 2 * M * 4, STEPS = 2, MAX_STATES = 4 };

/* Updates of @w and the slots @a, @b and @c. */
static const struct {
    const char *update;
    int states;
    int form; /* the gradient is a conv_grad_weight, a matmul, or a matmul in bf16 */
} rows[] = {
    {"sgd @w, %dw, @lr, @skip", 1, 0},
    {"momentum @w, @a, %dw, @lr, @skip {weight_decay=0.25}", 2, 0},
    {"momentum @w, @a, %dw, @lr, @skip", 2, 1},
    {"momentum @w, @a, %dw, @lr, @skip", 2, 2},
    {"adamw @w, @a, @b, %dw, @step, @lr, @skip", 3, 0},
    {"rmsprop_centered @w, @a, @b, @c, %dw, @lr, @skip", 4, 0},
};
/* Shapes of weights and operands, and the gradient. */
static const char *const forms[3][4] = {
    {"f32[230,130,3,3]", "f32[2,130,3,4]", "f32[2,230,2,2]",
     "%dw, %db = conv_grad_weight @dy, @x {strides=[2,2], pads=[1,1,1,1], dilations=[1,1], shape=[230,130,3,3]} : "
     "f32[230,130,3,3], f32[230]"},
    {"f32[230,1170]", "f32[8,1170]", "f32[8,230]", "%dw = matmul @dy, @x {trans_a=true} : f32[230,1170]"},
    {"f32[230,1170]", "f32[8,1170]", "f32[8,230]",
     "%x16 = cast @x {to=bf16} : bf16[8,1170]\n  %dy16 = cast @dy {to=bf16} : bf16[8,230]\n"
     "  %h = matmul %dy16, %x16 {trans_a=true} : bf16[230,1170]\n  %dw = cast %h {to=f32} : f32[230,1170]"}};
static const rt_tensor operands[2][2] = {{{"x", IR_f32, 4, {2, C, 3, 4}, NULL}, {"dy", IR_f32, 4, {2, M, 2, 2}, NULL}},
                                         {{"x", IR_f32, 2, {8, C * 9}, NULL}, {"dy", IR_f32, 2, {8, M}, NULL}}};
static const char *const states[MAX_STATES] = {"w", "a", "b", "c"};

static void load_row(scratch *t, int row)
{
    const char *const *form = forms[rows[row].form], *shape = form[0];
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    fputs("state @lr : f32[] = 0.01\nconst @step : i64[] = 3\n", f);
    for (int i = 0; i < rows[row].states; i++) fprintf(f, "param @%s : %s = zero\n", states[i], shape);
    fprintf(f, "graph @g(@x : %s, @dy : %s, @skip : bool[]) {\nbackward:\n  %s\nupdate:\n  ", form[1], form[2],
            form[3]);
    for (int i = 0; i < rows[row].states; i++) fprintf(f, "%s%%%s1", i ? ", " : "", states[i]);
    fprintf(f, " = %s : ", rows[row].update);
    for (int i = 0; i < rows[row].states; i++) fprintf(f, "%s%s", i ? ", " : "", shape);
    for (int i = 0; i < rows[row].states; i++) fprintf(f, "\n  store @%s, %%%s1", states[i], states[i]);
    fputs("\n}\n", f);
    fclose(f);
    load(t, text);
    free(text);
}

static void fill(float *to, int n, uint64_t key)
{
    for (int i = 0; i < n; i++) to[i] = philox_unit(philox_word(29, key, (uint64_t)i)) - 0.5f;
}

/* Trains and returns w and its slots after each step, the last of which is skipped. */
static float *train(scratch *t, const rt_session_options *o, int row)
{
    static float x[X], dy[DY];
    const int n_states = rows[row].states;
    float *all = calloc((size_t)(STEPS + 1) * MAX_STATES * WEIGHTS, sizeof *all), *to = all;
    uint8_t skip = 0;
    rt_tensor in[] = {operands[rows[row].form > 0][0],
                      operands[rows[row].form > 0][1],
                      {.name = "skip", .dtype = IR_bool, .data = &skip}};
    in[0].data = x;
    in[1].data = dy;
    if (open_with(t, o) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    for (int step = 0; step <= STEPS; step++) {
        fill(x, X, (uint64_t)(2 * step));
        fill(dy, DY, (uint64_t)(2 * step + 1));
        skip = step == STEPS;
        run_ok(t, "g", in, 3);
        for (int i = 0; i < n_states; i++, to += WEIGHTS)
            memcpy(to, storage_floats(t, states[i]), WEIGHTS * sizeof *to);
    }
    rt_session_close(session);
    session = NULL;
    return all;
}

/* Whether own code computes the gradient, so that bits depend neither on the number of threads nor on layouts. */
static bool is_own(int row)
{
    if (rows[row].form == 2) return cpu_isa() >= CPU_ISA_amx;
    if (rows[row].form == 1 || !cpu_has_onednn()) return true;
    return cpu_isa() >= CPU_ISA_avx512;
}

/* Compares what `train` returned. */
static void compare(const float *got, const float *expected, int row, bool bitwise)
{
    const size_t n = (size_t)(STEPS + 1) * (size_t)rows[row].states * WEIGHTS;
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - expected[i]) <= (bitwise ? 0 : rows[row].form == 2 ? 1e-2f : 1e-5f)))
            fail_msg("%s: number %zu is %g instead of %g", rows[row].update, i, (double)got[i], (double)expected[i]);
}

TEST_SESSION(results_are_those_of_two_steps)
{
    static const rt_session_options joined = {.threads = 1}, threads = {.threads = 3},
                                    apart = {.threads = 1, .no_fuse = true};
    for (int row = 0; row < (int)(sizeof rows / sizeof *rows); row++) {
        const size_t step = (size_t)rows[row].states * WEIGHTS * sizeof(float);
        load_row(t, row);
        float *expected = train(t, &apart, row), *other = train(t, &joined, row), *got = train(t, &threads, row);
        compare(got, expected, row, is_own(row) && rows[row].form == 0);
        compare(got, other, row, is_own(row));
        free(other);
        assert_memory_not_equal(got, (char *)got + step, step);
        assert_memory_equal((char *)got + (STEPS - 1) * step, (char *)got + STEPS * step, step);
        free(got);
        free(expected);
        ir_module_free(module);
        module = NULL;
    }
}
