/* mix.c - draws of mix-up, means of samples, and class numbers as probabilities. */
#include "runtime/data/mix.h"

#include "runtime/backend/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 256, SHARE_ATTEMPTS = 64 };

/* Joehnk's method, which accepts at least every second attempt. */
static float draw_share(double alpha, const rt_draw *draw, int64_t row)
{
    for (unsigned i = 0; i < SHARE_ATTEMPTS; i++) {
        const philox_words words = rt_draw_block(draw, row, RT_DRAW_SHARE + i);
        const double u = pow((words.v[0] + 0.5) * 0x1p-32, 1 / alpha), v = pow((words.v[1] + 0.5) * 0x1p-32, 1 / alpha);
        if (u + v <= 1 && u + v > 0) return (float)(u / (u + v));
    }
    return 1;
}

rt_mix rt_mix_draw(double alpha, const rt_draw *draw, int64_t row, int64_t rows)
{
    const philox_words words = rt_draw_block(draw, row, RT_DRAW_PARTNER);
    const uint64_t bits = (uint64_t)words.v[1] << 32 | words.v[0];
    return (rt_mix){(int64_t)philox_below(bits, (uint64_t)rows), draw_share(alpha, draw, row)};
}

void rt_mix_add(const rt_mix *m, void *dst, const void *other, ir_dtype dtype, size_t n)
{
    double a[CHUNK], b[CHUNK];
    const size_t size = ir_dtype_size(dtype);
    for (size_t at = 0, count; at < n; at += count) {
        count = n - at < CHUNK ? n - at : CHUNK;
        char *to = (char *)dst + at * size;
        ir_convert(IR_f64, a, dtype, to, count);
        ir_convert(IR_f64, b, dtype, (const char *)other + at * size, count);
        for (size_t i = 0; i < count; i++) a[i] = m->share * a[i] + (1 - (double)m->share) * b[i];
        ir_convert(dtype, to, IR_f64, a, count);
    }
}

/* ---- classes as probabilities ---- */

typedef struct encoded {
    rt_column inner;
    int64_t classes;
} encoded;

static ampc_status read_encoded(const rt_column *c, int64_t row, const rt_draw *draw, void *dst, ir_dtype dtype,
                                diag *d)
{
    const encoded *e = c->state;
    const float one = 1;
    const size_t n = (size_t)rt_field_elements(&e->inner.field), size = ir_dtype_size(dtype);
    int64_t *labels = malloc((n + 1) * sizeof *labels);
    if (!labels) return rt_no_memory(d);
    ampc_status s = e->inner.read(&e->inner, row, draw, labels, IR_i64, d);
    memset(dst, 0, (size_t)e->classes * n * size);
    for (size_t i = 0; s == AMPC_OK && i < n; i++) {
        if (labels[i] < 0 || labels[i] >= e->classes)
            s = diag_error(d, AMPC_REJECTED, diag_named(NULL, DIAG_FIELD, c->field.name),
                           "the class of sample %lld is %lld, but the model has %lld classes", (long long)row,
                           (long long)labels[i], (long long)e->classes);
        else ir_convert(dtype, (char *)dst + ((size_t)labels[i] * n + i) * size, IR_f32, &one, 1);
    }
    free(labels);
    return s;
}

static void close_encoded(rt_column *c)
{
    encoded *e = c->state;
    if (e->inner.close) e->inner.close(&e->inner);
    free(e);
}

ampc_status rt_columns_encode_classes(rt_column *c, int64_t classes, diag *d)
{
    encoded *e = malloc(sizeof *e);
    if (!e) return rt_no_memory(d);
    *e = (encoded){*c, classes};
    *c = (rt_column){.field = c->field, .read = read_encoded, .close = close_encoded, .state = e};
    c->field.dtype = IR_f32;
    memmove(c->field.dims + 1, c->field.dims, (size_t)c->field.rank * sizeof *c->field.dims);
    c->field.rank++;
    c->field.dims[0] = classes;
    return AMPC_OK;
}
