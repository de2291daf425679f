/* data.c - data sets: the columns of one kind of data, read in an order. */
#include "runtime/data/data.h"

#include "runtime/backend/memory.h"
#include "runtime/data/kinds.h"
#include "runtime/data/mix.h"
#include "runtime/data/order.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rt_dataset {
    rt_columns columns;
    rt_order order;
    int label;      /* the column of the labels; -1: none */
    double mixup;   /* the parameter of Beta; 0: samples are not mixed */
    int64_t window; /* the batches of an epoch are a multiple; 0: any number */
    bool abandoned;
};

void rt_dataset_close(rt_dataset *ds)
{
    if (!ds || ds->abandoned) return;
    rt_columns_clear(&ds->columns);
    rt_order_clear(&ds->order);
    free(ds);
}

void rt_dataset_abandon(rt_dataset *ds) { ds->abandoned = true; }

/* ---- opening ---- */

static int find_labels(const rt_dataset *ds)
{
    const int found = rt_columns_find(&ds->columns, rt_label_names);
    return found >= 0 && !ds->columns.items[found].field.whole ? found : -1;
}

/* Applies the options of every kind to the columns. */
static ampc_status set_order(rt_dataset *ds, const rt_data_spec *spec, rt_split split, diag *d)
{
    TRY(rt_order_open(spec, split, ds->columns.rows, ds->columns.overlap, d, &ds->order));
    ds->label = find_labels(ds);
    if (!ds->order.labels || ds->label >= 0) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                      "data '%s': permute-labels finds no array of samples named labels, label or y", spec->spec);
}

/* Whether the labels that the model reads are the probabilities of the classes in the data: of one, or of a map. */
static bool are_probabilities(const rt_field *model, const rt_field *data)
{
    if (!model || !ir_dtype_is_float(model->dtype) || !ir_dtype_is_int(data->dtype)) return false;
    return (data->rank == 0 || data->rank == 2) && model->rank == data->rank + 1;
}

/* Reads class numbers as probabilities if the loss of the model reads those. */
static ampc_status set_labels(rt_dataset *ds, const rt_data_spec *spec, const rt_dataset_options *o, diag *d)
{
    rt_column *c = ds->label >= 0 ? &ds->columns.items[ds->label] : NULL;
    const rt_field *model = rt_labels_described(o);
    if (c && are_probabilities(model, &c->field)) TRY(rt_columns_encode_classes(c, model->dims[0], d));
    ds->mixup = spec->o.mixup;
    if (ds->mixup == 0 || !c || ir_dtype_is_float(c->field.dtype) || o->describes) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_USE(DIAG_NOWHERE, OPTION_loss, .value = "soft_ce"),
                      "data '%s': mixup needs a loss of probabilities", spec->spec);
}

/* The names of the classes where the data have none: those of the training or of the option. */
static ampc_status name_classes(rt_dataset *ds, const rt_data_spec *spec, const char *codes, diag *d)
{
    rt_codebook given = {0};
    const char *classes = spec->o.classes;
    if (rt_codebook_find(&ds->columns.codes, RT_CODE_LABEL)) return AMPC_OK;
    ampc_status s = codes ? rt_codebook_parse(codes, d, &given) : AMPC_OK;
    if (s == AMPC_OK && classes) s = rt_codebook_add_list(&given, RT_CODE_LABEL, classes, d);
    const rt_code *known = rt_codebook_find(&given, RT_CODE_LABEL);
    if (s == AMPC_OK && known)
        s = rt_codebook_add_names(&ds->columns.codes, RT_CODE_LABEL, (const char *const *)known->names.items,
                                  known->names.count, d);
    rt_codebook_clear(&given);
    return s;
}

static ampc_status open_kind(rt_dataset *ds, const char *text, const rt_dataset_options *o, diag *d)
{
    rt_data_spec spec;
    ampc_status s = rt_kinds_parse(text, d, &spec);
    if (s == AMPC_OK) s = rt_kinds_open(&spec, o, d, &ds->columns);
    if (s == AMPC_OK) s = name_classes(ds, &spec, o->codes, d);
    if (s == AMPC_OK) s = set_order(ds, &spec, o->split, d);
    if (s == AMPC_OK) s = set_labels(ds, &spec, o, d);
    rt_data_spec_clear(&spec);
    return s;
}

