/* products.c - random operands and expected values of products. */
#include "tests/ops/products.h"

#include "kernels/cpu/isa.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/philox.h"

int run_candidate;
static int wrong_candidates;
static uint64_t seed = 1;

k_view view_make(ir_dtype t, int rank, const int64_t *dims)
{
    k_view v = {.dtype = t, .rank = rank};
    for (int i = 0; i < rank; i++) v.dims[i] = dims[i];
    size_t bytes = (k_bytes(&v) + 127) / 64 * 64;
    v.data = aligned_alloc(64, bytes);
    memset(v.data, 0xff, bytes); /* NaN in every float type */
    return v;
}

void view_fill(k_view *v)
{
    seed++;
    for (int64_t i = 0; i < k_count(v); i++) {
        float x = philox_unit(philox_word(7, seed, (uint64_t)i)) * 2 - 1;
        ir_store_f64(v->dtype, (char *)v->data + i * (int64_t)ir_dtype_size(v->dtype), x);
    }
}

double *view_values(const k_view *v)
{
    double *values = malloc(((size_t)k_count(v) + 1) * sizeof *values);
    for (int64_t i = 0; k_present(v) && i < k_count(v); i++)
        values[i] = ir_load_f64(v->dtype, (char *)v->data + i * (int64_t)ir_dtype_size(v->dtype));
    return values;
}

/* Tolerance for rounding the result and, over `depth` products of random numbers of magnitude at most 1, each partial sum
 * and what products of f16 by own code lack (kernels/cpu/gemm_amx.c). */
static double tolerance(ir_dtype in, ir_dtype out, double depth)
{
    double low = out == IR_bf16 ? 0x1p-8 : out == IR_f16 ? 0x1p-11 : out == IR_f32 ? 0x1p-23 : 0x1p-50;
    return low + (in == IR_f64 ? 0x1p-52 : 0x1p-24) * (depth + 4) + (in == IR_f16 ? 0x1p-16 * sqrt(depth) : 0);
}

void view_check(const char *what, const k_view *v, const double *expected, double depth, ir_dtype in)
{
    if (run_candidate < 0) return;
    double *actual = view_values(v), limit = tolerance(in, v->dtype, depth);
    for (int64_t i = 0; i < k_count(v); i++) {
        double error = fabs(actual[i] - expected[i]);
        if (error <= limit * (1 + fabs(expected[i]))) continue;
        char text[200];
        snprintf(text, sizeof text, "%s %s->%s (%s): element %lld is %.9g, expected %.9g", what, ir_dtype_name(in),
                 ir_dtype_name(v->dtype), cpu_isa_name(cpu_isa()), (long long)i, actual[i], expected[i]);
        if (!run_candidate) fail_msg("%s", text);
        print_error("%s, algorithm %d\n", text, run_candidate);
        wrong_candidates++;
        break;
    }
    free(actual);
}

int next_candidate(void) { return run_candidate > 0 && run_candidate < 48 ? run_candidate + 1 : 0; }

bool part_has_row(size_t i)
{
    size_t part, parts;
    const char *text = getenv("OPS_PART");
    return text && sscanf(text, "%zu/%zu", &part, &parts) == 2 && parts && i % parts == part;
}

void check_candidates(void)
{
    const int wrong = wrong_candidates;
    wrong_candidates = 0;
    if (wrong) fail_msg("%d results are wrong", wrong);
}

void run_kernel(ir_op op, k_view *in, int n_in, k_view *out, int n_out, const ir_attr *attr)
{
    char error[256] = "";
    k_context ctx = {.threads = THREADS, .error = error, .error_size = sizeof error, .candidate = run_candidate};
    k_args args = {.op = op, .in = in, .out = out, .n_in = n_in, .n_out = n_out, .attr = attr, .ctx = &ctx};
    ops_next_isa();
    /* twice, which tests that a primitive can be reused after a run */
    const ampc_status status = ops_run(&args, false, 2);
    if (status == AMPC_UNSUPPORTED && run_candidate > 1) run_candidate = -1;
    else if (status != AMPC_OK) fail_msg("%s: %s", ir_op_get(op)->name, error);
}

const type_pair types[N_TYPES] = {{IR_f64, IR_f64}, {IR_f32, IR_f32},  {IR_f16, IR_f16},  {IR_bf16, IR_bf16},
                                  {IR_f16, IR_f32}, {IR_bf16, IR_f32}, {IR_f32, IR_bf16}, {IR_bf16, IR_f16},
                                  {IR_f64, IR_f32}, {IR_f32, IR_f64}};

int next_types(int t)
{
    do t++;
    while (t < N_TYPES && !(ops_takes(types[t].in) && ops_takes(types[t].out)));
    return t;
}
