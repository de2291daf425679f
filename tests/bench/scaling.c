/* scaling.c - measures what dynamic loss scaling adds to a training step in fp16. Part of tools/bench.
 *
 * One process has two sessions of the model, which train in turn: with a dynamic loss scale and with --loss-scale=off.
 * Prints one row of a Markdown table with the medians, and the medians of the ratios of neighbouring steps: of time,
 * and of processor time, which other programs disturb less.
 *
 * usage: bench_scaling MODEL.onnx LOSS BATCH ROUNDS THREADS */
#include "ir/base/philox.h"
#include "runtime/api/ampc.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WARMUP = 2, MAX_INPUTS = 4, MAX_ROUNDS = 10000 };

typedef struct trained {
    ampc_module *m;
    ampc_session *s;
} trained;

typedef struct bench {
    ampc_context *c;
    trained with, without;
    ampc_tensor *in[MAX_INPUTS];
    size_t inputs;
} bench;

typedef struct sample {
    double wall, processor; /* milliseconds */
} sample;

static double milliseconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static ampc_status open_trained(ampc_context *c, char **arguments, const char *scaling, trained *t)
{
    /* The initial scale is too small for an overflow, since a skipped step does less. */
    const ampc_compile_options how = {.struct_size = sizeof how,
                                      .loss = arguments[2],
                                      .optimizer = "sgd,lr=0.001",
                                      .loss_scale = scaling,
                                      .init_loss_scaling = strcmp(scaling, "off") ? 256 : 0};
    const ampc_session_options options = {.struct_size = sizeof options, .threads = atoi(arguments[5])};
    ampc_status status = ampc_module_import(c, arguments[1], NULL, 0, &t->m);
    if (status == AMPC_OK) status = ampc_module_compile(t->m, &how);
    return status == AMPC_OK ? ampc_session_open(t->m, &options, &t->s) : status;
}

/* Floats are random, class indices 0. */
static ampc_status make_input(const bench *b, size_t i, int64_t batch, ampc_tensor **out)
{
    ampc_input_info info = {.struct_size = sizeof info};
    ampc_status status = ampc_module_input(b->with.m, "train_step", i, &info);
    for (int k = 0; k < info.rank; k++)
        if (info.dims[k] < 0) info.dims[k] = batch;
    if (status == AMPC_OK) status = ampc_tensor_create(b->c, info.name, info.dtype, info.rank, info.dims, NULL, out);
    if (status != AMPC_OK || info.dtype != AMPC_F32) return status;
    float *x = ampc_tensor_data(*out);
    for (size_t k = 0; k < ampc_tensor_bytes(*out) / sizeof *x; k++) x[k] = 2 * philox_unit(philox_word(1, i, k)) - 1;
    return status;
}

static ampc_status open_bench(bench *b, char **arguments)
{
    ampc_status status = open_trained(b->c, arguments, "dynamic", &b->with);
    if (status == AMPC_OK) status = open_trained(b->c, arguments, "off", &b->without);
    if (status == AMPC_OK) status = ampc_module_input_count(b->with.m, "train_step", &b->inputs);
    if (b->inputs > MAX_INPUTS) status = AMPC_UNSUPPORTED;
    for (size_t i = 0; i < b->inputs && status == AMPC_OK; i++)
        status = make_input(b, i, atoll(arguments[3]), &b->in[i]);
    return status;
}

static ampc_status time_step(const bench *b, const trained *t, sample *out)
{
    ampc_step_result result = {.struct_size = sizeof result};
    const double wall = milliseconds(CLOCK_MONOTONIC), processor = milliseconds(CLOCK_PROCESS_CPUTIME_ID);
    ampc_status status = ampc_train_step(t->s, b->in, b->inputs, &result);
    *out = (sample){milliseconds(CLOCK_MONOTONIC) - wall, milliseconds(CLOCK_PROCESS_CPUTIME_ID) - processor};
    if (result.was_skipped) fprintf(stderr, "a step was skipped\n");
    return status;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, compare);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Which of the two comes first alternates too. */
static ampc_status measure(const bench *b, int rounds, double (*columns)[MAX_ROUNDS])
{
    ampc_status status = AMPC_OK;
    for (int i = -WARMUP; i < rounds && status == AMPC_OK; i++) {
        sample of[2];
        const bool swapped = i & 1;
        status = time_step(b, swapped ? &b->without : &b->with, &of[swapped]);
        if (status == AMPC_OK) status = time_step(b, swapped ? &b->with : &b->without, &of[!swapped]);
        if (i < 0) continue;
        columns[0][i] = of[0].wall;
        columns[1][i] = of[1].wall;
        columns[2][i] = of[0].wall / of[1].wall;
        columns[3][i] = of[0].processor / of[1].processor;
    }
    return status;
}

static void close_bench(bench *b)
{
    for (size_t i = 0; i < b->inputs && i < MAX_INPUTS; i++) ampc_tensor_free(b->in[i]);
    ampc_session_free(b->with.s);
    ampc_session_free(b->without.s);
    ampc_module_free(b->with.m);
    ampc_module_free(b->without.m);
    ampc_context_free(b->c);
}

int main(int argc, char **argv)
{
    static double columns[4][MAX_ROUNDS];
    bench b = {.c = NULL};
    const int rounds = argc == 6 ? atoi(argv[4]) : 0;
    if (rounds < 1 || rounds > MAX_ROUNDS) return AMPC_USAGE;
    ampc_status status = ampc_context_create(NULL, &b.c);
    if (status == AMPC_OK) status = open_bench(&b, argv);
    if (status == AMPC_OK) status = measure(&b, rounds, columns);
    if (status != AMPC_OK) fprintf(stderr, "%s: %s\n", argv[1], ampc_context_message(b.c));
    else
        printf("| %s | %s | %.1f | %.1f | %.3f | %.3f |\n", strrchr(argv[1], '/') ? strrchr(argv[1], '/') + 1 : argv[1],
               argv[3], median(columns[0], rounds), median(columns[1], rounds), median(columns[2], rounds),
               median(columns[3], rounds));
    close_bench(&b);
    return (int)status;
}
