/* Own packed kernels (kernels/cpu/gemm.h, conv_own.h) against oneDNN 2 with prepacked weights, f32, layer by layer: from
 * these figures the faster one is chosen by shape (kernels/cpu/own_pack.c).
 *
 *     cc -O2 -D_GNU_SOURCE -I. tests/bench/packs.c -o packs -fopenmp -Lbuild/release -lampc_core -ldnnl -lm
 *     chrt -f 50 taskset -c 1 ./packs [THREADS]
 *
 * Weights are in as many copies as fill 64 MiB, used in turn, so that they come from memory as in a whole network. The
 * contenders alternate; the figures are medians. Images are NHWC. */
#include "kernels/cpu/conv_own.h"
#include "kernels/cpu/gemm.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <dnnl.h>

enum { ROUNDS = 9, COLD = 64 << 20, MAX_COPIES = 256 };

/* A convolution of square images, or, if kernel is 0, a matmul of `size` rows. */
typedef struct layer {
    const char *network;
    int batch, channels, size, filters, kernel, stride, groups;
} layer;

static const layer layers[] = {
    {"resnet18 64", 1, 3, 64, 64, 7, 2, 1},
    {"resnet18 64", 1, 64, 16, 64, 3, 1, 1},
    {"resnet18 64", 1, 64, 16, 128, 3, 2, 1},
    {"resnet18 64", 1, 128, 8, 128, 3, 1, 1},
    {"resnet18 64", 1, 128, 8, 256, 3, 2, 1},
    {"resnet18 64", 1, 256, 4, 256, 3, 1, 1},
    {"resnet18 64", 1, 256, 4, 512, 3, 2, 1},
    {"resnet18 64", 1, 512, 2, 512, 3, 1, 1},
    {"resnet50 64", 1, 64, 16, 256, 1, 1, 1},
    {"resnet50 64", 1, 256, 16, 64, 1, 1, 1},
    {"resnet50 64", 1, 256, 16, 512, 1, 2, 1},
    {"resnet50 64", 1, 512, 8, 128, 1, 1, 1},
    {"resnet50 64", 1, 128, 8, 512, 1, 1, 1},
    {"resnet50 64", 1, 1024, 4, 256, 1, 1, 1},
    {"resnet50 64", 1, 256, 4, 1024, 1, 1, 1},
    {"resnet50 64", 1, 2048, 2, 512, 1, 1, 1},
    {"resnet50 64", 1, 512, 2, 2048, 1, 1, 1},
    {"resnet18 64 b8", 8, 512, 2, 512, 3, 1, 1},
    {"resnet18 64 b8", 8, 64, 16, 64, 3, 1, 1},
    {"resnet50 224", 1, 64, 56, 64, 3, 1, 1},
    {"resnet50 224", 1, 256, 56, 64, 1, 1, 1},
    {"resnet50 224", 1, 512, 7, 512, 3, 1, 1},
    {"mobilenet 64", 1, 32, 32, 16, 1, 1, 1},
    {"mobilenet 64", 1, 16, 32, 96, 1, 1, 1},
    {"mobilenet 64", 1, 96, 16, 24, 1, 1, 1},
    {"mobilenet 64", 1, 144, 16, 144, 3, 1, 144},
    {"mobilenet 64", 1, 192, 8, 32, 1, 1, 1},
    {"mobilenet 64", 1, 576, 4, 96, 1, 1, 1},
    {"mobilenet 64", 1, 960, 2, 320, 1, 1, 1},
    {"mobilenet 64", 1, 320, 2, 1280, 1, 1, 1},
    {"BERT T128", 1, 768, 128, 768, 0, 1, 1},
    {"BERT T128", 1, 768, 128, 3072, 0, 1, 1},
    {"BERT T128", 1, 3072, 128, 768, 0, 1, 1},
    {"GPT-2 T64", 1, 768, 64, 2304, 0, 1, 1},
    {"GPT-2 T64", 1, 768, 64, 3072, 0, 1, 1},
    {"classifier", 1, 2048, 1, 1000, 0, 1, 1},
    /* near the limits of the table in kernels/cpu/own_pack.c */
    {"resnet18 64 b8", 8, 256, 4, 256, 3, 1, 1},
    {"batch 16", 16, 256, 4, 256, 3, 1, 1},
    {"batch 32", 32, 512, 2, 512, 3, 1, 1},
    {"6x6", 1, 256, 6, 256, 3, 1, 1},
    {"8x8", 1, 256, 8, 256, 3, 1, 1},
    {"few weights", 1, 128, 4, 128, 3, 1, 1},
    {"densenet 64", 1, 128, 4, 32, 3, 1, 1},
    {"convnext 64", 1, 384, 4, 768, 2, 2, 1},
    {"efficientnet 64", 1, 480, 4, 80, 1, 1, 1},
    {"efficientnet 64", 1, 40, 8, 240, 1, 1, 1},
    {"7x7", 1, 512, 7, 2048, 1, 1, 1},
    {"10x10", 1, 128, 10, 512, 1, 1, 1},
    {"1 row", 1, 64, 1, 64, 0, 1, 1},
    {"8 rows", 1, 768, 8, 768, 0, 1, 1},
    {"convnext 64", 1, 1536, 16, 384, 0, 1, 1},
    {"256 rows", 1, 768, 256, 3072, 0, 1, 1},
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void *take(size_t bytes)
{
    void *block = aligned_alloc(64, (bytes + 4095) / 64 * 64);
    if (!block) exit(1);
    memset(block, 0, bytes);
    return block;
}

static float *random_floats(int64_t n)
{
    float *x = take((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(rand() % 2001 - 1000) / 1000;
    return x;
}

static void check(dnnl_status_t status)
{
    if (status == dnnl_success) return;
    fprintf(stderr, "oneDNN failed with status %d\n", (int)status);
    exit(1);
}

/* ---- oneDNN ------------------------------------------------------------------------------------------ */

typedef struct rival {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_memory_t x, y, weights[MAX_COPIES];
    char code[64];
} rival;

static dnnl_memory_t memory_of(const rival *r, const dnnl_memory_desc_t *desc, void *data)
{
    dnnl_memory_t m;
    check(dnnl_memory_create(&m, desc, r->engine, data));
    return m;
}

static void reorder(const rival *r, dnnl_memory_t from, const dnnl_memory_desc_t *source, dnnl_memory_t to,
                    const dnnl_memory_desc_t *target)
{
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive;
    check(dnnl_reorder_primitive_desc_create(&pd, source, r->engine, target, r->engine, NULL));
    check(dnnl_primitive_create(&primitive, pd));
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    check(dnnl_primitive_execute(primitive, r->stream, 2, args));
    dnnl_primitive_destroy(primitive);
    dnnl_primitive_desc_destroy(pd);
}

/* w: [filters, kernel, kernel, channels / groups], of a matmul [filters, channels]. */
static void make_rival(rival *r, const layer *l, int64_t out, float *x, float *w, float *y, int copies)
{
    dnnl_memory_desc_t xd, wd, any, yd;
    dnnl_primitive_desc_t pd;
    check(dnnl_engine_create(&r->engine, dnnl_cpu, 0));
    check(dnnl_stream_create(&r->stream, r->engine, dnnl_stream_default_flags));
    if (l->kernel == 0) {
        dnnl_matmul_desc_t desc;
        const dnnl_dims_t xs = {l->size, l->channels}, ws = {l->channels, l->filters}, ys = {l->size, l->filters};
        check(dnnl_memory_desc_init_by_tag(&xd, 2, xs, dnnl_f32, dnnl_ab));
        check(dnnl_memory_desc_init_by_tag(&wd, 2, ws, dnnl_f32, dnnl_ba));
        check(dnnl_memory_desc_init_by_tag(&any, 2, ws, dnnl_f32, dnnl_format_tag_any));
        check(dnnl_memory_desc_init_by_tag(&yd, 2, ys, dnnl_f32, dnnl_ab));
        check(dnnl_matmul_desc_init(&desc, &xd, &any, NULL, &yd));
        check(dnnl_primitive_desc_create(&pd, &desc, NULL, r->engine, NULL));
    } else {
        dnnl_convolution_desc_t desc;
        const int64_t k = l->kernel, inner = l->channels / l->groups;
        const dnnl_dims_t xs = {l->batch, l->channels, l->size, l->size}, ys = {l->batch, l->filters, out, out};
        const dnnl_dims_t plain = {l->filters, inner, k, k}, grouped = {l->groups, l->filters / l->groups, inner, k, k};
        const dnnl_dims_t strides = {l->stride, l->stride}, pads = {k / 2, k / 2};
        const bool has_groups = l->groups > 1;
        check(dnnl_memory_desc_init_by_tag(&xd, 4, xs, dnnl_f32, dnnl_acdb));
        check(dnnl_memory_desc_init_by_tag(&wd, has_groups ? 5 : 4, has_groups ? grouped : plain, dnnl_f32,
                                           has_groups ? dnnl_abdec : dnnl_acdb));
        check(dnnl_memory_desc_init_by_tag(&any, has_groups ? 5 : 4, has_groups ? grouped : plain, dnnl_f32,
                                           dnnl_format_tag_any));
        check(dnnl_memory_desc_init_by_tag(&yd, 4, ys, dnnl_f32, dnnl_acdb));
        check(dnnl_convolution_forward_desc_init(&desc, dnnl_forward_inference, dnnl_convolution_direct, &xd, &any,
                                                 NULL, &yd, strides, pads, pads));
        check(dnnl_primitive_desc_create(&pd, &desc, NULL, r->engine, NULL));
    }
    const char *code = "";
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &code);
    snprintf(r->code, sizeof r->code, "%s", code);
    const dnnl_memory_desc_t *inner = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    dnnl_memory_t from = memory_of(r, &wd, w);
    for (int i = 0; i < copies; i++) {
        r->weights[i] = memory_of(r, inner, take(dnnl_memory_desc_get_size(inner)));
        reorder(r, from, &wd, r->weights[i], inner);
    }
    r->x = memory_of(r, &xd, x);
    r->y = memory_of(r, &yd, y);
    check(dnnl_primitive_create(&r->primitive, pd));
}

static void run_rival(const rival *r, int copy)
{
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, r->x}, {DNNL_ARG_WEIGHTS, r->weights[copy]}, {DNNL_ARG_DST, r->y}};
    check(dnnl_primitive_execute(r->primitive, r->stream, 3, args));
}

