/* feed.c - matching the fields of a data set with the inputs of an entry graph, and filling the inputs. */
#include "runtime/feed.h"

#include "runtime/alloc.h"
#include "runtime/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct source {
    size_t field;
    size_t sample_bytes;
} source;

struct rt_feed {
    rt_dataset *data;
    int64_t batch;
    bool fixed;
    int count;
    rt_tensor *inputs;
    source *sources;
};

/* ---- matching names ---- */

static const char *const label_names[] = {"labels", "label", "y", NULL};
static const char *const image_names[] = {"images", "x", NULL};

static int find_any(const rt_dataset *data, const char *const *names)
{
    for (; *names; names++) {
        int field = rt_dataset_find(data, *names);
        if (field >= 0) return field;
    }
    return -1;
}

int rt_feed_label_field(const ir_module *m, const rt_dataset *data)
{
    const char *label = ir_meta_get(m, "label");
    int field = label ? rt_dataset_find(data, label) : -1;
    return field >= 0 ? field : find_any(data, label_names);
}

static const ir_value *first_input(const ir_graph *g, bool is(ir_dtype), const ir_value *other_than)
{
    for (size_t i = 0; i < g->inputs.count; i++)
        if (g->inputs.items[i] != other_than && is(g->inputs.items[i]->type.dtype))
            return g->inputs.items[i];
    return NULL;
}

/* The input that carries the labels: the one that the loss names, else the first integer one. */
static const ir_value *label_input(const ir_module *m, const ir_graph *g)
{
    const char *label = ir_meta_get(m, "label");
    const ir_value *v = label ? ir_graph_find_input(g, label) : NULL;
    return v ? v : first_input(g, ir_dtype_is_int, NULL);
}

static int match(const ir_module *m, const ir_graph *g, const ir_value *v, const rt_dataset *data)
{
    int field = rt_dataset_find(data, v->name);
    const ir_value *label = label_input(m, g);
    if (field >= 0) return field;
    if (v == label) return find_any(data, label_names);
    return v == first_input(g, ir_dtype_is_float, label) ? find_any(data, image_names) : -1;
}

static ampc_status report_unmatched(const ir_value *v, const rt_dataset *data, diag *d)
{
    char names[512];
    size_t at = 0;
    for (size_t i = 0; i < rt_dataset_field_count(data) && at < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "",
                               rt_dataset_field(data, i)->name);
    return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE,
                      "the data has nothing for input '%s'; it has: %s", v->name,
                      at ? names : "nothing");
}

/* ---- matching shapes ---- */

static bool same_dims(const ir_type *t, const rt_field *f)
{
    if (t->rank - 1 != f->rank) return false;
    for (int i = 1; i < t->rank; i++)
        if (!ir_dim_is_symbolic(t->dims[i]) && t->dims[i] != f->dims[i - 1]) return false;
    return true;
}

/* The input's fixed sizes hold as many elements as the field. */
static bool same_count(const ir_type *t, const rt_field *f)
{
    int64_t n = 1;
    for (int i = 1; i < t->rank; i++)
        if (ir_dim_is_symbolic(t->dims[i]) || !checked_mul(n, t->dims[i], &n)) return false;
    return n == rt_field_elements(f);
}

static void print_dims(char *text, size_t n, const rt_field *f)
{
    size_t at = (size_t)snprintf(text, n, "%s[", ir_dtype_name(f->dtype));
    for (int i = 0; i < f->rank && at < n; i++)
        at += (size_t)snprintf(text + at, n - at, "%s%" PRId64, i ? "," : "", f->dims[i]);
    if (at < n) snprintf(text + at, n - at, "]");
}

static ampc_status set_shape(const ir_value *v, const rt_field *f, rt_tensor *t, diag *d)
{
    char dims[256];
    const ir_type *type = &v->type;
    *t = (rt_tensor){.name = v->name, .dtype = type->dtype, .rank = type->rank};
    bool equal = type->rank > 0 && same_dims(type, f);
    if (equal || (type->rank > 0 && same_count(type, f))) {
        for (int i = 1; i < type->rank; i++) t->dims[i] = equal ? f->dims[i - 1] : type->dims[i];
        return AMPC_OK;
    }
    print_dims(dims, sizeof dims, f);
    return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE,
                      "one sample of '%s' is %s, which does not fit input '%s'%s", f->name, dims,
                      v->name, type->rank ? "" : ": a scalar has no samples");
}

