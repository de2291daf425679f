/* onednn.c - loads oneDNN, and describes primitives. */
#include "kernels/cpu/onednn.h"

#include <dlfcn.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if DNNL_VERSION_MAJOR != 2
#error "kernels/cpu/onednn.c is written for the operation descriptors of oneDNN 2"
#endif

cpu_dnnl_table cpu_dnnl;
dnnl_engine_t cpu_dnnl_engine;
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_open, has_bf16;

/* ---- opening --------------------------------------------------------------------------------- */

static bool load_symbols(void *library, char *error, size_t error_size)
{
    void *symbol;
#define LOAD(name) \
    symbol = dlsym(library, "dnnl_" #name); \
    if (!symbol) { \
        snprintf(error, error_size, "libdnnl.so.2 has no dnnl_" #name); \
        return false; \
    } \
    memcpy(&cpu_dnnl.name, &symbol, sizeof symbol);
    CPU_DNNL_MAP(LOAD)
#undef LOAD
    return true;
}

static ampc_status open_library(char *error, size_t error_size)
{
    void *library = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(error, error_size, "oneDNN cannot be opened (package libdnnl2): %s", dlerror());
        return AMPC_DEVICE;
    }
    if (!load_symbols(library, error, error_size)) return AMPC_DEVICE;
    dnnl_status_t status = cpu_dnnl.engine_create(&cpu_dnnl_engine, dnnl_cpu, 0);
    if (status != dnnl_success) {
        snprintf(error, error_size, "oneDNN has no CPU engine (status %d)", (int)status);
        return AMPC_DEVICE;
    }
    has_bf16 = (cpu_dnnl.get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
    is_open = true;
    return AMPC_OK;
}

ampc_status cpu_open(char *error, size_t error_size)
{
    pthread_mutex_lock(&open_lock);
    ampc_status status = is_open ? AMPC_OK : open_library(error, error_size);
    pthread_mutex_unlock(&open_lock);
    return status;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

int cpu_dnnl_enter_threads(const k_context *ctx)
{
    int before = omp_get_max_threads();
    if (before != ctx->threads) omp_set_num_threads(ctx->threads);
    return before;
}

void cpu_dnnl_leave_threads(int before)
{
    if (before != omp_get_max_threads()) omp_set_num_threads(before);
}

typedef struct isa_speed {
    unsigned isa;      /* of oneDNN */
    bool also_fp16;    /* the processor also has AVX512_FP16, which no AMD processor with AVX512_BF16 has */
    double bf16, fp16; /* products per second relative to f32 */
} isa_speed;

/* Measured (docs/performance.md); the first row that applies counts. Processors with AMX have not been measured. */
static const isa_speed speeds[] = {{dnnl_cpu_isa_avx512_core_amx, false, 0, 0},
                                   {dnnl_cpu_isa_avx512_core_bf16, true, 0.55, 0.88},
                                   {dnnl_cpu_isa_avx512_core_bf16, false, 1.8, 0.75},
                                   {0, false, 0.75, 0.75}};

double cpu_speed(ir_dtype t)
{
    const unsigned isa = is_open ? (unsigned)cpu_dnnl.get_effective_cpu_isa() : 0;
    const isa_speed *row = speeds;
    while ((isa & row->isa) != row->isa || (row->also_fp16 && !__builtin_cpu_supports("avx512fp16"))) row++;
    return t == IR_f32 ? 1 : t == IR_bf16 ? row->bf16 : t == IR_f16 ? row->fp16 : 0;
}

bool cpu_computes(ir_dtype t) { return t == IR_bf16 ? has_bf16 : t != IR_f16; }

dnnl_data_type_t cpu_dnnl_type(ir_dtype t, bool native)
{
    return native && t == IR_bf16 && has_bf16 ? dnnl_bf16 : dnnl_f32;
}

static const char *code_of(const_dnnl_primitive_desc_t pd)
{
    const char *name = "";
    dnnl_status_t status = cpu_dnnl.primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    return status == dnnl_success ? name : "";
}

static bool is_reference(const_dnnl_primitive_desc_t pd) { return strncmp(code_of(pd), "ref", 3) == 0; }

static dnnl_status_t first_sound(const_dnnl_op_desc_t desc, const_dnnl_primitive_attr_t attr,
                                 const_dnnl_primitive_desc_t hint, cpu_dnnl_faulty *faulty, const void *what,
                                 dnnl_primitive_desc_t *out)
{
    dnnl_primitive_desc_iterator_t codes;
    dnnl_status_t status = cpu_dnnl.primitive_desc_iterator_create(&codes, desc, attr, cpu_dnnl_engine, hint);
    if (status != dnnl_success) return status;
    while (status == dnnl_success) {
        *out = cpu_dnnl.primitive_desc_iterator_fetch(codes);
        if (!*out) status = dnnl_out_of_memory;
        if (!*out || !faulty || !faulty(code_of(*out), what)) break;
        cpu_dnnl.primitive_desc_destroy(*out);
        status = cpu_dnnl.primitive_desc_iterator_next(codes);
    }
    cpu_dnnl.primitive_desc_iterator_destroy(codes);
    return status == dnnl_iterator_ends ? dnnl_unimplemented : status;
}

/* `tail`: an activation, dnnl_binary_add to add to what is in the place of the result, or dnnl_alg_kind_undef. */
static dnnl_status_t append_tail(dnnl_primitive_attr_t attr, dnnl_alg_kind_t tail)
{
    dnnl_post_ops_t ops;
    if (tail == dnnl_alg_kind_undef) return dnnl_success;
    dnnl_status_t status = cpu_dnnl.post_ops_create(&ops);
    if (status != dnnl_success) return status;
    status = tail == dnnl_binary_add ? cpu_dnnl.post_ops_append_sum(ops, 1)
                                     : cpu_dnnl.post_ops_append_eltwise(ops, 1, tail, 0, 0);
    if (status == dnnl_success) status = cpu_dnnl.primitive_attr_set_post_ops(attr, ops);
    cpu_dnnl.post_ops_destroy(ops);
    return status;
}

static dnnl_status_t describe(const_dnnl_op_desc_t desc, const_dnnl_primitive_desc_t hint, dnnl_alg_kind_t tail,
                              bool fast, cpu_dnnl_faulty *faulty, const void *what, const k_context *ctx,
                              dnnl_primitive_desc_t *out)
{
    dnnl_primitive_attr_t attr;
    if (!cpu_has_reserve()) return dnnl_out_of_memory;
    dnnl_status_t status = cpu_dnnl.primitive_attr_create(&attr);
    if (status != dnnl_success) return status;
    int before = cpu_dnnl_enter_threads(ctx);
    status = cpu_dnnl.primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success) status = append_tail(attr, tail);
    if (status == dnnl_success) status = first_sound(desc, attr, hint, faulty, what, out);
    cpu_dnnl_leave_threads(before);
    cpu_dnnl.primitive_attr_destroy(attr);
    if (status == dnnl_success && fast && is_reference(*out)) {
        cpu_dnnl.primitive_desc_destroy(*out);
        return dnnl_unimplemented;
    }
    return status;
}

dnnl_status_t cpu_dnnl_describe(const_dnnl_op_desc_t desc, const_dnnl_primitive_desc_t hint, bool fast,
                                cpu_dnnl_faulty *faulty, const void *what, const k_context *ctx,
                                dnnl_primitive_desc_t *out)
{
    return describe(desc, hint, dnnl_alg_kind_undef, fast, faulty, what, ctx, out);
}

dnnl_status_t cpu_dnnl_describe_activation(const_dnnl_op_desc_t desc, dnnl_alg_kind_t tail, bool fast,
                                           const k_context *ctx, dnnl_primitive_desc_t *out)
{
    return describe(desc, NULL, tail, fast, NULL, NULL, ctx, out);
}

dnnl_status_t cpu_dnnl_describe_sum(const_dnnl_op_desc_t desc, const k_context *ctx, dnnl_primitive_desc_t *out)
{
    return describe(desc, NULL, dnnl_binary_add, false, NULL, NULL, ctx, out);
}

ampc_status cpu_dnnl_fail(const k_context *ctx, dnnl_status_t status, const char *what)
{
    if (status == dnnl_out_of_memory) return cpu_fail(ctx, AMPC_NO_MEMORY, "%s: out of memory", what);
    if (status == dnnl_unimplemented || status == dnnl_invalid_arguments)
        return cpu_fail(ctx, AMPC_UNSUPPORTED, "%s: oneDNN does not support these shapes and types", what);
    return cpu_fail(ctx, AMPC_DEVICE, "%s: oneDNN failed with status %d", what, (int)status);
}
