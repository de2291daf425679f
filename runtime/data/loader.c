/* loader.c - maps the fields of a data set to the inputs of an entry graph, and fills the inputs. */
#include "runtime/data/loader.h"

#include "ir/base/text_buffer.h"
#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/data/prefetch.h"
#include "runtime/data/sizing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct feed {
    const ir_value *input;
    size_t field;
    size_t sample_bytes; /* of the whole input if it has no samples */
    int axis;            /* the sample axis; -1: none */
    size_t outer;        /* elements of the dimensions before the axis, which do not depend on the batch */
} feed;

/* The buffers of one batch, by input. */
typedef struct slot {
    rt_position position;
    int64_t first, count; /* of a slice; count 0: the batch at the position */
    uint32_t *rows;       /* [batch], the rows of the data set at that position */
    void **data;
    void **packed; /* the samples one after the other if the sample axis is not the first; else NULL */
} slot;

struct rt_loader {
    rt_dataset *data;
    rt_sizing sizing;
    int64_t batch;
    int64_t whole, first; /* samples of a batch of the data; the first one of them in the inputs */
    bool fixed;           /* the graph accepts only this batch size */
    int count;
    rt_tensor *inputs; /* their data are those of the current slot */
    feed *feeds;
    slot *slots; /* a ring: after the current one come those that are filled for later batches */
    int n_slots, current, ahead;
    rt_position planned; /* of the next batch to be read ahead */
    rt_prefetch *prefetch;
    bool stopped;
};

/* ---- matching names ---- */

static const char *const token_names[] = {"tokens", NULL};

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
    return field >= 0 ? field : find_any(data, rt_label_names);
}

static const ir_value *first_input(const ir_graph *g, bool (*is_kind)(ir_dtype), const ir_value *other_than)
{
    for (size_t i = 0; i < g->inputs.count; i++)
        if (g->inputs.items[i] != other_than && is_kind(g->inputs.items[i]->type.dtype)) return g->inputs.items[i];
    return NULL;
}

static int match(const ir_graph *g, const ir_value *v, const rt_dataset *data)
{
    int field = rt_dataset_find(data, v->name);
    const ir_value *label = ir_input_by_role(g, IR_INPUT_label);
    if (field >= 0) return field;
    if (v == label) return find_any(data, rt_label_names);
    if (v == first_input(g, ir_dtype_is_float, label)) return find_any(data, rt_input_names);
    return v == first_input(g, ir_dtype_is_int, label) ? find_any(data, token_names) : -1;
}

static ampc_status report_unmatched(const ir_value *v, const rt_dataset *data, diag *d)
{
    char names[512];
    text_buffer t = TEXT_IN(names);
    for (size_t i = 0; i < rt_dataset_field_count(data); i++) text_add_item(&t, ", ", rt_dataset_field(data, i)->name);
    return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "the data have no field for input '%s', only: %s", v->name,
                      t.length ? names : "nothing");
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
        f->feeds[i] = (feed){.input = v, .field = (size_t)field};
        f->inputs[i] = (rt_tensor){.name = v->name, .dtype = v->type.dtype, .rank = v->type.rank};
        if (field < 0) status = report_unmatched(v, f->data, d);
    }
    return status;
}

static const rt_field *field_of(const rt_loader *f, int i) { return rt_dataset_field(f->data, f->feeds[i].field); }

/* Determines the sizes of all symbols, starting from the inputs whose shapes determine them. */
static ampc_status learn_sizes(rt_loader *f, diag *d)
{
    bool learnt = true;
    ampc_status status = AMPC_OK;
    while (learnt) {
        learnt = false;
        for (int i = 0; i < f->count; i++) learnt |= rt_sizing_learn(&f->sizing, f->feeds[i].input, field_of(f, i));
    }
    TRY(rt_sizing_check_open(&f->sizing, d));
    for (int i = 0; i < f->count; i++) {
        ampc_status s = rt_sizing_check(&f->sizing, f->feeds[i].input, field_of(f, i), d);
        if (s != AMPC_OK) status = s;
    }
    return status;
}

/* Finds the sample axes. The batch is fixed if an input that is filled with samples does not grow with it. */
static void find_axes(rt_loader *f)
{
    f->batch = f->whole = f->sizing.batch;
    f->fixed = f->sizing.symbol == RT_NO_SYMBOL;
    for (int i = 0; i < f->count; i++) {
        feed *s = &f->feeds[i];
        s->axis = rt_sizing_axis(&f->sizing, s->input);
        f->fixed |= !field_of(f, i)->whole && !rt_sizing_varies(&f->sizing, s->input);
    }
}

