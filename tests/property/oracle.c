/* oracle.c - the operators of the graphs as plain loops that find the source of each result element. Written
 * from the operator definitions alone, in order not to share errors with the code under test. */
#include "tests/property/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 20000 };

/* Arrays of more than LARGEST elements have count -1 and no elements. */
static array make(int rank, const int64_t *dims)
{
    array t = {.rank = rank, .count = 1};
    bool empty = false;
    for (int i = 0; i < rank; i++) {
        t.dims[i] = dims[i];
        empty |= dims[i] == 0;
        t.count = t.count > LARGEST ? t.count : t.count * dims[i];
    }
    if (empty) t.count = 0;
    if (t.count > LARGEST) t.count = -1;
    t.data = calloc((size_t)(t.count > 0 ? t.count : 0) + 1, sizeof *t.data);
    return t;
}

static void unravel(const array *t, int64_t i, int64_t *at)
{
    for (int a = t->rank - 1; a >= 0; a--) {
        at[a] = i % t->dims[a];
        i /= t->dims[a];
    }
}

static int64_t ravel(const array *t, const int64_t *at)
{
    int64_t i = 0;
    for (int a = 0; a < t->rank; a++) i = i * t->dims[a] + at[a];
    return i;
}

static int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/* ---- movement ---- */

static int64_t value_of(const bound *b, const array *values)
{
    return b->value < 0 ? b->number : (values[b->value].dims[b->axis] + b->add) / b->div;
}

static verdict run_slice(const step *s, const array *v, const array *x, array *y)
{
    int64_t dims[MAX_RANK], start[MAX_RANK] = {0}, step_of[MAX_RANK], at[MAX_RANK];
    for (int a = 0; a < x->rank; a++) dims[a] = x->dims[a], step_of[a] = 1;
    for (int i = 0; i < s->count; i++) {
        const int64_t d = x->dims[s->axes[i]], by = s->list[i];
        int64_t from = value_of(&s->a[i], v), to = value_of(&s->b[i], v), n = 0;
        if (from < 0) from += d;
        if (to < 0) to += d;
        from = clamp(from, 0, by > 0 ? d : d - 1);
        to = by > 0 ? clamp(to, 0, d) : clamp(to, -1, d - 1);
        if (d)
            for (int64_t p = from; by > 0 ? p < to : p > to; p += by) n++;
        dims[s->axes[i]] = n;
        start[s->axes[i]] = from;
        step_of[s->axes[i]] = by;
    }
    *y = make(x->rank, dims);
    for (int64_t i = 0; i < y->count; i++) {
        unravel(y, i, at);
        for (int a = 0; a < x->rank; a++) at[a] = start[a] + at[a] * step_of[a];
        y->data[i] = x->data[ravel(x, at)];
    }
    return DEFINED;
}

/* Returns the source index of position p of a padded axis in the given mode; -1: the pad value. */
static int64_t reflected(int64_t p, int64_t d, char mode)
{
    if (mode == 'c') return p >= 0 && p < d ? p : -1;
    if (mode == 'e') return clamp(p, 0, d - 1);
    while (p < 0 || p >= d) {
        if (mode == 'w') p += p < 0 ? d : -d;
        else if (d == 1) p = 0;
        else p = p < 0 ? -p : 2 * (d - 1) - p;
    }
    return p;
}

/* Negative amounts remove elements first; the modes repeat those that are left. */
static verdict run_pad(const step *s, const array *x, array *y)
{
    int64_t dims[MAX_RANK], first[MAX_RANK], left[MAX_RANK], at[MAX_RANK];
    for (int a = 0; a < x->rank; a++) {
        int64_t before = s->list[a], after = s->list[x->rank + a];
        dims[a] = x->dims[a] + before + after;
        first[a] = before < 0 ? -before : 0;
        left[a] = x->dims[a] - first[a] + (after < 0 ? after : 0);
        if (-before > x->dims[a] || -after > x->dims[a] || dims[a] < 0) return REFUSED;
        if (*s->mode != 'c' && (left[a] < 0 || (!left[a] && dims[a]))) return REFUSED;
    }
    *y = make(x->rank, dims);
    for (int64_t i = 0; i < y->count; i++) {
        bool inside = true;
        unravel(y, i, at);
        for (int a = 0; a < x->rank && inside; a++) {
            at[a] = reflected(at[a] - s->list[a] - first[a], left[a], *s->mode);
            inside = at[a] >= 0;
            at[a] += first[a];
        }
        y->data[i] = inside ? x->data[ravel(x, at)] : (double)s->value;
    }
    return DEFINED;
}

