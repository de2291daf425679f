/* check.c - observes runs and finds the first value that is not finite. */
#include "runtime/inspect/check_state.h"

#include "kernels/attention.h"
#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"

#include <math.h>
#include <string.h>

/* ---- findings ---------------------------------------------------------------------------------- */

/* Whether the infinities of the value come from a constant of the model, or from a mask that is a condition. */
static bool is_masked(const rt_check *c, const rt_checked *v)
{
    if (v->numbers.nan || !v->numbers.inf) return false;
    if (v->value->kind == IR_VALUE_STORAGE) return v->value->storage->kind == IR_CONST;
    if (v->node && attention_tells_empty(v->node->op, v->value->def_index)) return true;
    for (int i = 0; v->node && i < v->node->n_in; i++) {
        const rt_checked *o = ir_in(v->node, i) ? rt_check_value(c, ir_in(v->node, i)) : NULL;
        if (o && o->numbers.inf && !o->bad) return true;
    }
    return false;
}

/* Whether the value is the loss, where an infinity is an error wherever it comes from. */
static bool is_loss(const rt_checked *v)
{
    const ir_node *output = v->node && !v->value->graph->owner ? ir_output_by_role(v->value->graph, IR_OUTPUT_loss)
                                                               : NULL;
    return output && ir_in(output, 0) == v->value;
}

/* Where the infinity of a value, which is masked, was read from a constant. */
static rt_checked *origin_of(const rt_check *c, rt_checked *v)
{
    for (const rt_checked *from = v; from;) {
        v = &rt_check_values(c, from->value->graph)[from->value->id];
        from = NULL;
        for (int i = 0; v->node && i < v->node->n_in && !from; i++) {
            const rt_checked *o = ir_in(v->node, i) ? rt_check_value(c, ir_in(v->node, i)) : NULL;
            if (o && o->node && o->node != v->node && o->numbers.inf) from = o;
        }
    }
    return v;
}

/* Inputs of a region repeat values of the outer graph. */
static bool is_repeated(const ir_value *v) { return v->kind == IR_VALUE_INPUT && v->graph->owner; }

/* Whether the node may compute with the scaled loss. A penalty is a part of the forward that does. */
static bool is_scaled(const ir_node *n)
{
    return n->phase != IR_FORWARD || ir_output_by_role(n->graph, IR_OUTPUT_penalty);
}

/* Whether the value is a sum over the micro-batches before this one: a finding only if the run has no other. */
static bool is_window_sum(const ir_value *v)
{
    const bool state = v->kind == IR_VALUE_STORAGE && v->storage->kind == IR_STATE;
    return state && (v->storage->role == IR_STATE_loss_sum || v->storage->role == IR_STATE_grad_sum ||
                     v->storage->role == IR_STATE_partial);
}

static void judge(const rt_check *c, rt_checked *v)
{
    v->bad = !rt_numbers_finite(&v->numbers) && !is_masked(c, v) && !is_repeated(v->value);
    v->excused = v->bad && v->node && c->scale > c->least && is_scaled(v->node);
    if (is_window_sum(v->value)) v->excused = v->bad;
}

static void note_found(rt_check *c, const rt_checked *v)
{
    if (!v->bad) return;
    if (c->found.value && (!c->found.excused || v->excused)) return;
    c->found = *v;
    if (c->searching) return;
    c->place[0] = '\0';
    if (c->options.feed)
        (void)rt_loader_locate(c->options.feed, v->value, &v->tensor, v->numbers.first_bad, c->place, sizeof c->place);
}

