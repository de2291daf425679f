/* The instruction sets that own code may use (kernels/cpu/isa.h). */
#include "kernels/cpu/isa.h"
#include "kernels/kernel.h"
#include "tests/test.h"

#include <stdlib.h>

/* A limit sets this level, or the highest that the processor has. */
TEST(test_limits)
{
    const cpu_isa_level highest = cpu_isa();
    for (int level = 0; level < CPU_ISA_COUNT; level++) {
        const bool has_level = cpu_isa_limit((cpu_isa_level)level);
        assert_int_equal(has_level, level <= (int)highest);
        assert_int_equal(cpu_isa(), has_level ? level : (int)highest);
    }
}

TEST(test_highest_level_is_the_processors)
{
    bool expected = false;
#if defined(__x86_64__)
    expected = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
#endif
    assert_int_equal(cpu_isa_limit(CPU_ISA_avx512), expected);
    assert_true(cpu_isa_limit(CPU_ISA_baseline));
    (void)cpu_isa_limit(CPU_ISA_COUNT - 1);
}

/* The environment is read when a device is opened; a wrong name is an error of use. */
TEST(test_environment)
{
    static const char *const good[] = {"", "baseline", "avx2", "avx512", "amx"};
    char error[200] = "";
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        setenv("AMPC_CPU_ISA", good[i], 1);
        assert_int_equal(cpu_open(error, sizeof error), AMPC_OK);
    }
    setenv("AMPC_CPU_ISA", "avx", 1);
    assert_int_equal(cpu_open(error, sizeof error), AMPC_USAGE);
    assert_string_equal(error, "AMPC_CPU_ISA=avx: expected baseline, avx2, avx512 or amx");
    unsetenv("AMPC_CPU_ISA");
    assert_int_equal(cpu_open(error, sizeof error), AMPC_OK);
}
