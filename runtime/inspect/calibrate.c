/* calibrate.c - adds up the values of observed runs. */
#include "runtime/inspect/calibrate.h"

#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/inspect/check.h"
#include "runtime/plan/plan.h"

#include <math.h>
#include <string.h>

/* The rows of the values of a graph, by id. */
typedef struct known {
    const ir_graph *graph;
    rt_calibrated **rows; /* NULL: not seen yet */
    bool *listed;         /* the row is in the result, or never will be */
    bool *explained;      /* what is not finite has been reported, or comes from a constant */
    bool *lost;           /* the place of the largest element is not known */
} known;

struct rt_calibrator {
    rt_session *session;
    const ir_module *module;
    rt_calibrator_options options;
    arena *arena;
    rt_calibration result;
    known *graphs;
    size_t n_graphs;
    const rt_loader *feed; /* of the current run */
    bool backward;         /* the run is one of @grad */
    bool bad;              /* the run has values that are not finite and not explained */
    bool lost;             /* the run has values of which the place is not known */
};

/* ---- rows -------------------------------------------------------------------------------------- */

static known *find_graph(const rt_calibrator *c, const ir_graph *g)
{
    size_t i = 0;
    while (i < c->n_graphs && c->graphs[i].graph != g) i++;
    return i < c->n_graphs ? &c->graphs[i] : NULL;
}

static rt_calibrated *new_row(rt_calibrator *c, const ir_value *v, const ir_node *n)
{
    rt_calibrated *r = arena_alloc(c->arena, sizeof *r);
    *r = (rt_calibrated){.name = v->name,
                         .node = n && n->loc.node ? n->loc.node : "",
                         .op = n && n->loc.op ? n->loc.op
                               : n            ? ir_op_get(n->op)->name
                                              : "",
                         .kind = v->kind == IR_VALUE_STORAGE ? RT_CALIBRATED_WEIGHT
                                 : v->kind == IR_VALUE_INPUT ? RT_CALIBRATED_INPUT
                                 : c->backward               ? RT_CALIBRATED_GRADIENT
                                                             : RT_CALIBRATED_ACTIVATION};
    return r;
}

static void list_row(rt_calibrator *c, known *k, const ir_value *v)
{
    if (!k->rows[v->id] || k->listed[v->id]) return;
    k->listed[v->id] = true;
    vec_push(c->arena, &c->result.tensors, k->rows[v->id]);
}

/* Lists the new rows of the graph in the order of computation. Values within subgraphs that repeat those outside are
 * not listed. */
static void list_rows(rt_calibrator *c, const ir_graph *g)
{
    known *k = find_graph(c, g);
    for (size_t i = 0; i < g->inputs.count && !g->owner; i++) list_row(c, k, g->inputs.items[i]);
    for (const ir_node *n = g->first; n; n = n->next) {
        for (int i = 0; i < n->n_regions; i++) list_rows(c, n->regions[i].graph);
        for (int i = 0; i < n->n_out; i++) list_row(c, k, n->out[i]);
    }
}

/* Whether the value belongs to the statistics of the run. Storage is read once, by rt_calibrator_weights. */
static bool is_counted(const rt_calibrator *c, const ir_value *v, const ir_node *n)
{
    if (v->kind == IR_VALUE_STORAGE || !ir_dtype_is_float(v->type.dtype)) return false;
    return !c->backward || (n && n->phase == IR_BACKWARD);
}

/* ---- values ------------------------------------------------------------------------------------ */

static int64_t largest_at(const rt_tensor *t)
{
    const size_t size = ir_dtype_size(t->dtype);
    double largest = -1;
    int64_t at = 0;
    for (int64_t i = 0, n = rt_tensor_count(t); i < n; i++) {
        const double x = fabs(ir_load_f64(t->dtype, (const char *)t->data + (size_t)i * size));
        if (isinf(x) || !(x > largest)) continue;
        largest = x;
        at = i;
    }
    return at;
}