ampc_status rt_dataset_open(const char *spec, const rt_dataset_options *o, diag *d, rt_dataset **out)
{
    rt_dataset *ds = calloc(1, sizeof *ds);
    if (!ds) return rt_no_memory(d);
    ampc_status s = open_kind(ds, spec, o, d);
    if (s == AMPC_OK) *out = ds;
    else rt_dataset_close(ds);
    return s;
}

static ampc_status open_source(rt_dataset *ds, const rt_source *source, rt_split split, const char *codes, diag *d)
{
    rt_data_spec spec;
    TRY(rt_source_columns(source, d, &ds->columns));
    ampc_status s = rt_data_spec_parse_options(source->options ? source->options : "", d, &spec);
    if (s == AMPC_OK) s = name_classes(ds, &spec, codes, d);
    if (s == AMPC_OK) s = set_order(ds, &spec, split, d);
    rt_data_spec_clear(&spec);
    return s;
}

ampc_status rt_dataset_open_source(const rt_source *source, rt_split split, const char *codes, diag *d,
                                   rt_dataset **out)
{
    rt_dataset *ds = calloc(1, sizeof *ds);
    if (!ds) return rt_no_memory(d);
    ampc_status s = open_source(ds, source, split, codes, d);
    if (s == AMPC_OK) *out = ds;
    else rt_dataset_close(ds);
    return s;
}

/* ---- access ---- */

int64_t rt_dataset_rows(const rt_dataset *ds) { return ds->order.rows; }

ampc_status rt_dataset_shuffle(rt_dataset *ds, uint64_t seed, diag *d)
{
    const size_t n = (size_t)ds->order.rows;
    uint32_t *order = calloc(n, sizeof *order);
    if (!order) return rt_no_memory(d);
    rt_shuffle(order, (uint32_t)n, seed, 0);
    for (size_t i = 0; i < n; i++) order[i] = (uint32_t)rt_order_row(&ds->order, order[i]);
    free(ds->order.part);
    ds->order.part = order;
    return AMPC_OK;
}

size_t rt_dataset_field_count(const rt_dataset *ds) { return ds->columns.count; }
rt_reading rt_dataset_reading(const rt_dataset *ds) { return ds->columns.reading; }
const rt_codebook *rt_dataset_codes(const rt_dataset *ds) { return &ds->columns.codes; }

const rt_names *rt_dataset_classes(const rt_dataset *ds)
{
    const rt_code *code = rt_codebook_find(&ds->columns.codes, RT_CODE_LABEL);
    return code && code->names.count ? &code->names : NULL;
}

const rt_field *rt_dataset_field(const rt_dataset *ds, size_t index)
{
    assert(index < ds->columns.count); /* callers find fields by name */
    return &ds->columns.items[index].field;
}

int rt_dataset_find(const rt_dataset *ds, const char *name)
{
    for (size_t i = 0; i < ds->columns.count; i++)
        if (strcmp(ds->columns.items[i].field.name, name) == 0) return (int)i;
    return -1;
}

void rt_dataset_locate(const rt_dataset *ds, int64_t row, char *text, size_t n)
{
    if (ds->columns.locate) ds->columns.locate(ds->columns.source, row, text, n);
    else snprintf(text, n, "row %" PRId64 " of the data", row);
}

int64_t rt_dataset_row(const rt_dataset *ds, int64_t i) { return rt_order_row(&ds->order, i); }

void rt_dataset_set_window(rt_dataset *ds, int64_t window) { ds->window = window; }

int64_t rt_dataset_batches(const rt_dataset *ds, int64_t batch_size)
{
    const int64_t batches = ds->order.rows / batch_size;
    return ds->window ? batches - batches % ds->window : batches;
}

void rt_position_advance(rt_position *p, const rt_dataset *ds, int64_t batch_size)
{
    if (++p->batch < (uint64_t)rt_dataset_batches(ds, batch_size)) return;
    p->batch = 0;
    p->epoch++;
}

/* ---- reading ---- */

