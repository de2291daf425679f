/* test_ops_programs.c - random fused kernels must produce the same bits as their ops run one by one. In the
 * environment, OPS_PROGRAMS sets their number and OPS_PROGRAM the seed of a single one. */
#include "tests/ops/programs.h"
#include "tests/rows.h"

/* Their number and size limits; a discrete device may be emulated. */
enum {
    PROGRAMS = 2000,
    PROGRAMS_AWAY = 200,
    PROGRAMS_BRIEF = 20,
    MAX_COUNT = 6000,
    MAX_AWAY = 3000,
    MAX_RARELY = 150000
};

static int64_t number(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoll(text, NULL, 10) : otherwise;
}

static void check_one(uint64_t seed)
{
    ops_program p;
    ops_program_make(&p, seed, ops_on->device_ops ? MAX_AWAY : seed % 20 ? MAX_COUNT : MAX_RARELY);
    ops_program_expect(&p);
    ops_program_check(&p, 1);
    if (!ops_brief) ops_program_check(&p, 4);
    ops_program_free(&p);
}

static void programs_give_the_bits_of_their_ops(void **state)
{
    (void)state;
    int64_t n = number("OPS_PROGRAMS", ops_brief ? PROGRAMS_BRIEF : ops_on->device_ops ? PROGRAMS_AWAY : PROGRAMS);
    int64_t only = number("OPS_PROGRAM", -1);
    for (int64_t i = 0; i < n && only < 0; i++) check_one((uint64_t)i);
    if (only >= 0) check_one((uint64_t)only);
}

/* Runs the op on eight elements, reduced in pairs. */
static ampc_status run_folded(ir_op op, ir_dtype t, char *error, size_t size)
{
    int64_t memory[2][8] = {{0}};
    const k_context ctx = {.threads = 1, .error = error, .error_size = size};
    k_view x = {.data = memory[0], .dtype = t, .rank = 1, .dims = {8}}, y = x;
    y.data = memory[1];
    y.dims[0] = 4;
    k_fused p = {.count = 8, .row = 2, .n_operands = 1, .n_code = 1, .n_results = 1};
    p.operands[0] = (k_operand){.in = 0, .dense = true};
    p.code[0] = (k_instruction){.op = op, .type = t, .n_arg = 1, .arg = {~0}};
    p.results[0] = (k_result){0, K_ROW_SUM};
    const k_args args = {.in = &x, .out = &y, .n_in = 1, .n_out = 1, .fused = &p, .ctx = &ctx};
    return ops_run_kernel(ops_on->fused, &args, false, 1);
}

static void what_no_kernel_computes_is_refused(void **state)
{
    char error[256] = "";
    (void)state;
    if (ops_on->device_ops) skip();
    assert_int_equal(run_folded(IR_OP_neg, IR_i32, error, sizeof error), AMPC_UNSUPPORTED);
    assert_string_equal(error, "fused row sums require a float type, not i32");
    assert_int_equal(run_folded(IR_OP_not, IR_f32, error, sizeof error), AMPC_UNSUPPORTED);
    assert_string_equal(error, "not is not defined for f32");
    assert_int_equal(run_folded(IR_OP_neg, IR_f16, error, sizeof error), AMPC_OK);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(programs_give_the_bits_of_their_ops),
                                       cmocka_unit_test(what_no_kernel_computes_is_refused)};
    return rows_run("programs", tests, sizeof tests / sizeof *tests);
}

int main(int argc, char **argv) { return ops_main(argc, argv, run); }
