/* test_empty.c - tensors without elements: every op of the table runs on them, forward and backward, and the results
 * equal PyTorch's. */
#include "tests/fuzz/graph.h"
#include "tests/fuzz/pipeline.h"
#include "tests/unit/scratch.h"

#include "runtime/session/session.h"

/* ---- every op ---- */

enum { DRAWS = 100 };

static int seen[IR_OP_COUNT]; /* nodes with an empty operand or result */

static bool is_empty(const ir_value *v)
{
    for (int i = 0; v && i < v->type.rank; i++)
        if (v->type.dims[i] == 0) return true;
    return false;
}

static void count(const ir_module *m)
{
    for (size_t g = 0; g < m->graphs.count; g++)
        for (const ir_node *n = m->graphs.items[g]->first; n; n = n->next) {
            bool empty = false;
            for (int i = 0; i < n->n_in; i++) empty = empty || is_empty(ir_in(n, i));
            for (int i = 0; i < n->n_out; i++) empty = empty || is_empty(ir_out(n, i));
            seen[n->op] += empty;
        }
}

static void run_draw(ir_op op, int number, bool compiled)
{
    const uint64_t seed = ((uint64_t)op << 32 | ((uint64_t)number + 1)) * 0x9e3779b97f4a7c15u;
    choices c = choices_start((const uint8_t *)&seed, sizeof seed);
    diag *d = diag_new(NULL, NULL);
    ir_module *m = graph_draw_empty(&c, op);
    if (m && pipeline_accepts(ir_verify(m, d), d) && (!compiled || pipeline_compile(m, &c, d))) {
        count(m);
        pipeline_run(m, &c);
    }
    ir_module_free(m);
    diag_free(d);
}

/* Ops without operands, whose operands have a fixed size, or one of which has one element while the others are empty, which
 * is drawn too rarely, or whose attributes list their shapes: tests/ops has empty operands for them. */
static bool is_not_drawn(ir_op op)
{
    static const ir_op ops[] = {IR_OP_update_loss_scaling, IR_OP_trust_ratio, IR_OP_clipped_ratio,
                                IR_OP_scaled_step,         IR_OP_lars,        IR_OP_adafactor,
                                IR_OP_rank_number,         IR_OP_all_gather};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (ops[i] == op) return true;
    return false;
}

TEST(every_op_runs)
{
    for (int op = 0; op < IR_OP_COUNT; op++)
        for (int i = 0; i < DRAWS || (i < 400 * DRAWS && !seen[op]); i++) run_draw((ir_op)op, i, i % 2);
    for (int op = 0; op < IR_OP_COUNT; op++)
        if (!seen[op] && !graph_is_opaque((ir_op)op) && !is_not_drawn((ir_op)op))
            fail_msg("%s: never drawn with an empty tensor", ir_op_get((ir_op)op)->name);
}

/* ---- results of empty operands ---- */

#define WINDOW "strides=[1,1], pads=[0,0,0,0], dilations=[1,1]"

/* The node computes %y from @x f32[N,3], @label i64[N], @image f32[N,2,4,4] and @w3 f32[1,3]; N is 0. */
static const struct {
    const char *node, *values;
} rows[] = {
    {"reduce_sum @x {axes=[0], keepdims=false} : f32[3]", "0 0 0"},
    {"reduce_mean @x {axes=[0], keepdims=false} : f32[3]", "nan nan nan"},
    {"global_norm @x : f32[]", "0"},
    {"matmul @x, @x {trans_a=true} : f32[3,3]", "0 0 0 0 0 0 0 0 0"},
    {"concat @x, @w3 {axis=0} : f32[N+1,3]", "1 2 3"},
    {"pad @x {before=[1,0], after=[0,0]} : f32[N+1,3]", "0 0 0"},
    {"gather_grad @x, @label {shape=[2,3]} : f32[2,3]", "0 0 0 0 0 0"},
    {"softmax_cross_entropy @x, @label : f32[], f32[N], f32[N,3]", "nan"},
    {"softmax_cross_entropy @x, @label {reduction=\"sum\"} : f32[], f32[N], f32[N,3]", "0"},
    {"softmax_cross_entropy @x, @label {reduction=\"none\"} : f32[N], f32[N], f32[N,3]", ""},
    {"nll_loss @x, @label : f32[]", "nan"},
    {"nll_loss @x, @label {reduction=\"sum\"} : f32[]", "0"},
    {"conv_grad_weight @image, @image {shape=[2,2,1,1], " WINDOW "} : f32[2,2,1,1], f32[2]", "0 0 0 0"},
    {"softmax @x : f32[N,3]", ""},
    {"split @w3 {axis=1, sizes=[0,3]} : f32[1,0], f32[1,3]", ""},
};

static char *values_of(const rt_tensor *t)
{
    static char text[256];
    int64_t n = 1;
    size_t used = 0;
    for (int i = 0; i < t->rank; i++) n *= t->dims[i];
    text[0] = '\0';
    assert_non_null(t->data);
    for (int64_t i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%g", i ? " " : "",
                                 (double)((const float *)t->data)[i]);
    for (char *sign; (sign = strstr(text, "-nan"));) memmove(sign, sign + 1, strlen(sign));
    return text;
}

static void check_row(scratch *t, const char *node, const char *values)
{
    char *text;
    ir_module *m = NULL;
    rt_session *s = NULL;
    const char *results = strstr(node, "cross")                             ? "%y, %a, %b"
                          : strstr(node, "weight") || strstr(node, "split") ? "%y, %a"
                                                                            : "%y";
    assert_true(asprintf(&text,
                         "ampc-ir 3\nconst @w3 : f32[1,3] = [1,2,3]\n"
                         "graph @f(@x : f32[N,3], @label : i64[N], @image : f32[N,2,4,4]) {\n"
                         "%s = %s\noutput \"y\" = %%y\n}\n",
                         results, node) > 0);
    if (ir_parse(text, strlen(text), "row.ir", t->d, &m) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    /* the caller passes no memory for tensors without elements */
    const rt_tensor inputs[] = {{.name = "x", .dtype = IR_f32, .rank = 2, .dims = {0, 3}},
                                {.name = "label", .dtype = IR_i32, .rank = 1, .dims = {0}},
                                {.name = "image", .dtype = IR_f16, .rank = 4, .dims = {0, 2, 4, 4}}};
    const rt_session_options o = {.device = "cpu", .threads = 2};
    if (rt_session_open(m, &o, t->d, &s) != AMPC_OK || rt_session_run(s, "f", inputs, 3, t->d) != AMPC_OK)
        fail_msg("%s: %s", node, diag_first_error(t->d));
    const char *got = values_of(rt_session_output(s, "y"));
    if (strcmp(got, values) != 0) fail_msg("%s: \"%s\", not \"%s\"", node, got, values);
    rt_session_close(s);
    ir_module_free(m);
    free(text);
}

TEST_SCRATCH(what_comes_of_nothing)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check_row(t, rows[i].node, rows[i].values);
}
