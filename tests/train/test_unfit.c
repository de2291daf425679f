/* test_unfit.c - a ctc loss that is infinite because the labels do not fit into the time steps: the step moves nothing,
 * in any precision, and the error names where the infinity comes from. */
#include "runtime/inspect/check.h"
#include "tests/compile.h"
#include "tests/unit/scratch.h"

#include <math.h>

enum { ITEMS = 4, STEPS = 3, IN = 5, CLASSES = 4, LABELS = 3 };

static const char network[] =
    "ampc-ir 3\nparam @w : f32[5,4] = zero\nparam @g : f32[3] = [1, 1, 1]\nparam @b : f32[3] = zero\n"
    "state @mean : f32[3] = zero\nstate @var : f32[3] = [1, 1, 1]\n"
    "graph @forward(@x : f32[N,3,5]) as forward {\n"
    "  %n, %m, %v, %sm, %sr = batch_norm @x, @g, @b, @mean, @var {training=true} : f32[N,3,5], f32[3], f32[3], f32[3], "
    "f32[3] !BatchNormalization \"bn\"\n"
    "  %y = matmul %n, @w : f32[N,3,4] !MatMul \"fc\"\n  output \"y\" = %y\nupdate:\n  store @mean, %m\n"
    "  store @var, %v\n}\n";

typedef struct net {
    scratch *t;
    ir_module *m;
    rt_session *s;
    float x[ITEMS * STEPS * IN];
    int64_t label[ITEMS * LABELS];
    rt_tensor in[2];
} net;

static net open_net(scratch *t, pass_level level, ir_dtype low)
{
    net n = {.t = t};
    compile_options o = compile_options_default();
    const rt_session_options device = {.device = "cpu", .threads = 1};
    o.level = level;
    o.low = low;
    o.loss = "ctc,batch_axis=0";
    o.optimizer = "adamw,lr=0.1,weight_decay=0.5";
    o.ema = 0.5;
    if (ir_parse(network, strlen(network), "unfit.ir", t->d, &n.m) != AMPC_OK ||
        test_compile(n.m, &o, t->d) != AMPC_OK || rt_session_open(n.m, &device, t->d, &n.s) != AMPC_OK)
        fail_msg("%s", diag_first_error(t->d));
    return n;
}

/* Three equal labels need five time steps. */
static void set_batch(net *n, bool fits)
{
    for (int i = 0; i < ITEMS * STEPS * IN; i++) n->x[i] = (float)(i * 7 % 11) / 11 - 0.4f;
    for (int i = 0; i < ITEMS * LABELS; i++) n->label[i] = fits && i % LABELS ? -1 : 1;
    n->in[0] = (rt_tensor){.name = "x", .dtype = IR_f32, .rank = 3, .dims = {ITEMS, STEPS, IN}, .data = n->x};
    n->in[1] = (rt_tensor){.name = "label", .dtype = IR_i64, .rank = 2, .dims = {ITEMS, LABELS}, .data = n->label};
}

/* Runs a step and returns whether the loss is finite. */
static bool step(net *n, bool fits)
{
    set_batch(n, fits);
    if (rt_session_run(n->s, "train_step", n->in, 2, n->t->d) != AMPC_OK) fail_msg("%s", diag_first_error(n->t->d));
    const rt_tensor *loss = rt_session_output(n->s, "loss");
    return isfinite(ir_load_f64(loss->dtype, loss->data));
}

/* All parameters, buffers, averages and optimizer states, one after the other; of the loss scale only the steps move. */
static size_t take(const net *n, char *bytes, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < rt_session_storage_count(n->s); i++) {
        rt_tensor v;
        ir_storage_kind kind;
        rt_session_storage_at(n->s, i, &v, &kind);
        const ir_storage *s = ir_storage_find(n->m, v.name);
        const bool scaling = s->role == IR_STATE_loss_scale || s->role == IR_STATE_good_steps ||
                             s->role == IR_STATE_bad_steps;
        assert_int_equal(rt_session_read(n->s, i, n->t->d, &v), AMPC_OK);
        const size_t length = (size_t)ir_storage_bytes(s);
        if (kind == IR_CONST || (scaling && kind == IR_STATE)) continue;
        assert_true(used + length <= size);
        memcpy(bytes + used, v.data, length);
        used += length;
    }
    return used;
}

static void expect_nothing_moves(scratch *t, pass_level level, ir_dtype low)
{
    static char before[4096], after[4096];
    net n = open_net(t, level, low);
    for (int i = 0; i < 3; i++) assert_true(step(&n, true)); /* with some state of the optimizer */
    const size_t size = take(&n, before, sizeof before);
    assert_true(size > 200);
    for (int i = 0; i < 3; i++) assert_false(step(&n, false));
    assert_int_equal(take(&n, after, sizeof after), size);
    assert_memory_equal(after, before, size);
    assert_true(step(&n, true));
    take(&n, after, sizeof after);
    assert_memory_not_equal(after, before, size);
    rt_session_close(n.s);
    ir_module_free(n.m);
}

TEST_SCRATCH(unfit_labels_move_nothing)
{
    expect_nothing_moves(t, PASS_O0, IR_f16);
    expect_nothing_moves(t, PASS_O1, IR_f16);
    expect_nothing_moves(t, PASS_O2, IR_f16);
    expect_nothing_moves(t, PASS_O1, IR_bf16);
}

/* Its infinity is a constant, as that of a mask, which a check does not report elsewhere. */
TEST_SCRATCH(the_error_names_the_loss)
{
    net n = open_net(t, PASS_O2, IR_f16);
    set_batch(&n, false);
    const ir_graph *g = ir_graph_by_role(n.m, IR_GRAPH_train_step);
    assert_int_equal(rt_explain_nonfinite(n.s, n.m, g, n.in, 2, NULL, t->d, "step"), AMPC_NUMERIC);
    if (!strstr(diag_first_error(t->d),
                "step: 'ctc' f32[4,1] of the forward (where) has 4 infinities, the first at [0,0]"))
        fail_msg("%s", diag_first_error(t->d));
    rt_session_close(n.s);
    ir_module_free(n.m);
}
