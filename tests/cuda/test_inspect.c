/* test_inspect.c - check and compare with the network on the double of the CUDA device. */
#include "tests/cuda/double/double.h"
#include "tests/unit/inspect_models.h"

static void test_check(void **state)
{
    double_reset();
    double_mode(DOUBLE_LAZY);
    check_faults(*state, "cuda");
}

static void test_compare(void **state)
{
    double_reset();
    double_mode(DOUBLE_LAZY);
    compare_losses(*state, "cuda");
}

int main(void)
{
    const struct CMUnitTest tests[] = {SCRATCH_TEST(test_check), SCRATCH_TEST(test_compare)};
    double_install();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
