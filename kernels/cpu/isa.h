/* isa.h - the instruction sets that own code may use.
 *
 * Kernels that are written for several instruction sets choose by cpu_isa(). AMPC_CPU_ISA=baseline|avx2|avx512|amx in
 * the environment limits it, as ONEDNN_MAX_CPU_ISA limits oneDNN, so that a test or a bug report can run the code of
 * another processor. Loops that the compiler clones (IR_CLONES) are not limited, because all clones compute the same
 * bits. */
#ifndef AMPC_ISA_H
#define AMPC_ISA_H

#include "ir/base/ampc_status.h"

#include <stdbool.h>
#include <stddef.h>

/* From the smallest; each includes those before it:
 *   baseline  what the compiler assumes
 *   avx2      AVX2, FMA and F16C
 *   avx512    AVX-512 F, BW, DQ and VL
 *   amx       AMX tiles of bf16, AVX512_BF16, and the permission of the operating system to use tiles */
#define CPU_ISA_MAP(X) X(baseline) X(avx2) X(avx512) X(amx)

#define CPU_ISA_ENUM(name) CPU_ISA_##name,
typedef enum cpu_isa_level { CPU_ISA_MAP(CPU_ISA_ENUM) CPU_ISA_COUNT } cpu_isa_level;
#undef CPU_ISA_ENUM

/* The highest level that the processor has and the limit allows. The first call that may return CPU_ISA_amx asks the
 * operating system for the permission, for all threads of the process. */
cpu_isa_level cpu_isa(void);
const char *cpu_isa_name(cpu_isa_level level);

/* AMPC_USAGE, with a message, if AMPC_CPU_ISA is none of the names. cpu_isa then has no limit. */
ampc_status cpu_isa_check(char *error, size_t error_size);

/* For tests: sets the limit and returns whether the processor has this level. What has been prepared before must not
 * run afterwards. */
bool cpu_isa_limit(cpu_isa_level level);

#endif