/* ---- opening ---- */

int64_t rt_feed_fixed_batch(const ir_graph *g)
{
    for (size_t i = 0; i < g->inputs.count; i++) {
        const ir_type *t = &g->inputs.items[i]->type;
        if (t->rank && !ir_dim_is_symbolic(t->dims[0])) return t->dims[0];
    }
    return 0;
}

static ampc_status set_batch(rt_feed *f, const ir_graph *g, int64_t batch, diag *d)
{
    int64_t fixed = rt_feed_fixed_batch(g);
    f->fixed = fixed > 0;
    f->batch = batch ? batch : fixed;
    if (f->batch <= 0)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                          "the model takes any number of samples: give the batch size");
    for (size_t i = 0; i < g->inputs.count; i++) {
        const ir_value *v = g->inputs.items[i];
        ir_dim first = v->type.dims[0];
        if (!ir_dim_is_symbolic(first) && first != f->batch)
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                              "a batch of %" PRId64 " does not fit input '%s', which takes %" PRId64
                              " samples",
                              f->batch, v->name, (int64_t)first);
    }
    return AMPC_OK;
}

static ampc_status set_buffers(rt_feed *f, diag *d)
{
    for (int i = 0; i < f->count; i++) {
        rt_tensor *t = &f->inputs[i];
        int64_t bytes = (int64_t)ir_dtype_size(t->dtype);
        for (int k = 1; k < t->rank; k++)
            if (!checked_mul(bytes, t->dims[k], &bytes)) return rt_no_memory(d);
        f->sources[i].sample_bytes = (size_t)bytes;
        if (!checked_mul(bytes, f->batch, &bytes) || !(t->data = rt_alloc_block((size_t)bytes)))
            return rt_no_memory(d);
    }
    return AMPC_OK;
}

static ampc_status match_all(rt_feed *f, const ir_module *m, const ir_graph *g, diag *d)
{
    ampc_status first = AMPC_OK;
    for (int i = 0; i < f->count; i++) {
        const ir_value *v = g->inputs.items[i];
        int field = match(m, g, v, f->data);
        ampc_status s = AMPC_OK;
        if (field < 0) {
            s = report_unmatched(v, f->data, d);
        } else {
            f->sources[i].field = (size_t)field;
            s = set_shape(v, rt_dataset_field(f->data, (size_t)field), &f->inputs[i], d);
        }
        if (first == AMPC_OK) first = s;
    }
    return first;
}

ampc_status rt_feed_open(const ir_module *m, const ir_graph *g, rt_dataset *data, int64_t batch,
                         diag *d, rt_feed **out)
{
    rt_feed *f = rt_alloc(1, sizeof *f);
    if (!f) return rt_no_memory(d);
    f->data = data;
    f->inputs = rt_alloc(g->inputs.count + 1, sizeof *f->inputs);
    f->sources = rt_alloc(g->inputs.count + 1, sizeof *f->sources);
    ampc_status s = f->inputs && f->sources ? AMPC_OK : rt_no_memory(d);
    if (s == AMPC_OK) {
        f->count = (int)g->inputs.count;
        s = match_all(f, m, g, d);
    }
    if (s == AMPC_OK) s = set_batch(f, g, batch, d);
    if (s == AMPC_OK) s = set_buffers(f, d);
    if (s == AMPC_OK)
        *out = f;
    else
        rt_feed_close(f);
    return s;
}

void rt_feed_close(rt_feed *f)
{
    if (!f) return;
    for (int i = 0; i < f->count; i++) rt_free(f->inputs[i].data);
    rt_free(f->inputs);
    rt_free(f->sources);
    rt_free(f);
}

int64_t rt_feed_batch(const rt_feed *f) { return f->batch; }
bool rt_feed_is_fixed(const rt_feed *f) { return f->fixed; }
int rt_feed_count(const rt_feed *f) { return f->count; }
const rt_tensor *rt_feed_inputs(const rt_feed *f) { return f->inputs; }