static ampc_status measure_samples(rt_loader *f, diag *d)
{
    for (int i = 0; i < f->count; i++) {
        feed *s = &f->feeds[i];
        int64_t bytes = (int64_t)ir_dtype_size(f->inputs[i].dtype);
        if (!checked_mul(bytes, rt_field_elements(field_of(f, i)), &bytes)) return rt_no_memory(d);
        s->sample_bytes = (size_t)bytes;
        s->outer = 1;
        (void)rt_sizing_shape(&f->sizing, s->input, f->inputs[i].dims);
        for (int k = 0; k < s->axis; k++) s->outer *= (size_t)f->inputs[i].dims[k];
    }
    return AMPC_OK;
}

static ampc_status add_slot(rt_loader *f, diag *d)
{
    slot *more = realloc(f->slots, ((size_t)f->n_slots + 1) * sizeof *more);
    if (!more) return rt_no_memory(d);
    f->slots = more;
    slot *b = &more[f->n_slots++];
    *b = (slot){.rows = rt_alloc((size_t)f->batch, sizeof *b->rows),
                .data = rt_alloc((size_t)f->count + 1, sizeof *b->data),
                .packed = rt_alloc((size_t)f->count + 1, sizeof *b->packed)};
    if (!b->rows || !b->data || !b->packed) return rt_no_memory(d);
    for (int i = 0; i < f->count; i++) {
        int64_t bytes = (int64_t)f->feeds[i].sample_bytes;
        if (!checked_mul(bytes, field_of(f, i)->whole ? 1 : f->batch, &bytes)) return rt_no_memory(d);
        if (!(b->data[i] = rt_alloc_block((size_t)bytes))) return rt_no_memory(d);
        if (f->feeds[i].axis > 0 && !(b->packed[i] = rt_alloc_block((size_t)bytes))) return rt_no_memory(d);
    }
    return AMPC_OK;
}

static void free_slot(const rt_loader *f, slot *b)
{
    for (int i = 0; i < f->count; i++) {
        if (b->data) rt_free(b->data[i]);
        if (b->packed) rt_free(b->packed[i]);
    }
    rt_free(b->rows);
    rt_free(b->data);
    rt_free(b->packed);
}

/* Makes the current slot the inputs. */
static void show_slot(rt_loader *f)
{
    for (int i = 0; i < f->count; i++) f->inputs[i].data = f->slots[f->current].data[i];
}

static ampc_status open_feed(rt_loader *f, const ir_graph *g, const int64_t *sizes, int64_t batch, diag *d)
{
    f->inputs = rt_alloc(g->inputs.count + 1, sizeof *f->inputs);
    f->feeds = rt_alloc(g->inputs.count + 1, sizeof *f->feeds);
    if (!f->inputs || !f->feeds) return rt_no_memory(d);
    f->count = (int)g->inputs.count;
    TRY(match_all(f, g, d));
    TRY(rt_sizing_open(&f->sizing, g, sizes, batch, d));
    TRY(learn_sizes(f, d));
    find_axes(f);
    TRY(measure_samples(f, d));
    TRY(add_slot(f, d));
    show_slot(f);
    return AMPC_OK;
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
    if (!rt_prefetch_close(f->prefetch)) {
        rt_dataset_abandon(f->data);
        return;
    }
    for (int i = 0; i < f->n_slots; i++) free_slot(f, &f->slots[i]);
    free(f->slots);
    rt_sizing_close(&f->sizing);
    rt_free(f->inputs);
    rt_free(f->feeds);
    rt_free(f);
}

int64_t rt_loader_batch(const rt_loader *f) { return f->batch; }
int rt_loader_count(const rt_loader *f) { return f->count; }
const rt_tensor *rt_loader_inputs(const rt_loader *f) { return f->inputs; }

bool rt_loader_reads_integers(const rt_loader *f, int field)
{
    for (int i = 0; i < f->count; i++)
        if (f->feeds[i].field == (size_t)field && ir_dtype_is_int(f->inputs[i].dtype)) return true;
    return false;
}

