/* reductions.c - passes the calls on, and measures their time; see the header. */
#include "runtime/train/reductions.h"

#include <string.h>

static ampc_status pass_on(rt_reductions *r, ampc_status s)
{
    if (s != AMPC_OK) memcpy(r->table.error, r->through->error, sizeof r->table.error);
    return s;
}

static ampc_status all_reduce(k_ranks *k, void *data, int64_t n, ir_dtype type, k_reduced by, bool tree)
{
    rt_reductions *r = (rt_reductions *)k;
    if (r->began == 0) r->began = rt_trace_now();
    const ampc_status s = r->through->all_reduce(r->through, data, n, type, by, tree);
    r->time.bytes += n * (int64_t)ir_dtype_size(type);
    if (k->continues && s == AMPC_OK) return s;
    r->time.seconds += rt_trace_now() - r->began;
    r->time.calls++;
    rt_trace_span(r->trace, RT_LANE_REDUCTIONS, "all_reduce", r->began);
    r->began = 0;
    return pass_on(r, s);
}

static void *stage(k_ranks *k, size_t bytes)
{
    k_ranks *through = ((rt_reductions *)k)->through;
    return through->stage(through, bytes);
}

static ampc_status all_gather(k_ranks *k, const void *mine, void *all, size_t bytes)
{
    rt_reductions *r = (rt_reductions *)k;
    return pass_on(r, r->through->all_gather(r->through, mine, all, bytes));
}

static ampc_status broadcast(k_ranks *k, void *data, size_t bytes, int root)
{
    rt_reductions *r = (rt_reductions *)k;
    return pass_on(r, r->through->broadcast(r->through, data, bytes, root));
}

static ampc_status check(k_ranks *k, double waited)
{
    rt_reductions *r = (rt_reductions *)k;
    return pass_on(r, r->through->check(r->through, waited));
}

void rt_reductions_open(rt_reductions *r, k_ranks *through)
{
    *r = (rt_reductions){.table = *through, .through = through};
    r->table.all_reduce = all_reduce;
    r->table.stage = stage;
    r->table.all_gather = all_gather;
    r->table.broadcast = broadcast;
    r->table.check = through->check ? check : NULL;
}
