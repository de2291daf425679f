/* speed.c - measures how fast the processor multiplies matrices of each type.
 *
 * Instructions for a type do not mean that it is fast: AVX512_BF16 is 1.8 times as fast as f32 on Zen 4, and half as
 * fast on Sapphire Rapids, which expects AMX to be used. So the kernel of matmul is timed, once per process, for a few
 * milliseconds. */
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROWS = 128, DEPTH = 256, COLUMNS = 512, ROUNDS = 7 };

static const ir_dtype types[] = {IR_f32, IR_bf16, IR_f16};
enum { TYPES = sizeof types / sizeof *types };

typedef struct probe {
    k_view in[3], out;
    k_args args;
    double best; /* seconds; INFINITY: it could not run */
} probe;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static k_view matrix(ir_dtype t, int64_t rows, int64_t columns)
{
    k_view v = {.dtype = t, .rank = 2, .dims = {rows, columns}};
    v.data = aligned_alloc(64, k_bytes(&v));
    if (v.data) memset(v.data, 0, k_bytes(&v));
    return v;
}

/* Its first run is not timed: it may compile code. */
static void open_probe(probe *p, ir_dtype t, const ir_attr *attr, const k_context *ctx)
{
    size_t workspace = 0;
    *p = (probe){.in = {matrix(t, ROWS, DEPTH), matrix(t, DEPTH, COLUMNS)}, .best = INFINITY};
    p->out = matrix(t, ROWS, COLUMNS);
    p->args = (k_args){
        .op = IR_OP_matmul, .in = p->in, .out = &p->out, .n_in = 3, .n_out = 1, .attr = attr, .ctx = ctx};
    if (!p->in[0].data || !p->in[1].data || !p->out.data) return;
    if (cpu_matmul.prepare(&p->args, &p->args.state, &workspace) != AMPC_OK) return;
    if (cpu_matmul.bind(&p->args, &p->args.bound) != AMPC_OK) return;
    p->args.workspace = aligned_alloc(64, workspace / 64 * 64 + 64);
    if (p->args.workspace && cpu_matmul.run(&p->args) == AMPC_OK) p->best = 1e9;
}

static void close_probe(probe *p)
{
    cpu_matmul.unbind(p->args.state, p->args.bound);
    cpu_matmul.release(p->args.state);
    free(p->args.workspace);
    free(p->in[0].data);
    free(p->in[1].data);
    free(p->out.data);
}

static void time_probe(probe *p)
{
    if (p->best == INFINITY) return;
    const double start = seconds();
    if (cpu_matmul.run(&p->args) != AMPC_OK) p->best = INFINITY;
    else p->best = fmin(p->best, seconds() - start);
}

/* The types alternate, so that what else the machine does slows all of them, and the best of each counts. */
static void measure(double *speed)
{
    char error[64];
    const k_context ctx = {.threads = 1, .error = error, .error_size = sizeof error};
    static const ir_attr attr[2]; /* nothing is transposed */
    probe probes[TYPES];
    for (int i = 0; i < TYPES; i++) open_probe(&probes[i], types[i], attr, &ctx);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < TYPES; i++) time_probe(&probes[i]);
    for (int i = 0; i < TYPES; i++) speed[types[i]] = probes[0].best < INFINITY ? probes[0].best / probes[i].best : 0;
    for (int i = 0; i < TYPES; i++) close_probe(&probes[i]);
}

double cpu_speed(ir_dtype t)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static double speed[IR_DTYPE_COUNT];
    static bool is_known;
    pthread_mutex_lock(&lock);
    if (!is_known) {
        const char *given = getenv("AMPC_CPU_SPEED");
        if (given && sscanf(given, "%lf,%lf", &speed[IR_bf16], &speed[IR_f16]) == 2) speed[IR_f32] = 1;
        else measure(speed);
        is_known = true;
    }
    const double result = speed[t];
    pthread_mutex_unlock(&lock);
    return result;
}
