/* isa.c - which instruction sets the processor has, and which of them are allowed. */
#include "kernels/cpu/isa.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ISA_NAME(name) #name,
static const char *const names[] = {CPU_ISA_MAP(ISA_NAME)};

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* From the kernel's asm/prctl.h, and the number of the state of tiles. */
enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };

static bool has_tiles(void)
{
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx512bf16") && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_BF16) != 0 &&
           (d & AMX_TILE) != 0 && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

static cpu_isa_level find(cpu_isa_level limit)
{
    __builtin_cpu_init();
    if (limit < CPU_ISA_avx2 || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return CPU_ISA_baseline;
    if (limit < CPU_ISA_avx512 || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512vl"))
        return CPU_ISA_avx2;
    return limit < CPU_ISA_amx || !has_tiles() ? CPU_ISA_avx512 : CPU_ISA_amx;
}
#else
static cpu_isa_level find(cpu_isa_level limit)
{
    (void)limit;
    return CPU_ISA_baseline;
}
#endif

/* The level with this name; CPU_ISA_COUNT: there is none. NULL and "" are the highest. */
static cpu_isa_level named(const char *name)
{
    if (!name || !*name) return CPU_ISA_COUNT - 1;
    int level = 0;
    while (level < CPU_ISA_COUNT && strcmp(names[level], name) != 0) level++;
    return (cpu_isa_level)level;
}

static atomic_int known = -1; /* the result of cpu_isa; -1: not known yet */

cpu_isa_level cpu_isa(void)
{
    int level = atomic_load_explicit(&known, memory_order_relaxed);
    if (level < 0) {
        /* Threads that come here at the same time find the same. */
        level = (int)find(named(getenv("AMPC_CPU_ISA")));
        atomic_store_explicit(&known, level, memory_order_relaxed);
    }
    return (cpu_isa_level)level;
}

const char *cpu_isa_name(cpu_isa_level level) { return names[level]; }

ampc_status cpu_isa_check(char *error, size_t error_size)
{
    const char *name = getenv("AMPC_CPU_ISA");
    if (named(name) != CPU_ISA_COUNT) return AMPC_OK;
    snprintf(error, error_size, "AMPC_CPU_ISA=%s: expected baseline, avx2, avx512 or amx", name);
    return AMPC_USAGE;
}

bool cpu_isa_limit(cpu_isa_level level)
{
    const cpu_isa_level found = find(level);
    atomic_store_explicit(&known, (int)found, memory_order_relaxed);
    return found == level;
}
