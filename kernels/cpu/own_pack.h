/* own_pack.h - packed operands of own code (gemm.h, conv_own.h) as formats of the kernels of matmul and conv.
 *
 * A format depends on the operand alone, so a pack serves any number of rows and threads. */
#ifndef AMPC_OWN_PACK_H
#define AMPC_OWN_PACK_H

#include "kernels/convolution.h"
#include "kernels/cpu/cpu.h"
#include "kernels/matmul.h"

/* The formats of the weights of a forward convolution and of operand b of a matmul, neither of them empty. The product
 * is computed in `type`: f32, or a low type (gemm_has). */
ampc_status cpu_own_conv_format(const conv *c, const k_context *ctx, const k_format **out);
ampc_status cpu_own_matmul_format(const product *p, ir_dtype type, const k_context *ctx, const k_format **out);
/* Whether the operand is in one of these formats. */
bool cpu_is_own_pack(const k_view *v);
/* The type of the products that read this format. */
ir_dtype cpu_own_pack_type(const k_view *v);

/* Whether own code is faster than oneDNN, for operands in f32 that do not change. */
bool cpu_is_own_faster_conv(const conv *c);
bool cpu_is_own_faster_matmul(const product *p);
/* The same for operands in a low type that gemm_has; b may change. */
bool cpu_is_own_faster_low(const product *p, ir_dtype type);
/* The same for a convolution whose weights change, or one of its gradients, by conv_in_place.c, in the type in which it
 * multiplies (conv_type). */
bool cpu_is_own_faster_in_place(const conv *c);
/* The same for products of a low type by conv_own.c. */
bool cpu_is_own_faster_tiles(const conv *c);
/* The same for a gradient of weights of single channels. */
bool cpu_is_own_faster_depthwise(const conv *c);

#endif
