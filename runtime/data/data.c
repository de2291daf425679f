/* data.c - data sets in memory, and reading batches from them.
 *
 * A column is one array, or the description of a synthetic one, whose elements are generated when read. The order of
 * an epoch is computed for its first batch and cached until another epoch is used. */
#include "runtime/data/data.h"
#include "ir/philox.h"
#include "runtime/data/data_spec.h"
#include "runtime/data/npy.h"
#include "runtime/data/npz.h"
#include "runtime/backend/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { LEVELS = 256, CHUNK = 256 };

typedef struct column {
    rt_field field;
    rt_array array;  /* data NULL: synthetic */
    bool normalised; /* u8 pixels; pixel p has the value table[p] */
    float table[LEVELS];
} column;

struct rt_dataset {
    column *columns;
    size_t count;
    int64_t rows;
    uint64_t seed; /* for synthetic data */
    uint32_t *order;
    uint64_t order_seed, order_epoch;
};

void rt_dataset_close(rt_dataset *ds)
{
    if (!ds) return;
    for (size_t i = 0; i < ds->count; i++) {
        rt_array_clear(&ds->columns[i].array);
        free((char *)ds->columns[i].field.name);
    }
    free(ds->columns);
    free(ds->order);
    free(ds);
}

/* ---- order ---- */

void rt_shuffle(uint32_t *order, uint32_t n, uint64_t seed, uint64_t stream)
{
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = (uint32_t)philox_below(philox_bits(seed, stream, n - i), i), last = order[i - 1];
        order[i - 1] = order[j];
        order[j] = last;
    }
}

static ampc_status order_prepare(rt_dataset *ds, const rt_position *p)
{
    if (ds->order && ds->order_seed == p->seed && ds->order_epoch == p->epoch) return AMPC_OK;
    if (!ds->order) ds->order = malloc((size_t)ds->rows * sizeof *ds->order);
    if (!ds->order) return AMPC_NO_MEMORY;
    rt_shuffle(ds->order, (uint32_t)ds->rows, p->seed, p->epoch);
    ds->order_seed = p->seed;
    ds->order_epoch = p->epoch;
    return AMPC_OK;
}

/* ---- opening ---- */

static bool is_whole(const rt_dataset_options *o, const rt_array *a)
{
    for (size_t i = 0; i < o->n_fields; i++)
        if (o->fields[i].whole && strcmp(o->fields[i].name, a->name) == 0) return true;
    return false;
}

/* Moves the array into a new column; its name becomes that of the field. */
static void add_column(rt_dataset *ds, rt_array *a, bool whole)
{
    column *c = &ds->columns[ds->count++];
    const int samples = whole ? 0 : 1; /* dimensions that count samples */
    *c = (column){.field = {.name = a->name, .dtype = a->dtype, .whole = whole, .rank = a->rank - samples},
                  .array = *a};
    memcpy(c->field.dims, a->dims + samples, (size_t)c->field.rank * sizeof *a->dims);
    c->array.name = NULL;
    *a = (rt_array){0};
}

/* The array that determines the number of samples: the first one with several dimensions, else the first one. NULL if
 * all are whole. */
static const rt_array *counting_array(const rt_arrays *all, const rt_dataset_options *o)
{
    const rt_array *first = NULL;
    for (size_t i = 0; i < all->count; i++) {
        if (is_whole(o, &all->items[i])) continue;
        if (all->items[i].rank > 1) return &all->items[i];
        if (!first) first = &all->items[i];
    }
    return first;
}

/* Adds a second dimension to a one-dimensional array with several elements per sample (such as labels of tokens). */
static void split_flat(rt_array *a, int64_t samples)
{
    if (a->rank != 1 || a->dims[0] == samples || samples < 1 || a->dims[0] % samples) return;
    a->rank = 2;
    a->dims[1] = a->dims[0] / samples;
    a->dims[0] = samples;
}