static verdict run_split(const step *s, const array *x, array *y)
{
    int64_t whole = x->dims[s->axis], first = s->kind == SPLIT ? s->a[0].number : (whole + 1) / 2, at[MAX_RANK];
    if (first > whole) return REFUSED;
    for (int k = 0; k < 2; k++) {
        array t = *x;
        t.dims[s->axis] = k ? whole - first : first;
        y[k] = make(t.rank, t.dims);
        for (int64_t i = 0; i < y[k].count; i++) {
            unravel(&y[k], i, at);
            at[s->axis] += k ? first : 0;
            y[k].data[i] = x->data[ravel(x, at)];
        }
    }
    return DEFINED;
}

static verdict run_concat(const step *s, const array *x, const array *z, array *y)
{
    array t = *x;
    int64_t at[MAX_RANK], first = x->dims[s->axis];
    if (x->rank != z->rank) return REFUSED;
    for (int a = 0; a < x->rank; a++)
        if (a != s->axis && x->dims[a] != z->dims[a]) return REFUSED;
    t.dims[s->axis] += z->dims[s->axis];
    *y = make(t.rank, t.dims);
    for (int64_t i = 0; i < y->count; i++) {
        unravel(y, i, at);
        bool second = at[s->axis] >= first;
        if (second) at[s->axis] -= first;
        y->data[i] = second ? z->data[ravel(z, at)] : x->data[ravel(x, at)];
    }
    return DEFINED;
}

static verdict run_transpose(const step *s, const array *x, array *y)
{
    int64_t dims[MAX_RANK], at[MAX_RANK], from[MAX_RANK];
    for (int a = 0; a < x->rank; a++) dims[a] = x->dims[s->list[a]];
    *y = make(x->rank, dims);
    for (int64_t i = 0; i < y->count; i++) {
        unravel(y, i, at);
        for (int a = 0; a < x->rank; a++) from[s->list[a]] = at[a];
        y->data[i] = x->data[ravel(x, from)];
    }
    return DEFINED;
}

static verdict run_reshape(const step *s, const array *x, array *y)
{
    int64_t dims[MAX_RANK + 1] = {1, 1};
    int rank = 0;
    if (s->kind == FLATTEN) {
        rank = 2;
        for (int a = 0; a < x->rank; a++) dims[a >= s->axis] *= x->dims[a];
    } else if (s->kind == MERGE) {
        for (int a = 0; a < x->rank; a++) {
            if (a == s->axis + 1) dims[rank - 1] *= x->dims[a];
            else dims[rank++] = x->dims[a];
        }
    } else {
        for (int a = 0; a < x->rank; a++) {
            if (s->kind == UNSQUEEZE && a == s->axis) dims[rank++] = 1;
            if (s->kind == UNSQUEEZE || a != s->axis) dims[rank++] = x->dims[a];
        }
        if (s->kind == UNSQUEEZE && s->axis == x->rank) dims[rank++] = 1;
        if (s->kind == SQUEEZE && x->dims[s->axis] != 1) return REFUSED;
    }
    *y = make(rank, dims);
    for (int64_t i = 0; i < y->count; i++) y->data[i] = x->data[i];
    if (s->kind != MERGE || !s->infer) return DEFINED;
    for (int a = 0; a < rank; a++)
        if (a != s->axis && !dims[a]) return UNDEFINED; /* -1 would mean 0/0 */
    return DEFINED;
}

static verdict run_tile(const step *s, const array *x, array *y)
{
    int64_t dims[MAX_RANK], at[MAX_RANK];
    for (int a = 0; a < x->rank; a++) dims[a] = x->dims[a] * s->list[a];
    *y = make(x->rank, dims);
    for (int64_t i = 0; i < y->count; i++) {
        unravel(y, i, at);
        for (int a = 0; a < x->rank; a++) at[a] %= x->dims[a];
        y->data[i] = x->data[ravel(x, at)];
    }
    return DEFINED;
}

