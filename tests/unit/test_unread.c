/* test_unread.c - unused results: each result of an op with several results is the same whether it is computed alone
 * or with all others, including the first one. */
#include "ir/graph/ir.h"
#include "runtime/session/session.h"
#include "tests/unit/scratch.h"

enum { MAX_BYTES = 1024 };

/* Operands: @x f32[2,3,4,4], @s f32[3], @t f32[4], @rng i64[2] and @label i64[2,4,4]; updates read f32[3], and scalars. */
static const struct {
    const char *node, *types;
    int results;
} rows[] = {
    {"layer_norm @x, @t", "f32[2,3,4,4], f32[2,3,4,1], f32[2,3,4,1]", 3},
    {"batch_norm @x, @s, @s, @s, @s", "f32[2,3,4,4], f32[3], f32[3], f32[3], f32[3]", 5},
    {"batch_norm @x, @s, @s, @s, @s {training=true}", "f32[2,3,4,4], f32[3], f32[3], f32[3], f32[3]", 5},
    {"batch_norm_grad @x, @x, @s, @s, @s", "f32[2,3,4,4], f32[3], f32[3]", 3},
    {"dropout @x, @rng", "f32[2,3,4,4], bool[2,3,4,4]", 2},
    {"max_pool @x {kernel=[2,2], strides=[2,2], pads=[0,0,0,0], dilations=[1,1]}", "f32[2,3,2,2], i64[2,3,2,2]", 2},
    {"softmax_cross_entropy @x, @label", "f32[], f32[2,4,4], f32[2,3,4,4]", 3},
    {"split @x {axis=1, sizes=[1,2]}", "f32[2,1,4,4], f32[2,2,4,4]", 2},
#define SLOTS_1 " @s, @s"
#define SLOTS_2 " @s," SLOTS_1
#define SLOTS_3 " @s," SLOTS_2
#define SLOTS_4 " @s," SLOTS_3
#define TYPES_1 "f32[3]"
#define TYPES_2 TYPES_1 ", " TYPES_1
#define TYPES_3 TYPES_2 ", " TYPES_1
#define TYPES_4 TYPES_3 ", " TYPES_1
#define READ_step ", @step"
#define READ_ratio ", @ratio"
#define READ_lr ", @lr"
#define READ_none
#define UPDATE(op, n, lr, step, ratio, ...) {#op SLOTS_##n READ_##step READ_##ratio READ_##lr, TYPES_##n, n},
#include "ir/ops/updates.def"
    {"check_finite_and_unscale @x, @s, @lr", "f32[2,3,4,4], f32[3], bool[]", 3},
};

/* Copies result i of the row to `bytes`, where those in `read` are outputs, and returns its size. */
static size_t result_of(scratch *t, int row, unsigned read, int i, char bytes[MAX_BYTES])
{
    char *text = NULL, name[16];
    size_t size, n = 0;
    ir_module *m = NULL;
    rt_session *s = NULL;
    FILE *f = open_memstream(&text, &size);
    fputs("ampc-ir 3\nconst @s : f32[3] = [1,2,3]\nconst @t : f32[4] = [1,2,3,4]\nconst @rng : i64[2] = [1,2]\n"
          "const @lr : f32[] = 0.5\nconst @step : i64[] = 3\nconst @ratio : f32[1] = [1.5]\ngraph @f(@x : "
          "f32[2,3,4,4], @label : i64[2,4,4]) {\n",
          f);
    for (int k = 0; k < rows[row].results; k++) fprintf(f, "%s%%r%d", k ? ", " : "", k);
    fprintf(f, " = %s : %s\n", rows[row].node, rows[row].types);
    for (int k = 0; k < rows[row].results; k++)
        if (read >> k & 1) fprintf(f, "output \"r%d\" = %%r%d\n", k, k);
    fputs("}\n", f);
    fclose(f);
    float x[96];
    int64_t label[32];
    for (int k = 0; k < 96; k++) x[k] = (float)(k * 37 % 64) / 16 - 2;
    for (int k = 0; k < 32; k++) label[k] = k % 3;
    const rt_tensor inputs[] = {{"x", IR_f32, 4, {2, 3, 4, 4}, x}, {"label", IR_i64, 3, {2, 4, 4}, label}};
    const rt_session_options o = {.device = "cpu", .threads = 1, .no_fuse = true};
    if (ir_parse(text, strlen(text), "row.ir", t->d, &m) != AMPC_OK || rt_session_open(m, &o, t->d, &s) != AMPC_OK ||
        rt_session_run(s, "f", inputs, 2, t->d) != AMPC_OK)
        fail_msg("%s: %s", rows[row].node, diag_first_error(t->d));
    snprintf(name, sizeof name, "r%d", i);
    const rt_tensor *r = rt_session_output(s, name);
    n = ir_dtype_size(r->dtype);
    for (int k = 0; k < r->rank; k++) n *= (size_t)r->dims[k];
    assert_true(n <= MAX_BYTES);
    memcpy(bytes, r->data, n);
    rt_session_close(s);
    ir_module_free(m);
    free(text);
    return n;
}

TEST_SCRATCH(each_result_alone)
{
    for (int row = 0; row < (int)(sizeof rows / sizeof *rows); row++)
        for (int i = 0; i < rows[row].results; i++) {
            char alone[MAX_BYTES], together[MAX_BYTES];
            const size_t n = result_of(t, row, 1u << i, i, alone);
            assert_int_equal(result_of(t, row, (1u << rows[row].results) - 1, i, together), n);
            if (memcmp(alone, together, n) != 0) fail_msg("%s: result %d differs when it is alone", rows[row].node, i);
        }
}