/* Checks that all arrays but the whole ones have the same number of samples. */
static ampc_status check_arrays(const rt_arrays *all, const rt_dataset_options *o, const char *file, diag *d,
                                int64_t *rows)
{
    const rt_array *first = counting_array(all, o);
    if (!first)
        return diag_error(d, AMPC_REJECTED, DIAG_FILE(file), "the file has no arrays%s",
                          all->count ? " with samples" : "");
    int64_t samples = *rows = first->rank ? first->dims[0] : 0;
    for (size_t i = 0; i < all->count; i++) {
        rt_array *a = &all->items[i];
        diag_loc loc = {.file = file, .node = a->name};
        if (is_whole(o, a)) continue;
        if (a->rank == 0) return diag_error(d, AMPC_REJECTED, loc, "a scalar has no samples");
        split_flat(a, samples);
        if (a->dims[0] < 1 || a->dims[0] > INT32_MAX)
            return diag_error(d, AMPC_REJECTED, loc, "%lld samples (the range is 1 to 2147483647)",
                              (long long)a->dims[0]);
        if (a->dims[0] != samples)
            return diag_error(d, AMPC_REJECTED, loc, "%lld samples, but '%s' has %lld", (long long)a->dims[0],
                              first->name, (long long)samples);
    }
    return AMPC_OK;
}

static ampc_status add_arrays(rt_dataset *ds, rt_arrays *all, const rt_dataset_options *o, const char *file, diag *d)
{
    TRY(check_arrays(all, o, file, d, &ds->rows));
    ds->columns = calloc(all->count, sizeof *ds->columns);
    if (!ds->columns) return rt_no_memory(d);
    for (size_t i = 0; i < all->count; i++) add_column(ds, &all->items[i], is_whole(o, &all->items[i]));
    return AMPC_OK;
}

static void normalise(column *c, const rt_data_spec *spec)
{
    c->normalised = true;
    c->field.dtype = IR_f32;
    for (int i = 0; i < LEVELS; i++)
        c->table[i] = ((float)i / (float)spec->divide - (float)spec->mean) / (float)spec->std;
}

static ampc_status open_idx(rt_dataset *ds, const rt_data_spec *spec, const rt_dataset_options *o, diag *d)
{
    rt_array pair[2] = {{0}, {0}};
    rt_arrays all = {pair, 2};
    TRY(rt_idx_read_folder(spec->path, o->split, d, &pair[0], &pair[1]));
    ampc_status s = add_arrays(ds, &all, o, spec->path, d);
    if (s == AMPC_OK) normalise(&ds->columns[0], spec);
    rt_array_clear(&pair[0]);
    rt_array_clear(&pair[1]);
    return s;
}

static ampc_status open_npz(rt_dataset *ds, const rt_data_spec *spec, const rt_dataset_options *o, diag *d)
{
    rt_arrays all = {0};
    TRY(rt_npz_read(spec->path, IR_NO_DTYPE, d, &all));
    ampc_status s = add_arrays(ds, &all, o, spec->path, d);
    rt_arrays_clear(&all);
    return s;
}

static ampc_status read_npy_files(const rt_data_spec *spec, diag *d, rt_arrays *all)
{
    all->items = calloc(spec->n_files, sizeof *all->items);
    if (!all->items) return rt_no_memory(d);
    for (size_t i = 0; i < spec->n_files; i++) {
        rt_array *a = &all->items[i];
        if (rt_arrays_find(all, spec->files[i].name))
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data: duplicate name '%s'", spec->files[i].name);
        TRY(rt_npy_read(spec->files[i].file, IR_NO_DTYPE, d, a));
        all->count++;
        a->name = strdup(spec->files[i].name);
        if (!a->name) return rt_no_memory(d);
    }
    return AMPC_OK;
}

static ampc_status open_npy(rt_dataset *ds, const rt_data_spec *spec, const rt_dataset_options *o, diag *d)
{
    rt_arrays all = {0};
    ampc_status s = read_npy_files(spec, d, &all);
    if (s == AMPC_OK) s = add_arrays(ds, &all, o, spec->files[0].file, d);
    rt_arrays_clear(&all);
    return s;
}

static ampc_status open_synthetic(rt_dataset *ds, const rt_data_spec *spec, const rt_dataset_options *o, diag *d)
{
    if (spec->rows > INT32_MAX) return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data: rows is above 2147483647");
    ds->rows = (int64_t)spec->rows;
    ds->seed = o->seed;
    ds->columns = calloc(o->n_fields + 1, sizeof *ds->columns);
    if (!ds->columns) return rt_no_memory(d);
    for (size_t i = 0; i < o->n_fields; i++) {
        column *c = &ds->columns[i];
        c->field = o->fields[i];
        c->field.name = strdup(o->fields[i].name);
        if (!c->field.name) return rt_no_memory(d);
        if (c->field.bound <= 0) c->field.bound = 2;
        ds->count++;
    }
    return AMPC_OK;
}

