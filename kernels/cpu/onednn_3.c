/* onednn_3.c - the part of the interface that only oneDNN 3 has: primitive descriptors that step through their
 * implementations, and opaque memory descriptors. */
#include "kernels/cpu/onednn_version.h"

enum {
#define CONSTANT_3(name, value) name = value,
#include "kernels/cpu/onednn.def"
};

static struct {
#define FUNCTION_3(result, name, types) result(*name) types;
#include "kernels/cpu/onednn.def"
} dnnl;

static const char *load(void *library)
{
#define FUNCTION_3(result, name, types) CPU_DNNL_LOAD(dnnl.name, "dnnl_" #name)
#include "kernels/cpu/onednn.def"
    return NULL;
}

static dnnl_status_t layout_make(cpu_layout **out, const cpu_desc *d, dnnl_data_type_t type)
{
    return d->any ? dnnl.memory_desc_create_with_tag(out, d->rank, d->dims, type, dnnl_format_tag_any)
                  : dnnl.memory_desc_create_with_strides(out, d->rank, d->dims, type, d->strides);
}

static dnnl_status_t layout_copy(cpu_layout **out, const cpu_layout *layout)
{
    return dnnl.memory_desc_clone(out, layout);
}

static void layout_free(cpu_layout *layout) { dnnl.memory_desc_destroy(layout); }

static dnnl_status_t append_tail(dnnl_post_ops_t ops, cpu_tail tail)
{
    if (tail == CPU_TAIL_SUM) return dnnl.post_ops_append_sum(ops, 1, 0, 0 /* the type of the result */);
    const dnnl_alg_kind_t kind = tail == CPU_TAIL_GELU ? dnnl_eltwise_gelu_erf : dnnl_eltwise_gelu_tanh;
    return dnnl.post_ops_append_eltwise(ops, kind, 0, 0);
}

static dnnl_status_t create(const cpu_primitive *p, const cpu_layouts *l, const_dnnl_primitive_attr_t attr,
                            dnnl_primitive_desc_t *out)
{
    const unsigned direct = dnnl_convolution_direct;
    switch (p->kind) {
    case CPU_CONV:
        return dnnl.convolution_forward_primitive_desc_create(out, cpu_dnnl_engine, dnnl_forward_training, direct, l->x,
                                                              l->w, l->bias, l->y, p->stride, p->dilation, p->before,
                                                              p->after, attr);
    case CPU_CONV_GRAD_INPUT:
        return dnnl.convolution_backward_data_primitive_desc_create(
            out, cpu_dnnl_engine, direct, l->x, l->w, l->y, p->stride, p->dilation, p->before, p->after, p->hint, attr);
    case CPU_CONV_GRAD_WEIGHT:
        return dnnl.convolution_backward_weights_primitive_desc_create(out, cpu_dnnl_engine, direct, l->x, l->w,
                                                                       l->bias, l->y, p->stride, p->dilation, p->before,
                                                                       p->after, p->hint, attr);
    default: return dnnl.matmul_primitive_desc_create(out, cpu_dnnl_engine, l->x, l->w, l->bias, l->y, attr);
    }
}

static dnnl_status_t describe(const cpu_primitive *p, const cpu_layouts *l, const_dnnl_primitive_attr_t attr,
                              cpu_dnnl_accept *accept, dnnl_primitive_desc_t *out)
{
    dnnl_status_t status = create(p, l, attr, out);
    if (status != dnnl_success) return status;
    while (status == dnnl_success && !accept(*out, p)) status = dnnl.primitive_desc_next_impl(*out);
    if (status == dnnl_success) return status;
    cpu_dnnl.primitive_desc_destroy(*out);
    return status == (dnnl_status_t)dnnl_last_impl_reached ? dnnl_unimplemented : status;
}

const cpu_dnnl_version cpu_onednn_3 = {
    .major = 3,
    .library = "libdnnl.so.3",
    .package = "libdnnl3",
    .fp16 = dnnl_cpu_isa_avx512_core_fp16,
    .load = load,
    .layout_make = layout_make,
    .layout_copy = layout_copy,
    .layout_free = layout_free,
    .append_tail = append_tail,
    .describe = describe,
};
