/* fuse_norm_sums.c - lets a convolution sum its result for the batch normalisation of it (kernels/statistics.h).
 *
 *     %c = conv %x, @w                         %c, %sum, %squares = conv %x, @w
 *     _, .., %m, %r = batch_norm %c, ..        _, .., %m, %r = batch_norm %c, .., %sum, %squares
 *
 * The normalisation, of which split_norms has left only the statistics, then reads no image. The backend decides which
 * convolutions can do that. */
#include "kernels/statistics.h"
#include "runtime/plan/stages.h"

#include <string.h>

enum { X = IR_IN(batch_norm, x), MAX_IN = IR_IN(conv, bias) + 1, MAX_OUT = 1 + K_SLOT(statistics, n_out) };

static const int results[] = {K_SLOT(statistics, sum), K_SLOT(statistics, squares)};
static const int operands[] = {K_SLOT(statistics, sum_x), K_SLOT(statistics, squares_x)};

/* Returns the convolution whose whole result the step normalises with batch statistics; NULL: there is none. */
static rt_step *find_source(const rt_plan *p, const rt_step *s)
{
    if (s->kind != RT_STEP_OP || s->op != IR_OP_batch_norm || !s->attr[IR_ATTR(batch_norm, training)].i) return NULL;
    rt_step *c = rt_def(p, s->in_value[X]);
    if (!c || c->kind != RT_STEP_OP || !rt_step_has(c, IR_SPATIAL) || !rt_step_has(c, IR_ABSORBS)) return NULL;
    if (rt_step_reads(c, IR_IN(conv, bias))) return NULL;
    return rt_same_view(&c->out[0], &s->in[X]) && c->out[0].channels_last == s->in[X].channels_last ? c : NULL;
}

static k_view vector_of(const rt_step *conv)
{
    return (k_view){.dtype = IR_f32, .rank = 1, .dims = {conv->out[0].dims[1]}};
}

/* Sets *supported to whether the backend can run the convolution with sums. */
static ampc_status query_backend(const rt_plan *p, const rt_step *conv, bool *supported)
{
    k_view in[MAX_IN], out[MAX_OUT] = {conv->out[0], vector_of(conv), vector_of(conv)};
    for (int j = 0; j < conv->n_in; j++) {
        in[j] = conv->in[j];
        in[j].data = k_present(&in[j]) ? rt_placeholder : NULL;
    }
    for (int k = 0; k < MAX_OUT; k++) out[k].data = rt_placeholder;
    const k_args args = {.op = IR_OP_conv,
                         .in = in,
                         .out = out,
                         .n_in = conv->n_in,
                         .n_out = MAX_OUT,
                         .attr = conv->attr,
                         .ctx = p->ctx};
    const ampc_status status = p->backend->absorbs(&args);
    *supported = status == AMPC_OK;
    return status == AMPC_UNSUPPORTED ? AMPC_OK : status;
}

/* Adds the sums to the convolution, unless an earlier normalisation of its result has, and to the step. */
static ampc_status fuse(rt_plan *p, rt_step *conv, rt_step *s)
{
    for (int i = 0; i < K_SLOT(statistics, n_out); i++) {
        const int at = ir_op_get(IR_OP_conv)->n_out + results[i];
        if (!rt_step_writes(conv, at)) {
            const k_view view = vector_of(conv);
            const uint32_t value = rt_plan_new_value(p, conv->out_value[0], &view);
            if (value == RT_NO_VALUE || !rt_step_write_extra(p, conv, results[i], value)) return AMPC_NO_MEMORY;
        }
        if (!rt_step_read_extra(p, s, operands[i], conv->out_value[at])) return AMPC_NO_MEMORY;
    }
    return AMPC_OK;
}

ampc_status rt_stage_fuse_norm_sums(rt_plan *p, diag *d)
{
    (void)d;
    for (int i = 0; i < p->n_steps && p->backend->device_ops; i++) {
        rt_step *s = p->steps[i], *conv = find_source(p, s);
        bool supported = false;
        if (!conv) continue;
        TRY(query_backend(p, conv, &supported));
        if (supported) TRY(fuse(p, conv, s));
    }
    return AMPC_OK;
}
