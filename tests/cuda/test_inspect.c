/* test_inspect.c - check and compare with the network on the double of the CUDA device. */
#include "tests/cuda/double/double.h"
#include "tests/unit/inspect_models.h"

TEST_SCRATCH(test_check)
{
    double_reset();
    double_mode(DOUBLE_LAZY);
    check_faults(t, "cuda");
}

TEST_SCRATCH(test_compare)
{
    double_reset();
    double_mode(DOUBLE_LAZY);
    compare_losses(t, "cuda");
}

int main(void)
{
    double_install();
    return test_run();
}