int rt_loader_axis(const rt_loader *f, const ir_value *v)
{
    const bool varies = f->sizing.symbol == RT_NO_SYMBOL || rt_sizing_varies(&f->sizing, v);
    return varies ? rt_sizing_axis(&f->sizing, v) : -1;
}

bool rt_loader_packs(const rt_loader *f, int field)
{
    for (int i = 0; i < f->count; i++)
        if (f->feeds[i].field == (size_t)field && f->feeds[i].axis != 0) return false;
    return true;
}

/* ---- filling ---- */

/* Sets the shapes of all inputs for `count` samples; all other symbols are bound. */
static ampc_status set_count(rt_loader *f, int64_t count, diag *d)
{
    rt_sizing_set_batch(&f->sizing, count);
    for (int i = 0; i < f->count; i++) {
        TRY(rt_sizing_check(&f->sizing, f->feeds[i].input, field_of(f, i), d));
        (void)rt_sizing_shape(&f->sizing, f->feeds[i].input, f->inputs[i].dims);
    }
    return AMPC_OK;
}

/* Where the samples of input i are stored one after the other. */
static char *packed_samples(const slot *b, int i) { return b->packed[i] ? b->packed[i] : b->data[i]; }

/* Moves packed samples [batch,outer,run] to their places in the input, [outer,batch,run]. */
static void place_samples(const rt_loader *f, const slot *b, int i, size_t batch)
{
    const feed *s = &f->feeds[i];
    if (!b->packed[i]) return;
    const size_t run = s->outer ? s->sample_bytes / s->outer : 0;
    for (size_t n = 0; n < batch; n++)
        for (size_t o = 0; o < s->outer; o++)
            memcpy((char *)b->data[i] + (o * batch + n) * run, (char *)b->packed[i] + (n * s->outer + o) * run, run);
}

/* Reads the batch at the position of the slot. */
static ampc_status fill_batch(const rt_loader *f, const slot *b, diag *d)
{
    const rt_draw draw = {b->position.seed, b->position.epoch};
    for (int i = 0; i < f->count; i++) {
        TRY(rt_dataset_read(f->data, b->rows, f->batch, &draw, f->feeds[i].field, packed_samples(b, i),
                            f->inputs[i].dtype, d));
        place_samples(f, b, i, (size_t)f->batch);
    }
    return AMPC_OK;
}

/* Reads the slice of the slot. A fixed batch is padded. */
static ampc_status fill_slice(const rt_loader *f, const slot *b, diag *d)
{
    const int64_t filled = f->fixed ? f->batch : b->count;
    for (int i = 0; i < f->count; i++) {
        size_t size = f->feeds[i].sample_bytes;
        char *samples = packed_samples(b, i), *last = samples + (size_t)(b->count - 1) * size;
        TRY(rt_dataset_slice(f->data, b->first, b->count, f->feeds[i].field, samples, f->inputs[i].dtype, d));
        if (field_of(f, i)->whole) continue;
        for (int64_t k = 1; k <= filled - b->count; k++) memcpy(last + (size_t)k * size, last, size);
        place_samples(f, b, i, (size_t)filled);
    }
    return AMPC_OK;
}

/* Called by several threads, for different slots. */
static ampc_status fill_slot(const rt_loader *f, const slot *b, diag *d)
{
    return b->count ? fill_slice(f, b, d) : fill_batch(f, b, d);
}

static ampc_status fill_ahead(void *user, int index, diag *d)
{
    const rt_loader *f = user;
    return fill_slot(f, &f->slots[index], d);
}

ampc_status rt_loader_read_ahead(rt_loader *f, int workers, diag *d)
{
    const rt_reading reading = rt_dataset_reading(f->data);
    if (workers == 0 && reading == RT_DECODED) workers = 1;
    if (workers < 1 || reading == RT_CALLING_ONLY || f->prefetch) return AMPC_OK;
    /* Besides the current batch and one for each thread, one that is complete, for when a batch takes longer. */
    while (f->n_slots < workers + 2) TRY(add_slot(f, d));
    return rt_prefetch_open(f->n_slots, workers, fill_ahead, f, d, &f->prefetch);
}

ampc_status rt_loader_watch(rt_loader *f, const volatile sig_atomic_t *stop, diag *d)
{
    if (!f->prefetch && rt_dataset_reading(f->data) == RT_DECODED)
        TRY(rt_prefetch_open(f->n_slots, 1, fill_ahead, f, d, &f->prefetch));
    if (f->prefetch) rt_prefetch_watch(f->prefetch, stop);
    return AMPC_OK;
}

