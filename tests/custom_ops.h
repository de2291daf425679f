/* custom_ops.h - custom operators of the tests: com.example::ScaledTanh, y = alpha * tanh(x), and
 * com.example::SquaredDifference, y = (a - b)^2 for tensors of one shape. They allow every float type. */
#ifndef TESTS_CUSTOM_OPS_H
#define TESTS_CUSTOM_OPS_H

#include "ir/ops/dtype.h"
#include "runtime/api/ampc.h"

#include <math.h>
#include <stdio.h>

enum { ALL_FLOATS = 1u << AMPC_F64 | 1u << AMPC_F32 | 1u << AMPC_F16 | 1u << AMPC_BF16 };

/* What the functions have been called with. */
typedef struct custom_log {
    int infer, forward, gradient;
    ampc_dtype dtype;   /* of operand 0 in the last call of forward */
    ampc_status status; /* what they return; AMPC_OK: they work */
} custom_log;

static inline double custom_at(const ampc_view *v, size_t i)
{
    const ir_dtype t = (ir_dtype)v->dtype;
    return ir_load_f64(t, (const char *)v->data + i * ir_dtype_size(t));
}

static inline void custom_set(const ampc_view *v, size_t i, double x)
{
    const ir_dtype t = (ir_dtype)v->dtype;
    ir_store_f64(t, (char *)v->data + i * ir_dtype_size(t), x);
}

static inline size_t custom_count(const ampc_view *v) { return v->bytes / ir_dtype_size((ir_dtype)v->dtype); }

static inline ampc_status custom_fail(custom_log *log, char *message, size_t size)
{
    if (log->status != AMPC_OK) snprintf(message, size, "told to fail\nin two lines");
    return log->status;
}

static inline ampc_status custom_like_first(ampc_infer_call *call, void *user)
{
    custom_log *log = user;
    log->infer++;
    call->results[0] = call->operands[0];
    return AMPC_OK;
}

/* ---- ScaledTanh ---- */

static inline ampc_status tanh_forward(const ampc_call *call, void *user)
{
    custom_log *log = user;
    const double alpha = ampc_attribute_float(call->attributes, "alpha", 1);
    const ampc_view *x = &call->operands[0], *y = &call->results[0];
    log->forward++;
    log->dtype = x->dtype;
    for (size_t i = 0; i < custom_count(x) && log->status == AMPC_OK; i++)
        custom_set(y, i, alpha * tanh(custom_at(x, i)));
    return custom_fail(log, call->message, call->message_size);
}

static inline ampc_status tanh_gradient(const ampc_call *call, void *user)
{
    custom_log *log = user;
    const double alpha = ampc_attribute_float(call->attributes, "alpha", 1);
    const ampc_view *x = &call->operands[0], *dy = &call->result_gradients[0], *dx = &call->operand_gradients[0];
    log->gradient++;
    for (size_t i = 0; i < custom_count(x) && log->status == AMPC_OK; i++) {
        const double t = tanh(custom_at(x, i));
        custom_set(dx, i, custom_at(dy, i) * alpha * (1 - t * t));
    }
    return custom_fail(log, call->message, call->message_size);
}

static inline ampc_operator scaled_tanh(custom_log *log)
{
    return (ampc_operator){.struct_size = sizeof(ampc_operator),
                           .domain = "com.example",
                           .name = "ScaledTanh",
                           .float_types = ALL_FLOATS,
                           .colour = "gray",
                           .infer = custom_like_first,
                           .forward_cpu = tanh_forward,
                           .gradient_cpu = tanh_gradient,
                           .user = log};
}

/* ---- SquaredDifference ---- */

static inline ampc_status difference_infer(ampc_infer_call *call, void *user)
{
    const ampc_type *a = &call->operands[0], *b = &call->operands[1];
    custom_log *log = user;
    log->infer++;
    if (call->n_operands != 2 || a->rank != b->rank) {
        snprintf(call->message, call->message_size, "operands of one rank expected");
        return AMPC_REJECTED;
    }
    call->results[0] = *a;
    call->workspace = call->gradient_workspace = 64;
    return AMPC_OK;
}

static inline ampc_status difference_forward(const ampc_call *call, void *user)
{
    const ampc_view *a = &call->operands[0], *b = &call->operands[1];
    custom_log *log = user;
    log->forward++;
    log->dtype = a->dtype;
    for (int i = 0; i < 16; i++) ((float *)call->workspace)[i] = NAN;
    for (size_t i = 0; i < custom_count(a); i++) {
        const double d = custom_at(a, i) - custom_at(b, i);
        custom_set(&call->results[0], i, d * d);
    }
    return AMPC_OK;
}

static inline ampc_status difference_gradient(const ampc_call *call, void *user)
{
    const ampc_view *a = &call->operands[0], *b = &call->operands[1];
    custom_log *log = user;
    log->gradient++;
    for (int i = 0; i < 16; i++) ((float *)call->workspace)[i] = NAN;
    for (size_t i = 0; i < custom_count(a); i++) {
        const double d = 2 * (custom_at(a, i) - custom_at(b, i)) * custom_at(&call->result_gradients[0], i);
        if (call->operand_gradients[0].data) custom_set(&call->operand_gradients[0], i, d);
        if (call->operand_gradients[1].data) custom_set(&call->operand_gradients[1], i, -d);
    }
    return AMPC_OK;
}

static inline ampc_operator squared_difference(custom_log *log)
{
    return (ampc_operator){.struct_size = sizeof(ampc_operator),
                           .domain = "com.example",
                           .name = "SquaredDifference",
                           .float_types = ALL_FLOATS,
                           .colour = "gray",
                           .infer = difference_infer,
                           .forward_cpu = difference_forward,
                           .gradient_cpu = difference_gradient,
                           .user = log};
}

#endif