static size_t row_bytes(const rt_column *c, ir_dtype dtype)
{
    return (size_t)rt_field_elements(&c->field) * ir_dtype_size(dtype);
}

/* One row of a column; `row` is a stored one. */
static ampc_status read_single(const rt_dataset *ds, size_t index, int64_t row, const rt_draw *draw, void *dst,
                               ir_dtype dtype, diag *d)
{
    const rt_column *c = &ds->columns.items[index];
    if (c->field.whole) row = 0;
    else if ((int)index == ds->label && ds->order.labels) row = ds->order.labels[row];
    const ampc_status s = c->read(c, row, draw, dst, dtype, d);
    char place[512];
    if (s != AMPC_REJECTED || !ds->columns.locate) return s;
    ds->columns.locate(ds->columns.source, row, place, sizeof place);
    diag_note(d, DIAG_NOWHERE, "the sample is %s", place);
    return s;
}

/* The same, mixed with another row in training. */
static ampc_status read_row(const rt_dataset *ds, size_t index, int64_t row, const rt_draw *draw, void *dst,
                            ir_dtype dtype, diag *d)
{
    const rt_column *c = &ds->columns.items[index];
    const bool mixed = draw && ds->mixup > 0 && !c->field.whole && ir_dtype_is_float(c->field.dtype);
    TRY(read_single(ds, index, row, draw, dst, dtype, d));
    if (!mixed) return AMPC_OK;
    const rt_mix m = rt_mix_draw(ds->mixup, draw, row, ds->order.rows);
    void *other = malloc(row_bytes(c, dtype) + 1);
    if (!other) return rt_no_memory(d);
    ampc_status s = read_single(ds, index, rt_order_row(&ds->order, m.partner), draw, other, dtype, d);
    if (s == AMPC_OK) rt_mix_add(&m, dst, other, dtype, (size_t)rt_field_elements(&c->field));
    free(other);
    return s;
}

ampc_status rt_dataset_order(rt_dataset *ds, const rt_position *p, int64_t batch_size, int64_t first, int64_t n,
                             uint32_t *rows, diag *d)
{
    /* positions advance within an epoch; resuming rejects others */
    assert(p->batch < (uint64_t)rt_dataset_batches(ds, batch_size));
    ampc_status s = rt_order_epoch(&ds->order, p->seed, p->epoch, (int64_t)p->batch * batch_size + first, n, rows);
    return s == AMPC_OK ? s : rt_no_memory(d);
}

ampc_status rt_dataset_read(const rt_dataset *ds, const uint32_t *rows, int64_t n, const rt_draw *draw, size_t index,
                            void *dst, ir_dtype dtype, diag *d)
{
    assert(index < ds->columns.count); /* callers find fields by name */
    const rt_column *c = &ds->columns.items[index];
    const size_t bytes = row_bytes(c, dtype);
    if (c->field.whole && n > 1) n = 1;
    for (int64_t i = 0; i < n; i++) TRY(read_row(ds, index, rows[i], draw, (char *)dst + (size_t)i * bytes, dtype, d));
    return AMPC_OK;
}

ampc_status rt_dataset_slice(const rt_dataset *ds, int64_t first, int64_t count, size_t index, void *dst,
                             ir_dtype dtype, diag *d)
{
    /* callers limit the range to the number of rows */
    assert(index < ds->columns.count && first >= 0 && count >= 0 && first + count <= ds->order.rows);
    const rt_column *c = &ds->columns.items[index];
    const size_t bytes = row_bytes(c, dtype);
    if (c->field.whole && count > 1) count = 1;
    for (int64_t i = 0; i < count; i++)
        TRY(read_row(ds, index, rt_order_row(&ds->order, first + i), NULL, (char *)dst + (size_t)i * bytes, dtype, d));
    return AMPC_OK;
}

ampc_status rt_dataset_image_size(const rt_dataset *ds, int64_t row, size_t index, diag *d, int size[3])
{
    assert(index < ds->columns.count); /* callers find fields by name */
    const rt_column *c = &ds->columns.items[index];
    return c->image_size ? c->image_size(c, row, d, size) : AMPC_UNSUPPORTED;
}
