/* make_steps.c - evaluates shapes for the given sizes and turns live nodes into steps. */
#include "ir/base/text_buffer.h"
#include "runtime/backend/alloc.h"
#include "runtime/plan/stages.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool has_trait(const ir_node *n, unsigned trait) { return (ir_op_get(n->op)->traits & trait) != 0; }

/* ---- which nodes run ------------------------------------------------------------------------- */

static bool is_store(const ir_node *n) { return ir_op_has(n->op, IR_STORES); }

/* Whether n is a store or a selected output statement. */
static bool is_effect(const rt_plan *p, const ir_node *n)
{
    if (!has_trait(n, IR_EFFECT)) return false;
    if (is_store(n) || !p->selection) return true;
    for (int i = 0; i < p->selection->n; i++)
        if (p->selection->names[i] == n->attr[IR_ATTR(output, name)].s) return true;
    return false;
}

/* Whether a selected output or a store depends on the node. */
static bool is_needed(const rt_plan *p, const ir_node *n, const bool *needed)
{
    if (is_effect(p, n)) return true;
    for (int i = 0; i < n->n_out; i++)
        if (needed[n->out[i]->id]) return true;
    return false;
}

/* Whether the node belongs to the part of the graph that is planned. */
static bool is_in_part(const rt_plan *p, const ir_node *n) { return !p->parts || p->parts->of_node[n->id] == p->part; }

/* Sets needed[value id] for each value that a live node reads, of any part. */
static void mark_operands(const rt_plan *p, bool *needed)
{
    for (const ir_node *n = p->graph->last; n; n = n->prev) {
        if (!is_needed(p, n, needed)) continue;
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i].value) needed[n->in[i].value->id] = true;
    }
}

/* Whether a live node has a symbol that depends on data. */
static bool is_symbol_needed(const rt_plan *p, size_t symbol, const bool *needed)
{
    for (const ir_node *n = p->graph->first; n; n = n->next)
        if (p->parts->of_node[n->id] > 0 && is_needed(p, n, needed) && ir_node_has_symbol(n, symbol)) return true;
    return false;
}

/* Marks the results of trims whose symbols live nodes have; whether any was not marked. */
static bool mark_trims(const rt_plan *p, bool *needed)
{
    bool marked = false;
    for (size_t i = 0; p->parts && i < p->n_symbols; i++) {
        const ir_node *trim = p->parts->trim_of[i];
        if (!trim || needed[trim->out[0]->id] || !is_symbol_needed(p, i, needed)) continue;
        marked = needed[trim->out[0]->id] = true;
    }
    return marked;
}

static void find_needed(const rt_plan *p, bool *needed)
{
    do mark_operands(p, needed);
    while (mark_trims(p, needed));
}

static bool is_live(const rt_plan *p, const ir_node *n, const bool *needed)
{
    return is_in_part(p, n) && is_needed(p, n, needed);
}

/* ---- shapes under the binding ---------------------------------------------------------------- */

static ampc_status evaluate(const rt_plan *p, ir_dim dim, diag_loc loc, diag *d, int64_t *out)
{
    return ir_binding_dim(p->graph, p->sizes, dim, loc, d, out);
}

static ampc_status shape_value(rt_plan *p, const ir_value *v, diag *d)
{
    diag_loc loc = v->def ? ir_diag_loc(v->def) : DIAG_NOWHERE;
    rt_value *value = &p->values[v->id];
    value->value = v;
    k_view view = {.dtype = v->type.dtype, .rank = v->type.rank};
    int64_t bytes = (int64_t)ir_dtype_size(v->type.dtype);
    for (int i = 0; i < view.rank; i++) {
        TRY(evaluate(p, v->type.dims[i], loc, d, &view.dims[i]));
        if (view.dims[i] < 0)
            return diag_error(d, AMPC_REJECTED, loc, "dimension %d of '%s' would be %" PRId64 " under these sizes", i,
                              v->name, view.dims[i]);
        if (!checked_mul(bytes, view.dims[i], &bytes))
            return diag_error(d, AMPC_REJECTED, loc, "'%s' is too large under these sizes", v->name);
    }
    value->view = view;
    return AMPC_OK;
}

