/* array_files.c - data sets whose files are arrays: IDX, .npz and .npy. All rows are in memory. */
#include "runtime/backend/memory.h"
#include "runtime/data/data.h"
#include "runtime/data/kinds.h"
#include "runtime/data/npy.h"
#include "runtime/data/npz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_whole(const rt_dataset_options *o, const rt_array *a)
{
    for (size_t i = 0; i < o->n_fields; i++)
        if (o->fields[i].whole && strcmp(o->fields[i].name, a->name) == 0) return true;
    return false;
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

/* The same in a description without a model, where an array of another size must be whole. */
static bool has_no_samples(const rt_dataset_options *o, const rt_array *a, int64_t samples)
{
    return is_whole(o, a) || (o->describes && (a->rank == 0 || a->dims[0] != samples));
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
        diag_loc loc = diag_named(file, DIAG_ARRAY, a->name);
        if (is_whole(o, a)) continue;
        split_flat(a, samples);
        if (has_no_samples(o, a, samples)) continue;
        if (a->rank == 0) return diag_error(d, AMPC_REJECTED, loc, "a scalar has no samples");
        if (a->dims[0] < 1 || a->dims[0] > INT32_MAX)
            return diag_error(d, AMPC_REJECTED, loc, "%lld samples (the range is 1 to 2147483647)",
                              (long long)a->dims[0]);
        if (a->dims[0] != samples)
            return diag_error(d, AMPC_REJECTED, loc, "%lld samples, but '%s' has %lld", (long long)a->dims[0],
                              first->name, (long long)samples);
    }
    return AMPC_OK;
}

static ampc_status add_arrays(rt_columns *out, rt_arrays *all, const rt_dataset_options *o, const char *file, diag *d)
{
    TRY(check_arrays(all, o, file, d, &out->rows));
    for (size_t i = 0; i < all->count; i++)
        TRY(rt_columns_add_array(out, &all->items[i], has_no_samples(o, &all->items[i], out->rows), d));
    return AMPC_OK;
}

ampc_status rt_open_npz(const rt_data_spec *spec, const rt_dataset_options *o, diag *d, rt_columns *out)
{
    rt_arrays all = {0};
    TRY(rt_npz_read(spec->path, IR_NO_DTYPE, d, &all));
    ampc_status s = add_arrays(out, &all, o, spec->path, d);
    rt_arrays_clear(&all);
    return s;
}

static ampc_status read_npy_files(const rt_data_spec *spec, diag *d, rt_arrays *all)
{
    all->items = calloc(spec->n_files, sizeof *all->items);
    if (!all->items) return rt_no_memory(d);
    for (size_t i = 0; i < spec->n_files; i++) {
        rt_array *a = &all->items[i];
        if (rt_arrays_find(all, spec->files[i].key))
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "data: duplicate name '%s'", spec->files[i].key);
        TRY(rt_npy_read(spec->files[i].value, IR_NO_DTYPE, d, a));
        all->count++;
        a->name = strdup(spec->files[i].key);
        if (!a->name) return rt_no_memory(d);
    }
    return AMPC_OK;
}

ampc_status rt_open_npy(const rt_data_spec *spec, const rt_dataset_options *o, diag *d, rt_columns *out)
{
    rt_arrays all = {0};
    ampc_status s = read_npy_files(spec, d, &all);
    if (s == AMPC_OK) s = add_arrays(out, &all, o, spec->files[0].value, d);
    rt_arrays_clear(&all);
    return s;
}

/* ---- IDX ---- */

/* Pixels whose values are looked up: only the 256 possible values are converted. */
typedef struct pixels {
    uint8_t *data;
    size_t n; /* per image */
    float f32[RT_LEVELS];
    double f64[RT_LEVELS];
    uint16_t f16[RT_LEVELS], bf16[RT_LEVELS];
    bool is_wide; /* some values are beyond the range of f16 or bf16 */
} pixels;

/* With constant sizes these copies become single moves. */
#define LOOK_UP(type, table) \
    for (size_t k = 0; k < p->n; k++) memcpy((char *)dst + k * sizeof(type), &p->table[from[k]], sizeof(type))

