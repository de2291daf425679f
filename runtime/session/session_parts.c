/* session_parts.c - runs of graphs with sizes that depend on data (ir/graph/parts.h).
 *
 * Each part has a plan of its own, which is made once the parts before it have run and their sizes are known. Plans of
 * different parts do not share memory, so a plan reads the results of earlier parts where they are. */
#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/session/session_state.h"

#include <assert.h>
#include <inttypes.h>

/* ---- finding the parts ----------------------------------------------------------------------- */

static ampc_status find_parts(const rt_session *s, const ir_graph *g, ir_parts *p, diag *d)
{
    p->of_node = rt_alloc((size_t)g->node_ids + 1, sizeof *p->of_node);
    p->of_symbol = rt_alloc(s->n_symbols + 1, sizeof *p->of_symbol);
    p->trim_of = rt_alloc(s->n_symbols + 1, sizeof *p->trim_of);
    if (!p->of_node || !p->of_symbol || !p->trim_of) return rt_no_memory(d);
    const ir_node *where;
    const char *wrong = ir_parts_find(g, p, &where);
    return wrong ? diag_error(d, AMPC_REJECTED, ir_diag_loc(where), "%s", wrong) : AMPC_OK;
}

/* A size that depends on data cannot be bound. */
static ampc_status check_bound(const rt_session *s, const ir_parts *p, diag *d)
{
    for (size_t i = 0; i < s->n_symbols; i++)
        if (p->trim_of[i] && s->fixed[i] >= 0)
            return diag_error(d, AMPC_USAGE, ir_diag_loc(p->trim_of[i]),
                              "dimension '%s' cannot be bound, because it depends on data",
                              ir_dim_symbol_name(s->module->dims, i));
    return AMPC_OK;
}

static ampc_status find_all(rt_session *s, diag *d)
{
    const ir_module *m = s->module;
    ir_parts *parts = s->shared->parts = rt_alloc(m->graphs.count + 1, sizeof *parts);
    if (!parts) return rt_no_memory(d);
    for (size_t i = 0; i < m->graphs.count; i++)
        if (ir_has_parts(m->graphs.items[i])) TRY(find_parts(s, m->graphs.items[i], &parts[i], d));
    return AMPC_OK;
}

ampc_status rt_parts_open(rt_session *s, diag *d)
{
    s->max_parts = 1;
    if (!s->shared->parts) TRY(find_all(s, d));
    for (size_t i = 0; i < s->module->graphs.count; i++) {
        const ir_parts *p = &s->shared->parts[i];
        if (p->count == 0) continue;
        TRY(check_bound(s, p, d));
        if (p->count > s->max_parts) s->max_parts = p->count;
    }
    s->arenas = rt_alloc((size_t)s->max_parts, sizeof *s->arenas);
    s->run = rt_alloc((size_t)s->max_parts, sizeof *s->run);
    s->planned = rt_alloc((size_t)s->max_parts, sizeof *s->planned);
    return s->arenas && s->run && s->planned ? AMPC_OK : rt_no_memory(d);
}

const ir_parts *rt_parts_of(const rt_session *s, const ir_graph *g)
{
    for (size_t i = 0; i < s->module->graphs.count; i++)
        if (s->module->graphs.items[i] == g) return s->shared->parts[i].count ? &s->shared->parts[i] : NULL;
    return NULL;
}

ampc_status rt_parts_require(const rt_session *s, const ir_graph *g, diag *d)
{
    const ir_node *n = g->first;
    if (!rt_parts_of(s, g) || !s->backend->device_ops) return AMPC_OK;
    while (n && !ir_op_has(n->op, IR_SIZES)) n = n->next;
    assert(n); /* only a graph with a trim has parts */
    return diag_error(d, AMPC_UNSUPPORTED, ir_diag_loc(n),
                      "the size of its result depends on data, which device %s does not support", s->backend->name);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Returns the address of a graph value that an earlier part of the run has kept; NULL: it was not needed. */
static void *kept_address(rt_session *s, const ir_value *v)
{
    const ir_value *source = rt_plan_source(v);
    for (int part = 0; part < s->n_run; part++)
        for (int i = 0; i < s->run[part]->plan->n_outputs; i++) {
            const rt_output *output = &s->run[part]->plan->outputs[i];
            if (!output->name && output->carries == source->id)
                return rt_session_address(s, s->run[part], output->buffer);
        }
    return NULL;
}

ampc_status rt_parts_read_sizes(rt_session *s, const ir_graph *g, int part, diag *d)
{
    const ir_parts *p = rt_parts_of(s, g);
    for (size_t i = 0; i < s->n_symbols; i++) {
        if (!p->trim_of[i] || p->of_symbol[i] != part) continue;
        const ir_value *count = ir_in(p->trim_of[i], IR_IN(trim, count));
        const void *address = kept_address(s, count);
        if (!address) continue; /* no selected output needs it */
        const int64_t size = ir_load_i64(count->type.dtype, address);
        if (size < 0 || size > IR_DIM_MAX_SIZE)
            return diag_error(d, AMPC_REJECTED, ir_diag_loc(p->trim_of[i]), "the size of its result would be %" PRId64,
                              size);
        s->sizes[i] = size;
    }
    return AMPC_OK;
}

/* The smallest bound of the trims that set the symbol; 0 if none can be evaluated yet. */
static int64_t bound_of(const rt_session *s, const ir_graph *g, size_t symbol)
{
    int64_t bound = -1, rows;
    for (const ir_node *n = g->first; n; n = n->next) {
        if (!ir_op_has(n->op, IR_SIZES) || ir_trim_symbol(n) != symbol) continue;
        const ir_dim dim = ir_in(n, IR_IN(trim, x))->type.dims[0];
        if (!ir_dim_eval(s->module->dims, dim, s->sizes, &rows, NULL)) continue;
        if (bound < 0 || rows < bound) bound = rows;
    }
    return bound > 0 ? bound : 0;
}

void rt_parts_assume_sizes(rt_session *s, const ir_graph *g, int part)
{
    const ir_parts *p = rt_parts_of(s, g);
    for (size_t i = 0; i < s->n_symbols; i++)
        if (p->trim_of[i] && p->of_symbol[i] == part) s->sizes[i] = bound_of(s, g, i);
}

void rt_parts_carry(rt_session *s, rt_execution *x)
{
    const rt_plan *p = x->plan;
    for (int i = 0; i < p->n_carried; i++) x->carried[i] = kept_address(s, p->values[p->carried[i]].value);
}
