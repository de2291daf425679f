/* sensitivity.c - errors of nodes times derivatives. */
#include "runtime/inspect/sensitivity.h"

#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/inspect/numbers.h"

#include <math.h>
#include <string.h>

/* A float value of the network. */
typedef struct rt_slot {
    const ir_value *value;
    const char *slope; /* the name of its derivative */
    int row;           /* -1: not of an operator */
    int64_t count, capacity;
    float *y, *error, *rounding; /* in f32; what the low run adds; what rounding y adds */
    bool has_error;
} rt_slot;

static rt_slot *slot_of(const rt_sensitivity *s, const char *name)
{
    const uintptr_t at = (uintptr_t)strmap_get(s->by_name, name);
    return at ? &s->slots[at - 1] : NULL;
}

static void add_slot(rt_sensitivity *s, const ir_value *v, int row, arena *a)
{
    if (strmap_get(s->by_name, v->name)) return;
    s->slots[s->n_slots++] = (rt_slot){.value = v, .row = row, .slope = arena_printf(a, "%s%s", s->prefix, v->name)};
    strmap_put(s->by_name, v->name, (void *)(uintptr_t)s->n_slots);
}

void rt_sensitivity_open(rt_sensitivity *s, const ir_graph *low, ir_dtype type, const char *prefix, arena *a)
{
    size_t nodes = 0, results = low->inputs.count;
    for (const ir_node *n = low->first; n; n = n->next) {
        nodes++;
        results += (size_t)n->n_out + (size_t)n->n_in;
    }
    *s = (rt_sensitivity){.by_name = strmap_new(a), .low = type, .prefix = prefix};
    s->rows = arena_array(a, nodes + 1, sizeof *s->rows);
    s->slots = arena_array(a, results + 1, sizeof *s->slots);
    for (const ir_node *n = low->first; n && n->phase == IR_FORWARD; n = n->next) {
        for (int i = 0; i < n->n_in; i++) /* inputs and storage, for their views */
            if (ir_in(n, i) && !ir_def(ir_in(n, i))) add_slot(s, ir_in(n, i), -1, a);
        bool floats = false;
        for (int i = 0; i < n->n_out; i++) floats |= ir_dtype_is_float(n->out[i]->type.dtype);
        if (!n->loc.op || !floats) continue;
        s->rows[s->count] = (rt_sensitive){.node = n, .exact = true};
        for (int i = 0; i < n->n_out; i++)
            if (ir_dtype_is_float(n->out[i]->type.dtype)) add_slot(s, n->out[i], s->count, a);
        s->count++;
    }
}

void rt_sensitivity_close(rt_sensitivity *s)
{
    for (int i = 0; i < s->n_slots; i++) {
        rt_free(s->slots[i].y);
        rt_free(s->slots[i].error);
        rt_free(s->slots[i].rounding);
    }
    s->n_slots = 0;
}

/* ---- the two runs ------------------------------------------------------------------------------ */

/* What rounding the value to the low type adds; an overflow is counted elsewhere. */
static ampc_status round_slot(const rt_sensitivity *s, rt_slot *slot, diag *d)
{
    uint16_t *rounded = rt_alloc((size_t)slot->count + 1, sizeof *rounded);
    if (!rounded) return rt_no_memory(d);
    ir_convert(s->low, rounded, IR_f32, slot->y, (size_t)slot->count);
    ir_convert(IR_f32, slot->rounding, s->low, rounded, (size_t)slot->count);
    for (int64_t i = 0; i < slot->count; i++) {
        slot->rounding[i] -= slot->y[i];
        if (!isfinite(slot->rounding[i])) slot->rounding[i] = 0;
    }
    rt_free(rounded);
    return AMPC_OK;
}

static ampc_status keep_slot(const rt_sensitivity *s, rt_slot *slot, const void *data, int64_t count, diag *d)
{
    if (count > slot->capacity) {
        float **buffers[] = {&slot->y, &slot->error, &slot->rounding};
        for (int i = 0; i < 3; i++) {
            rt_free(*buffers[i]);
            *buffers[i] = rt_alloc((size_t)count, sizeof(float));
            if (!*buffers[i]) return rt_no_memory(d);
        }
        slot->capacity = count;
    }
    slot->count = count;
    slot->has_error = false;
    if (count) memcpy(slot->y, data, (size_t)count * sizeof(float));
    return slot->row >= 0 ? round_slot(s, slot, d) : AMPC_OK;
}

static ampc_status keep_value(void *user, const rt_observed *o, diag *d)
{
    rt_sensitivity *s = user;
    rt_slot *slot = o->value->graph->owner || o->tensor.dtype != IR_f32 ? NULL : slot_of(s, o->value->name);
    return slot ? keep_slot(s, slot, o->tensor.data, rt_tensor_count(&o->tensor), d) : AMPC_OK;
}

