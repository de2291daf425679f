/* wide.c - whole operands and results in the carrier type. */
#include "kernels/cpu/wide.h"

static bool is_direct(const k_view *v, ir_dtype carrier)
{
    return v->dtype == carrier || !cpu_is_used(v) || !ir_dtype_is_float(v->dtype);
}

static size_t copy_bytes(const k_view *v, ir_dtype carrier)
{
    return is_direct(v, carrier) ? 0 : cpu_lines((size_t)k_count(v) * ir_dtype_size(carrier));
}

size_t cpu_wide_bytes(const k_args *args, ir_dtype carrier)
{
    size_t bytes = 0;
    for (int i = 0; i < args->n_in; i++) bytes += copy_bytes(&args->in[i], carrier);
    for (int i = 0; i < args->n_out; i++) bytes += copy_bytes(&args->out[i], carrier);
    return bytes;
}

void *cpu_wide_target(const k_view *v, ir_dtype carrier, char **at)
{
    void *to = is_direct(v, carrier) ? v->data : *at;
    *at += copy_bytes(v, carrier);
    return to;
}

const void *cpu_widen(const k_view *v, ir_dtype carrier, char **at)
{
    void *to = cpu_wide_target(v, carrier, at);
    if (to != v->data) cpu_convert(carrier, to, v->dtype, v->data, k_count(v));
    return to;
}

void cpu_narrow(const k_view *v, ir_dtype carrier, const void *from)
{
    if (cpu_is_used(v) && from != v->data) cpu_convert(v->dtype, v->data, carrier, from, k_count(v));
}
