/* onednn_2.c - the part of the interface that only oneDNN 2 has: operation descriptors, and memory descriptors as
 * values. */
#include "kernels/cpu/onednn_version.h"

#include <stdlib.h>

/* Structures of the library, of these sizes (onednn_check.c). */
struct cpu_layout {
    uint64_t words[87];
};
typedef struct dnnl_matmul_desc_t {
    uint64_t words[350];
} dnnl_matmul_desc_t;
typedef struct dnnl_convolution_desc_t {
    uint64_t words[747];
} dnnl_convolution_desc_t;
typedef const void *const_dnnl_op_desc_t;
CPU_DNNL_HANDLE(dnnl_primitive_desc_iterator)

enum {
#define CONSTANT_2(name, value) name = value,
#include "kernels/cpu/onednn.def"
};

static struct {
#define FUNCTION_2(result, name, types) result(*name) types;
#include "kernels/cpu/onednn.def"
} dnnl;

static const char *load(void *library)
{
#define FUNCTION_2(result, name, types) CPU_DNNL_LOAD(dnnl.name, "dnnl_" #name)
#include "kernels/cpu/onednn.def"
    return NULL;
}

static dnnl_status_t layout_make(cpu_layout **out, const cpu_desc *d, dnnl_data_type_t type)
{
    cpu_layout *layout = malloc(sizeof *layout);
    if (!layout) return dnnl_out_of_memory;
    const dnnl_status_t status = d->any
                                     ? dnnl.memory_desc_init_by_tag(layout, d->rank, d->dims, type, dnnl_format_tag_any)
                                     : dnnl.memory_desc_init_by_strides(layout, d->rank, d->dims, type, d->strides);
    if (status == dnnl_success) *out = layout;
    else free(layout);
    return status;
}

static dnnl_status_t layout_copy(cpu_layout **out, const cpu_layout *layout)
{
    *out = malloc(sizeof **out);
    if (!*out) return dnnl_out_of_memory;
    **out = *layout;
    return dnnl_success;
}

static void layout_free(cpu_layout *layout) { free(layout); }

static dnnl_status_t append_tail(dnnl_post_ops_t ops, cpu_tail tail)
{
    if (tail == CPU_TAIL_SUM) return dnnl.post_ops_append_sum(ops, 1);
    const dnnl_alg_kind_t kind = tail == CPU_TAIL_GELU ? dnnl_eltwise_gelu_erf : dnnl_eltwise_gelu_tanh;
    return dnnl.post_ops_append_eltwise(ops, 1, kind, 0, 0);
}

static dnnl_status_t first_accepted(const_dnnl_op_desc_t desc, const cpu_primitive *p, const_dnnl_primitive_attr_t attr,
                                    cpu_dnnl_accept *accept, dnnl_primitive_desc_t *out)
{
    dnnl_primitive_desc_iterator_t codes;
    dnnl_status_t status = dnnl.primitive_desc_iterator_create(&codes, desc, attr, cpu_dnnl_engine, p->hint);
    if (status != dnnl_success) return status;
    while (status == dnnl_success) {
        *out = dnnl.primitive_desc_iterator_fetch(codes);
        if (!*out) status = dnnl_out_of_memory;
        if (!*out || accept(*out, p)) break;
        cpu_dnnl.primitive_desc_destroy(*out);
        status = dnnl.primitive_desc_iterator_next(codes);
    }
    dnnl.primitive_desc_iterator_destroy(codes);
    return status == (dnnl_status_t)dnnl_iterator_ends ? dnnl_unimplemented : status;
}

static dnnl_status_t describe_conv(const cpu_primitive *p, const cpu_layouts *l, dnnl_convolution_desc_t *desc)
{
    const unsigned kind = dnnl_convolution_direct;
    if (p->kind == CPU_CONV_GRAD_INPUT)
        return dnnl.dilated_convolution_backward_data_desc_init(desc, kind, l->x, l->w, l->y, p->stride, p->dilation,
                                                                p->before, p->after);
    if (p->kind == CPU_CONV_GRAD_WEIGHT)
        return dnnl.dilated_convolution_backward_weights_desc_init(desc, kind, l->x, l->w, l->bias, l->y, p->stride,
                                                                   p->dilation, p->before, p->after);
    return dnnl.dilated_convolution_forward_desc_init(desc, dnnl_forward_training, kind, l->x, l->w, l->bias, l->y,
                                                      p->stride, p->dilation, p->before, p->after);
}

static dnnl_status_t describe(const cpu_primitive *p, const cpu_layouts *l, const_dnnl_primitive_attr_t attr,
                              cpu_dnnl_accept *accept, dnnl_primitive_desc_t *out)
{
    union {
        dnnl_matmul_desc_t matmul;
        dnnl_convolution_desc_t conv;
    } desc;
    const dnnl_status_t status = p->kind == CPU_MATMUL ? dnnl.matmul_desc_init(&desc.matmul, l->x, l->w, l->bias, l->y)
                                                       : describe_conv(p, l, &desc.conv);
    return status == dnnl_success ? first_accepted(&desc, p, attr, accept, out) : status;
}

const cpu_dnnl_version cpu_onednn_2 = {
    .major = 2,
    .library = "libdnnl.so.2",
    .package = "libdnnl2",
    .load = load,
    .layout_make = layout_make,
    .layout_copy = layout_copy,
    .layout_free = layout_free,
    .append_tail = append_tail,
    .describe = describe,
};