static int find_labels(const rt_dataset *ds)
{
    static const char *const names[] = {"labels", "label", "y"};
    int found = -1;
    for (size_t i = 0; found < 0 && i < sizeof names / sizeof *names; i++) found = rt_dataset_find(ds, names[i]);
    return found;
}

static ampc_status permute_labels(rt_dataset *ds, uint64_t seed, const char *spec, diag *d)
{
    int index = find_labels(ds);
    if (index < 0 || ds->columns[index].field.whole)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                          "data '%s': permute-labels finds no array of samples named labels, label or y", spec);
    rt_array *a = &ds->columns[index].array;
    size_t row = a->bytes / (size_t)a->dims[0];
    char *moved = malloc(a->bytes ? a->bytes : 1);
    uint32_t *order = malloc((size_t)ds->rows * sizeof *order);
    if (moved && order) {
        rt_shuffle(order, (uint32_t)ds->rows, seed, 0);
        for (int64_t i = 0; i < ds->rows; i++) memcpy(moved + (size_t)i * row, (char *)a->data + order[i] * row, row);
        memcpy(a->data, moved, (size_t)ds->rows * row);
    }
    ampc_status s = moved && order ? AMPC_OK : rt_no_memory(d);
    free(moved);
    free(order);
    return s;
}

static ampc_status open_parsed(rt_dataset *ds, const rt_data_spec *spec, const rt_dataset_options *o, const char *text,
                               diag *d)
{
    static ampc_status (*const openers[])(rt_dataset *, const rt_data_spec *, const rt_dataset_options *, diag *) = {
        [RT_DATA_IDX] = open_idx,
        [RT_DATA_NPZ] = open_npz,
        [RT_DATA_NPY] = open_npy,
        [RT_DATA_SYNTHETIC] = open_synthetic,
    };
    TRY(openers[spec->kind](ds, spec, o, d));
    if (spec->limit && spec->limit < (uint64_t)ds->rows) ds->rows = (int64_t)spec->limit;
    return spec->permute_labels ? permute_labels(ds, spec->permute_seed, text, d) : AMPC_OK;
}

ampc_status rt_dataset_open(const char *spec, const rt_dataset_options *o, diag *d, rt_dataset **out)
{
    rt_data_spec parsed;
    rt_dataset *ds = calloc(1, sizeof *ds);
    if (!ds) return rt_no_memory(d);
    ampc_status s = rt_data_spec_parse(spec, d, &parsed);
    if (s == AMPC_OK) s = open_parsed(ds, &parsed, o, spec, d);
    rt_data_spec_clear(&parsed);
    if (s == AMPC_OK) *out = ds;
    else rt_dataset_close(ds);
    return s;
}

/* ---- access ---- */

int64_t rt_dataset_rows(const rt_dataset *ds) { return ds->rows; }
size_t rt_dataset_field_count(const rt_dataset *ds) { return ds->count; }

const rt_field *rt_dataset_field(const rt_dataset *ds, size_t index)
{
    assert(index < ds->count); /* callers find fields by name */
    return &ds->columns[index].field;
}

int rt_dataset_find(const rt_dataset *ds, const char *name)
{
    for (size_t i = 0; i < ds->count; i++)
        if (strcmp(ds->columns[i].field.name, name) == 0) return (int)i;
    return -1;
}

int64_t rt_field_elements(const rt_field *f)
{
    int64_t n = 1;
    for (int i = 0; i < f->rank; i++) n *= f->dims[i];
    return n;
}

int64_t rt_dataset_batches(const rt_dataset *ds, int64_t batch_size) { return ds->rows / batch_size; }

void rt_position_advance(rt_position *p, const rt_dataset *ds, int64_t batch_size)
{
    if (++p->batch < (uint64_t)rt_dataset_batches(ds, batch_size)) return;
    p->batch = 0;
    p->epoch++;
}

/* ---- copying samples ---- */

/* Samples to copy: those listed in `order`, or first, first + 1, ... if `order` is NULL. */
typedef struct transfer {
    const rt_dataset *ds;
    size_t index; /* of the column */
    const uint32_t *order;
    int64_t first, count;
    char *dst;
    ir_dtype dtype;
} transfer;