static void free_rival(rival *r, int copies)
{
    for (int i = 0; i < copies; i++) {
        void *data;
        dnnl_memory_get_data_handle(r->weights[i], &data);
        dnnl_memory_destroy(r->weights[i]);
        free(data);
    }
    dnnl_primitive_destroy(r->primitive);
}

/* ---- own code ---------------------------------------------------------------------------------------- */

typedef struct own {
    k_view x, w, y;
    conv c;
    gemm g;
    float *packed[MAX_COPIES];
    void *workspace;
} own;

static k_view view_of(void *data, int64_t n, int64_t channels, int64_t size)
{
    return (k_view){.data = data, .dtype = IR_f32, .rank = 4, .dims = {n, channels, size, size}, .channels_last = true};
}

static void make_own(own *o, const layer *l, int64_t out, float *x, float *w, float *y, int copies,
                     const k_context *ctx)
{
    const int64_t k = l->kernel, inner = l->channels / l->groups;
    if (k == 0) {
        const gemm_matrix b = {w, IR_f32, IR_NO_DTYPE, 1, l->channels};
        o->g = (gemm){.items = 1, .m = l->size, .n = l->filters, .k = l->channels, .c = y, .ldc = l->filters};
        o->g.a = (gemm_matrix){x, IR_f32, IR_NO_DTYPE, l->channels, 1};
        for (int i = 0; i < copies; i++) {
            o->packed[i] = take((size_t)gemm_packed_size(l->channels, l->filters) * sizeof(float));
            gemm_pack(o->packed[i], &b, l->channels, l->filters, 0, l->channels, ctx);
        }
        o->g.packed = o->packed[0];
        o->workspace = take(gemm_workspace(&o->g, ctx));
        return;
    }
    o->x = view_of(x, l->batch, l->channels, l->size);
    o->w = view_of(w, l->filters, inner, k);
    o->y = view_of(y, l->batch, l->filters, out);
    o->c = (conv){.kind = CONV_FORWARD, .x = &o->x, .w = &o->w, .y = &o->y};
    conv_geometry *g = &o->c.g;
    *g = (conv_geometry){2,
                         l->batch,
                         l->groups,
                         inner,
                         l->filters / l->groups,
                         {l->size, l->size, 1},
                         {out, out, 1},
                         {k, k, 1},
                         {l->stride, l->stride, 1},
                         {1, 1, 1},
                         {k / 2, k / 2, 0},
                         {k / 2, k / 2, 0}};
    for (int i = 0; i < copies; i++) {
        o->packed[i] = take((size_t)conv_own_packed_size(&o->c));
        conv_own_pack(&o->c, o->packed[i], ctx);
    }
    o->workspace = take(conv_own_packed_workspace(&o->c, ctx));
}