bool rt_loader_stopped(const rt_loader *f) { return f->stopped; }

static bool same_position(const rt_position *a, const rt_position *b)
{
    return a->seed == b->seed && a->epoch == b->epoch && a->batch == b->batch;
}

/* Starts reading the next planned batch into the slot that comes `after` slots after the current one. */
static ampc_status plan_slot(rt_loader *f, int after, diag *d)
{
    const int index = (f->current + after) % f->n_slots;
    slot *b = &f->slots[index];
    b->position = f->planned;
    b->count = 0;
    TRY(rt_dataset_order(f->data, &b->position, f->whole, f->first, f->batch, b->rows, d));
    rt_position_advance(&f->planned, f->data, f->whole);
    if (f->prefetch) rt_prefetch_put(f->prefetch, index);
    return AMPC_OK;
}

/* False: the program stops, and a thread still waits for a file. */
static bool cancel_ahead(rt_loader *f)
{
    f->ahead = 0;
    return !f->prefetch || rt_prefetch_cancel(f->prefetch);
}

/* Makes the slot for position p the current one. The batches read ahead are of no use if p is not the next one. */
static ampc_status turn_to(rt_loader *f, const rt_position *p, diag *d)
{
    f->current = (f->current + 1) % f->n_slots;
    if (f->ahead && same_position(&f->slots[f->current].position, p)) {
        f->ahead--;
        return AMPC_OK;
    }
    f->stopped = !cancel_ahead(f);
    f->planned = *p;
    return f->stopped ? AMPC_OK : plan_slot(f, 0, d);
}

/* Waits for the current slot to be filled, or fills it: one that could not be read ahead fails here, or does not. */
static ampc_status take_slot(rt_loader *f, double patience, diag *d)
{
    const rt_taken taken = f->prefetch ? rt_prefetch_take(f->prefetch, f->current, patience) : RT_TAKE_FAILED;
    f->stopped = taken == RT_TAKE_STOPPED;
    return taken == RT_TAKE_FAILED ? fill_slot(f, &f->slots[f->current], d) : AMPC_OK;
}

void rt_loader_share(rt_loader *f, int64_t whole, int64_t first)
{
    f->whole = whole;
    f->first = first;
}

ampc_status rt_loader_next(rt_loader *f, const rt_position *p, diag *d)
{
    TRY(set_count(f, f->batch, d));
    TRY(turn_to(f, p, d));
    if (f->stopped) return AMPC_OK;
    for (; f->prefetch && f->ahead < f->n_slots - 1; f->ahead++) TRY(plan_slot(f, f->ahead + 1, d));
    show_slot(f);
    return take_slot(f, 0, d);
}

ampc_status rt_loader_slice(rt_loader *f, int64_t first, int64_t count, diag *d)
{
    const double patience = 0.5;
    slot *b = &f->slots[f->current];
    int64_t filled = f->fixed ? f->batch : count;
    for (int64_t k = 0; k < filled; k++)
        b->rows[k] = (uint32_t)rt_dataset_row(f->data, first + (k < count ? k : count - 1));
    TRY(set_count(f, filled, d));
    f->stopped = !cancel_ahead(f);
    if (f->stopped) return AMPC_OK;
    b->first = first;
    b->count = count;
    if (f->prefetch) rt_prefetch_put(f->prefetch, f->current);
    return take_slot(f, patience, d);
}

bool rt_loader_locate(const rt_loader *f, const ir_value *v, const rt_tensor *t, int64_t element, char *text, size_t n)
{
    const bool known = f->sizing.symbol != RT_NO_SYMBOL || v->kind == IR_VALUE_INPUT;
    const int axis = known ? rt_loader_axis(f, v) : -1;
    const int64_t samples = rt_loader_samples(f);
    if (axis < 0 || axis >= t->rank || !samples || t->dims[axis] % samples || element < 0) return false;
    for (int i = t->rank; --i > axis;) element /= t->dims[i];
    const int64_t sample = element % t->dims[axis] / (t->dims[axis] / samples);
    rt_dataset_locate(f->data, f->slots[f->current].rows[sample], text, n);
    return true;
}

int64_t rt_loader_samples(const rt_loader *f) { return f->sizing.batch; }
