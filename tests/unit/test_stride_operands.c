/* test_stride_operands.c - steps that read and write parts of values in place (runtime/plan/stride_operands.c) have the
 * results of those that copy them, bit for bit. */
#include "ir/base/philox.h"
#include "tests/unit/session_fixture.h"

enum { B = 3, T = 5, H = 2, D = 9, E = H * D, X = B * T * 3 * E, DY = B * T * E };

/* Attention and its gradient. */
#define ATTENTION \
    "  %y, %l = attention %qt, %kt, %vt, _ {scale=0.5, causal=true} : f32[3,2,5,9], f32[3,2,5,2]\n" \
    "  %dq, %dk, %dv = attention_grad %qt, %kt, %vt, _, %y, %l, %dt {scale=0.5, causal=true} : " \
    "f32[3,2,5,9], f32[3,2,5,9], f32[3,2,5,9]\n"

static const char *const graphs[] = {
    /* GPT: [B,T,3*E], and the gradient in one piece */
    "graph @g(@x : f32[3,5,54], @d : f32[3,5,18]) {\nforward:\n"
    "  %n = neg @x : f32[3,5,54]\n"
    "  %q, %k, %v = split %n {axis=2, sizes=[18,18,18]} : f32[3,5,18], f32[3,5,18], f32[3,5,18]\n"
    "  %qr = reshape %q {shape=[3,5,2,9]} : f32[3,5,2,9]\n"
    "  %kr = reshape %k {shape=[3,5,2,9]} : f32[3,5,2,9]\n"
    "  %vr = reshape %v {shape=[3,5,2,9]} : f32[3,5,2,9]\n"
    "  %dr = reshape @d {shape=[3,5,2,9]} : f32[3,5,2,9]\n"
    "  %qt = transpose %qr {perm=[0,2,1,3]} : f32[3,2,5,9]\n"
    "  %kt = transpose %kr {perm=[0,2,1,3]} : f32[3,2,5,9]\n"
    "  %vt = transpose %vr {perm=[0,2,1,3]} : f32[3,2,5,9]\n"
    "  %dt = transpose %dr {perm=[0,2,1,3]} : f32[3,2,5,9]\n" ATTENTION
    "  %yt = transpose %y {perm=[0,2,1,3]} : f32[3,5,2,9]\n"
    "  %o = neg %yt : f32[3,5,2,9]\n"
    "  %dqt = transpose %dq {perm=[0,2,1,3]} : f32[3,5,2,9]\n"
    "  %dkt = transpose %dk {perm=[0,2,1,3]} : f32[3,5,2,9]\n"
    "  %dvt = transpose %dv {perm=[0,2,1,3]} : f32[3,5,2,9]\n"
    "  %dqr = reshape %dqt {shape=[3,5,18]} : f32[3,5,18]\n"
    "  %dkr = reshape %dkt {shape=[3,5,18]} : f32[3,5,18]\n"
    "  %dvr = reshape %dvt {shape=[3,5,18]} : f32[3,5,18]\n"
    "  %dx = concat %dvr, %dqr, %dkr {axis=2} : f32[3,5,54]\n"
    "  output \"o\" = %o\n  output \"dx\" = %dx\n}\n",
    /* a TransformerEncoderLayer: [T,B,3,E], transposed to [3,T,B,E], split, and viewed as [T,B*H,D] in between */
    "graph @g(@x : f32[5,3,3,18], @d : f32[3,2,5,9]) {\nforward:\n"
    "  %n = transpose @x {perm=[2,0,1,3]} : f32[3,5,3,18]\n"
    "  %q, %k, %v = split %n {axis=0, sizes=[1,1,1]} : f32[1,5,3,18], f32[1,5,3,18], f32[1,5,3,18]\n"
    "  %qr = reshape %q {shape=[5,6,9]} : f32[5,6,9]\n"
    "  %kr = reshape %k {shape=[5,6,9]} : f32[5,6,9]\n"
    "  %vr = reshape %v {shape=[5,6,9]} : f32[5,6,9]\n"
    "  %qs = transpose %qr {perm=[1,0,2]} : f32[6,5,9]\n"
    "  %ks = transpose %kr {perm=[1,0,2]} : f32[6,5,9]\n"
    "  %vs = transpose %vr {perm=[1,0,2]} : f32[6,5,9]\n"
    "  %qt = reshape %qs {shape=[3,2,5,9]} : f32[3,2,5,9]\n"
    "  %kt = reshape %ks {shape=[3,2,5,9]} : f32[3,2,5,9]\n"
    "  %vt = reshape %vs {shape=[3,2,5,9]} : f32[3,2,5,9]\n"
    "  %dt = neg @d : f32[3,2,5,9]\n" ATTENTION "  %o = neg %y : f32[3,2,5,9]\n"
    "  %dqs = reshape %dq {shape=[6,5,9]} : f32[6,5,9]\n"
    "  %dks = reshape %dk {shape=[6,5,9]} : f32[6,5,9]\n"
    "  %dvs = reshape %dv {shape=[6,5,9]} : f32[6,5,9]\n"
    "  %dqr = transpose %dqs {perm=[1,0,2]} : f32[5,6,9]\n"
    "  %dkr = transpose %dks {perm=[1,0,2]} : f32[5,6,9]\n"
    "  %dvr = transpose %dvs {perm=[1,0,2]} : f32[5,6,9]\n"
    "  %dqq = reshape %dqr {shape=[1,5,3,18]} : f32[1,5,3,18]\n"
    "  %dkk = reshape %dkr {shape=[1,5,3,18]} : f32[1,5,3,18]\n"
    "  %dvv = reshape %dvr {shape=[1,5,3,18]} : f32[1,5,3,18]\n"
    "  %dn = concat %dqq, %dkk, %dvv {axis=0} : f32[3,5,3,18]\n"
    "  %dx = transpose %dn {perm=[1,2,0,3]} : f32[5,3,3,18]\n"
    "  output \"o\" = %o\n  output \"dx\" = %dx\n}\n",
    /* parts that other kernels read: contiguous, one of them overwritten if it were not a part; and an operand of it */
    "graph @g(@x : f32[3,5,54], @d : f32[3,5,18]) {\nforward:\n"
    "  %n = neg @x : f32[3,5,54]\n"
    "  %r = reshape %n {shape=[810]} : f32[810]\n"
    "  %a, %b, %c = split %r {axis=0, sizes=[256,512,42]} : f32[256], f32[512], f32[42]\n"
    "  %s = slice %b {start=[256], size=[256], step=[1]} : f32[256]\n"
    "  %t = exp %a : f32[256]\n"
    "  %u = softmax %s {axis=0} : f32[256]\n"
    "  %v = softmax %a {axis=0} : f32[256]\n"
    "  %w = softmax %b {axis=0} : f32[512]\n"
    "  %o = concat %t, %u, %v, %s, %c {axis=0} : f32[1066]\n"
    "  %dx = neg %w : f32[512]\n"
    "  output \"o\" = %o\n  output \"dx\" = %dx\n}\n"};

