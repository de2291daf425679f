/* ops.c - the harness of the numeric table (see ops.h). */
#include "tests/ops/ops.h"

#include "ir/base/philox.h"
#include "kernels/cpu/isa.h"
#include "kernels/epilogue.h"
#include "tests/test.h"

#include <math.h>

static uint64_t draws;

static void *allocate(size_t bytes)
{
    void *p = NULL;
    assert_int_equal(posix_memalign(&p, 64, bytes ? bytes : 1), 0);
    return p;
}

int64_t case_count(const k_view *v) { return k_count(v); }

void case_coordinates(const k_view *v, int64_t i, int64_t *at)
{
    for (int d = v->rank - 1; d >= 0; d--) {
        at[d] = i % v->dims[d];
        i /= v->dims[d];
    }
}

int64_t case_offset(const k_view *v, const int64_t *at)
{
    int64_t offset = 0;
    for (int d = 0; d < v->rank; d++) offset = offset * v->dims[d] + at[d];
    return offset;
}

int64_t case_broadcast(const k_view *v, const k_view *to, int64_t i)
{
    int64_t at[IR_MAX_RANK], own[IR_MAX_RANK];
    case_coordinates(to, i, at);
    for (int d = 0; d < v->rank; d++) own[d] = v->dims[d] == 1 ? 0 : at[d + to->rank - v->rank];
    return case_offset(v, own);
}

ops_case case_of(ir_op op)
{
    ops_next_isa();
    ops_case c = {.op = op, .units = 4};
    for (int i = 0; i < ir_op_get(op)->n_attr; i++) c.attr[i] = ir_op_get(op)->attr[i].initial;
    return c;
}

void case_begin(ops_case *c, ir_op op) { *c = case_of(op); }

static k_view view_of(ir_dtype t, int rank, const int64_t *dims)
{
    k_view v = {.dtype = t, .rank = rank};
    for (int i = 0; i < rank; i++) v.dims[i] = dims[i];
    if (t != IR_NO_DTYPE) v.data = allocate(k_bytes(&v));
    return v;
}

void case_restart_draws(void) { draws = 0; }

double *case_in(ops_case *c, ir_dtype t, int rank, const int64_t *dims, double low, double high)
{
    int i = c->n_in++;
    assert_true(i < CASE_MAX);
    c->in[i] = view_of(t, rank, dims);
    c->x[i] = allocate((size_t)k_count(&c->in[i]) * sizeof(double));
    for (int64_t k = 0; k < k_count(&c->in[i]); k++) {
        double unit = (double)philox_word(7, 1, draws++) * 0x1p-32;
        c->x[i][k] = ir_dtype_is_float(t) ? low + (high - low) * unit : floor(low + (high - low + 1) * unit);
    }
    return c->x[i];
}

void case_absent(ops_case *c) { c->in[c->n_in++] = (k_view){.dtype = IR_NO_DTYPE}; }

static int addend_at(const ops_case *c)
{
    return k_extra_in_at(c->op, k_listed(c->op, c->n_in - c->n_extra), K_SLOT(epilogue, addend));
}

static bool has_addend(const ops_case *c) { return ops_on->kernel(c->op)->adds && addend_at(c) < c->n_in; }

void case_addend(ops_case *c, ir_dtype t, int rank, const int64_t *dims, double low, double high)
{
    if (!ops_on->kernel(c->op)->adds) return;
    for (const int at = addend_at(c); c->n_in < at; c->n_extra++) case_absent(c);
    case_in(c, t, rank, dims, low, high);
    c->n_extra++;
}

void case_out(ops_case *c, ir_dtype t, int rank, const int64_t *dims)
{
    int i = c->n_out++;
    assert_true(i < CASE_MAX);
    c->out[i] = view_of(t, rank, dims);
    c->expected[i] = allocate((size_t)k_count(&c->out[i]) * sizeof(double));
}

void case_list(ops_case *c, int attr, const int64_t *items, int count)
{
    c->attr[attr].list.items = items;
    c->attr[attr].list.count = count;
}

void case_end(ops_case *c)
{
    for (int i = 0; i < CASE_MAX; i++) {
        free(c->in[i].data);
        free(c->out[i].data);
        free(c->x[i]);
        free(c->expected[i]);
    }
}

