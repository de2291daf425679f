/* loader.c - maps the fields of a data set to the inputs of an entry graph, and fills the inputs. */
#include "runtime/data/loader.h"

#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/data/sizing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct source {
    const ir_value *input;
    size_t field;
    size_t sample_bytes; /* of the whole input if it has no samples */
    int axis;            /* the sample axis; -1: none */
    char *packed;        /* the samples one after the other if `axis` is not the first; else NULL */
} source;

struct rt_loader {
    rt_dataset *data;
    rt_sizing sizing;
    int64_t batch;
    bool fixed; /* the graph accepts only this batch size */
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

int rt_loader_label_field(const ir_graph *g, const rt_dataset *data)
{
    const ir_value *label = ir_input_by_role(g, IR_INPUT_label);
    int field = label ? rt_dataset_find(data, label->name) : -1;
    return field >= 0 ? field : find_any(data, label_names);
}

static const ir_value *first_float_input(const ir_graph *g, const ir_value *other_than)
{
    for (size_t i = 0; i < g->inputs.count; i++)
        if (g->inputs.items[i] != other_than && ir_dtype_is_float(g->inputs.items[i]->type.dtype))
            return g->inputs.items[i];
    return NULL;
}

static int match(const ir_graph *g, const ir_value *v, const rt_dataset *data)
{
    int field = rt_dataset_find(data, v->name);
    const ir_value *label = ir_input_by_role(g, IR_INPUT_label);
    if (field >= 0) return field;
    if (v == label) return find_any(data, label_names);
    return v == first_float_input(g, label) ? find_any(data, image_names) : -1;
}

static ampc_status report_unmatched(const ir_value *v, const rt_dataset *data, diag *d)
{
    char names[512];
    size_t at = 0;
    for (size_t i = 0; i < rt_dataset_field_count(data) && at < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "", rt_dataset_field(data, i)->name);
    return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "the data have no field for input '%s', only: %s", v->name,
                      at ? names : "nothing");
}

/* ---- opening ---- */

int64_t rt_loader_fixed_batch(const ir_graph *g, const int64_t *sizes)
{
    int64_t fixed;
    (void)rt_batch_symbol(g, sizes, &fixed);
    return fixed;
}

static ampc_status match_all(rt_loader *f, const ir_graph *g, diag *d)
{
    ampc_status status = AMPC_OK;
    for (int i = 0; i < f->count; i++) {
        const ir_value *v = g->inputs.items[i];
        int field = match(g, v, f->data);
        f->sources[i] = (source){.input = v, .field = (size_t)field};
        f->inputs[i] = (rt_tensor){.name = v->name, .dtype = v->type.dtype, .rank = v->type.rank};
        if (field < 0) status = report_unmatched(v, f->data, d);
    }
    return status;
}

static const rt_field *field_of(const rt_loader *f, int i) { return rt_dataset_field(f->data, f->sources[i].field); }

/* Determines the sizes of all symbols, starting from the inputs whose shapes determine them. */
static ampc_status learn_sizes(rt_loader *f, diag *d)
{
    bool learnt = true;
    ampc_status status = AMPC_OK;
    while (learnt) {
        learnt = false;
        for (int i = 0; i < f->count; i++) learnt |= rt_sizing_learn(&f->sizing, f->sources[i].input, field_of(f, i));
    }
    for (int i = 0; i < f->count; i++) {
        ampc_status s = rt_sizing_check(&f->sizing, f->sources[i].input, field_of(f, i), d);
        if (s != AMPC_OK) status = s;
    }
    return status;
}

/* Finds the sample axes. The batch is fixed if an input that is filled with samples does not grow with it. */
static void find_axes(rt_loader *f)
{
    f->batch = f->sizing.batch;
    f->fixed = f->sizing.symbol == RT_NO_SYMBOL;
    for (int i = 0; i < f->count; i++) {
        source *s = &f->sources[i];
        s->axis = rt_sizing_axis(&f->sizing, s->input);
        f->fixed |= !field_of(f, i)->whole && !rt_sizing_varies(&f->sizing, s->input);
    }
}

static ampc_status set_buffers(rt_loader *f, diag *d)
{
    for (int i = 0; i < f->count; i++) {
        rt_tensor *t = &f->inputs[i];
        source *s = &f->sources[i];
        int64_t bytes = (int64_t)ir_dtype_size(t->dtype);
        if (!checked_mul(bytes, rt_field_elements(field_of(f, i)), &bytes)) return rt_no_memory(d);
        s->sample_bytes = (size_t)bytes;
        if (!checked_mul(bytes, field_of(f, i)->whole ? 1 : f->batch, &bytes)) return rt_no_memory(d);
        if (!(t->data = rt_alloc_block((size_t)bytes))) return rt_no_memory(d);
        if (s->axis > 0 && !(s->packed = rt_alloc_block((size_t)bytes))) return rt_no_memory(d);
    }
    return AMPC_OK;
}

