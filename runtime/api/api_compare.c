/* api_compare.c - a run in mixed precision compared with f32 and f64 in the public API. */
#include "runtime/api/api.h"

#include "runtime/backend/memory.h"
#include "runtime/inspect/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A reference: the module's model compiled in one precision, and its session on the CPU. */
typedef struct reference {
    ir_module *ir;
    rt_session *rt;
} reference;

/* ---- the references ---------------------------------------------------------------------------- */

/* The options of a reference, whose gradients are scaled like those of the session. */
static ampc_status set_precision(const ampc_session *s, diag *d, ampc_compile_options *o)
{
    const ir_storage *scale = ir_state_by_role(s->module->ir, IR_STATE_loss_scale);
    o->amp = "O0";
    o->loss_scale = scale ? "static" : "off";
    o->loss_scale_preset = NULL;
    o->hysteresis = o->incr_every_n_steps = o->decr_every_n_nan_or_inf = 0;
    return scale ? rt_session_get_number(s->rt, scale->name, d, &o->init_loss_scaling) : AMPC_OK;
}

/* The storage of the session that has this name, type and size; -1: none. */
static int find_like(const ampc_session *s, const rt_tensor *t)
{
    for (int i = 0; i < rt_session_storage_count(s->rt); i++) {
        rt_tensor own;
        rt_session_storage_at(s->rt, i, &own, NULL);
        if (strcmp(own.name, t->name) == 0 && own.dtype == t->dtype && own.rank == t->rank &&
            memcmp(own.dims, t->dims, (size_t)t->rank * sizeof *t->dims) == 0)
            return i;
    }
    return -1;
}

/* Copies parameters and state; constants are part of the model. */
static ampc_status copy_storage(const ampc_session *s, const reference *r, diag *d)
{
    for (int i = 0; i < rt_session_storage_count(r->rt); i++) {
        rt_tensor t;
        ir_storage_kind kind;
        rt_session_storage_at(r->rt, i, &t, &kind);
        const int from = kind == IR_CONST ? -1 : find_like(s, &t);
        if (from < 0) continue;
        TRY(rt_session_read(s->rt, from, d, &t));
        TRY(rt_session_write(r->rt, i, t.data, d));
    }
    return AMPC_OK;
}

static ampc_status open_reference(const ampc_session *s, const ampc_compile_options *o, bool wide, diag *d,
                                  reference *r)
{
    api_compilation c = {.wide = wide};
    TRY(api_compile_again(s->module, o, &c, d));
    free(c.summary);
    r->ir = c.ir;
    const rt_session_options options = {
        .device = "cpu", .weights_dir = s->module->folder, .custom = &s->context->custom};
    TRY(rt_session_open(r->ir, &options, d, &r->rt));
    return copy_storage(s, r, d);
}

static void close_reference(reference *r)
{
    rt_session_close(r->rt);
    ir_module_free(r->ir);
}

/* ---- the result -------------------------------------------------------------------------------- */

static const char *or_empty(const char *text) { return text ? text : ""; }

static ampc_compared describe(const rt_comparison *c, const rt_compared *r)
{
    return (ampc_compared){.tensor = r->tensor.name,
                           .node = or_empty(r->node->loc.node),
                           .op = or_empty(r->node->loc.op),
                           .backward = r->node->phase != IR_FORWARD,
                           .elements = r->low.count,
                           .not_finite = r->low.nan + r->low.inf,
                           .error = r->error,
                           .f32_error = r->f32_error,
                           .max_error = r->max_error,
                           .added = r->added,
                           .min = r->low.min,
                           .max = r->low.max,
                           .noise = r->noise,
                           .loses_most = r == c->loses};
}

typedef struct listener {
    void (*each)(void *user, const ampc_compared *value);
    void *user;
} listener;

static ampc_status tell(ampc_session *s, const rt_comparison *c, const listener *to, diag *d)
{
    const rt_compared **rows = malloc(((size_t)c->count + 1) * sizeof *rows);
    if (!rows) return rt_no_memory(d);
    rt_comparison_sort(c, rows);
    s->context->reports = true;
    for (int i = 0; i < c->count; i++) {
        const ampc_compared value = describe(c, rows[i]);
        to->each(to->user, &value);
    }
    s->context->reports = false;
    free(rows);
    return AMPC_OK;
}

/* ---- the call ---------------------------------------------------------------------------------- */

static ampc_status compare(ampc_session *s, const ampc_compile_options *o, const ir_graph *g, const rt_tensor *inputs,
                           int n, const listener *to, diag *d)
{
    reference f32 = {NULL, NULL}, f64 = {NULL, NULL};
    rt_comparison result = {.rows = NULL};
    ampc_status status = open_reference(s, o, false, d, &f32);
    if (status == AMPC_OK) status = open_reference(s, o, true, d, &f64);
    if (status == AMPC_OK) {
        const rt_precision low = {s->rt, s->module->ir}, single = {f32.rt, f32.ir}, wide = {f64.rt, f64.ir};
        status = rt_compare(&low, &single, &wide, g->name, inputs, n, d, &result);
    }
    if (status == AMPC_OK) status = tell(s, &result, to, d);
    rt_comparison_clear(&result);
    close_reference(&f32);
    close_reference(&f64);
    return status;
}

ampc_status ampc_compare(ampc_session *session, const ampc_compile_options *options, const char *graph,
                         ampc_tensor *const *inputs, size_t n_inputs,
                         void (*each)(void *user, const ampc_compared *value), void *user)
{
    ampc_compile_options o;
    diag *d;
    const ir_graph *g;
    TRY(api_enter_idle(session, &d));
    TRY(api_compile_options(options, d, &o));
    NEED(graph);
    NEED_ITEMS(inputs, n_inputs);
    if (!each) return api_null(d, __func__, "each");
    TRY(api_graph(session->module, graph, d, &g));
    if (ir_first_store(g))
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "@%s changes the weights and cannot be compared", graph);
    TRY(set_precision(session, d, &o));
    rt_tensor *views = api_views(inputs, n_inputs);
    if (!views) return rt_no_memory(d);
    const listener to = {each, user};
    ampc_status status = compare(session, &o, g, views, (int)n_inputs, &to, d);
    free(views);
    return status;
}
