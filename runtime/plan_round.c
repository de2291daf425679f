/* plan_round.c - products round what they read, where the device computes them in another type anyway.
 *
 *     %h = cast @w : f16          matmul %x, @w as f16
 *     %y = matmul %x, %h
 *
 * A kernel that brings its operands into f32 (cpu_rounds) may as well start from f32. What the cast would have made
 * needs no memory then. That pays where its operand lies in memory anyway, as inputs and the storage that the graph
 * writes do, and nobody else reads its result; the numbers are the same. Of storage that the graph leaves alone the
 * cast is made once and kept (plan_keep.c), which is faster. */
#include "runtime/alloc.h"
#include "runtime/plan.h"

typedef struct rounder {
    rt_plan *p;
    int *maker;    /* by root value: the step, or -1 */
    int *readers;  /* by root value: operands and effects */
    int *rounding; /* by root value: operands that their kernel could round */
    bool *written; /* by root value: a storage that the graph stores to */
} rounder;

static bool is_worth_it(const rounder *r, uint32_t value)
{
    const uint32_t id = r->p->values[value].root;
    const rt_value *root = &r->p->values[id];
    if (root->derived || !root->value || root->value->kind == IR_VALUE_RESULT) return false;
    return root->value->kind != IR_VALUE_STORAGE || r->written[id];
}

/* The cast that makes operand j of the step; NULL: no such cast. */
static const rt_step *cast_of(const rounder *r, const rt_step *s, int j)
{
    const uint32_t value = s->in_value[j];
    const int at = value == RT_NO_VALUE || r->p->values[value].root != value ? -1 : r->maker[value];
    const rt_step *cast = at < 0 ? NULL : &r->p->steps[at];
    const bool fits = cast && cast->op == IR_OP_cast && cast->in[0].dtype == IR_f32 &&
                      ir_dtype_is_low(cast->out[0].dtype) && is_worth_it(r, cast->in_value[0]);
    return fits ? cast : NULL;
}

static void find_written(rounder *r)
{
    for (int i = 0; i < r->p->n_effects; i++) {
        const ir_node *n = r->p->effects[i].node;
        if (n->op == IR_OP_store) r->written[n->in[IR_IN(store, state)].value->id] = true;
    }
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
    find_written(r);
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
    r.written = rt_alloc(p->n_values, sizeof *r.written);
    const bool done = r.maker && r.readers && r.rounding && r.written;
    if (done) round_all(&r);
    rt_free(r.maker);
    rt_free(r.readers);
    rt_free(r.rounding);
    rt_free(r.written);
    return done;
}
