/* cost.c - memory traffic and floating-point operations of a plan. */
#include "kernels/attention.h"
#include "kernels/convolution.h"
#include "kernels/matmul.h"
#include "kernels/recurrent.h"
#include "kernels/statistics.h"
#include "kernels/update.h"
#include "runtime/backend/alloc.h"
#include "runtime/plan/concat_parts.h"
#include "runtime/plan/plan_edit.h"

#include <stdlib.h>

/* Operand i, the root value whose memory it reads, and where its part of it begins. */
typedef struct operand {
    uint32_t root;
    int64_t at;
    int i;
} operand;

static int compare(const void *a, const void *b)
{
    const operand *x = a, *y = b;
    if (x->root != y->root) return x->root < y->root ? -1 : 1;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return x->i < y->i ? -1 : x->i > y->i;
}

/* The bytes that the step reads of operand i: a program may read a part of it. */
static int64_t bytes_seen(const rt_step *s, int i)
{
    const int64_t all = k_count(&s->in[i]), size = (int64_t)ir_dtype_size(s->in[i].dtype);
    int64_t most = 0;
    for (int j = 0; s->kind == RT_STEP_FUSED && j < s->fused->n_operands; j++) {
        const k_operand *o = &s->fused->operands[j];
        int64_t n = o->dense ? s->fused->count : 1;
        if (o->in != i) continue;
        for (int d = 0; d < o->walk.rank && !o->dense; d++) n *= o->walk.src[d] ? o->walk.dims[d] : 1;
        if (n > most) most = n;
    }
    return (most && most < all ? most : all) * size;
}

static bool is_read(const rt_plan *p, const rt_step *s, int i)
{
    const k_args args = rt_step_args(p, s);
    return s->in_value[i] != RT_NO_VALUE && (s->kind != RT_STEP_OP || k_statistics_read(&args, i));
}

/* Memory shared by several operands counts once, unless the list for sorting them cannot be allocated. */
static int64_t bytes_read(const rt_plan *p, const rt_step *s)
{
    operand few[16], *all = s->n_in <= 16 ? few : rt_alloc((size_t)s->n_in, sizeof *all);
    int64_t bytes = 0;
    int n = 0;
    for (int i = 0; i < s->n_in && all; i++)
        if (is_read(p, s, i)) all[n++] = (operand){rt_root(p, s->in_value[i]), s->in_at[i], i};
    if (n > 1) qsort(all, (size_t)n, sizeof *all, compare);
    for (int i = 0; i < n; i++)
        if (i == 0 || all[i].root != all[i - 1].root || all[i].at != all[i - 1].at) bytes += bytes_seen(s, all[i].i);
    for (int i = 0; i < s->n_in && !all; i++)
        if (is_read(p, s, i)) bytes += bytes_seen(s, i);
    if (all != few) rt_free(all);
    return bytes;
}

static int64_t bytes_of(const rt_plan *p, const rt_step *s)
{
    const int64_t joined = rt_concat_bytes(p, s);
    if (joined >= 0) return 2 * joined;
    int64_t bytes = bytes_read(p, s);
    for (int i = 0; i < s->n_out; i++)
        if (s->out_value[i] != RT_NO_VALUE && s->out_buffer[i] != RT_NO_BUFFER) bytes += (int64_t)k_bytes(&s->out[i]);
    return bytes;
}

/* Flops of a convolution or one of its gradients: each element of y is combined with each element of one kernel. */
static int64_t convolution_flops(const k_args *args)
{
    const conv c = conv_of(args);
    return 2 * k_count(c.y) * c.g.c * c.g.k[0] * c.g.k[1] * c.g.k[2];
}

/* Flops of a white op. */
static int64_t op_flops(const k_args *args)
{
    if (ir_op_has(args->op, IR_SPATIAL)) return convolution_flops(args);
    if (attention_is(args->op)) return attention_flops(args);
    if (!ir_op_has(args->op, IR_EPILOGUE)) return recurrent_flops(args); /* the only white ops left */
    return 2 * k_count(&args->out[0]) * product_of(args).k;
}

static int64_t flops_of(const rt_plan *p, const rt_step *s)
{
    const k_args args = rt_step_args(p, s);
    k_gradient g;
    if (s->kind != RT_STEP_OP) return 0;
    if (k_update_computes(&args, &g)) return op_flops(&g.args);
    if (ir_op_get(s->op)->colour != IR_WHITE || s->out_buffer[0] == RT_NO_BUFFER) return 0; /* only the bias gradient */
    return op_flops(&args);
}

rt_cost rt_step_cost(const rt_plan *p, const rt_step *s)
{
    if (s->hoisted) return (rt_cost){0, 0};
    return (rt_cost){bytes_of(p, s), flops_of(p, s)};
}

static bool has_pack(const rt_plan *p, const rt_pack *pack)
{
    for (int i = 0; i < p->n_packs; i++) {
        const rt_pack *q = &p->packs[i];
        if (q->storage == pack->storage && q->type == pack->type && q->format == pack->format) return true;
    }
    return false;
}

int64_t rt_plan_pack_bytes(const rt_plan *const *parts, int part)
{
    const rt_plan *p = parts[part];
    int64_t bytes = 0;
    for (int i = 0; i < p->n_packs; i++) {
        int earlier = 0;
        while (earlier < part && !has_pack(parts[earlier], &p->packs[i])) earlier++;
        if (earlier == part) bytes += rt_plan_align(p, (int64_t)p->packs[i].format->bytes);
    }
    return bytes;
}

static void add_copies(rt_plan_totals *sum, const rt_plan *p, const rt_copy *copies, int n)
{
    for (int i = 0; i < n; i++) sum->copy_bytes += 2 * p->buffers[copies[i].to].bytes;
    sum->copies += n;
}

rt_plan_totals rt_plan_sum(const rt_plan *p)
{
    rt_plan_totals sum = {0};
    for (int i = p->n_hoisted; i < p->n_steps; i += p->steps[i]->batch) sum.launches++;
    for (int i = 0; i < p->n_steps; i++) {
        const rt_cost cost = rt_step_cost(p, p->steps[i]);
        sum.bytes += cost.bytes;
        sum.flops += cost.flops;
    }
    add_copies(&sum, p, p->before, p->n_before);
    add_copies(&sum, p, p->after, p->n_after);
    return sum;
}