static const rt_tensor inputs[][2] = {{{"x", IR_f32, 3, {B, T, 3 * E}, NULL}, {"d", IR_f32, 3, {B, T, E}, NULL}},
                                      {{"x", IR_f32, 4, {T, B, 3, E}, NULL}, {"d", IR_f32, 4, {B, H, T, D}, NULL}},
                                      {{"x", IR_f32, 3, {B, T, 3 * E}, NULL}, {"d", IR_f32, 3, {B, T, E}, NULL}}};

/* Runs the graph and returns its outputs; *count: the number of their elements. */
static float *outputs_of(scratch *t, int graph, bool no_fuse, size_t *count)
{
    static float x[X], d[DY];
    rt_tensor in[] = {inputs[graph][0], inputs[graph][1]};
    in[0].data = x;
    in[1].data = d;
    for (int i = 0; i < X; i++) x[i] = philox_unit(philox_word(7, 1, (uint64_t)i)) - 0.5f;
    for (int i = 0; i < DY; i++) d[i] = philox_unit(philox_word(7, 2, (uint64_t)i)) - 0.5f;
    load(t, graphs[graph]);
    if (open_with(t, &(rt_session_options){.threads = 2, .no_fuse = no_fuse}) != AMPC_OK)
        fail_msg("%s", diag_first_error(t->d));
    run_ok(t, "g", in, 2);
    float *all = NULL;
    *count = 0;
    for (int k = 0; k < 2; k++) {
        const rt_tensor *y = rt_session_output(session, k ? "dx" : "o");
        size_t n = 1;
        for (int i = 0; i < y->rank; i++) n *= (size_t)y->dims[i];
        all = realloc(all, (*count + n) * sizeof *all);
        memcpy(all + *count, y->data, n * sizeof *all);
        *count += n;
    }
    drop();
    return all;
}

TEST_SESSION(results_are_those_of_copies)
{
    for (int graph = 0; graph < (int)(sizeof graphs / sizeof *graphs); graph++) {
        size_t n, same;
        float *got = outputs_of(t, graph, false, &n), *expected = outputs_of(t, graph, true, &same);
        assert_int_equal(n, same);
        assert_memory_equal(got, expected, n * sizeof *got);
        free(got);
        free(expected);
    }
}
