/* plan_round.c - products round what they read, where the device computes them in another type anyway.
 *
 *     %h = cast @w : f16          matmul %x, @w as f16
 *     %y = matmul %x, %h
 *
 * A kernel that brings its operands into f32 (cpu_rounds) may as well start from f32. What the cast would have made
 * needs no memory then. That pays where its operand lies in memory anyway, as storage and inputs do, and nobody else
 * reads its result; the numbers are the same. */
#include "runtime/backend/alloc.h"
#include "runtime/plan/plan.h"

typedef struct rounder {
    rt_plan *p;
    int *maker;    /* by root value: the step, or -1 */
    int *readers;  /* by root value: operands and effects */
    int *rounding; /* by root value: operands that their kernel could round */
} rounder;

static bool lies_in_memory(const rt_plan *p, uint32_t value)
{
    const rt_value *root = &p->values[p->values[value].root];
    return !root->derived && root->value && root->value->kind != IR_VALUE_RESULT;
}

/* The cast that makes operand j of the step; NULL: no such cast. */
static const rt_step *cast_of(const rounder *r, const rt_step *s, int j)
{
    const uint32_t value = s->in_value[j];
    const int at = value == RT_NO_VALUE || r->p->values[value].root != value ? -1 : r->maker[value];
    const rt_step *cast = at < 0 ? NULL : &r->p->steps[at];
    const bool fits = cast && cast->op == IR_OP_cast && cast->in[0].dtype == IR_f32 &&
                      ir_dtype_is_low(cast->out[0].dtype) && lies_in_memory(r->p, cast->in_value[0]);
    return fits ? cast : NULL;
}

static void count_rounding(rounder *r)
{
    for (int i = 0; i < r->p->n_steps; i++) {
        const rt_step *s = &r->p->steps[i];
        const k_args args = rt_step_args(r->p, s);
        for (int j = 0; j < s->n_in; j++)
            if (cast_of(r, s, j) && r->p->backend->rounds(&args, j)) r->rounding[s->in_value[j]]++;
    }
}

static bool all_round(const rounder *r, uint32_t value)
{
    return r->rounding[value] > 0 && r->rounding[value] == r->readers[value];
}

static void read_before_cast(const rounder *r, rt_step *s)
{
    for (int j = 0; j < s->n_in; j++) {
        const rt_step *cast = cast_of(r, s, j);
        if (!cast || !all_round(r, s->in_value[j])) continue;
        rt_step_read(r->p, s, j, cast->in_value[0]);
        s->in[j].as = cast->out[0].dtype;
    }
}

static void round_all(rounder *r)
{
    rt_plan *p = r->p;
    int n = 0;
    count_rounding(r);
    for (int i = 0; i < p->n_steps; i++) read_before_cast(r, &p->steps[i]);
    for (int i = 0; i < p->n_steps; i++)
        if (!(p->steps[i].op == IR_OP_cast && all_round(r, p->steps[i].out_value[0]))) p->steps[n++] = p->steps[i];
    p->n_steps = n;
}

bool rt_plan_round(rt_plan *p)
{
    if (!p->backend->rounds) return true;
    rounder r = {.p = p, .maker = rt_plan_makers(p), .readers = rt_plan_readers(p)};
    r.rounding = rt_alloc(p->n_values, sizeof *r.rounding);
    const bool done = r.maker && r.readers && r.rounding;
    if (done) round_all(&r);
    rt_free(r.maker);
    rt_free(r.readers);
    rt_free(r.rounding);
    return done;
}
