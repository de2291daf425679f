/* api_tensor.c - tensors of the public API, with elements of their own or the caller's. */
#include "runtime/api/api.h"

#include "runtime/backend/memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SAME_DTYPE(name, upper) static_assert((int)IR_##name == (int)AMPC_##upper, "ampc_dtype is ir_dtype")
SAME_DTYPE(f64, F64);
SAME_DTYPE(f32, F32);
SAME_DTYPE(f16, F16);
SAME_DTYPE(bf16, BF16);
SAME_DTYPE(i64, I64);
SAME_DTYPE(i32, I32);
SAME_DTYPE(i16, I16);
SAME_DTYPE(i8, I8);
SAME_DTYPE(u8, U8);
SAME_DTYPE(bool, BOOL);
SAME_DTYPE(u16, U16);
SAME_DTYPE(u32, U32);
SAME_DTYPE(u64, U64);
static_assert(AMPC_MAX_RANK == IR_MAX_RANK, "a tensor of the API holds any tensor of a session");

/* ---- checks ---- */

/* The description of a tensor without elements. */
static ampc_status describe(diag *d, const char *name, ampc_dtype dtype, int rank, const int64_t *dims, rt_tensor *out)
{
    if ((int)dtype <= IR_NO_DTYPE || (int)dtype >= IR_DTYPE_COUNT)
        return diag_error(d, AMPC_USAGE, diag_named(NULL, DIAG_TENSOR, name), "unknown element type %d", (int)dtype);
    if (rank < 0 || rank > AMPC_MAX_RANK)
        return diag_error(d, AMPC_USAGE, diag_named(NULL, DIAG_TENSOR, name), "rank %d is not in 0 .. %d", rank,
                          AMPC_MAX_RANK);
    if (rank) NEED(dims);
    *out = (rt_tensor){.name = name, .dtype = (ir_dtype)dtype, .rank = rank};
    if (rank) memcpy(out->dims, dims, (size_t)rank * sizeof *dims);
    return AMPC_OK;
}

static ampc_status count_bytes(diag *d, const rt_tensor *t, size_t *out)
{
    int64_t bytes = (int64_t)ir_dtype_size(t->dtype);
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] < 0 || !checked_mul(bytes, t->dims[i], &bytes))
            return diag_error(d, AMPC_USAGE, diag_named(NULL, DIAG_TENSOR, t->name), "invalid size of dimension %d", i);
    *out = (size_t)bytes;
    return AMPC_OK;
}

/* ---- making tensors ---- */

/* A tensor without elements, which has a copy of the name. */
static ampc_status tensor_make(ampc_context *c, const rt_tensor *from, const char *name, ampc_tensor **tensor)
{
    size_t bytes = 0;
    TRY(count_bytes(c->d, from, &bytes));
    ampc_tensor *t = calloc(1, sizeof *t);
    char *copy = strdup(name);
    if (!t || !copy) {
        free(t);
        free(copy);
        return rt_no_memory(c->d);
    }
    *t = (ampc_tensor){.view = *from, .bytes = bytes};
    t->view.name = copy;
    t->view.data = NULL;
    *tensor = t;
    return AMPC_OK;
}

ampc_status api_tensor_new(ampc_context *c, const char *name, const rt_tensor *from, ampc_tensor **tensor)
{
    ampc_tensor *t;
    TRY(tensor_make(c, from, name, &t));
    t->view.data = calloc(1, t->bytes ? t->bytes : 1);
    if (!t->view.data) {
        ampc_tensor_free(t);
        return rt_no_memory(c->d);
    }
    if (from->data && t->bytes) memcpy(t->view.data, from->data, t->bytes);
    *tensor = t;
    return AMPC_OK;
}

ampc_status ampc_tensor_create(ampc_context *context, const char *name, ampc_dtype dtype, int rank, const int64_t *dims,
                               const void *data, ampc_tensor **tensor)
{
    rt_tensor view = {0};
    diag *d;
    TRY(api_enter(context, &d));
    NEED(name);
    NEED(tensor);
    TRY(describe(d, name, dtype, rank, dims, &view));
    view.data = (void *)(uintptr_t)data;
    return api_tensor_new(context, name, &view, tensor);
}

ampc_status ampc_tensor_borrow(ampc_context *context, const char *name, ampc_dtype dtype, int rank, const int64_t *dims,
                               void *data, void (*release)(void *user, void *data), void *user, ampc_tensor **tensor)
{
    rt_tensor view = {0};
    diag *d;
    TRY(api_enter(context, &d));
    NEED(name);
    NEED(data);
    NEED(tensor);
    TRY(describe(d, name, dtype, rank, dims, &view));
    if ((uintptr_t)data % ir_dtype_size(view.dtype) != 0)
        return diag_error(d, AMPC_USAGE, diag_named(NULL, DIAG_TENSOR, name), "data is not aligned for %s",
                          ir_dtype_name(view.dtype));
    TRY(tensor_make(context, &view, name, tensor));
    (*tensor)->view.data = data;
    (*tensor)->borrowed = true;
    (*tensor)->release = release;
    (*tensor)->user = user;
    return AMPC_OK;
}

void ampc_tensor_free(ampc_tensor *tensor)
{
    if (!tensor) return;
    free((char *)(uintptr_t)tensor->view.name);
    if (!tensor->borrowed) free(tensor->view.data);
    else if (tensor->release) tensor->release(tensor->user, tensor->view.data);
    free(tensor);
}

/* ---- reading them ---- */

const char *ampc_tensor_name(const ampc_tensor *tensor) { return tensor ? tensor->view.name : ""; }
ampc_dtype ampc_tensor_dtype(const ampc_tensor *tensor) { return (ampc_dtype)(tensor ? tensor->view.dtype : 0); }
int ampc_tensor_rank(const ampc_tensor *tensor) { return tensor ? tensor->view.rank : 0; }
const int64_t *ampc_tensor_dims(const ampc_tensor *tensor) { return tensor ? tensor->view.dims : NULL; }
size_t ampc_tensor_bytes(const ampc_tensor *tensor) { return tensor ? tensor->bytes : 0; }
void *ampc_tensor_data(ampc_tensor *tensor) { return tensor ? tensor->view.data : NULL; }
