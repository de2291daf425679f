/* onednn.c - loads oneDNN, and describes primitives. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/onednn_version.h"

#include <dlfcn.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static const cpu_dnnl_version *version; /* that is open, or NULL */
static bool has_bf16, has_f16;          /* whether it computes in them */
static bool was_tried, was_told;
static char why_not[640]; /* why oneDNN is not used */

/* Whether the library may and does use these instructions; 0: it knows none. */
static bool has_isa(unsigned bits) { return bits && (cpu_dnnl.get_effective_cpu_isa() & bits) == bits; }

/* ---- opening --------------------------------------------------------------------------------- */

/* The library must have threads that we can count: those of OpenMP, or only the caller. If there is none, dlerror has
 * the reason and `error` stays empty. */
static bool open_version(const cpu_dnnl_version *v, char *error, size_t error_size)
{
    void *library = dlopen(v->library, RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    const char *missing = cpu_dnnl_load(library);
    if (!missing) missing = v->load(library);
    if (missing) snprintf(error, error_size, "%s has no %s", v->library, missing);
    if (missing) return false;
    const unsigned threads = cpu_dnnl.version()->cpu_runtime;
    dnnl_status_t status = dnnl_unimplemented;
    if (threads != DNNL_RUNTIME_OMP && threads != DNNL_RUNTIME_SEQ)
        snprintf(error, error_size, "%s was not built for OpenMP", v->library);
    else if ((status = cpu_dnnl.engine_create(&cpu_dnnl_engine, dnnl_cpu, 0)) != dnnl_success)
        snprintf(error, error_size, "%s has no CPU engine (status %d)", v->library, (int)status);
    return status == dnnl_success;
}

/* Opens the newest version that is found, or the one that AMPC_ONEDNN names. */
static void open_library(char *error, size_t error_size)
{
    static const cpu_dnnl_version *const versions[] = {&cpu_onednn_3, &cpu_onednn_2};
    const char *wanted = getenv("AMPC_ONEDNN");
    if (wanted && !*wanted) wanted = NULL;
    if (wanted && strcmp(wanted, "off") == 0) {
        snprintf(error, error_size, "oneDNN is switched off (AMPC_ONEDNN)");
        return;
    }
    if (wanted && strcmp(wanted, "2") != 0 && strcmp(wanted, "3") != 0) {
        snprintf(error, error_size, "AMPC_ONEDNN=%s: expected 2, 3 or off", wanted);
        return;
    }
    char reason[2][256] = {"", ""};
    for (int i = 0; i < 2; i++) {
        const cpu_dnnl_version *v = versions[i];
        if (wanted && atoi(wanted) != v->major) continue;
        if (!open_version(v, reason[i], sizeof *reason)) continue;
        version = v;
        has_bf16 = has_isa(dnnl_cpu_isa_avx512_core_bf16);
        has_f16 = has_isa(v->fp16);
        return;
    }
    /* Only now, as glibc 2.36 damages the heap if dlerror finds no memory for its text. */
    const char *last = *reason[0] || *reason[1] ? NULL : dlerror();
    if (last) snprintf(reason[1], sizeof reason[1], "%s", last);
    snprintf(error, error_size, "oneDNN cannot be opened (package %s or %s): %s%s%s", versions[0]->package,
             versions[1]->package, reason[0], *reason[0] && *reason[1] ? "; " : "", reason[1]);
}

ampc_status cpu_open(char *error, size_t error_size)
{
    ampc_status status = cpu_isa_check(error, error_size);
    if (status) return status;
    pthread_mutex_lock(&open_lock);
    if (!was_tried) {
        open_library(why_not, sizeof why_not);
        was_tried = version || cpu_has_reserve();
        if (!was_tried) {
            snprintf(error, error_size, "%s", why_not);
            status = AMPC_NO_MEMORY;
        }
    }
    pthread_mutex_unlock(&open_lock);
    return status;
}

bool cpu_has_onednn(void) { return version != NULL; }

bool cpu_notice(char *text, size_t size)
{
    pthread_mutex_lock(&open_lock);
    const bool is_due = !version && !was_told;
    was_told = true;
    pthread_mutex_unlock(&open_lock);
    if (is_due) snprintf(text, size, "%s: products and convolutions run on slower code of our own", why_not);
    return is_due;
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

bool cpu_dnnl_computes(ir_dtype t) { return t == IR_bf16 ? has_bf16 : t == IR_f16 ? has_f16 : true; }

ir_dtype cpu_dnnl_type(ir_dtype t, bool native)
{
    return native && ir_dtype_is_low(t) && cpu_dnnl_computes(t) ? t : IR_f32;
}

dnnl_status_t cpu_layout_make(cpu_layout **out, const cpu_desc *desc)
{
    if (desc->layout) return version->layout_copy(out, desc->layout);
    const dnnl_data_type_t type = desc->type == IR_bf16 ? dnnl_bf16 : desc->type == IR_f16 ? dnnl_f16 : dnnl_f32;
    return version->layout_make(out, desc, type);
}

dnnl_status_t cpu_layout_copy(cpu_layout **out, const cpu_layout *layout) { return version->layout_copy(out, layout); }

void cpu_layout_free(cpu_layout *layout)
{
    if (layout) version->layout_free(layout);
}

const cpu_layout *cpu_layout_of(const_dnnl_primitive_desc_t pd, int arg)
{
    return cpu_dnnl.primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
}

static const char *code_of(const_dnnl_primitive_desc_t pd)
{
    const char *name = "";
    dnnl_status_t status = cpu_dnnl.primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    return status == dnnl_success ? name : "";
}

static bool is_reference(const_dnnl_primitive_desc_t pd) { return strncmp(code_of(pd), "ref", 3) == 0; }

static bool is_sound(const_dnnl_primitive_desc_t pd, const cpu_primitive *p)
{
    return !p->faulty || !p->faulty(code_of(pd), p->what);
}

static dnnl_status_t append_tail(dnnl_primitive_attr_t attr, cpu_tail tail)
{
    dnnl_post_ops_t ops;
    if (tail == CPU_TAIL_NONE) return dnnl_success;
    dnnl_status_t status = cpu_dnnl.post_ops_create(&ops);
    if (status != dnnl_success) return status;
    status = version->append_tail(ops, tail);
    if (status == dnnl_success) status = cpu_dnnl.primitive_attr_set_post_ops(attr, ops);
    cpu_dnnl.post_ops_destroy(ops);
    return status;
}

static dnnl_status_t make_layouts(cpu_layouts *l, const cpu_primitive *p)
{
    dnnl_status_t status = cpu_layout_make(&l->x, &p->x);
    if (status == dnnl_success) status = cpu_layout_make(&l->w, &p->w);
    if (status == dnnl_success && p->bias.rank) status = cpu_layout_make(&l->bias, &p->bias);
    return status == dnnl_success ? cpu_layout_make(&l->y, &p->y) : status;
}

static dnnl_status_t describe(const cpu_primitive *p, const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    cpu_layouts l = {0};
    dnnl_status_t status = make_layouts(&l, p);
    if (status == dnnl_success) status = version->describe(p, &l, attr, is_sound, out);
    cpu_layout_free(l.x);
    cpu_layout_free(l.w);
    cpu_layout_free(l.bias);
    cpu_layout_free(l.y);
    return status;
}

dnnl_status_t cpu_dnnl_describe(const cpu_primitive *p, const k_context *ctx, dnnl_primitive_desc_t *out)
{
    dnnl_primitive_attr_t attr;
    if (!cpu_has_reserve()) return dnnl_out_of_memory;
    dnnl_status_t status = cpu_dnnl.primitive_attr_create(&attr);
    if (status != dnnl_success) return status;
    int before = cpu_dnnl_enter_threads(ctx);
    status = cpu_dnnl.primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success) status = append_tail(attr, p->tail);
    if (status == dnnl_success) status = describe(p, attr, out);
    cpu_dnnl_leave_threads(before);
    cpu_dnnl.primitive_attr_destroy(attr);
    if (status == dnnl_success && p->fast && is_reference(*out)) {
        cpu_dnnl.primitive_desc_destroy(*out);
        return dnnl_unimplemented;
    }
    return status;
}

ampc_status cpu_dnnl_fail(const k_context *ctx, dnnl_status_t status, const char *what)
{
    if (status == dnnl_out_of_memory) return cpu_fail(ctx, AMPC_NO_MEMORY, "%s: out of memory", what);
    if (status == dnnl_unimplemented || status == dnnl_invalid_arguments)
        return cpu_fail(ctx, AMPC_UNSUPPORTED, "%s: oneDNN does not support these shapes and types", what);
    return cpu_fail(ctx, AMPC_DEVICE, "%s: oneDNN failed with status %d", what, (int)status);
}