static void note_place(rt_calibrator *c, rt_calibrated *r, const ir_value *v, const rt_tensor *t)
{
    char place[256];
    if (c->feed && rt_loader_locate(c->feed, v, t, largest_at(t), place, sizeof place))
        r->place = arena_strdup(c->arena, place);
}

/* Adds numbers of a value. Returns its row if they include the largest so far, of which the place is wanted. */
static rt_calibrated *add_numbers(rt_calibrator *c, const ir_value *v, const ir_node *n, const ir_exponents *numbers)
{
    known *k = find_graph(c, v->graph);
    if (!k || !is_counted(c, v, n)) return NULL;
    rt_calibrated **row = &k->rows[v->id];
    const bool repeated = v->kind == IR_VALUE_INPUT && v->graph->owner;
    if (!*row) *row = new_row(c, v, n);
    ir_exponents *e = &(*row)->numbers;
    const double before = ir_exponents_largest(e);
    ir_exponents_merge(e, numbers);
    const double after = ir_exponents_largest(e);
    c->bad |= numbers->nan + numbers->inf > 0 && !repeated && !k->explained[v->id];
    return after > before && after > c->options.limit ? *row : NULL;
}

static ampc_status see_value(void *user, const rt_observed *o, diag *d)
{
    rt_calibrator *c = user;
    ir_exponents numbers = {.count = 0};
    (void)d;
    if (!is_counted(c, o->value, o->node)) return AMPC_OK;
    rt_session_count(c->session, &o->tensor, rt_tensor_count(&o->tensor), &numbers);
    rt_calibrated *r = add_numbers(c, o->value, o->node, &numbers);
    if (r) note_place(c, r, o->value, &o->tensor);
    return AMPC_OK;
}

static void see_numbers(void *user, const ir_value *v, const ir_exponents *numbers)
{
    rt_calibrator *c = user;
    if (!add_numbers(c, v, v->def, numbers) || !c->feed) return;
    find_graph(c, v->graph)->lost[v->id] = c->lost = true;
}

/* In a run of which the numbers have been added. */
static ampc_status see_place(void *user, const rt_observed *o, diag *d)
{
    rt_calibrator *c = user;
    known *k = find_graph(c, o->value->graph);
    ir_exponents numbers = {.count = 0};
    (void)d;
    if (!k || !k->lost[o->value->id]) return AMPC_OK;
    rt_calibrated *r = k->rows[o->value->id];
    rt_session_count(c->session, &o->tensor, rt_tensor_count(&o->tensor), &numbers);
    if (ir_exponents_largest(&numbers) < ir_exponents_largest(&r->numbers)) return AMPC_OK; /* of a later iteration */
    note_place(c, r, o->value, &o->tensor);
    k->lost[o->value->id] = false;
    return AMPC_OK;
}

/* ---- what is not finite ------------------------------------------------------------------------ */

static void report_bad(rt_calibrator *c, const rt_check *check)
{
    char text[1024];
    const rt_checked *v = rt_check_found(check);
    if (!v || !c->options.on_bad) return;
    rt_check_describe(check, v, text, sizeof text);
    c->options.on_bad(c->options.user, rt_checked_loc(v), text);
}

/* Everything that is not finite so far counts as explained, by this finding or by a constant. */
static void mark_explained(rt_calibrator *c)
{
    for (size_t i = 0; i < c->n_graphs; i++)
        for (uint32_t k = 0; k < c->graphs[i].graph->value_ids; k++) {
            const rt_calibrated *r = c->graphs[i].rows[k];
            if (r && r->numbers.nan + r->numbers.inf) c->graphs[i].explained[k] = true;
        }
}

