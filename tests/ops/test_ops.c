/* test_ops.c - runs the numeric table and checks that every op with a kernel has a row. The rows of spatial
 * ops run a second time, channels last. */
#include "tests/ops/ops.h"
#include "tests/rows.h"
#include "tests/tier.h"

#include <assert.h>

static const ops_row *const families[] = {
#define ROWS(family) family##_rows,
    OPS_FAMILY_MAP(ROWS)
#undef ROWS
};
enum { FAMILIES = sizeof families / sizeof *families };

static bool in_group(char group, ir_dtype t)
{
    return group == 'F'   ? ir_dtype_is_float(t)
           : group == 'I' ? ir_dtype_is_int(t)
           : group == 'B' ? t == IR_bool
                          : group == '1' && t == IR_f32;
}

/* What a row draws depends on all rows and types before it, unless the seed chooses a type: a chance result near a bound
 * of the test must not come and go with it. */
static void run_row(void **state)
{
    const ops_row *row = *state;
    for (const char *group = row->groups; *group; group++)
        for (ir_dtype t = IR_NO_DTYPE + 1; t < IR_DTYPE_COUNT; t++) {
            if (!in_group(*group, t) || !ops_takes(t)) continue;
            if (tier_is_reduced() && ops_brief) case_restart_draws();
            row->make(row, t);
        }
}

static void every_op_has_a_row(void **state)
{
    bool seen[IR_OP_COUNT] = {false};
    int missing = 0;
    (void)state;
#define APART(op) seen[IR_OP_##op] = true;
    OPS_TESTED_APART_MAP(APART)
#undef APART
    for (int f = 0; f < FAMILIES; f++)
        for (const ops_row *row = families[f]; row->make; row++) seen[row->op] = true;
    for (ir_op op = 0; op < IR_OP_COUNT; op++) {
        if (seen[op] || !ops_on->kernel(op)) continue;
        print_error("op '%s' has no row in tests/ops\n", ir_op_get(op)->name);
        missing++;
    }
    assert_int_equal(missing, 0);
}

enum { MAX_COUNT = 256 };
static struct CMUnitTest tests[MAX_COUNT];
static char names[MAX_COUNT][64];
static int n_tests;

static void add(const ops_row *row, bool channels_last)
{
    assert(n_tests < MAX_COUNT);
    snprintf(names[n_tests], sizeof names[n_tests], "%s%s", ir_op_get(row->op)->name,
             channels_last ? " (channels last)" : "");
    tests[n_tests] = (struct CMUnitTest){names[n_tests], run_row, NULL, NULL, (void *)(uintptr_t)row};
    if (channels_last) {
        tests[n_tests].setup_func = ops_begin_channels_last;
        tests[n_tests].teardown_func = ops_end_channels_last;
    }
    n_tests++;
}

static int run(void)
{
    tests[n_tests++] = (struct CMUnitTest)cmocka_unit_test(every_op_has_a_row);
    for (int f = 0; f < FAMILIES; f++)
        for (const ops_row *row = families[f]; row->make; row++) {
            if (!ops_on->kernel(row->op)) continue; /* an op that this device does not support */
            add(row, false);
            if (ir_op_get(row->op)->traits & IR_SPATIAL) add(row, true);
        }
    return rows_run(ops_on->name, tests, (size_t)n_tests);
}

int main(int argc, char **argv) { return ops_main(argc, argv, run); }
