/* test_check_factors.c - the finite check of a large weight gradient that reads its factors (fuse_unscaling.c) finds what
 * the check of the gradient finds, and factors that are so large that sums could overflow. */
#include "tests/unit/session_fixture.h"

#include <math.h>

enum { ROWS = 8, M = 512, LAST = ROWS * M - 1 };

static const char *const graphs[] = {
    "param @w : f32[512,512] = zero\nstate @lr : f32[] = 0.5 as lr\nstate @scale : f32[] = 4 as loss_scale\n"
    "graph @g(@x : bf16[8,512], @dy : bf16[8,512]) {\nbackward:\n"
    "  %dw = matmul @dy, @x {trans_a=true, out=f32} : f32[512,512]\n"
    "update:\n  %u, %inf = check_finite_and_unscale %dw, @scale : f32[512,512], bool[]\n  output \"inf\" = %inf\n"
    "  %w1 = sgd @w, %u, @lr, %inf : f32[512,512]\n  store @w, %w1\n}\n",
    "param @w : f32[512,512,1,1] = zero\nstate @lr : f32[] = 0.5 as lr\nstate @scale : f32[] = 4 as loss_scale\n"
    "graph @g(@x : bf16[8,512,1,1], @dy : bf16[8,512,1,1]) {\nbackward:\n"
    "  %dw, %db = conv_grad_weight @dy, @x {strides=[1,1], pads=[0,0,0,0], dilations=[1,1], shape=[512,512,1,1], "
    "out=f32} : f32[512,512,1,1], f32[512]\n"
    "update:\n  %u, %inf = check_finite_and_unscale %dw, @scale : f32[512,512,1,1], bool[]\n  output \"inf\" = %inf\n"
    "  %w1 = sgd @w, %u, @lr, %inf : f32[512,512,1,1]\n  store @w, %w1\n}\n"};

/* The last element of a factor; `bad` whether gradients are not finite, `found` whether the factors are refused. */
static const struct {
    float last;
    bool bad, found;
} rows[] = {{1, false, false}, {1e16f, false, false}, {-1e18f, false, true}, {INFINITY, true, true}, {NAN, true, true}};

static uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits >> 16) | (isnan(x) ? 1 : 0));
}

/* Copies @w after the step to `w`. */
static void check(scratch *t, int graph, int row, bool second, bool no_fuse, float *w)
{
    static uint16_t factors[2][ROWS * M];
    const int rank = graph ? 4 : 2;
    const rt_tensor in[] = {{"x", IR_bf16, rank, {ROWS, M, 1, 1}, factors[0]},
                            {"dy", IR_bf16, rank, {ROWS, M, 1, 1}, factors[1]}};
    for (int i = 0; i < 2 * ROWS * M; i++) factors[i / (ROWS * M)][i % (ROWS * M)] = bf16_of((float)(i % 7) - 3);
    factors[second][LAST] = bf16_of(rows[row].last);
    load(t, graphs[graph]);
    if (open_with(t, &(rt_session_options){.threads = 2, .no_fuse = no_fuse}) != AMPC_OK)
        fail_msg("%s", diag_first_error(t->d));
    run_ok(t, "g", in, 2);
    const bool found = *(const uint8_t *)rt_session_output(session, "inf")->data;
    memcpy(w, storage_floats(t, "w"), M * M * sizeof *w);
    drop();
    if (found != (no_fuse ? rows[row].bad : rows[row].found)) fail_msg("%g: found %d", (double)rows[row].last, found);
    assert_true((w[0] == 0) == found);
}

TEST_SESSION(what_is_not_finite_is_found_in_factors)
{
    static float got[M * M], expected[M * M];
    for (int graph = 0; graph < 2; graph++)
        for (int row = 0; row < (int)(sizeof rows / sizeof *rows); row++)
            for (int second = 0; second < 2; second++) {
                check(t, graph, row, second, false, got);
                check(t, graph, row, second, true, expected);
                if (row == 0) assert_memory_equal(got, expected, sizeof got); /* sums of integers */
            }
}
