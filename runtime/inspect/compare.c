/* compare.c - runs a network in mixed precision, f32 and f64, and compares value by value. */
#include "runtime/inspect/compare.h"

#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A result of the mixed-precision run. */
typedef struct kept {
    rt_compared row;
    void *data, *f32; /* of the mixed-precision run; of the f32 run, NULL: it has no such value */
    bool in_f64;
} kept;

typedef struct comparing {
    kept *items;
    size_t count, capacity;
    size_t next; /* where the search for the next name starts: values come in nearly the same order */
} comparing;

/* ---- the mixed-precision run ------------------------------------------------------------------- */

static bool grow(comparing *c)
{
    if (c->count < c->capacity) return true;
    const size_t capacity = c->capacity ? 2 * c->capacity : 256;
    kept *larger = rt_alloc(capacity, sizeof *larger);
    if (!larger) return false;
    if (c->count) memcpy(larger, c->items, c->count * sizeof *larger);
    rt_free(c->items);
    c->items = larger;
    c->capacity = capacity;
    return true;
}

/* The bytes of the tensor, allocated; NULL: out of memory. */
static void *copy_of(const rt_tensor *t)
{
    const size_t bytes = (size_t)rt_tensor_count(t) * ir_dtype_size(t->dtype);
    void *copy = rt_alloc(bytes + 1, 1);
    if (copy) memcpy(copy, t->data, bytes);
    return copy;
}

/* The node whose result a cast that the compiler inserted has converted, else n. */
static const ir_node *computing_node(const ir_node *n)
{
    while (!n->loc.op && (ir_op_get(n->op)->traits & IR_CONVERTS) && ir_def(ir_in(n, 0))) n = ir_def(ir_in(n, 0));
    return n;
}

static ampc_status keep_value(void *user, const rt_observed *o, diag *d)
{
    comparing *c = user;
    if (!o->node || o->value->graph->owner) return AMPC_OK;
    if (!grow(c)) return rt_no_memory(d);
    kept *k = &c->items[c->count];
    *k = (kept){.row = {.value = o->value, .node = computing_node(o->node), .tensor = o->tensor, .added = NAN}};
    k->row.tensor.data = NULL;
    k->data = copy_of(&o->tensor);
    if (!k->data) return rt_no_memory(d);
    c->count++;
    if (ir_dtype_is_float(o->tensor.dtype)) k->row.low = rt_numbers_of(&o->tensor);
    return AMPC_OK;
}

/* ---- the references ---------------------------------------------------------------------------- */

static kept *find(comparing *c, const char *name)
{
    for (size_t i = 0; i < c->count; i++) {
        kept *k = &c->items[(c->next + i) % c->count];
        if (strcmp(k->row.tensor.name, name) != 0) continue;
        c->next = (size_t)(k - c->items) + 1;
        return k;
    }
    return NULL;
}

/* The kept value that corresponds to an observed one; NULL: none. */
static kept *match(comparing *c, const rt_observed *o)
{
    if (!o->node || o->value->graph->owner) return NULL;
    kept *k = find(c, o->value->name);
    const bool same = k && rt_tensor_count(&k->row.tensor) == rt_tensor_count(&o->tensor) &&
                      ir_dtype_is_float(k->row.tensor.dtype) == ir_dtype_is_float(o->tensor.dtype);
    return same ? k : NULL;
}

/* Whether x stands for a larger y: constants that are too large for a low type saturate, and masks at half of its
 * largest number. */
static bool is_saturated(double x, double y)
{
    static const ir_dtype types[] = {IR_f16, IR_bf16};
    for (int i = 0; i < 4; i++) {
        const double bound = ir_dtype_largest(types[i / 2]) / (1 + i % 2);
        if (fabs(y) > bound && fabs(x) < 1.01 * bound && fabs(x) > 0.9 * bound && (x > 0) == (y > 0)) return true;
    }
    return false;
}

