/* own_pack.c - the formats of own code, and for which shapes it is chosen although there is oneDNN. */
#include "kernels/cpu/own_pack.h"
#include "kernels/cpu/conv_own.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/onednn.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- the choice ------------------------------------------------------------------------------ */

/* Own code is faster if all members of an entry hold. From tests/bench/packs.c and traces of networks, f32, one thread
 * of a Sapphire Rapids in a VM, oneDNN 2.6.3, 2026-11-27; docs/performance.md has the figures. What is left
 * out reaches 0.5 to 1.0 of the speed of oneDNN: there are too few weights for the time to be that of reading them from
 * memory, sums too short to hide that they are stored, or so many positions that oneDNN gains from reading an image in
 * place instead of copying each window. For small images it reads the weights again for each of them. With the code for
 * AVX2 of both, most of these shapes reach 0.75 to 0.95, so the table is for AVX-512.
 *
 * Entries of low types are from traces of training resnet18 (batches of 2 to 16) and mobilenet_v2 (8) with images of 64
 * by 64 in bf16 on an Emerald Rapids, 2026-11-28. For f16, which oneDNN converts to f32, the same shapes gain 1.05 to
 * 2.8. Those of conv_own.c are from traces of training ResNet-50 with 8 images of 224 by 224 on the same machine. What
 * is left out of them reaches 0.5 to 1.1 for bf16; gradients of weights of several taps, for which each window of an
 * image is copied, reach 0.3 to 0.9, and for f16 0.7 to 1.2. */
typedef enum product_kind {
    MATMUL,
    CONV,
    CHANGING, /* a convolution whose weights change */
    GRAD_INPUT,
    GRAD_WEIGHT, /* the gradient of the weights of a convolution */
    GRAD_MATRIX, /* the same for one tap, by conv_own.c */
    TILES,       /* a convolution in AMX tiles, by conv_own.c */
    GRAD_TILES,  /* its gradient of x */
    GRAD_SPREAD, /* the same with strides */
    GRAD_TAPS    /* the same if each group is a single channel */
} product_kind;
static const struct choice {
    product_kind kind;
    enum { F32 = 1, BF16 = 2, F16 = 4, LOW = BF16 | F16 } type; /* of the product; low types in AMX tiles */
    int64_t taps;                                               /* at most */
    int64_t terms;                                              /* of a sum, at least */
    int64_t weights;                                            /* at least */
    int64_t points; /* positions of an image, at most; the rows of a matmul are images */
    int64_t rows;   /* of all images, at most */
} choices[] = {
    {CONV, F32, INT64_MAX, 0, 1 << 18, INT64_MAX, 36},       /* 1.09 to 1.4 */
    {CONV, F32, INT64_MAX, 0, 1 << 18, 16, 256},             /* 1.14 to 2.95 */
    {CONV, F32, 1, 256, 1 << 15, INT64_MAX, 64},             /* 1.0 to 1.43 */
    {MATMUL, F32, 1, 0, 0, 1, 48},                           /* 1.06 to 1.8, except 0.9 for one row and 4096 weights */
    {CHANGING, F32, INT64_MAX, 0, 1 << 18, INT64_MAX, 128},  /* 1.25 to 3.6; at 512 rows 0.66 */
    {CHANGING, F32, INT64_MAX, 0, 1 << 18, 4, 512},          /* 2.7 to 3.2 */
    {GRAD_INPUT, F32, INT64_MAX, 0, 1 << 18, INT64_MAX, 36}, /* 1.1 to 1.5; at 64 rows 0.78 */
    {GRAD_WEIGHT, F32, INT64_MAX, 0, 1 << 18, INT64_MAX, 128}, /* 1.3 to 3.5; at 512 rows 0.68 */
    {GRAD_WEIGHT, F32, INT64_MAX, 0, 1 << 18, 4, 512},         /* 3.1 to 3.5 */
    {GRAD_WEIGHT, F32, 1, 0, 1 << 15, INT64_MAX, 32},          /* 1.2 to 1.4 */
    {GRAD_TAPS, F32, INT64_MAX, 0, 0, INT64_MAX, 32},          /* 5 to 20 */
    {CHANGING, LOW, INT64_MAX, 0, 1 << 18, 16, 256},           /* 1.0 to 3.6, once 0.88 */
    {CHANGING, LOW, INT64_MAX, 0, 1 << 16, INT64_MAX, 32},     /* 1.0 to 1.8 */
    {GRAD_INPUT, LOW, INT64_MAX, 0, 1 << 17, INT64_MAX, 32},   /* 1.0 to 2.4, and 0.8 for 160 filters of one tap */
    {GRAD_INPUT, LOW, INT64_MAX, 0, 1 << 18, INT64_MAX, 64},   /* 1.5 to 3.0; at 128 rows 0.6 to 1.0 */
    {GRAD_WEIGHT, LOW, INT64_MAX, 0, 1 << 17, INT64_MAX, 256}, /* 1.2 to 4.0, and 0.9 of 590 thousand for 32 rows */
    {GRAD_MATRIX, BF16, 1, 0, 1 << 16, INT64_MAX, 2048},       /* 1.16 to 7; with 6272 rows 0.75 to 1.3 */
    {GRAD_MATRIX, BF16, 1, 0, 0, INT64_MAX, 256},              /* 1.6 to 10; at 512 rows 0.7 to 1.4 */
    {GRAD_MATRIX, F16, 1, 0, 1 << 16, INT64_MAX, 8192},        /* 1.0 to 3.2; 16384 weights of 25088 rows 0.84 */
    {TILES, F16, INT64_MAX, 0, 1 << 12, INT64_MAX, INT64_MAX}, /* 1.0 to 2.7 */
    {GRAD_TILES, F16, INT64_MAX, 0, 1 << 12, INT64_MAX, INT64_MAX},  /* 1.05 to 3.3 */
    {GRAD_SPREAD, LOW, INT64_MAX, 0, 1 << 12, INT64_MAX, INT64_MAX}, /* 1.17 to 3.7 */
};