/* Converts the pixels of the image one by one: a value beyond the range of the type is an error only if it occurs. */
static ampc_status convert_pixels(const rt_column *c, int64_t row, const uint8_t *from, void *dst, ir_dtype dtype,
                                  diag *d)
{
    const pixels *p = c->state;
    float *values = malloc((p->n + 1) * sizeof *values);
    if (!values) return rt_no_memory(d);
    for (size_t k = 0; k < p->n; k++) values[k] = p->f32[from[k]];
    const ampc_status s = rt_column_convert(c, row, dst, dtype, values, IR_f32, p->n, d);
    free(values);
    return s;
}

static ampc_status read_pixels(const rt_column *c, int64_t row, const rt_draw *draw, void *dst, ir_dtype dtype, diag *d)
{
    const pixels *p = c->state;
    const uint8_t *from = p->data + (size_t)row * p->n;
    (void)draw;
    if (p->is_wide && (dtype == IR_f16 || dtype == IR_bf16)) return convert_pixels(c, row, from, dst, dtype, d);
    switch (dtype) {
    case IR_f16: LOOK_UP(uint16_t, f16); break;
    case IR_bf16: LOOK_UP(uint16_t, bf16); break;
    case IR_f32: LOOK_UP(float, f32); break;
    case IR_f64: LOOK_UP(double, f64); break;
    default: ir_convert(dtype, dst, IR_u8, from, p->n); /* raw */
    }
    return AMPC_OK;
}

static void close_pixels(rt_column *c)
{
    pixels *p = c->state;
    free(p->data);
    free(p);
}

static ampc_status set_values(pixels *p, const rt_data_spec *spec, diag *d)
{
    TRY(rt_spec_levels(spec, 1, &p->f32, d));
    ir_convert(IR_f64, p->f64, IR_f32, p->f32, RT_LEVELS);
    ir_convert(IR_f16, p->f16, IR_f32, p->f32, RT_LEVELS);
    ir_convert(IR_bf16, p->bf16, IR_f32, p->f32, RT_LEVELS);
    p->is_wide = false;
    for (size_t i = 0; i < RT_LEVELS; i++)
        p->is_wide |= isinf(ir_load_f64(IR_f16, &p->f16[i])) || isinf(ir_load_f64(IR_bf16, &p->bf16[i]));
    return AMPC_OK;
}

static ampc_status add_pixels(rt_columns *out, rt_array *a, const rt_data_spec *spec, diag *d)
{
    rt_column c = {.field = {.name = a->name, .dtype = IR_f32, .rank = 2, .dims = {a->dims[1], a->dims[2]}},
                   .read = read_pixels,
                   .close = close_pixels};
    pixels *p = c.state = malloc(sizeof *p);
    if (!p) return rt_no_memory(d);
    p->data = a->data;
    p->n = (size_t)rt_field_elements(&c.field);
    ampc_status s = set_values(p, spec, d);
    if (s == AMPC_OK) s = rt_columns_add(out, &c, d);
    if (s == AMPC_OK) a->data = NULL;
    else free(p);
    return s;
}

/* With validation=F, the files of the training images have both parts. */
ampc_status rt_open_idx(const rt_data_spec *spec, const rt_dataset_options *o, diag *d, rt_columns *out)
{
    rt_array pair[2] = {{0}, {0}};
    rt_arrays all = {pair, 2};
    const rt_split files = spec->o.validation > 0 ? RT_TRAIN : o->split;
    TRY(rt_idx_read_folder(spec->path, files, d, &pair[0], &pair[1]));
    ampc_status s = check_arrays(&all, o, spec->path, d, &out->rows);
    if (s == AMPC_OK) s = add_pixels(out, &pair[0], spec, d);
    if (s == AMPC_OK) s = rt_columns_add_array(out, &pair[1], false, d);
    rt_array_clear(&pair[0]);
    rt_array_clear(&pair[1]);
    return s;
}
