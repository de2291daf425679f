/* assign_offsets.c - assigns arena offsets to buffers, by best fit.
 *
 * Buffers are placed in order of decreasing size. Each goes into the smallest sufficient gap between the buffers placed
 * so far whose live ranges overlap its own, scanned in order of offset. Placed buffers are kept in rows. A row has a
 * summary that allows skipping all its buffers at once if none of them is live together with the new buffer, or if all
 * of them are and no gap between them is large enough. Placing n buffers therefore needs about n * sqrt(n) steps,
 * whether live ranges overlap or not. */
#include "runtime/backend/alloc.h"
#include "runtime/plan/stages.h"

#include <stdlib.h>
#include <string.h>

enum { ROW = 256 };

/* Buffers in order of offset, and their summary. */
typedef struct row {
    int n;
    int first_from, first_to, last_from, last_to; /* smallest and largest `first` and `last` */
    int64_t end, widest;                          /* largest end offset; widest gap between these buffers */
    const rt_buffer *items[ROW];
} row;

typedef struct packing {
    const rt_plan *plan;
    row **rows; /* in order of offset */
    int n_rows;
} packing;

/* ---- the search ------------------------------------------------------------------------------ */

typedef struct search {
    int64_t size, end, best, best_size; /* end: of the buffers passed so far; best: offset of a gap, -1: none */
} search;

/* Passes a buffer, or several without a sufficient gap, at [offset, end). */
static void pass(search *s, int64_t offset, int64_t end)
{
    const int64_t gap = offset - s->end;
    if (gap >= s->size && gap < s->best_size) {
        s->best = s->end;
        s->best_size = gap;
    }
    if (end > s->end) s->end = end;
}

static int64_t end_of(const packing *k, const rt_buffer *b) { return b->offset + rt_plan_align(k->plan, b->bytes); }

static void pass_row(const packing *k, const row *r, const rt_buffer *b, search *s)
{
    const bool none = r->n == 0 || r->last_to < b->first || b->last < r->first_from;
    const bool all = r->last_from >= b->first && b->last >= r->first_to;
    if (none) return;
    if (all && r->widest < s->size) {
        pass(s, r->items[0]->offset, r->end);
        return;
    }
    for (int i = 0; i < r->n; i++) {
        const rt_buffer *other = r->items[i];
        if (other->last >= b->first && b->last >= other->first) pass(s, other->offset, end_of(k, other));
    }
}

static int64_t find_gap(const packing *k, const rt_buffer *b)
{
    search s = {.size = rt_plan_align(k->plan, b->bytes), .best = -1, .best_size = INT64_MAX};
    for (int i = 0; i < k->n_rows; i++) pass_row(k, k->rows[i], b, &s);
    return s.best >= 0 ? s.best : s.end;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void describe(const packing *k, row *r)
{
    const rt_buffer *b = r->items[0];
    search gaps = {.size = INT64_MAX, .end = end_of(k, b)};
    r->first_from = r->first_to = b->first;
    r->last_from = r->last_to = b->last;
    r->widest = 0;
    for (int i = 1; i < r->n; i++) {
        b = r->items[i];
        if (b->first < r->first_from) r->first_from = b->first;
        if (b->first > r->first_to) r->first_to = b->first;
        if (b->last < r->last_from) r->last_from = b->last;
        if (b->last > r->last_to) r->last_to = b->last;
        if (b->offset - gaps.end > r->widest) r->widest = b->offset - gaps.end;
        pass(&gaps, b->offset, end_of(k, b));
    }
    r->end = gaps.end;
}

static row *add_row(packing *k, int at)
{
    row *r = rt_alloc(1, sizeof *r);
    if (!r) return NULL;
    memmove(&k->rows[at + 1], &k->rows[at], (size_t)(k->n_rows - at) * sizeof *k->rows);
    k->rows[at] = r;
    k->n_rows++;
    return r;
}

/* Moves the upper half of a full row to a new row. */
static bool divide(packing *k, int at)
{
    row *upper = add_row(k, at + 1), *lower = k->rows[at];
    if (!upper) return false;
    lower->n = upper->n = ROW / 2;
    memcpy(upper->items, &lower->items[ROW / 2], sizeof upper->items / 2);
    describe(k, lower);
    describe(k, upper);
    return true;
}

static bool insert(packing *k, const rt_buffer *b)
{
    int at = k->n_rows - 1;
    while (at > 0 && k->rows[at]->items[0]->offset > b->offset) at--;
    if (k->rows[at]->n == ROW) {
        if (!divide(k, at)) return false;
        if (k->rows[at + 1]->items[0]->offset <= b->offset) at++;
    }
    row *r = k->rows[at];
    int i = r->n++;
    for (; i > 0 && r->items[i - 1]->offset > b->offset; i--) r->items[i] = r->items[i - 1];
    r->items[i] = b;
    describe(k, r);
    return true;
}

/* ---- the stage ------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const rt_buffer *x = *(const rt_buffer *const *)a, *y = *(const rt_buffer *const *)b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x < y ? -1 : x > y;
}

static bool pack(rt_plan *p, packing *k, rt_buffer **order, int n)
{
    for (int i = 0; i < n; i++) {
        order[i]->offset = find_gap(k, order[i]);
        if (!insert(k, order[i])) return false;
        if (end_of(k, order[i]) > p->arena_bytes) p->arena_bytes = end_of(k, order[i]);
    }
    return true;
}

ampc_status rt_stage_assign_offsets(rt_plan *p, diag *d)
{
    (void)d;
    rt_buffer **order = rt_alloc((size_t)p->n_buffers + 1, sizeof(rt_buffer *));
    packing k = {.plan = p, .rows = rt_alloc((size_t)p->n_buffers * 2 / ROW + 2, sizeof(row *))};
    int n = 0;
    bool done = order && k.rows && add_row(&k, 0);
    for (int i = 0; i < p->n_buffers && done; i++)
        if (p->buffers[i].home == RT_ARENA && p->buffers[i].bytes > 0 && !p->buffers[i].is_part)
            order[n++] = &p->buffers[i];
    if (done) qsort(order, (size_t)n, sizeof *order, compare);
    done = done && pack(p, &k, order, n);
    for (int i = 0; i < p->n_buffers && done; i++)
        if (p->buffers[i].is_part) p->buffers[i].offset = p->buffers[p->buffers[i].whole].offset + p->buffers[i].at;
    for (int i = 0; i < k.n_rows; i++) rt_free(k.rows[i]);
    rt_free(k.rows);
    rt_free(order);
    p->has_offsets = done;
    return done ? AMPC_OK : AMPC_NO_MEMORY;
}
