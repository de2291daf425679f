/* scaled_tanh.h - the custom operator com.example::ScaledTanh, for custom.c and plugin.c. */
#include <ampc.h>

#include <math.h>
#include <stdio.h>

/* y = alpha * tanh(x): one result with the type of the operand. */
static ampc_status infer(ampc_infer_call *call, void *user)
{
    (void)user;
    if (call->n_operands != 1 || call->n_results != 1) {
        snprintf(call->message, call->message_size, "has one operand and one result");
        return AMPC_REJECTED;
    }
    call->results[0] = call->operands[0];
    return AMPC_OK;
}

static ampc_status forward(const ampc_call *call, void *user)
{
    const float *x = call->operands[0].data;
    float *y = call->results[0].data, alpha = (float)ampc_attribute_float(call->attributes, "alpha", 1);
    (void)user;
    for (size_t i = 0; i < call->operands[0].bytes / sizeof *x; i++) y[i] = alpha * tanhf(x[i]);
    return AMPC_OK;
}

static ampc_status gradient(const ampc_call *call, void *user)
{
    const float *y = call->results[0].data, *dy = call->result_gradients[0].data;
    float *dx = call->operand_gradients[0].data, alpha = (float)ampc_attribute_float(call->attributes, "alpha", 1);
    (void)user;
    for (size_t i = 0; i < call->results[0].bytes / sizeof *y; i++) dx[i] = dy[i] * (alpha - y[i] * y[i] / alpha);
    return AMPC_OK;
}

static const ampc_operator scaled_tanh = {
    .struct_size = sizeof scaled_tanh,
    .domain = "com.example",
    .name = "ScaledTanh",
    .infer = infer,
    .forward_cpu = forward,
    .gradient_cpu = gradient,
};