static ampc_status open_feed(rt_loader *f, const ir_graph *g, const int64_t *sizes, int64_t batch, diag *d)
{
    f->inputs = rt_alloc(g->inputs.count + 1, sizeof *f->inputs);
    f->sources = rt_alloc(g->inputs.count + 1, sizeof *f->sources);
    if (!f->inputs || !f->sources) return rt_no_memory(d);
    f->count = (int)g->inputs.count;
    TRY(match_all(f, g, d));
    TRY(rt_sizing_open(&f->sizing, g, sizes, batch, d));
    TRY(learn_sizes(f, d));
    find_axes(f);
    return set_buffers(f, d);
}

ampc_status rt_loader_open(const ir_graph *g, rt_dataset *data, const int64_t *sizes, int64_t batch, diag *d,
                           rt_loader **out)
{
    rt_loader *f = rt_alloc(1, sizeof *f);
    if (!f) return rt_no_memory(d);
    f->data = data;
    ampc_status s = open_feed(f, g, sizes, batch, d);
    if (s == AMPC_OK) *out = f;
    else rt_loader_close(f);
    return s;
}

void rt_loader_close(rt_loader *f)
{
    if (!f) return;
    for (int i = 0; i < f->count; i++) {
        rt_free(f->inputs[i].data);
        rt_free(f->sources[i].packed);
    }
    rt_sizing_close(&f->sizing);
    rt_free(f->inputs);
    rt_free(f->sources);
    rt_free(f);
}

int64_t rt_loader_batch(const rt_loader *f) { return f->batch; }
int rt_loader_count(const rt_loader *f) { return f->count; }
const rt_tensor *rt_loader_inputs(const rt_loader *f) { return f->inputs; }

bool rt_loader_reads_integers(const rt_loader *f, int field)
{
    for (int i = 0; i < f->count; i++)
        if (f->sources[i].field == (size_t)field && ir_dtype_is_int(f->inputs[i].dtype)) return true;
    return false;
}

/* ---- filling ---- */

/* Sets the shapes of all inputs for `count` samples; all other symbols are bound. */
static ampc_status set_count(rt_loader *f, int64_t count, diag *d)
{
    f->sizing.batch = count;
    if (f->sizing.symbol != RT_NO_SYMBOL) f->sizing.sizes[f->sizing.symbol] = count;
    for (int i = 0; i < f->count; i++) {
        TRY(rt_sizing_check(&f->sizing, f->sources[i].input, field_of(f, i), d));
        (void)rt_sizing_shape(&f->sizing, f->sources[i].input, f->inputs[i].dims);
    }
    return AMPC_OK;
}

/* Where the samples of input i are stored one after the other. */
static char *packed_samples(const rt_loader *f, int i)
{
    return f->sources[i].packed ? f->sources[i].packed : f->inputs[i].data;
}

/* Moves packed samples [batch,outer,run] to their places in the input, [outer,batch,run]. */
static void place_samples(rt_loader *f, int i)
{
    const source *s = &f->sources[i];
    const rt_tensor *t = &f->inputs[i];
    if (!s->packed) return;
    const size_t batch = (size_t)f->sizing.batch;
    size_t outer = 1;
    for (int k = 0; k < s->axis; k++) outer *= (size_t)t->dims[k];
    const size_t run = outer ? s->sample_bytes / outer : 0;
    for (size_t n = 0; n < batch; n++)
        for (size_t o = 0; o < outer; o++)
            memcpy((char *)t->data + (o * batch + n) * run, s->packed + (n * outer + o) * run, run);
}

ampc_status rt_loader_next(rt_loader *f, const rt_position *p, diag *d)
{
    TRY(set_count(f, f->batch, d));
    for (int i = 0; i < f->count; i++) {
        const size_t field = f->sources[i].field;
        TRY(rt_dataset_batch(f->data, p, f->batch, field, packed_samples(f, i), f->inputs[i].dtype, d));
        place_samples(f, i);
    }
    return AMPC_OK;
}

ampc_status rt_loader_slice(rt_loader *f, int64_t first, int64_t count, diag *d)
{
    int64_t filled = f->fixed ? f->batch : count;
    TRY(set_count(f, filled, d));
    for (int i = 0; i < f->count; i++) {
        size_t size = f->sources[i].sample_bytes;
        char *samples = packed_samples(f, i), *last = samples + (size_t)(count - 1) * size;
        TRY(rt_dataset_slice(f->data, first, count, f->sources[i].field, samples, f->inputs[i].dtype, d));
        if (field_of(f, i)->whole) continue;
        for (int64_t k = 1; k <= filled - count; k++) memcpy(last + (size_t)k * size, last, size);
        place_samples(f, i);
    }
    return AMPC_OK;
}

int64_t rt_loader_samples(const rt_loader *f) { return f->sizing.batch; }

/* ---- synthetic data ---- */

