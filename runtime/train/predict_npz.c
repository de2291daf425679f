/* predict_npz.c - predictions as arrays: the outputs of all samples in memory, then one .npz file. */
#include "ir/base/utf8.h"
#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/data/npz.h"
#include "runtime/files/atomic_file.h"
#include "runtime/train/prediction.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct arrays {
    rt_array *items; /* the outputs, the label and the names of the classes */
    size_t count;
} arrays;

/* A path that cannot be written is found before the first run. */
static ampc_status open_arrays(rt_prediction *p)
{
    rt_atomic_file *trial;
    arrays *a = p->file = rt_alloc(1, sizeof *a);
    if (!a) return rt_no_memory(p->d);
    a->items = rt_alloc((size_t)p->count + 2, sizeof *a->items);
    if (!a->items) return rt_no_memory(p->d);
    TRY(rt_atomic_open(p->path, p->d, &trial));
    rt_atomic_abort(trial);
    return AMPC_OK;
}

static void close_arrays(rt_prediction *p)
{
    arrays *a = p->file;
    for (size_t i = 0; a && a->items && i < a->count; i++) {
        free(a->items[i].name);
        rt_free(a->items[i].data);
    }
    if (a) rt_free(a->items);
    rt_free(a);
}

/* Allocates an array with the name PREFIX NAME and with dims set. */
static ampc_status add_array(rt_prediction *p, rt_array array, const char *prefix, const char *name)
{
    arrays *a = p->file;
    if (!rt_array_bytes(array.dtype, array.rank, array.dims, &array.bytes)) return rt_no_memory(p->d);
    array.data = rt_alloc_block(array.bytes);
    if (!array.data || asprintf(&array.name, "%s%s", prefix, name) < 0) {
        rt_free(array.data);
        return rt_no_memory(p->d);
    }
    a->items[a->count++] = array;
    return AMPC_OK;
}

/* Makes the arrays, whose sizes the first run shows. */
static ampc_status make_arrays(rt_prediction *p)
{
    for (int i = 0; i < p->count; i++) {
        const rt_tensor *t;
        rt_array array = {0};
        TRY(rt_prediction_output(p, i, &t));
        array.dtype = t->dtype;
        array.rank = t->rank;
        memcpy(array.dims, t->dims, (size_t)t->rank * sizeof *t->dims);
        array.dims[p->outputs[i].axis] /= rt_loader_samples(p->feed);
        array.dims[p->outputs[i].axis] *= rt_dataset_rows(p->data);
        TRY(add_array(p, array, "output/", p->outputs[i].name));
    }
    return AMPC_OK;
}

/* Copies the rows of samples first .. first+count-1 to their places. */
static ampc_status copy_rows(const rt_prediction *p, int index, int64_t first, int64_t count)
{
    const rt_array *to = &((const arrays *)p->file)->items[index];
    const int axis = p->outputs[index].axis;
    const rt_tensor *t;
    TRY(rt_prediction_output(p, index, &t));
    bool same = t->rank == to->rank && t->dtype == to->dtype;
    const int64_t samples = rt_loader_samples(p->feed), rows = rt_dataset_rows(p->data);
    for (int i = 0; same && i < t->rank; i++)
        same = i == axis ? t->dims[i] / samples == to->dims[i] / rows : t->dims[i] == to->dims[i];
    if (!same)
        return diag_error(p->d, AMPC_UNSUPPORTED, DIAG_NOWHERE, "output '%s' has another shape in another batch",
                          p->outputs[index].name);
    const size_t sample = (size_t)(t->dims[axis] / samples * rt_prediction_inner(t, axis)) * ir_dtype_size(t->dtype);
    for (int64_t i = 0; i < rt_prediction_outer(t, axis); i++)
        memcpy((char *)to->data + (size_t)(i * rows + first) * sample,
               (const char *)t->data + (size_t)(i * samples) * sample, (size_t)count * sample);
    return AMPC_OK;
}

static ampc_status add_rows(rt_prediction *p, int64_t first, int64_t count)
{
    if (!first) TRY(make_arrays(p));
    for (int i = 0; i < p->count; i++) TRY(copy_rows(p, i, first, count));
    return AMPC_OK;
}

static ampc_status add_label(rt_prediction *p)
{
    arrays *a = p->file;
    if (p->scoring.label_field < 0) return AMPC_OK;
    const rt_field *f = rt_dataset_field(p->data, (size_t)p->scoring.label_field);
    rt_array array = {.dtype = f->dtype, .rank = 1 + f->rank, .dims = {rt_dataset_rows(p->data)}};
    if (f->rank >= RT_ARRAY_MAX_RANK) return AMPC_OK;
    memcpy(array.dims + 1, f->dims, (size_t)f->rank * sizeof *f->dims);
    TRY(add_array(p, array, "label", ""));
    return rt_dataset_slice(p->data, 0, array.dims[0], (size_t)p->scoring.label_field, a->items[a->count - 1].data,
                            f->dtype, p->d);
}

/* Stores the characters of a name at `dst`, unless that is NULL, and returns their number. */
static int64_t decode(const char *name, uint32_t *dst)
{
    int64_t n = 0;
    uint32_t code;
    for (size_t left = strlen(name), length; left; left -= length, name += length, n++) {
        length = utf8_decode(name, left, &code);
        if (!length) break; /* codebooks are UTF-8 */
        if (dst) dst[n] = code;
    }
    return n;
}

/* As NumPy's strings, which have the length of the longest one. */
static ampc_status add_class_names(rt_prediction *p)
{
    const arrays *a = p->file;
    const rt_names *names = rt_dataset_classes(p->data);
    if (!names || p->scoring.compares != IR_COMPARED_classes) return AMPC_OK;
    rt_array array = {.dtype = IR_u32, .rank = 2, .dims = {(int64_t)names->count, 1}, .text = true};
    for (size_t i = 0; i < names->count; i++) {
        const int64_t n = decode(names->items[i], NULL);
        if (n > array.dims[1]) array.dims[1] = n;
    }
    TRY(add_array(p, array, RT_NPZ_CLASS_NAMES, ""));
    const rt_array *to = &a->items[a->count - 1];
    memset(to->data, 0, to->bytes);
    for (size_t i = 0; i < names->count; i++) decode(names->items[i], (uint32_t *)to->data + i * (size_t)to->dims[1]);
    return AMPC_OK;
}

static ampc_status commit_arrays(rt_prediction *p)
{
    const arrays *a = p->file;
    TRY(add_label(p));
    TRY(add_class_names(p));
    return rt_npz_write(p->path, a->items, a->count, p->d);
}

const rt_prediction_format rt_predict_npz = {".npz", open_arrays, add_rows, commit_arrays, close_arrays};