static ampc_status run_on(ops_case *c, k_view *out, int threads)
{
    const k_context context = {.threads = threads, .error = c->error, .error_size = sizeof c->error};
    k_args args = {.op = c->op,
                   .in = c->in,
                   .out = out,
                   .n_in = c->n_in,
                   .n_out = c->n_out,
                   .attr = c->attr,
                   .ctx = &context,
                   .listed = k_listed(c->op, c->n_in - c->n_extra)};
    return ops_run(&args, threads != 1, 1);
}

void case_encode(ops_case *c)
{
    for (int i = 0; i < c->n_in; i++) {
        const k_view *v = &c->in[i];
        size_t size = k_present(v) ? ir_dtype_size(v->dtype) : 0;
        for (int64_t k = 0; k_present(v) && k < k_count(v); k++) {
            char *at = (char *)v->data + (size_t)k * size;
            ir_store_f64(v->dtype, at, c->x[i][k]);
            c->x[i][k] = ir_load_f64(v->dtype, at);
        }
    }
}

ampc_status case_run(ops_case *c)
{
    case_encode(c);
    return run_on(c, c->out, 1);
}

static void describe(const ops_case *c, char *text, size_t size)
{
    int n = snprintf(text, size, "%s", ir_op_get(c->op)->name);
    for (int i = 0; i < c->n_in + c->n_out; i++) {
        const k_view *v = i < c->n_in ? &c->in[i] : &c->out[i - c->n_in];
        n += snprintf(text + n, size - (size_t)n, "%s%s[", i == c->n_in ? " -> " : " ", ir_dtype_name(v->dtype));
        for (int d = 0; d < v->rank; d++)
            n += snprintf(text + n, size - (size_t)n, "%s%lld", d ? "," : "", (long long)v->dims[d]);
        n += snprintf(text + n, size - (size_t)n, "]");
    }
}

/* Returns half a unit in the last place of a number of magnitude 1. */
static double half_ulp(ir_dtype t)
{
    return t == IR_f64 ? 0x1p-53 : t == IR_f32 ? 0x1p-24 : t == IR_f16 ? 0x1p-11 : t == IR_bf16 ? 0x1p-8 : 0;
}

/* Uses f64 only if all floats are f64, since arithmetic may otherwise be in f32. */
static double epsilon(const ops_case *c)
{
    for (int i = 0; i < c->n_in; i++)
        if (ir_dtype_is_float(c->in[i].dtype) && c->in[i].dtype != IR_f64) return 0x1p-24;
    return c->n_in && c->in[0].dtype == IR_f64 ? 0x1p-53 : 0x1p-24;
}

static bool close_enough(double got, double expected, double bound, ir_dtype t)
{
    if (isnan(expected) || isnan(got)) return isnan(expected) && isnan(got);
    if (isinf(expected) || isinf(got)) {
        double limit = t == IR_f16 ? 65504 : t == IR_f64 ? 1.79e308 : 3.38e38;
        return got == expected || (isinf(got) && fabs(expected) + bound >= limit && (got > 0) == (expected > 0));
    }
    return fabs(got - expected) <= bound;
}

static void compare(const ops_case *c, int i)
{
    const k_view *v = &c->out[i];
    double largest = 0, tiny = v->dtype == IR_f16 ? 0x1p-25 : v->dtype == IR_f64 ? 0 : 0x1p-126;
    int64_t n = k_present(v) ? k_count(v) : 0;
    for (int64_t k = 0; k < n; k++)
        if (isfinite(c->expected[i][k])) largest = fmax(largest, fabs(c->expected[i][k]));
    for (int64_t k = 0; k < n; k++) {
        double expected = c->expected[i][k],
               got = ir_load_f64(v->dtype, (char *)v->data + (size_t)k * ir_dtype_size(v->dtype));
        if (!ir_dtype_is_float(v->dtype)) { /* the reference wraps like the type */
            uint64_t raw = 0;
            if (fabs(expected) < 9e18) ir_store_i64(v->dtype, &raw, (int64_t)expected);
            else ir_store_f64(v->dtype, &raw, expected); /* saturates */
            expected = ir_load_f64(v->dtype, &raw);
        }
        double size = fmax(fabs(expected), fmax(c->floor * largest, c->size));
        double bound = c->units * epsilon(c) * size + half_ulp(v->dtype) * fabs(expected) * 1.01 + tiny;
        if (!ir_dtype_is_float(v->dtype) || c->units < 0) bound = 0;
        if (close_enough(got, expected, bound, v->dtype)) continue;
        char text[512];
        describe(c, text, sizeof text);
        fail_msg("%s: result %d, element %lld: %.17g instead of %.17g (bound %.3g, %s)", text, i, (long long)k, got,
                 expected, bound, cpu_isa_name(cpu_isa()));
    }
}