static void run_own(own *o, const layer *l, int copy, const k_context *ctx)
{
    if (l->kernel) {
        conv_own_run_packed(&o->c, o->packed[copy], o->workspace, ctx);
        return;
    }
    o->g.packed = o->packed[copy];
    gemm_run(&o->g, o->workspace, ctx);
}

/* ---- the race ---------------------------------------------------------------------------------------- */

static void race(const layer *l, const k_context *ctx)
{
    const int64_t k = l->kernel, out = k ? (l->size + k / 2 * 2 - k) / l->stride + 1 : 0;
    const int64_t positions = k ? l->batch * out * out : l->size;
    const int64_t n_w = (int64_t)l->filters * (l->channels / l->groups) * (k ? k * k : 1);
    const int64_t n_x = k ? (int64_t)l->batch * l->channels * l->size * l->size : (int64_t)l->size * l->channels;
    const int64_t n_y = positions * l->filters;
    const int copies = (int)k_max(1, k_min(MAX_COPIES, COLD / 4 / n_w));
    float *x = random_floats(n_x), *w = random_floats(n_w), *y = random_floats(n_y), *z = random_floats(n_y);
    static rival r;
    static own o;
    make_rival(&r, l, out, x, w, y, copies);
    make_own(&o, l, out, x, w, z, copies, ctx);
    run_rival(&r, 0);
    run_own(&o, l, 0, ctx);
    double worst = 0, mine[ROUNDS], theirs[ROUNDS];
    for (int64_t i = 0; i < n_y; i++) worst = fmax(worst, fabs((double)y[i] - (double)z[i]));
    const int times = (int)k_max(copies < 24 ? copies : 24, (int64_t)(2e9 / (double)(2 * n_w * positions) / 100));
    for (int round = 0; round < ROUNDS; round++) {
        double from = now();
        for (int i = 0; i < times; i++) run_own(&o, l, (round * times + i) % copies, ctx);
        mine[round] = (now() - from) / times;
        from = now();
        for (int i = 0; i < times; i++) run_rival(&r, (round * times + i) % copies);
        theirs[round] = (now() - from) / times;
    }
    qsort(mine, ROUNDS, sizeof *mine, compare);
    qsort(theirs, ROUNDS, sizeof *theirs, compare);
    const double a = mine[ROUNDS / 2], b = theirs[ROUNDS / 2], work = 2e-9 * (double)(n_w * positions);
    printf("%-14s %4d>%-4d %dx%d/%d %5lld rows  own %8.1f us %6.1f GF/s %5.1f GB/s  oneDNN %8.1f us %6.1f GF/s  %.2f"
           "  %s%s\n",
           l->network, l->channels, l->filters, l->kernel, l->kernel, l->stride, (long long)positions, a * 1e6,
           work / a, 4e-9 * (double)n_w / a, b * 1e6, work / b, b / a, r.code,
           worst > 1e-3 * sqrt((double)n_w) ? "  WRONG" : "");
    free_rival(&r, copies);
    for (int i = 0; i < copies; i++) free(o.packed[i]);
    free(o.workspace), free(x), free(w), free(y), free(z);
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 1;
    const k_context ctx = {.threads = threads};
    omp_set_num_threads(threads);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) race(&layers[i], &ctx);
    return 0;
}