/* The relative error of elements of a type against `reference`, and the largest absolute difference. */
static double measure(ir_dtype dtype, const void *data, const rt_tensor *reference, double *largest)
{
    const size_t size = ir_dtype_size(dtype), reference_size = ir_dtype_size(reference->dtype);
    const int64_t n = rt_tensor_count(reference);
    double difference = 0, norm = 0;
    *largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = ir_load_f64(dtype, (const char *)data + (size_t)i * size);
        const double y = ir_load_f64(reference->dtype, (const char *)reference->data + (size_t)i * reference_size);
        if (!isfinite(y) || is_saturated(x, y)) continue; /* no number is right, or x is the best one */
        if (!isfinite(x)) return *largest = INFINITY;
        *largest = fmax(*largest, fabs(x - y));
        difference += (x - y) * (x - y);
        norm += y * y;
    }
    return difference > 0 ? sqrt(difference / norm) : 0;
}

static double measure_low(const kept *k, const rt_tensor *reference, double *largest)
{
    return measure(k->row.tensor.dtype, k->data, reference, largest);
}

static ampc_status compare_f32(void *user, const rt_observed *o, diag *d)
{
    double largest;
    kept *k = match(user, o);
    if (!k || o->tensor.dtype != IR_f32 || k->f32) return AMPC_OK;
    k->f32 = copy_of(&o->tensor);
    if (!k->f32) return rt_no_memory(d);
    k->row.f32 = rt_numbers_of(&o->tensor);
    k->row.error_f32 = measure_low(k, &o->tensor, &largest);
    return AMPC_OK;
}

static ampc_status compare_f64(void *user, const rt_observed *o, diag *d)
{
    double largest;
    kept *k = match(user, o);
    (void)d;
    if (!k || !k->f32) return AMPC_OK;
    k->in_f64 = true;
    k->row.f64 = rt_numbers_of(&o->tensor);
    k->row.error = measure_low(k, &o->tensor, &k->row.max_error);
    k->row.f32_error = measure(IR_f32, k->f32, &o->tensor, &largest);
    k->row.noise = k->row.f32_error > 0.1;
    return AMPC_OK;
}

/* Measures what the node adds, and replaces its result by that of the mixed-precision run. */
static ampc_status replace(void *user, const rt_observed *o, diag *d)
{
    double largest;
    kept *k = match(user, o);
    (void)d;
    if (!k) return AMPC_OK;
    if (ir_dtype_is_float(o->tensor.dtype)) k->row.added = measure_low(k, &o->tensor, &largest);
    ir_convert(o->tensor.dtype, o->tensor.data, k->row.tensor.dtype, k->data, (size_t)rt_tensor_count(&o->tensor));
    return AMPC_OK;
}

static ampc_status observe(const rt_precision *p, rt_observe_fn *fn, comparing *c, const char *graph,
                           const rt_tensor *inputs, int n, diag *d)
{
    c->next = 0;
    rt_session_observe(p->session, fn, c);
    const ampc_status status = rt_session_run(p->session, graph, inputs, n, d);
    rt_session_observe(p->session, NULL, NULL);
    return status;
}

/* ---- the rows ---------------------------------------------------------------------------------- */

/* The row of an operand, or of the value that it was cast from; NULL: it is not compared. */
static const rt_compared *row_of(const rt_comparison *c, const ir_value *v)
{
    for (;;) {
        for (int i = 0; i < c->count; i++)
            if (c->rows[i].value == v) return &c->rows[i];
        const ir_node *def = ir_def(v);
        if (!def || !(ir_op_get(def->op)->traits & (IR_CONVERTS | IR_VIEW))) return NULL;
        v = ir_in(def, 0);
    }
}

static void find_operand_errors(rt_comparison *c)
{
    for (int i = 0; i < c->count; i++) {
        rt_compared *r = &c->rows[i];
        for (int j = 0; j < r->node->n_in; j++) {
            const rt_compared *o = ir_in(r->node, j) ? row_of(c, ir_in(r->node, j)) : NULL;
            if (o && !o->noise) r->operands = fmax(r->operands, o->error);
        }
    }
}