static ampc_status check_value(void *user, const rt_observed *o, diag *d)
{
    rt_check *c = user;
    rt_checked *v = &rt_check_values(c, o->value->graph)[o->value->id];
    *v = (rt_checked){.value = o->value, .node = o->node, .output = o->output, .tensor = o->tensor};
    v->tensor.data = NULL;
    v->numbers = (rt_numbers){.count = rt_tensor_count(&o->tensor), .first_bad = -1};
    if (ir_dtype_is_float(o->tensor.dtype)) v->numbers = rt_numbers_of(&o->tensor);
    if (o->value->kind == IR_VALUE_STORAGE && o->value->storage->role == IR_STATE_loss_scale &&
        o->value->storage->kind == IR_STATE)
        c->scale = v->numbers.max;
    judge(c, v);
    rt_checked *origin = v;
    if (!v->bad && v->numbers.inf && is_loss(v)) {
        origin = origin_of(c, v);
        v->bad = origin->bad = true;
    }
    note_found(c, origin);
    if (c->options.each && !c->searching) TRY(c->options.each(c->options.user, c, v, &o->tensor, d));
    if (c->searching || !c->options.stops || !v->bad || v->excused) return AMPC_OK;
    char text[1024];
    rt_check_describe(c, origin, text, sizeof text);
    return diag_error(d, AMPC_NUMERIC, rt_checked_loc(origin), "%s", text);
}

double rt_smallest_scale(const ir_module *m)
{
    const ir_graph *g = ir_graph_by_role(m, IR_GRAPH_train_step);
    const ir_storage *scale = ir_state_by_role(m, IR_STATE_loss_scale);
    for (const ir_node *n = g ? ir_first_store(g) : NULL; n; n = ir_next_store(n)) {
        const ir_node *update = ir_def(ir_in(n, 1));
        const int at = ir_in(n, 0)->storage == scale && update ? ir_op_find_attr(update->op, "min") : -1;
        if (at >= 0) return fmax(update->attr[at].f, 1);
    }
    return INFINITY;
}

ampc_status rt_check_open(rt_session *s, const ir_module *m, const rt_check_options *o, diag *d, rt_check **out)
{
    rt_check *c = rt_alloc(1, sizeof *c);
    if (!c) return rt_no_memory(d);
    *c = (rt_check){.session = s, .options = *o, .scale = 1, .least = o->strict ? INFINITY : rt_smallest_scale(m)};
    const ampc_status status = rt_check_reserve(c, m, d);
    if (status != AMPC_OK) {
        rt_check_close(c);
        return status;
    }
    rt_session_observe(s, check_value, c);
    *out = c;
    return AMPC_OK;
}

void rt_check_close(rt_check *c)
{
    if (!c) return;
    rt_session_observe(c->session, NULL, NULL);
    for (size_t i = 0; i < c->n_graphs; i++) rt_free(c->graphs[i].values);
    rt_free(c->graphs);
    rt_free(c);
}

void rt_check_set_feed(rt_check *c, const rt_loader *feed) { c->options.feed = feed; }
const rt_checked *rt_check_found(const rt_check *c) { return c->found.value ? &c->found : NULL; }
void rt_check_clear(rt_check *c) { c->found.value = NULL; }

/* ---- checking one run -------------------------------------------------------------------------- */

/* Sets *scale to the largest loss scale, by halving, with which the run has no finding. */
static ampc_status search_scale(rt_check *c, const ir_graph *g, const rt_tensor *inputs, int n, diag *d, double *scale)
{
    const ir_storage *state = ir_state_by_role(g->module, IR_STATE_loss_scale);
    const rt_checked first = c->found;
    const double initial = *scale;
    bool bad = true;
    for (*scale = initial; bad && *scale > 1;) {
        *scale = fmax(*scale / 2, 1);
        TRY(rt_session_set_number(c->session, state->name, *scale, d));
        c->found.value = NULL;
        TRY(rt_session_run(c->session, g->name, inputs, n, d));
        bad = c->found.value != NULL;
    }
    if (bad) *scale = 0;
    c->found = first;
    c->scale = initial;
    return rt_session_set_number(c->session, state->name, initial, d);
}

ampc_status rt_check_run(rt_check *c, const ir_graph *g, const rt_tensor *inputs, int n, diag *d, double *finite_scale)
{
    rt_check_clear(c);
    *finite_scale = NAN;
    TRY(rt_session_run(c->session, g->name, inputs, n, d));
    if (!c->found.value || !c->found.node || !is_scaled(c->found.node) || !(c->scale > 1) || ir_first_store(g))
        return AMPC_OK;
    *finite_scale = c->scale;
    c->searching = true;
    const ampc_status status = search_scale(c, g, inputs, n, d, finite_scale);
    c->searching = false;
    c->found.excused &= *finite_scale >= c->least;
    return status;
}

double rt_check_scale(const rt_check *c) { return c->scale; }