static size_t source_row(const transfer *t, int64_t i)
{
    if (t->ds->columns[t->index].field.whole) return 0;
    return t->order ? t->order[t->first + i] : (size_t)(t->first + i);
}

static void copy_stored(const transfer *t, const column *c, size_t n)
{
    size_t from = n * ir_dtype_size(c->array.dtype), to = n * ir_dtype_size(t->dtype);
    for (int64_t i = 0; i < t->count; i++) {
        const char *row = (const char *)c->array.data + source_row(t, i) * from;
        ir_convert(t->dtype, t->dst + (size_t)i * to, c->array.dtype, row, n);
    }
}

/* With constant sizes these copies become single moves. */
#define LOOK_UP(size) \
    for (size_t k = 0; k < n; k++) memcpy(dst + k * (size), table + pixels[k] * (size), size)

static void convert_pixels(char *dst, const char *table, size_t size, const uint8_t *pixels, size_t n)
{
    if (size == 2) LOOK_UP((size_t)2);
    else if (size == 4) LOOK_UP((size_t)4);
    else LOOK_UP((size_t)8);
}

/* Only the 256 possible values are converted; the pixels are indices. */
static void copy_normalised(const transfer *t, const column *c, size_t n)
{
    char table[LEVELS * sizeof(double)];
    size_t size = ir_dtype_size(t->dtype);
    ir_convert(t->dtype, table, IR_f32, c->table, LEVELS);
    for (int64_t i = 0; i < t->count; i++) {
        const uint8_t *row = (const uint8_t *)c->array.data + source_row(t, i) * n;
        convert_pixels(t->dst + (size_t)i * n * size, table, size, row, n);
    }
}

/* Generates floats uniformly with mean 0 and variance 1, integers uniformly below the bound. */
static void make_up(const transfer *t, const column *c, uint64_t at, void *dst, size_t n)
{
    float reals[CHUNK];
    int64_t integers[CHUNK];
    philox_words block = {{0}};
    bool real = ir_dtype_is_float(c->field.dtype);
    for (size_t k = 0; k < n; k++) {
        if (k == 0 || (at + k) % 4 == 0) block = philox_block(t->ds->seed, t->index, (at + k) / 4);
        uint32_t word = block.v[(at + k) % 4];
        if (real) reals[k] = (2 * philox_unit(word) - 1) * 1.7320508f;
        else integers[k] = (int64_t)philox_below((uint64_t)word << 32, (uint64_t)c->field.bound);
    }
    if (real) ir_convert(t->dtype, dst, IR_f32, reals, n);
    else ir_convert(t->dtype, dst, IR_i64, integers, n);
}

static void copy_synthetic(const transfer *t, const column *c, size_t n)
{
    size_t size = ir_dtype_size(t->dtype);
    for (int64_t i = 0; i < t->count; i++)
        for (size_t k = 0; k < n; k += CHUNK)
            make_up(t, c, source_row(t, i) * n + k, t->dst + ((size_t)i * n + k) * size, n - k < CHUNK ? n - k : CHUNK);
}

static void copy_rows(transfer *t)
{
    const column *c = &t->ds->columns[t->index];
    size_t n = (size_t)rt_field_elements(&c->field);
    if (c->field.whole && t->count > 1) t->count = 1;
    if (!c->array.data) copy_synthetic(t, c, n);
    else if (c->normalised && ir_dtype_is_float(t->dtype)) copy_normalised(t, c, n);
    else copy_stored(t, c, n);
}

ampc_status rt_dataset_batch(rt_dataset *ds, const rt_position *p, int64_t batch_size, size_t index, void *dst,
                             ir_dtype dtype)
{
    /* positions advance within an epoch; resuming rejects others */
    assert(index < ds->count && p->batch < (uint64_t)rt_dataset_batches(ds, batch_size));
    TRY(order_prepare(ds, p));
    copy_rows(&(transfer){ds, index, ds->order, (int64_t)p->batch * batch_size, batch_size, dst, dtype});
    return AMPC_OK;
}

void rt_dataset_slice(const rt_dataset *ds, int64_t first, int64_t count, size_t index, void *dst, ir_dtype dtype)
{
    /* callers limit the range to the number of rows */
    assert(index < ds->count && first >= 0 && count >= 0 && first + count <= ds->rows);
    copy_rows(&(transfer){ds, index, NULL, first, count, dst, dtype});
}
