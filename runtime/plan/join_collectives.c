/* join_collectives.c - finds the steps before which concurrent steps are joined (k_kernel.join).
 *
 *      2  all_reduce   %dw2                     6  check   %s1, %s2  joins 4
 *      3  matmul       ...                      joins 2 as well, because calls are joined in order
 *      4  all_reduce   %dw1
 *
 * A step is joined before the first step that reads one of its results, or a later step that is joined; at the end of
 * the run if there is none. Until then its operands, results and workspace are in use (assign_buffers.c,
 * prepare_kernels.c), so the steps between have memory of their own. */
#include "runtime/plan/stages.h"

static bool is_joined(const rt_step *s) { return s->kernel && s->kernel->join; }

static int larger(int a, int b) { return a > b ? a : b; }

/* The last step of those that are joined whose result the step reads; -1: none. */
static int read_by(const rt_plan *p, const rt_step *s)
{
    int last = -1;
    for (int j = 0; j < s->n_in; j++) {
        const rt_step *def = rt_def(p, s->in_value[j]);
        if (def && is_joined(def)) last = larger(last, def->index);
    }
    return last;
}

int rt_step_ends(const rt_plan *p, int i)
{
    int at = i;
    if (!p->joins || !is_joined(p->steps[i])) return i;
    while (++at < p->n_steps && p->joins[at] < i) continue;
    return at;
}

ampc_status rt_stage_join_collectives(rt_plan *p, diag *d)
{
    int last = -1, joined = -1;
    (void)d;
    for (int i = 0; i < p->n_steps; i++)
        if (is_joined(p->steps[i])) last = i;
    if (last < 0) return AMPC_OK;
    p->joins = rt_plan_alloc(p, (size_t)p->n_steps + 1, sizeof *p->joins);
    if (!p->joins) return AMPC_NO_MEMORY;
    for (int i = 0; i <= p->n_steps; i++) {
        const int needed = i < p->n_steps ? read_by(p, p->steps[i]) : last;
        p->joins[i] = needed > joined ? needed : -1;
        joined = larger(joined, needed);
    }
    return AMPC_OK;
}