/* ---- filling ---- */

ampc_status rt_feed_take(rt_feed *f, const rt_position *p, diag *d)
{
    for (int i = 0; i < f->count; i++) {
        rt_tensor *t = &f->inputs[i];
        t->dims[0] = f->batch;
        if (rt_dataset_batch(f->data, p, f->batch, f->sources[i].field, t->data, t->dtype) !=
            AMPC_OK)
            return rt_no_memory(d);
    }
    return AMPC_OK;
}

void rt_feed_slice(rt_feed *f, int64_t first, int64_t count)
{
    for (int i = 0; i < f->count; i++) {
        rt_tensor *t = &f->inputs[i];
        size_t size = f->sources[i].sample_bytes;
        char *last = (char *)t->data + (size_t)(count - 1) * size;
        t->dims[0] = f->fixed ? f->batch : count;
        rt_dataset_slice(f->data, first, count, f->sources[i].field, t->data, t->dtype);
        for (int64_t k = 1; k <= t->dims[0] - count; k++)
            memcpy(last + (size_t)k * size, last, size);
    }
}

/* ---- synthetic data ---- */

/* Ops whose integer operand addresses an axis of a table operand; axis -1: the attribute `axis`. */
static const struct {
    ir_op op;
    int index, table, axis;
} addressing[] = {
    {IR_OP_gather, IR_IN(gather, indices), IR_IN(gather, x), -1},
    {IR_OP_softmax_cross_entropy, IR_IN(softmax_cross_entropy, label),
     IR_IN(softmax_cross_entropy, x), 1},
    {IR_OP_nll_loss, IR_IN(nll_loss, label), IR_IN(nll_loss, x), 1},
};

static int64_t least(int64_t a, int64_t b)
{
    if (!a || !b) return a ? a : b;
    return a < b ? a : b;
}

static int64_t table_size(const ir_use *use)
{
    const ir_node *n = use->user;
    for (size_t i = 0; i < sizeof addressing / sizeof *addressing; i++) {
        if (addressing[i].op != n->op || addressing[i].index != use->index) continue;
        const ir_type *t = &ir_in(n, addressing[i].table)->type;
        int64_t axis = addressing[i].axis < 0 ? n->attr[IR_ATTR(gather, axis)].i
                                              : addressing[i].axis;
        if (axis < 0) axis += t->rank;
        return axis < t->rank && !ir_dim_is_symbolic(t->dims[axis]) ? t->dims[axis] : 0;
    }
    return 0;
}

/* Follows the integers that are made from v; `depth` keeps a web of them from being walked on every path. */
static int64_t bound_below(const ir_value *v, int depth)
{
    int64_t bound = 0;
    for (const ir_use *u = v->first_use; u; u = u->next) {
        bound = least(bound, table_size(u));
        for (int i = 0; depth && i < u->user->n_out; i++)
            if (ir_dtype_is_int(u->user->out[i]->type.dtype))
                bound = least(bound, bound_below(u->user->out[i], depth - 1));
    }
    return bound;
}

int64_t rt_feed_bound(const ir_value *v) { return bound_below(v, 6); }

ampc_status rt_feed_fields(const ir_graph *g, const int64_t *sizes, diag *d, rt_field **fields,
                           size_t *n)
{
    rt_field *all = calloc(g->inputs.count + 1, sizeof *all);
    if (!all) return rt_no_memory(d);
    for (size_t i = 0; i < g->inputs.count; i++) {
        const ir_value *v = g->inputs.items[i];
        all[i] = (rt_field){
            .name = v->name, .dtype = v->type.dtype, .rank = v->type.rank ? v->type.rank - 1 : 0};
        for (int k = 0; k < all[i].rank; k++)
            if (!sizes ||
                !ir_dim_eval(g->module->dims, v->type.dims[k + 1], sizes, &all[i].dims[k], NULL))
                all[i].dims[k] = ir_dim_is_symbolic(v->type.dims[k + 1]) ? 1 : v->type.dims[k + 1];
        if (ir_dtype_is_int(v->type.dtype)) all[i].bound = rt_feed_bound(v);
    }
    *fields = all;
    *n = g->inputs.count;
    return AMPC_OK;
}