/* Ops with an integer operand that indexes an axis of a table operand. */
enum { BY_ATTRIBUTE = -1, BY_TUPLE = -2 }; /* the axis is the first attribute; several axes from there on */
static const struct {
    ir_op op;
    int index, table, axis;
} addressing[] = {
    {IR_OP_gather, IR_IN(gather, indices), IR_IN(gather, x), BY_ATTRIBUTE},
    {IR_OP_gather_elements, IR_IN(gather_elements, indices), IR_IN(gather_elements, x), BY_ATTRIBUTE},
    {IR_OP_scatter_elements, IR_IN(scatter_elements, indices), IR_IN(scatter_elements, x), BY_ATTRIBUTE},
    {IR_OP_gather_nd, IR_IN(gather_nd, indices), IR_IN(gather_nd, x), BY_TUPLE},
    {IR_OP_scatter_nd, IR_IN(scatter_nd, indices), IR_IN(scatter_nd, x), BY_TUPLE},
    {IR_OP_softmax_cross_entropy, IR_IN(softmax_cross_entropy, label), IR_IN(softmax_cross_entropy, x), 1},
    {IR_OP_nll_loss, IR_IN(nll_loss, label), IR_IN(nll_loss, x), 1},
    {IR_OP_recurrent, IR_IN(recurrent, lengths), IR_IN(recurrent, x), 0},
};

static int64_t smaller_bound(int64_t a, int64_t b)
{
    if (!a || !b) return a ? a : b;
    return a < b ? a : b;
}

static int64_t table_size(const ir_use *use)
{
    const ir_node *n = use->user;
    for (size_t i = 0; i < sizeof addressing / sizeof *addressing; i++) {
        if (addressing[i].op != n->op || addressing[i].index != use->index) continue;
        const ir_type *t = &ir_in(n, addressing[i].table)->type, *indices = &ir_in(n, addressing[i].index)->type;
        const int64_t tuple = addressing[i].axis == BY_TUPLE ? indices->dims[indices->rank - 1] : 1;
        int64_t axis = addressing[i].axis < 0 ? n->attr[IR_ATTR(gather, axis)].i : addressing[i].axis, size = 0;
        if (axis < 0) axis += t->rank;
        for (int64_t k = axis; k < axis + tuple && k < t->rank; k++)
            if (!ir_dim_is_symbolic(t->dims[k])) size = smaller_bound(size, t->dims[k]);
        return size;
    }
    return 0;
}

/* One more than the largest index that integer v may contain: the size of the smallest table that it or an integer
 * computed from it indexes, or the number of classes if it is the label of the loss. 0: it indexes nothing. `depth`
 * limits the search, which visits shared values once per path. */
enum { MAX_SEARCH_DEPTH = 6 };
static int64_t bound_below(const ir_value *v, int depth)
{
    int64_t bound = 0;
    for (const ir_use *u = v->first_use; u; u = u->next) {
        bound = smaller_bound(bound, table_size(u));
        for (int i = 0; depth && i < u->user->n_out; i++)
            if (ir_dtype_is_int(u->user->out[i]->type.dtype))
                bound = smaller_bound(bound, bound_below(u->user->out[i], depth - 1));
    }
    return bound;
}

/* Sets the dimensions of one sample: those of the input, with the sample axis replaced by the number of rows per
 * sample, or left out if that is 1. */
static void describe_sample(const rt_sizing *z, const ir_value *v, int axis, rt_field *f)
{
    int64_t dims[IR_MAX_RANK];
    *f = (rt_field){.name = v->name, .dtype = v->type.dtype, .whole = axis < 0};
    if (ir_dtype_is_int(v->type.dtype)) f->bound = bound_below(v, MAX_SEARCH_DEPTH);
    if (!rt_sizing_shape(z, v, dims)) return;
    for (int k = 0; k < v->type.rank; k++) {
        if (k == axis) dims[k] = z->batch > 0 && dims[k] % z->batch == 0 ? dims[k] / z->batch : 1;
        if (k != axis || dims[k] != 1) f->dims[f->rank++] = dims[k];
    }
}

ampc_status rt_loader_fields(const ir_graph *g, const int64_t *sizes, diag *d, rt_field **fields, size_t *n)
{
    rt_sizing z = {0};
    rt_field *all = calloc(g->inputs.count + 1, sizeof *all);
    int *axes = calloc(g->inputs.count + 1, sizeof *axes);
    ampc_status status = all && axes ? rt_sizing_open_smallest(&z, g, sizes, d) : rt_no_memory(d);
    if (status == AMPC_OK) {
        for (size_t i = 0; i < g->inputs.count; i++) axes[i] = rt_sizing_axis(&z, g->inputs.items[i]);
        rt_sizing_set_unbound(&z);
        for (size_t i = 0; i < g->inputs.count; i++) describe_sample(&z, g->inputs.items[i], axes[i], &all[i]);
    }
    rt_sizing_close(&z);
    free(axes);
    *n = g->inputs.count;
    if (status == AMPC_OK) *fields = all;
    else free(all);
    return status;
}