/* By what factor a node enlarges the errors of its operands, if most of its error is not its own. */
static double amplification(const rt_compared *r)
{
    const bool inherits = r->operands > 0 && isfinite(r->error) && r->added < r->error / 2;
    return inherits ? r->error / r->operands : 0;
}

/* The update phase only divides by the loss scale. */
static void find_worst(rt_comparison *c)
{
    for (int i = 0; i < c->count; i++) {
        const rt_compared *r = &c->rows[i];
        if (r->node->phase == IR_UPDATE || r->noise) continue;
        if (r->added > 0 && (!c->loses || r->added > c->loses->added)) c->loses = r;
        if (amplification(r) > (c->amplifies ? amplification(c->amplifies) : 1)) c->amplifies = r;
    }
}

static ampc_status collect(const comparing *c, diag *d, rt_comparison *out)
{
    out->rows = rt_alloc(c->count + 1, sizeof *out->rows);
    if (!out->rows) return rt_no_memory(d);
    for (size_t i = 0; i < c->count; i++) {
        const kept *k = &c->items[i];
        if (k->in_f64) out->rows[out->count++] = k->row;
        else out->unmatched += ir_dtype_is_float(k->row.tensor.dtype);
    }
    find_operand_errors(out);
    find_worst(out);
    return AMPC_OK;
}

ampc_status rt_compare(const rt_precision *low, const rt_precision *f32, const rt_precision *f64, const char *graph,
                       const rt_tensor *inputs, int n, diag *d, rt_comparison *out)
{
    comparing c = {.count = 0};
    *out = (rt_comparison){.rows = NULL};
    ampc_status status = observe(low, keep_value, &c, graph, inputs, n, d);
    if (status == AMPC_OK && c.count) status = observe(f32, compare_f32, &c, graph, inputs, n, d);
    if (status == AMPC_OK && c.count) status = observe(f64, compare_f64, &c, graph, inputs, n, d);
    if (status == AMPC_OK && c.count) status = observe(f64, replace, &c, graph, inputs, n, d);
    if (status == AMPC_OK) status = collect(&c, d, out);
    for (size_t i = 0; i < c.count; i++) {
        rt_free(c.items[i].data);
        rt_free(c.items[i].f32);
    }
    rt_free(c.items);
    return status;
}

void rt_comparison_clear(rt_comparison *c)
{
    rt_free(c->rows);
    *c = (rt_comparison){.rows = NULL};
}

static int by_error(const void *a, const void *b)
{
    const rt_compared *x = *(const rt_compared *const *)a, *y = *(const rt_compared *const *)b;
    if (x->noise != y->noise) return x->noise ? 1 : -1;
    if (x->error != y->error) return x->error < y->error ? 1 : -1;
    return (x > y) - (x < y);
}

void rt_comparison_sort(const rt_comparison *c, const rt_compared **sorted)
{
    for (int i = 0; i < c->count; i++) sorted[i] = &c->rows[i];
    qsort(sorted, (size_t)c->count, sizeof *sorted, by_error);
}

/* ---- PaddlePaddle's rules ---------------------------------------------------------------------- */

static bool fits_f16(double x) { return isnan(x) || fabs(x) <= 65504; }

static bool leaves_f16(const rt_compared *r)
{
    return !fits_f16(rt_numbers_top(&r->low)) || !fits_f16(rt_numbers_bottom(&r->low)) ||
           !fits_f16(rt_numbers_top(&r->f32)) || !fits_f16(rt_numbers_bottom(&r->f32));
}

static bool differs(double x, double y) { return fabs(x - y) > 0.01 * fabs(y) + 0.01; }

bool rt_compared_is_abnormal(const rt_compared *r)
{
    const bool gradient = r->node->phase != IR_FORWARD;
    return r->low.count > INT32_MAX || !rt_numbers_finite(&r->low) || leaves_f16(r) ||
           (gradient && (differs(r->low.max, r->f32.max) || differs(r->low.min, r->f32.min)));
}
