/* session_device.c - the device of a session: opening it, its errors, and host memory for copies. */
#include "runtime/backend/alloc.h"
#include "runtime/session/device_file.h"
#include "runtime/session/session_state.h"

#include <omp.h>
#include <string.h>
#include <unistd.h>

ampc_status rt_device_error(rt_session *s, ampc_status status, diag *d)
{
    return diag_error(d, status, DIAG_NOWHERE, "%s", s->error[0] ? s->error : ampc_status_sentence(status));
}

ampc_status rt_memory_error(rt_session *s, ampc_status status, diag *d, const char *what, int64_t bytes)
{
    if (status != AMPC_NO_MEMORY) return rt_device_error(s, status, d);
    return diag_error(d, status, DIAG_NOWHERE, "out of memory: %s needs %lld bytes", what, (long long)bytes);
}

ampc_status rt_host_alloc(rt_session *s, size_t bytes, void **out)
{
    if (s->backend->device_ops) return s->backend->device_ops->alloc_host(&s->ctx, bytes ? bytes : 1, out);
    *out = rt_alloc_block(bytes);
    return *out ? AMPC_OK : AMPC_NO_MEMORY;
}

void rt_host_free(rt_session *s, void *memory)
{
    if (s->backend->device_ops && memory) s->backend->device_ops->free_host(&s->ctx, memory);
    if (!s->backend->device_ops) rt_free(memory);
}

ampc_status rt_device_require(const rt_session *s, diag *d)
{
    if (!s->plan_only) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "the session was opened only for planning");
}

/* ---- opening --------------------------------------------------------------------------------- */

/* A device that is only described by a file can be planned for, not run on. */
static ampc_status open_described(rt_session *s, const char *path, diag *d)
{
    const bool exists = access(path, F_OK) == 0;
    rt_device_file file;
    if (!s->plan_only && !exists)
        return diag_error(d, AMPC_DEVICE, DIAG_NOWHERE, "device '%s' is not available in this build", path);
    if (!s->plan_only)
        return diag_error(d, AMPC_USAGE, DIAG_FILE(path),
                          "a device description can only be used for planning, not for running");
    if (!exists)
        return diag_error(d, AMPC_IO, DIAG_FILE(path),
                          "neither a device of this build (%s) nor a file that describes one", rt_devices());
    ampc_status status = rt_device_file_read(path, d, &file);
    s->backend = rt_backend_describable();
    if (status == AMPC_OK && !s->backend)
        status = diag_error(d, AMPC_DEVICE, DIAG_FILE(path),
                            "planning for a described device requires a build with CUDA");
    if (status == AMPC_OK) {
        status = s->backend->describe(&s->ctx, file.text, file.multiprocessors);
        if (status != AMPC_OK) rt_device_error(s, status, d);
    }
    rt_device_file_clear(&file);
    return status;
}

/* Fewer threads only make a session slower, unless deterministic mode fixes how work is divided. */
static ampc_status limit_threads(rt_session *s, bool exact, diag *d)
{
    const int requested = s->ctx.threads, n = cpu_threads_available(requested);
    if (n == requested) return AMPC_OK;
    if (exact)
        return diag_error(d, AMPC_DEVICE, DIAG_NOWHERE,
                          "only %d of %d threads are available, and fewer would change the results%s", n, requested,
                          cpu_threads_reason());
    s->ctx.threads = n;
    return diag_warning(d, DIAG_NOWHERE, "only %d of %d threads are available%s", n, requested, cpu_threads_reason());
}

ampc_status rt_device_enter(const rt_session *s, const rt_execution *x, diag *d)
{
    const int n = cpu_threads_available(s->ctx.threads);
    /* The first run of a plan allocates memory that later runs reuse. */
    if (!s->backend->device_ops && !x->warm && !cpu_has_reserve())
        return diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory: too little is left for any run");
    if (n == s->ctx.threads) return AMPC_OK;
    return diag_error(d, AMPC_DEVICE, DIAG_NOWHERE,
                      "only %d of the %d threads of the session are available to the calling thread%s", n,
                      s->ctx.threads, cpu_threads_reason());
}

/* Returns the low type of a matmul or convolution that the device does not compute natively; IR_NO_DTYPE: none. */
static ir_dtype emulated_type(const rt_session *s)
{
    if (!s->backend->computes) return IR_NO_DTYPE;
    for (const ir_graph *g = ir_first_graph(s->module); g; g = ir_next_graph(g))
        for (const ir_node *n = g->first; n; n = n->next) {
            const ir_value *a = ir_op_get(n->op)->colour == IR_WHITE && n->n_in ? n->in[0].value : NULL;
            if (a && ir_dtype_is_low(a->type.dtype) && !s->backend->computes(a->type.dtype)) return a->type.dtype;
        }
    return IR_NO_DTYPE;
}

static void tell_notice(const rt_session *s, diag *d)
{
    char text[512];
    if (s->backend->notice && s->backend->notice(text, sizeof text)) diag_note(d, DIAG_NOWHERE, "%s", text);
}

static void remark_types(const rt_session *s, diag *d)
{
    const ir_dtype t = emulated_type(s);
    if (t != IR_NO_DTYPE)
        diag_remark(d, DIAG_FILE(ir_module_source(s->module)),
                    "this processor has no instructions for %s: products are computed in f32, so that %s saves memory, "
                    "not time",
                    ir_dtype_name(t), ir_dtype_name(t));
}

ampc_status rt_device_open(rt_session *s, const rt_session_options *o, diag *d)
{
    const char *device = o->device ? o->device : "cpu";
    s->ctx = (k_context){.error = s->error, .error_size = sizeof s->error, .custom = o->custom, .ranks = o->ranks};
    s->ctx.threads = o->deterministic > 0 ? o->deterministic : o->threads > 0 ? o->threads : omp_get_num_procs();
    s->sync_launch = o->sync_launch;
    s->plan_only = s->ctx.plan_only = o->plan_only;
    s->ctx.tune = !o->no_tune && !o->plan_only;
    if (!o->plan_only) TRY(limit_threads(s, o->deterministic > 0, d));
    s->no_pack = o->no_pack;
    s->fuse = !o->no_fuse && !s->module->training.unfused;
    s->backend = rt_backend_find(device, &s->device);
    if (o->share) {
        s->device = o->share->device;
        s->backend = o->share->backend;
    }
    if (s->backend) RT_DEVICE(s, d, s->backend->open(&s->ctx, s->device));
    else TRY(open_described(s, device, d));
    s->is_open = true;
    tell_notice(s, d);
    remark_types(s, d);
    if (s->backend->device_ops && !s->plan_only) s->free_at_open = s->backend->device_ops->free_bytes(&s->ctx);
    return AMPC_OK;
}