/* Runs the graph again under a check, which finds the first value that is not finite, and its sample. */
static ampc_status explain_bad(rt_calibrator *c, const ir_graph *g, const rt_tensor *inputs, int n, diag *d)
{
    rt_check *check = NULL;
    double finite_scale;
    const rt_check_options options = {.strict = true, .feed = c->feed};
    TRY(rt_check_open(c->session, c->module, &options, d, &check));
    const ampc_status status = rt_check_run(check, g, inputs, n, d, &finite_scale);
    if (status == AMPC_OK) report_bad(c, check);
    rt_check_close(check);
    mark_explained(c);
    return status;
}

/* ---- runs -------------------------------------------------------------------------------------- */

ampc_status rt_calibrator_run(rt_calibrator *c, const ir_graph *g, const rt_tensor *inputs, int n,
                              const rt_loader *feed, diag *d)
{
    c->feed = feed;
    c->backward = g->role == IR_GRAPH_grad;
    c->bad = c->lost = false;
    if (c->backward) rt_session_observe(c->session, see_value, c); /* a second run would not be the same */
    else rt_session_observe_counts(c->session, see_value, see_numbers, c);
    ampc_status status = rt_session_run(c->session, g->name, inputs, n, d);
    if (status == AMPC_OK) list_rows(c, g);
    if (status == AMPC_OK && c->lost) {
        rt_session_observe(c->session, see_place, c);
        status = rt_session_run(c->session, g->name, inputs, n, d);
    }
    rt_session_observe(c->session, NULL, NULL);
    if (status == AMPC_OK && c->bad) status = explain_bad(c, g, inputs, n, d);
    return status;
}

ampc_status rt_calibrator_weights(rt_calibrator *c, diag *d)
{
    for (size_t i = 0; i < c->module->storage.count; i++) {
        const ir_storage *s = c->module->storage.items[i];
        rt_tensor t;
        if (s->kind != IR_PARAM || !ir_dtype_is_float(s->type.dtype)) continue;
        TRY(rt_session_read(c->session, (int)i, d, &t));
        rt_calibrated *r = arena_alloc(c->arena, sizeof *r);
        *r = (rt_calibrated){.name = s->name, .node = "", .op = "", .kind = RT_CALIBRATED_WEIGHT};
        rt_session_count(c->session, &t, rt_tensor_count(&t), &r->numbers);
        vec_push(c->arena, &c->result.tensors, r);
    }
    return AMPC_OK;
}

rt_calibration *rt_calibrator_result(rt_calibrator *c) { return &c->result; }

const rt_calibrated *rt_calibrator_value(const rt_calibrator *c, const ir_value *v)
{
    const known *k = find_graph(c, v->graph);
    if (!k || v->id >= v->graph->value_ids) return NULL;
    return k->rows[v->id] ? k->rows[v->id] : k->rows[rt_plan_source(v)->id];
}

/* ---- opening ----------------------------------------------------------------------------------- */

ampc_status rt_calibrator_open(rt_session *s, const ir_module *m, const rt_calibrator_options *o, arena *a, diag *d,
                               rt_calibrator **out)
{
    size_t count = 0;
    for (const ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g)) count++;
    rt_calibrator *c = rt_alloc(1, sizeof *c);
    if (!c) return rt_no_memory(d);
    *c = (rt_calibrator){.session = s, .module = m, .options = *o, .arena = a};
    c->graphs = arena_array(a, count + 1, sizeof *c->graphs);
    for (const ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g))
        c->graphs[c->n_graphs++] = (known){.graph = g,
                                           .rows = arena_array(a, g->value_ids + 1, sizeof(rt_calibrated *)),
                                           .listed = arena_array(a, g->value_ids + 1, sizeof(bool)),
                                           .lost = arena_array(a, g->value_ids + 1, sizeof(bool)),
                                           .explained = arena_array(a, g->value_ids + 1, sizeof(bool))};
    *out = c;
    return AMPC_OK;
}

void rt_calibrator_close(rt_calibrator *c)
{
    if (!c) return;
    rt_session_observe(c->session, NULL, NULL);
    rt_free(c);
}