/* Notes the error, and makes later nodes read the f32 value. */
static ampc_status see_error(void *user, const rt_observed *o, diag *d)
{
    rt_sensitivity *s = user;
    const bool floats = o->node && !o->value->graph->owner && ir_dtype_is_float(o->tensor.dtype);
    rt_slot *slot = floats ? slot_of(s, o->value->name) : NULL;
    (void)d;
    if (!slot || !slot->y || slot->row < 0 || slot->count != rt_tensor_count(&o->tensor)) return AMPC_OK;
    const size_t size = ir_dtype_size(o->tensor.dtype);
    for (int64_t i = 0; i < slot->count; i++) {
        const double x = ir_load_f64(o->tensor.dtype, (const char *)o->tensor.data + (size_t)i * size);
        const bool overflows = isfinite(slot->y[i]) && !isfinite(x);
        s->rows[slot->row].overflows |= overflows;
        slot->error[i] = isfinite(x - slot->y[i]) ? (float)(x - slot->y[i]) : 0;
    }
    slot->has_error = true;
    ir_convert(o->tensor.dtype, o->tensor.data, IR_f32, slot->y, (size_t)slot->count);
    return AMPC_OK;
}

static ampc_status observe(rt_sensitivity *s, rt_session *session, rt_observe_fn *fn, const char *graph,
                           const rt_tensor *inputs, int n, diag *d)
{
    rt_session_observe(session, fn, s);
    const ampc_status status = rt_session_run(session, graph, inputs, n, d);
    rt_session_observe(session, NULL, NULL);
    s->runs++;
    return status;
}

/* A view has no step: its value is that of its operand. */
static ampc_status fill_views(rt_sensitivity *s, diag *d)
{
    for (int i = 0; i < s->n_slots; i++) {
        rt_slot *slot = &s->slots[i];
        const ir_value *v = slot->value;
        if (slot->row < 0 || slot->has_error || !ir_op_has(ir_def(v)->op, IR_VIEW)) continue;
        while (ir_def(v) && (ir_op_has(ir_def(v)->op, IR_VIEW) || !ir_def(v)->loc.op)) v = ir_in(ir_def(v), 0);
        const rt_slot *from = slot_of(s, v->name);
        if (!from || !from->y) continue;
        TRY(keep_slot(s, slot, from->y, from->count, d));
        if (slot->count) memcpy(slot->error, slot->rounding, (size_t)slot->count * sizeof(float));
        slot->has_error = true;
    }
    return AMPC_OK;
}

/* ---- the products ------------------------------------------------------------------------------ */

static void add_products(const rt_slot *slot, const rt_tensor *slope, double *error, double *rounding)
{
    const float *g = slope->data;
    for (int64_t i = 0; i < slot->count; i++) {
        *error += (double)g[i] * (double)slot->error[i];
        *rounding += (double)g[i] * (double)slot->rounding[i];
    }
}

static void add_effects(rt_sensitivity *s, rt_session *slopes, double weight)
{
    for (int i = 0; i < s->n_slots;) {
        const int row = s->slots[i].row;
        double error = 0, rounding = 0;
        if (row < 0) {
            i++;
            continue;
        }
        rt_sensitive *r = &s->rows[row];
        for (; i < s->n_slots && s->slots[i].row == row; i++) {
            const rt_slot *slot = &s->slots[i];
            const rt_tensor *slope = slot->has_error ? rt_session_output(slopes, slot->slope) : NULL;
            if (!slope || slope->dtype != IR_f32 || rt_tensor_count(slope) != slot->count) continue;
            add_products(slot, slope, &error, &rounding);
            r->exact = r->exact && memcmp(slot->error, slot->rounding, (size_t)slot->count * sizeof(float)) == 0;
            r->seen = true;
        }
        r->total += weight * error * error;
        r->result += weight * rounding * rounding;
        r->mean += weight * error;
    }
}

ampc_status rt_sensitivity_add(rt_sensitivity *s, rt_session *slopes, rt_session *low, const char *graph,
                               const rt_tensor *inputs, int n_low, int n_slopes, int vectors, rt_draw_fn *draw,
                               void *user, diag *d)
{
    for (int i = 0; i < s->n_slots; i++) s->slots[i].has_error = false;
    draw(user, 0);
    TRY(observe(s, slopes, keep_value, graph, inputs, n_slopes, d));
    TRY(observe(s, low, see_error, graph, inputs, n_low, d));
    TRY(fill_views(s, d));
    for (int i = 0; i < vectors; i++) {
        draw(user, i);
        if (i) TRY(rt_session_run(slopes, graph, inputs, n_slopes, d));
        s->runs += i > 0;
        add_effects(s, slopes, 1.0 / vectors);
        TRY(rt_session_fetched(slopes, d));
    }
    return AMPC_OK;
}