static const ir_value *root_of(const ir_value *v)
{
    for (const ir_node *def = ir_def(v); def && has_trait(def, IR_VIEW); def = ir_def(v)) v = ir_in(def, 0);
    return v;
}

static ampc_status shape_operand(rt_plan *p, const ir_value *v, diag *d)
{
    return p->values[v->id].view.dtype == IR_NO_DTYPE ? shape_value(p, v, d) : AMPC_OK;
}

/* The view of a parameter that an earlier part makes is not carried, so its root is an operand here, too. */
static ampc_status shape_node(rt_plan *p, ir_binding *sizes, const ir_node *n, diag *d)
{
    for (int i = 0; i < n->n_in; i++) {
        const ir_value *v = n->in[i].value;
        if (!v) continue;
        TRY(shape_operand(p, v, d));
        TRY(shape_operand(p, root_of(v), d));
    }
    TRY(ir_binding_check(sizes, n, d));
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i]->type.dtype != IR_NO_DTYPE) TRY(shape_value(p, n->out[i], d));
    return AMPC_OK;
}

static void find_roots(rt_plan *p)
{
    for (uint32_t i = 0; i < p->n_values; i++) {
        p->values[i].root = i;
        p->values[i].buffer = RT_NO_BUFFER;
        p->values[i].last_use = -1;
    }
    for (const ir_node *n = p->graph->first; n; n = n->next)
        if (has_trait(n, IR_VIEW)) p->values[n->out[0]->id].root = p->values[n->in[0].value->id].root;
}

/* Inference has relied on this bound when it reasoned about symbols, so larger sizes are rejected. */
static ampc_status check_symbols(const rt_plan *p, diag *d)
{
    for (size_t i = 0; i < p->n_symbols; i++)
        if (p->sizes[i] > IR_DIM_MAX_SIZE)
            return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE,
                              "graph @%s: size %" PRId64 " of symbol '%s' exceeds the maximum %d", p->graph->name,
                              p->sizes[i], ir_dim_symbol_name(p->graph->module->dims, i), IR_DIM_MAX_SIZE);
    return AMPC_OK;
}

static ampc_status shape_values(rt_plan *p, ir_binding *sizes, const bool *needed, diag *d)
{
    find_roots(p);
    TRY(check_symbols(p, d));
    for (size_t i = 0; i < p->graph->inputs.count; i++) TRY(shape_value(p, p->graph->inputs.items[i], d));
    for (const ir_node *n = p->graph->first; n; n = n->next)
        if (is_live(p, n, needed)) TRY(shape_node(p, sizes, n, d));
    return AMPC_OK;
}

/* ---- values of other parts ------------------------------------------------------------------- */

/* Whether the root is defined by an earlier part, or cut by a trim. */
static bool is_carried(const rt_plan *p, const ir_value *root)
{
    const ir_node *def = ir_def(root);
    return def && (has_trait(def, IR_SIZES) || !is_in_part(p, def));
}

static ampc_status carry_operand(rt_plan *p, const ir_value *v, diag *d)
{
    const ir_value *root = root_of(v);
    if (!is_carried(p, root) || p->values[root->id].carried) return AMPC_OK;
    TRY(shape_value(p, root, d));
    p->values[root->id].carried = true;
    p->carried[p->n_carried++] = root->id;
    return AMPC_OK;
}

/* Marks the values that live nodes of this part read and earlier parts define. */
static ampc_status find_carried(rt_plan *p, const bool *needed, diag *d)
{
    if (!p->parts) return AMPC_OK;
    p->carried = rt_plan_alloc(p, p->n_values, sizeof *p->carried);
    if (!p->carried) return AMPC_NO_MEMORY;
    for (const ir_node *n = p->graph->first; n; n = n->next) {
        if (has_trait(n, IR_SIZES | IR_VIEW) || !is_live(p, n, needed)) continue;
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i].value) TRY(carry_operand(p, n->in[i].value, d));
    }
    return AMPC_OK;
}

