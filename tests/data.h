/* data.h - .npy files in memory and on disk, and batches of one field. */
#ifndef TESTS_DATA_H
#define TESTS_DATA_H

#include "runtime/data/data.h"
#include "runtime/data/npy.h"
#include "runtime/files/atomic_file.h"

#include <stdlib.h>
#include <string.h>

static inline ampc_status npy_next(void *user, void *dst, size_t n)
{
    const char **at = user;
    if (n) memcpy(dst, *at, n);
    *at += n;
    return AMPC_OK;
}

static inline ampc_status npy_parse(const char *name, const void *bytes, size_t n, ir_dtype u2_as, diag *d,
                                    rt_array *out)
{
    const char *at = bytes;
    const rt_npy_source source = {.loc = DIAG_FILE(name), .size = n, .read = npy_next, .user = &at};
    return rt_npy_load(&source, u2_as, d, out);
}

static inline ampc_status npy_write(const char *path, const rt_array *a, diag *d)
{
    unsigned char header[RT_NPY_HEADER_MAX];
    rt_atomic_file *f;
    TRY(rt_atomic_open(path, d, &f));
    ampc_status s = rt_atomic_write(f, header, rt_npy_header(a, header));
    if (s == AMPC_OK) s = rt_atomic_write(f, a->data, a->bytes);
    if (s == AMPC_OK) return rt_atomic_commit(f);
    rt_atomic_abort(f);
    return s;
}

/* Stores field `index` of a batch of a training at dst. */
static inline ampc_status dataset_batch(rt_dataset *ds, const rt_position *p, int64_t batch_size, size_t index,
                                        void *dst, ir_dtype dtype, diag *d)
{
    uint32_t *rows = malloc((size_t)batch_size * sizeof *rows);
    if (!rows) return AMPC_NO_MEMORY;
    ampc_status s = rt_dataset_order(ds, p, batch_size, 0, batch_size, rows, d);
    const rt_draw draw = {p->seed, p->epoch};
    if (s == AMPC_OK) s = rt_dataset_read(ds, rows, batch_size, &draw, index, dst, dtype, d);
    free(rows);
    return s;
}

#endif