static bool is_faster(product_kind kind, ir_dtype type, int64_t taps, int64_t terms, int64_t filters, int64_t points,
                      int64_t images)
{
    const unsigned types = type == IR_bf16 ? BF16 : type == IR_f16 ? F16 : F32;
    const bool applies = types != F32 || !cpu_has_onednn() || cpu_isa() >= CPU_ISA_avx512;
    for (size_t i = 0; applies && i < sizeof choices / sizeof *choices; i++) {
        const struct choice *c = &choices[i];
        if (c->kind == kind && (c->type & types) && taps <= c->taps && terms >= c->terms &&
            terms * filters >= c->weights && points <= c->points && points * images <= c->rows)
            return true;
    }
    return false;
}

static bool is_faster_conv(product_kind kind, ir_dtype type, const conv_geometry *g)
{
    const int64_t taps = conv_volume(g->k);
    return is_faster(kind, type, taps, taps * g->c, g->m, conv_volume(g->y), g->n);
}

bool cpu_is_own_faster_conv(const conv *c) { return c->g.groups == 1 && is_faster_conv(CONV, IR_f32, &c->g); }

bool cpu_is_own_faster_in_place(const conv *c)
{
    static const product_kind kinds[] = {
        [CONV_FORWARD] = CHANGING, [CONV_GRAD_INPUT] = GRAD_INPUT, [CONV_GRAD_WEIGHT] = GRAD_WEIGHT};
    return c->g.groups == 1 && !c->w->channels_last && is_faster_conv(kinds[c->kind], conv_type(c), &c->g);
}

bool cpu_is_own_faster_depthwise(const conv *c)
{
    return c->kind == CONV_GRAD_WEIGHT && conv_is_depthwise(c) && is_faster_conv(GRAD_TAPS, IR_f32, &c->g);
}

bool cpu_is_own_faster_tiles(const conv *c)
{
    const ir_dtype type = conv_type(c);
    const int64_t *stride = c->g.stride;
    if (!ir_dtype_is_low(type) || c->g.groups > 1) return false;
    if (c->kind == CONV_GRAD_WEIGHT) return is_faster_conv(GRAD_MATRIX, type, &c->g);
    if ((c->kind == CONV_FORWARD ? c->g.c : c->g.m) < CONV_AMX_CHANNELS) return false;
    const bool spreads = stride[0] > 1 || stride[1] > 1 || stride[2] > 1;
    return is_faster_conv(c->kind == CONV_FORWARD ? TILES : spreads ? GRAD_SPREAD : GRAD_TILES, type, &c->g);
}

bool cpu_is_own_faster_matmul(const product *p)
{
    return p->rank == 0 && is_faster(MATMUL, IR_f32, 1, p->k, p->n, 1, p->m);
}

/* Also where oneDNN would convert to f32. Against oneDNN 2.6.3, bf16 in AMX tiles, one thread of an Emerald Rapids in a
 * VM: with 3072 and 4096 terms 1.04 to 2.2 in five shapes; with up to 1024 terms 0.33 to 1.9, mostly below 1. Version 3
 * was not measured, and f16 not against oneDNN's f32. */
bool cpu_is_own_faster_low(const product *p, ir_dtype type)
{
    enum { MANY_TERMS = 3072 };
    return !cpu_dnnl_computes(type) || (cpu_dnnl.version()->major < 3 && p->k >= MANY_TERMS);
}

