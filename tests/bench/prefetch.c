/* prefetch.c - measures training from a decoder that needs as long as the step. Part of tools/bench.
 *
 * In each round the same process measures samples/s of the step alone (rows without work), of the decoder alone, and of
 * training with both, read by the training thread and by threads that read ahead. Prints rows of a Markdown table with
 * the medians; the last column is the median of the ratios, within a round, to the slower of the two alone.
 *
 * usage: bench_prefetch ROUNDS */
#include "passes/passes.h"
#include "runtime/data/loader.h"
#include "runtime/train/trainer.h"
#include "tests/compile.h"
#include "tests/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 64, WIDTH = 512, ROWS = 4096, STEPS = 60, MAX_ROUNDS = 100 };

static const char model[] = "ampc-ir 3\n"
                            "param @v : f32[512,512] = zero\nparam @w : f32[512,512] = zero\n"
                            "graph @forward(@x : f32[N,512]) as forward {\n"
                            "  %h = matmul @x, @v : f32[N,512]\n  %r = relu %h : f32[N,512]\n"
                            "  %y = matmul %r, @w : f32[N,512]\n  output \"y\" = %y\n}\n";

static int64_t work; /* iterations of a loop to decode a row */

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void spin(int64_t iterations)
{
    volatile uint64_t x = 1;
    for (int64_t i = 0; i < iterations; i++) x = x * 6364136223846793005u + 1;
}

/* Iterations in a second of processor time. */
static double speed(void)
{
    const int iterations = 20000000;
    const double began = seconds(CLOCK_THREAD_CPUTIME_ID);
    spin(iterations);
    return iterations / (seconds(CLOCK_THREAD_CPUTIME_ID) - began);
}

static int decode(void *user, int64_t row, size_t field, void *dst)
{
    float *x = dst;
    (void)user;
    if (field == 1) *(int64_t *)dst = row % WIDTH;
    else
        for (int k = 0; k < WIDTH; k++) x[k] = (float)((row * 31 + k) % 17) - 8;
    if (field == 0) spin(work);
    return 0;
}

static void check(ampc_status s, const diag *d)
{
    if (s == AMPC_OK) return;
    fprintf(stderr, "bench_prefetch: %s\n", diag_first_error(d));
    exit(1);
}

static rt_dataset *open_data(diag *d)
{
    static const rt_source_field fields[] = {{.field = {.name = "x", .dtype = IR_f32, .rank = 1, .dims = {WIDTH}}},
                                             {.field = {.name = "label", .dtype = IR_i64}}};
    const rt_source source = {.fields = fields, .n_fields = 2, .rows = ROWS, .read = decode};
    rt_dataset *data = NULL;
    check(rt_dataset_open_source(&source, RT_TRAIN, NULL, d, &data), d);
    return data;
}

static double train(rt_session *s, const ir_module *m, int workers, diag *d)
{
    rt_dataset *data = open_data(d);
    rt_trainer *t = NULL;
    const rt_trainer_options o = {.batch = BATCH, .steps = STEPS, .lr = 0.01, .workers = workers};
    check(rt_trainer_open(s, m, data, &o, d, &t), d);
    const double began = seconds(CLOCK_MONOTONIC);
    check(rt_trainer_run(t, &(rt_train_plan){0}, d), d);
    const double rate = STEPS * BATCH / (seconds(CLOCK_MONOTONIC) - began);
    rt_trainer_close(t);
    rt_dataset_close(data);
    return rate;
}

static double read_only(diag *d)
{
    rt_dataset *data = open_data(d);
    float *x = malloc(sizeof *x * BATCH * WIDTH);
    const double began = seconds(CLOCK_MONOTONIC);
    for (int i = 0; i < STEPS; i++) {
        const rt_position p = {.epoch = (uint64_t)i / (ROWS / BATCH), .batch = (uint64_t)i % (ROWS / BATCH)};
        check(dataset_batch(data, &p, BATCH, 0, x, IR_f32, d), d);
    }
    const double rate = STEPS * BATCH / (seconds(CLOCK_MONOTONIC) - began);
    free(x);
    rt_dataset_close(data);
    return rate;
}

static ir_module *compile_model(diag *d)
{
    compile_options o = compile_options_default();
    ir_module *m = NULL;
    o.level = PASS_O0;
    o.loss = "ce";
    o.optimizer = "sgd";
    check(ir_parse(model, sizeof model - 1, "model", d, &m), d);
    check(test_compile(m, &o, d), d);
    return m;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, ascending);
    return values[n / 2];
}

int main(int argc, char **argv)
{
    static const int workers[] = {-1, 1, 2};
    static double step[MAX_ROUNDS], decoder[MAX_ROUNDS], both[3][MAX_ROUNDS], ratio[3][MAX_ROUNDS];
    diag *d = diag_new(NULL, NULL);
    rt_session *s = NULL;
    const int wanted = argc > 1 ? atoi(argv[1]) : 5, rounds = wanted < 1            ? 1
                                                              : wanted > MAX_ROUNDS ? MAX_ROUNDS
                                                                                    : wanted;
    ir_module *m = compile_model(d);
    check(rt_session_open(m, &(rt_session_options){.device = "cpu", .threads = 1}, d, &s), d);
    work = 0;
    (void)train(s, m, -1, d);
    for (int i = 0; i < rounds; i++) {
        work = 0;
        step[i] = train(s, m, -1, d);
        work = (int64_t)(speed() / step[i]);
        decoder[i] = read_only(d);
        for (int k = 0; k < 3; k++) {
            both[k][i] = train(s, m, workers[k], d);
            ratio[k][i] = both[k][i] / (step[i] < decoder[i] ? step[i] : decoder[i]);
        }
    }
    const double alone = median(step, rounds), decoding = median(decoder, rounds);
    for (int k = 0; k < 3; k++)
        printf("| %d | %.0f | %.0f | %.0f | %.3f |\n", workers[k] < 0 ? 0 : workers[k], alone, decoding,
               median(both[k], rounds), median(ratio[k], rounds));
    rt_session_close(s);
    ir_module_free(m);
    diag_free(d);
    return 0;
}