static verdict run_gather(const step *s, const array *x, array *y)
{
    int64_t dims[MAX_RANK], at[MAX_RANK], size = x->dims[s->axis];
    memcpy(dims, x->dims, sizeof dims);
    dims[s->axis] = s->count;
    *y = make(x->rank, dims);
    for (int k = 0; k < s->count && y->count; k++)
        if (s->list[k] < -size || s->list[k] >= size) return REFUSED;
    for (int64_t i = 0; i < y->count; i++) {
        unravel(y, i, at);
        const int64_t index = s->list[at[s->axis]];
        at[s->axis] = index < 0 ? index + size : index;
        y->data[i] = x->data[ravel(x, at)];
    }
    return DEFINED;
}

/* ---- elementwise ---- */

static verdict run_binary(const step *s, const array *x, const array *z, array *y)
{
    int64_t dims[MAX_RANK], at[MAX_RANK], p[MAX_RANK], q[MAX_RANK];
    if (x->rank != z->rank) return REFUSED;
    for (int a = 0; a < x->rank; a++) {
        if (x->dims[a] != z->dims[a] && x->dims[a] != 1 && z->dims[a] != 1) return REFUSED;
        dims[a] = x->dims[a] == 1 ? z->dims[a] : x->dims[a];
    }
    *y = make(x->rank, dims);
    for (int64_t i = 0; i < y->count; i++) {
        unravel(y, i, at);
        for (int a = 0; a < x->rank; a++) {
            p[a] = x->dims[a] == 1 ? 0 : at[a];
            q[a] = z->dims[a] == 1 ? 0 : at[a];
        }
        double u = x->data[ravel(x, p)], w = z->data[ravel(z, q)];
        y->data[i] = s->kind == ADD ? u + w : s->kind == MUL ? u * w : u;
    }
    return DEFINED;
}

static verdict run_same(const step *s, const array *x, array *y)
{
    int64_t at[MAX_RANK + 1] = {0};
    *y = make(x->rank, x->dims);
    for (int64_t i = 0; i < y->count; i++) {
        double v = x->data[i];
        unravel(y, i, at);
        switch (s->kind) {
        case NEG: v = -v; break;
        case RELU: v = v < 0 ? 0 : v; break; /* keeps NaN */
        case SIN: v = sin(v); break;
        case FILL: v *= 2; break;
        case RANGE: v += (double)at[x->rank - 1]; break;
        default: { /* Trilu */
            int64_t diagonal = at[x->rank - 1] - at[x->rank - 2];
            if (s->upper ? diagonal < s->number : diagonal > s->number) v = 0;
        }
        }
        y->data[i] = v;
    }
    return DEFINED;
}

static verdict run_softmax(const step *s, const array *x, array *y)
{
    int64_t at[MAX_RANK], size = x->dims[s->axis];
    *y = make(x->rank, x->dims);
    for (int64_t i = 0; i < y->count; i++) {
        double sum = 0, max = -INFINITY;
        unravel(y, i, at);
        for (int64_t k = 0; k < size; k++) at[s->axis] = k, max = fmax(max, x->data[ravel(x, at)]);
        for (int64_t k = 0; k < size; k++) at[s->axis] = k, sum += exp(x->data[ravel(x, at)] - max);
        y->data[i] = exp(x->data[i] - max) / sum;
    }
    return DEFINED;
}

/* ---- sums and windows ---- */

static double larger(double a, double b) { return isnan(a) || a > b ? a : b; }

static verdict run_reduction(const step *s, const array *x, array *y)
{
    bool reduced[MAX_RANK] = {false};
    int64_t dims[MAX_RANK], at[MAX_RANK], terms = 1;
    int rank = 0;
    bool keep = s->keep || s->kind == GLOBAL_POOL, mean = s->kind != SUM;
    for (int i = 0; i < s->count && s->kind != GLOBAL_POOL; i++) reduced[s->list[i]] = true;
    for (int a = 2; a < x->rank && s->kind == GLOBAL_POOL; a++) reduced[a] = true;
    for (int a = 0; a < x->rank; a++) {
        if (reduced[a]) terms *= x->dims[a];
        if (!reduced[a]) dims[rank++] = x->dims[a];
        else if (keep) dims[rank++] = 1;
    }
    *y = make(rank, dims);
    for (int64_t i = 0; i < x->count; i++) {
        int64_t to[MAX_RANK];
        int k = 0;
        unravel(x, i, at);
        for (int a = 0; a < x->rank; a++) {
            if (!reduced[a]) to[k++] = at[a];
            else if (keep) to[k++] = 0;
        }
        y->data[ravel(y, to)] += x->data[i];
    }
    for (int64_t i = 0; mean && i < y->count; i++) y->data[i] /= (double)terms;
    return DEFINED;
}