/* ---- formats --------------------------------------------------------------------------------- */

/* What the operand is: matrices [k, n], or weights [n, k, taps] of each group. `swapped`: matrices [n, k], or weights
 * [n, taps, k]. */
typedef struct source {
    bool is_conv, swapped;
    ir_dtype type; /* of the products, f32 or low */
    int64_t items, taps, k, n;
} source;

typedef struct format {
    k_format base;
    source from;
    struct format *next;
} format;

/* The convolution of which `w` is the operand; `x` is set to one of the type of the product. */
static conv conv_from(const source *s, k_view *x, const k_view *w)
{
    *x = (k_view){.dtype = s->type};
    conv c = {
        .kind = CONV_FORWARD, .x = x, .w = w, .g = {.groups = s->items, .c = s->k, .m = s->n, .k = {s->taps, 1, 1}}};
    return c;
}

static ampc_status run_pack(const k_args *args)
{
    const source *s = &((const format *)(const void *)args->out[0].packed)->from;
    k_view from = args->in[0], x;
    void *to = args->out[0].data;
    from.as = args->out[0].dtype == from.dtype ? IR_NO_DTYPE : args->out[0].dtype;
    from.channels_last = s->swapped;
    if (s->is_conv) {
        const conv c = conv_from(s, &x, &from);
        conv_own_pack(&c, to, args->ctx);
        return AMPC_OK;
    }
    if (ir_dtype_is_low(s->type)) {
        gemm g = {.type = s->type, .items = s->items, .n = s->n, .k = s->k, .b_item = s->k * s->n};
        g.b = (gemm_matrix){from.data, from.dtype, from.as, s->swapped ? 1 : s->n, s->swapped ? s->k : 1};
        gemm_pack_low(to, &g, args->ctx);
        return AMPC_OK;
    }
    for (int64_t i = 0; i < s->items; i++) {
        const gemm_matrix b = {cpu_at(&from, i * s->k * s->n), from.dtype, from.as, s->swapped ? 1 : s->n,
                               s->swapped ? s->k : 1};
        gemm_pack((float *)to + i * gemm_packed_size(s->k, s->n), &b, s->k, s->n, 0, s->k, args->ctx);
    }
    return AMPC_OK;
}

static const k_kernel pack = {.run = run_pack};

bool cpu_is_own_pack(const k_view *v) { return v->packed && v->packed->pack == &pack; }

ir_dtype cpu_own_pack_type(const k_view *v) { return ((const format *)(const void *)v->packed)->from.type; }

static int64_t bytes_of(const source *s)
{
    const k_view none = {.channels_last = s->swapped};
    k_view x;
    const conv c = conv_from(s, &x, &none);
    if (s->is_conv) return conv_own_packed_size(&c);
    return s->items * gemm_packed_bytes(s->type, s->k, s->n);
}

static bool is_same(const source *a, const source *b)
{
    return a->is_conv == b->is_conv && a->swapped == b->swapped && a->type == b->type && a->items == b->items &&
           a->taps == b->taps && a->k == b->k && a->n == b->n;
}

/* The format may be new; it is never freed. */
static ampc_status find_format(const source *s, const k_context *ctx, const k_format **out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static format *formats;
    pthread_mutex_lock(&lock);
    format *f = formats;
    while (f && !is_same(&f->from, s)) f = f->next;
    if (!f && (f = malloc(sizeof *f)) != NULL) {
        *f = (format){.base = {.bytes = (size_t)bytes_of(s), .pack = &pack}, .from = *s, .next = formats};
        formats = f;
    }
    pthread_mutex_unlock(&lock);
    *out = f ? &f->base : NULL;
    return f ? AMPC_OK : cpu_fail(ctx, AMPC_NO_MEMORY, "out of memory");
}

ampc_status cpu_own_conv_format(const conv *c, const k_context *ctx, const k_format **out)
{
    source s = {.is_conv = true, .type = conv_type(c), .items = c->g.groups, .k = c->g.c, .n = c->g.m};
    s.taps = conv_volume(c->g.k);
    s.swapped = c->w->channels_last && s.taps > 1 && s.k > 1;
    return find_format(&s, ctx, out);
}

ampc_status cpu_own_matmul_format(const product *p, ir_dtype type, const k_context *ctx, const k_format **out)
{
    source s = {.swapped = p->trans_b, .type = type, .items = 1, .taps = 1, .k = p->k, .n = p->n};
    for (int i = 0; i < p->rank; i++) s.items *= p->b_shared[i] ? 1 : p->batch[i];
    return find_format(&s, ctx, out);
}