static bool is_later(const rt_plan *p, const ir_node *n) { return p->parts->of_node[n->id] > p->part; }

/* Whether node n of a later part reads memory that this part has to keep for it. A trim reads its operands when the
 * session cuts them; what it has cut is memory of its operand. */
static bool is_kept_for(const rt_plan *p, const ir_node *n, const ir_value *root)
{
    if (ir_parts_of_value(p->parts, root) != p->part) return false;
    return ir_def(root) ? !has_trait(ir_def(root), IR_SIZES) : has_trait(n, IR_SIZES);
}

/* Sets kept_for[value id] to a node of a later part for each value that this part keeps; returns their number. */
static size_t find_kept(const rt_plan *p, const bool *needed, const ir_node **kept_for)
{
    size_t count = 0;
    for (const ir_node *n = p->parts ? p->graph->first : NULL; n; n = n->next) {
        if (!is_later(p, n) || !is_needed(p, n, needed)) continue;
        for (int i = 0; i < n->n_in; i++) {
            const ir_value *root = n->in[i].value ? root_of(n->in[i].value) : NULL;
            if (!root || kept_for[root->id] || !is_kept_for(p, n, root)) continue;
            kept_for[root->id] = n;
            count++;
        }
    }
    return count;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static bool runs(const ir_node *n) { return !has_trait(n, IR_EFFECT | IR_VIEW | IR_SIZES); }

static ampc_status copy_attrs(rt_plan *p, const ir_node *n, rt_step *step, diag *d)
{
    const ir_op_info *info = ir_op_get(n->op);
    for (int i = 0; i < info->n_attr; i++) {
        const size_t count = (size_t)n->attr[i].list.count;
        step->attr[i] = n->attr[i];
        if (info->attr[i].kind != IR_SLOT_DIMS) continue;
        int64_t *numbers = rt_plan_alloc(p, count, sizeof *numbers);
        if (!numbers) return AMPC_NO_MEMORY;
        for (size_t j = 0; j < count; j++) TRY(evaluate(p, n->attr[i].list.items[j], ir_diag_loc(n), d, &numbers[j]));
        step->attr[i].list.items = numbers;
    }
    return AMPC_OK;
}

static ampc_status make_step(rt_plan *p, const ir_node *n, diag *d)
{
    rt_step *step = rt_step_new(p, n, n->op, n->n_in, n->n_out);
    if (!step) return AMPC_NO_MEMORY;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i].value) rt_step_read(p, step, i, n->in[i].value->id);
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i]->type.dtype != IR_NO_DTYPE) rt_step_write(p, step, i, n->out[i]->id);
    rt_step_insert_before(p, step, NULL);
    return copy_attrs(p, n, step, d);
}

static bool lacks_kernel(const rt_plan *p, const ir_node *n, const bool *needed)
{
    return runs(n) && is_live(p, n, needed) && !p->backend->kernel(n->op) && !rt_control_runs(n->op);
}

static const char *operator_of(const ir_node *n) { return n->loc.op ? n->loc.op : ir_op_get(n->op)->name; }

/* Writes the names of all operators without a kernel, each once with its number of nodes, truncated to `size`. */
static void list_lacking(const rt_plan *p, const bool *needed, char *text, size_t size)
{
    text_buffer t = text_in(text, size);
    for (const ir_node *n = p->graph->first; n; n = n->next) {
        if (!lacks_kernel(p, n, needed)) continue;
        int count = 1;
        const ir_node *same = n->prev;
        while (same && !(lacks_kernel(p, same, needed) && strcmp(operator_of(same), operator_of(n)) == 0))
            same = same->prev;
        if (same) continue;
        for (const ir_node *k = n->next; k; k = k->next)
            count += lacks_kernel(p, k, needed) && strcmp(operator_of(k), operator_of(n)) == 0;
        text_add(&t, "%s%s (%d node%s)", t.length ? ", " : "", operator_of(n), count, count == 1 ? "" : "s");
    }
}