static verdict run_pool(const step *s, const array *x, array *y)
{
    int n = s->count;
    const int64_t *kernel = s->list, *stride = s->list + n, *dilation = s->list + 2 * n, *before = s->list + 3 * n,
                  *after = s->list + 4 * n;
    int64_t dims[MAX_RANK], at[MAX_RANK], from[MAX_RANK];
    verdict result = DEFINED;
    memcpy(dims, x->dims, sizeof dims);
    for (int a = 0; a < n; a++) {
        int64_t size = x->dims[2 + a], padded = size + before[a] + after[a], reach = (kernel[a] - 1) * dilation[a] + 1;
        if (reach > padded) return REFUSED;
        dims[2 + a] = (padded - reach) / stride[a] + 1;
        bool over = (padded - reach) % stride[a] != 0;
        if (s->ceil && over && dims[2 + a] * stride[a] < size + before[a]) dims[2 + a]++;
    }
    *y = make(x->rank, dims);
    for (int64_t i = 0; i < y->count; i++) {
        int64_t taps = 1, inside = 0, counted = 0;
        double sum = 0, max = -INFINITY;
        unravel(y, i, at);
        for (int a = 0; a < n; a++) taps *= kernel[a];
        for (int64_t k = 0; k < taps; k++) {
            bool in = true, in_padding = true;
            int64_t rest = k;
            memcpy(from, at, sizeof from);
            for (int a = 0; a < n; a++) {
                int64_t p = at[2 + a] * stride[a] + rest % kernel[a] * dilation[a] - before[a];
                rest /= kernel[a];
                in &= p >= 0 && p < x->dims[2 + a];
                in_padding &= p >= -before[a] && p < x->dims[2 + a] + after[a];
                from[2 + a] = p;
            }
            counted += s->count_pad ? in_padding : in;
            if (!in) continue;
            inside++;
            sum += x->data[ravel(x, from)];
            max = larger(max, x->data[ravel(x, from)]);
        }
        if (!inside) result = UNDEFINED; /* only padding */
        y->data[i] = s->kind == MAX_POOL ? max : sum / (double)counted;
    }
    return result;
}

/* ---- all ---- */

static verdict run_step(const step *s, const array *v, array *y)
{
    const array *x = &v[s->in[0]], *z = &v[s->in[1]];
    switch (s->kind) {
    case SLICE: return run_slice(s, v, x, y);
    case PAD: return run_pad(s, x, y);
    case SPLIT:
    case CHUNK: return run_split(s, x, y);
    case CONCAT: return run_concat(s, x, z, y);
    case TRANSPOSE: return run_transpose(s, x, y);
    case MERGE:
    case FLATTEN:
    case UNSQUEEZE:
    case SQUEEZE: return run_reshape(s, x, y);
    case TILE: return run_tile(s, x, y);
    case GATHER: return run_gather(s, x, y);
    case MAX_POOL:
    case AVG_POOL: return run_pool(s, x, y);
    case GLOBAL_POOL:
    case SUM:
    case MEAN: return run_reduction(s, x, y);
    case SOFTMAX: return run_softmax(s, x, y);
    case EXPAND:
    case ADD:
    case MUL: return run_binary(s, x, z, y);
    default: return run_same(s, x, y);
    }
}

verdict oracle_run(const graph *g, array *values)
{
    verdict result = DEFINED;
    for (int i = g->n_inputs; i < g->n_values; i++) values[i] = (array){0};
    for (int i = 0; i < g->n_steps; i++) {
        const step *s = &g->steps[i];
        verdict one = run_step(s, values, &values[s->out[0]]);
        if (one == REFUSED) return REFUSED;
        if (one == UNDEFINED) result = UNDEFINED;
        for (int k = 0; k < s->n_out; k++)
            if (values[s->out[k]].count < 0) return TOO_LARGE;
    }
    return result;
}

void oracle_free(const graph *g, array *values)
{
    for (int i = g->n_inputs; i < g->n_values; i++) free(values[i].data);
}