static void same_bits(const ops_case *c, const k_view *a, const k_view *b, const char *what)
{
    if (!k_present(a) || k_bytes(a) == 0 || memcmp(a->data, b->data, k_bytes(a)) == 0) return;
    char text[512];
    describe(c, text, sizeof text);
    fail_msg("%s: %s yields different bits", text, what);
}

static bool same_type(const k_view *a, const k_view *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

/* Runs with result `o` in place of operand i. */
static void check_in_place(ops_case *c, int i, int o)
{
    k_view out[CASE_MAX], saved = {.data = NULL};
    memcpy(out, c->out, sizeof out);
    if (!k_present(&c->in[i]) || !k_present(&c->out[o]) || !same_type(&c->in[i], &c->out[o])) return;
    for (int k = 0; k < c->n_out; k++)
        if (k_present(&out[k]) && k != o) out[k].data = allocate(k_bytes(&out[k]));
    saved.data = allocate(k_bytes(&c->in[i]));
    memcpy(saved.data, c->in[i].data, k_bytes(&c->in[i]));
    out[o].data = c->in[i].data;
    assert_int_equal(run_on(c, out, 1), AMPC_OK);
    for (int k = 0; k < c->n_out; k++) same_bits(c, &c->out[k], &out[k], "in place");
    memcpy(c->in[i].data, saved.data, k_bytes(&c->in[i]));
    free(saved.data);
    for (int k = 0; k < c->n_out; k++)
        if (k_present(&out[k]) && k != o) free(out[k].data);
}

static void check_threads(ops_case *c)
{
    k_view out[CASE_MAX];
    memcpy(out, c->out, sizeof out);
    for (int k = 0; k < c->n_out; k++)
        if (k_present(&out[k])) out[k].data = allocate(k_bytes(&out[k]));
    assert_int_equal(run_on(c, out, CASE_THREADS), AMPC_OK);
    for (int k = 0; k < c->n_out; k++) {
        same_bits(c, &c->out[k], &out[k], "another number of threads");
        if (k_present(&out[k])) free(out[k].data);
    }
}

static void check_operands(const ops_case *c)
{
    for (int i = 0; i < c->n_in; i++)
        for (int64_t k = 0; k_present(&c->in[i]) && k < k_count(&c->in[i]); k++) {
            double v = ir_load_f64(c->in[i].dtype, (char *)c->in[i].data + (size_t)k * ir_dtype_size(c->in[i].dtype));
            if (v != c->x[i][k] && !(isnan(v) && isnan(c->x[i][k])))
                fail_msg("%s: operand %d was changed", ir_op_get(c->op)->name, i);
        }
}

void case_check(ops_case *c, ops_reference *reference)
{
    ampc_status status = case_run(c);
    if (status) fail_msg("%s: status %d: %s", ir_op_get(c->op)->name, status, c->error);
    reference(c);
    for (int64_t i = 0; has_addend(c) && i < k_count(&c->out[0]); i++) c->expected[0][i] += c->x[addend_at(c)][i];
    for (int i = 0; i < c->n_out; i++) compare(c, i);
    check_operands(c);
    if (!ops_brief) check_threads(c);
    if (has_addend(c)) check_in_place(c, addend_at(c), 0);
    const ir_op_info *op = ir_op_get(c->op);
    if (!(op->traits & IR_INPLACE)) return;
    if (c->n_out == 1 || (op->n_out == 1 && op->variadic_out < 0))
        for (int i = 0; i < c->n_in; i++) check_in_place(c, i, 0);
    else
        for (int i = 0; i < c->n_out && i < c->n_in; i++) check_in_place(c, i, i);
}

void case_finish(ops_case *c, ops_reference *reference)
{
    case_check(c, reference);
    case_end(c);
}