/* Reports all missing kernels in one error, at the first node that lacks one. */
static ampc_status check_kernels(const rt_plan *p, const bool *needed, diag *d)
{
    char text[1024];
    const ir_node *n = p->graph->first;
    while (n && !lacks_kernel(p, n, needed)) n = n->next;
    if (!n) return AMPC_OK;
    list_lacking(p, needed, text, sizeof text);
    return diag_error(d, AMPC_UNSUPPORTED, ir_diag_loc(n), "no kernel on device %s for: %s", p->backend->name, text);
}

static void make_effect(rt_plan *p, const ir_node *n)
{
    rt_effect *e = &p->effects[p->n_effects++];
    const ir_value *state = is_store(n) ? n->in[IR_IN(store, state)].value : NULL;
    const ir_value *value = n->in[state ? IR_IN(store, value) : IR_IN(output, x)].value;
    *e = (rt_effect){.node = n, .value = RT_NO_VALUE, .state = state ? state->id : RT_NO_VALUE, .carries = RT_NO_VALUE};
    rt_effect_read(p, e, value->id);
    if (state) p->values[state->id].store = e;
}

static ampc_status keep_value(rt_plan *p, const ir_value *v, const ir_node *reader, diag *d)
{
    rt_effect *e = &p->effects[p->n_effects++];
    if (!p->values[v->id].value) TRY(shape_value(p, v, d));
    *e = (rt_effect){.node = reader, .value = RT_NO_VALUE, .state = RT_NO_VALUE, .carries = v->id};
    rt_effect_read(p, e, v->id);
    return AMPC_OK;
}

/* Keeps the operands of nodes of later parts, each once. */
static ampc_status keep_values(rt_plan *p, const ir_node **kept_for, diag *d)
{
    for (const ir_node *n = p->parts ? p->graph->first : NULL; n; n = n->next)
        for (int i = 0; i < n->n_in; i++) {
            const ir_value *root = n->in[i].value ? root_of(n->in[i].value) : NULL;
            if (!root || kept_for[root->id] != n) continue;
            TRY(keep_value(p, root, n, d));
            kept_for[root->id] = NULL;
        }
    return AMPC_OK;
}

static ampc_status make_list(rt_plan *p, const bool *needed, const ir_node **kept_for, diag *d)
{
    size_t effects = find_kept(p, needed, kept_for);
    TRY(check_kernels(p, needed, d));
    for (const ir_node *n = p->graph->first; n; n = n->next) effects += is_effect(p, n);
    p->effects = rt_plan_alloc(p, effects, sizeof *p->effects);
    if (!p->effects) return AMPC_NO_MEMORY;
    for (const ir_node *n = p->graph->first; n; n = n->next) {
        if (is_effect(p, n) && is_in_part(p, n)) make_effect(p, n);
        if (runs(n) && is_live(p, n, needed)) TRY(make_step(p, n, d));
    }
    return keep_values(p, kept_for, d);
}

ampc_status rt_stage_make_steps(rt_plan *p, diag *d)
{
    const size_t values = (size_t)p->graph->value_ids + 1;
    bool *needed = rt_alloc(values, sizeof *needed);
    const ir_node **kept_for = rt_alloc(p->parts ? values : 1, sizeof *kept_for);
    ir_binding *sizes = ir_binding_new(p->graph, p->sizes);
    ampc_status status = AMPC_NO_MEMORY;
    if (needed && kept_for && sizes) {
        find_needed(p, needed);
        status = shape_values(p, sizes, needed, d);
        if (status == AMPC_OK) status = find_carried(p, needed, d);
        if (status == AMPC_OK) status = make_list(p, needed, kept_for, d);
    }
    ir_binding_free(sizes);
    rt_free(kept_for);
    rt_free(needed);
    return status;
}
