/* range.c - range rules: finds patterns of nodes, weights and masks that exceed the range of the low type.
 *
 * A pattern is a row of links from a node to its producers: x/sqrt(y+eps) is quotient, root, guard. Operators that only
 * move or select values may occur between the links. All nodes of a match stay f32. If fp16 would lose a tensor, its
 * readers stay f32, even across operators that only move it. Bounds of operators that select, and additive masks of a
 * softmax, saturate instead, because a finite number of the low type has the same effect there. Infinities remain. The
 * limits at which conversions saturate are found here too (range_find_limits). */
#include "passes/amp/range.h"

#include <math.h>
#include <string.h>

#define FP16_LARGEST 65504.0
#define FP16_NORMAL 0x1p-14
#define LOST_SHARE 0.01
#define LOST_SHARE_CONSUMER 0.1

enum { MAX_LINKS = 3, CHUNK = 1 << 17 };

struct weight_stats {
    const compile *compile;
    size_t count;
    bool *lost, *counted; /* by storage id */
    range_count *counts;
};

/* ---- values of storage ----------------------------------------------------------------------- */

bool range_read_part(const ir_storage *s, const compile *c, uint64_t from, void *to, size_t n)
{
    switch (s->data.kind) {
    case IR_DATA_ZERO: memset(to, 0, n); return true;
    case IR_DATA_INLINE: memcpy(to, (const char *)s->data.bytes + from, n); return true;
    case IR_DATA_FILE: return c->read && c->read(c->read_user, s, from, to, n) == AMPC_OK;
    case IR_DATA_SIDECAR: break;
    }
    return false;
}

const void *range_read(const ir_storage *s, const compile *c, arena *a)
{
    size_t n = (size_t)ir_storage_bytes(s);
    void *bytes = arena_alloc(a, n + 8);
    return range_read_part(s, c, 0, bytes, n) ? bytes : NULL;
}

double range_mask_bound(ir_dtype low) { return ir_dtype_largest(low) / 2; }

/* Without its sign, the bit pattern of a float is ordered like its magnitude. These are the largest number of fp16, its
 * half, its smallest normal number, and the largest that becomes zero. */
enum { LARGEST = 0x477fe000, HALF = LARGEST - 0x800000, NORMAL = 0x38800000, ZERO = 0x33000000, INFINITE = 0x7f800000 };

/* Counts numbers too large for fp16 or its masks. They are rare, so this runs only if the largest element is one. */
static void count_large(const uint32_t *bits, size_t n, range_count *c)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t size = bits[i] & 0x7fffffff;
        const float x = ir_f32_bits(bits[i]);
        if (size <= HALF || size >= INFINITE) continue;
        c->overflow += size > LARGEST;
        if (x < c->min) c->min = x;
        if (x > c->max) c->max = x;
    }
}

IR_CLONES static void count_chunk(const uint32_t *bits, size_t n, range_count *c)
{
    uint32_t none = 0, zero = 0, small = 0, largest = 0; /* each count includes the previous one */
    for (size_t i = 0; i < n; i++) {
        uint32_t size = bits[i] & 0x7fffffff;
        none += size == 0;
        zero += size <= ZERO;
        small += size < NORMAL;
        largest = size > largest ? size : largest;
    }
    c->nonzero += (int64_t)n - none;
    c->zeroed += zero - none;
    c->subnormal += small - zero;
    if (largest > c->largest) c->largest = largest;
    if (largest > HALF) count_large(bits, n, c);
}

/* Counts the values of an f32 storage, in chunks. Returns false if its bytes are unavailable. */
static bool count_storage(const ir_storage *s, const compile *c, range_count *out)
{
    uint32_t chunk[CHUNK / sizeof(uint32_t)];
    uint64_t bytes = (uint64_t)ir_storage_bytes(s);
    *out = (range_count){.elements = (int64_t)(bytes / sizeof *chunk)};
    for (uint64_t at = 0; at < bytes; at += CHUNK) {
        size_t n = bytes - at < CHUNK ? (size_t)(bytes - at) : CHUNK;
        if (!range_read_part(s, c, at, chunk, n)) return false;
        count_chunk(chunk, n / sizeof *chunk, out);
    }
    return true;
}

/* Whether an element overflows in fp16, or more than 1 % of the nonzero elements become zero. For a consumer it is
 * 10 %: of normally distributed values, the whole tensor is then off by 7 %. Initial values such as 1e-6 (class tokens,
 * scales of layers) are below that, and after training they are larger. */
static bool is_unrepresentable(const range_count *count, const compile *c)
{
    const double share = c->consumer ? LOST_SHARE_CONSUMER : LOST_SHARE;
    return count->overflow > 0 || (double)count->zeroed > share * (double)count->nonzero;
}

/* ---- weight statistics ----------------------------------------------------------------------- */

static double share(int64_t part, const range_count *c)
{
    return c->elements ? 100.0 * (double)part / (double)c->elements : 0;
}

/* The statistics of a storage; NULL if it has none. */
static const range_count *count_of_storage(const weight_stats *stats, const ir_storage *s)
{
    if (!stats || s->id >= stats->count || s->type.dtype != IR_f32 || s->kind == IR_STATE) return NULL;
    range_count *count = &stats->counts[s->id];
    if (!stats->counted[s->id] && !count_storage(s, stats->compile, count)) *count = (range_count){.elements = 0};
    stats->counted[s->id] = true;
    return count;
}

const weight_stats *range_scan_weights(const ir_module *m, const compile *c)
{
    arena *a = c->arena;
    size_t n = m->storage.count;
    weight_stats *stats = arena_alloc(a, sizeof *stats);
    *stats = (weight_stats){.compile = c,
                            .count = n,
                            .lost = arena_array(a, n + 1, sizeof(bool)),
                            .counted = arena_array(a, n + 1, sizeof(bool)),
                            .counts = arena_array(a, n + 1, sizeof(range_count))};
    const bool all = c->options->low == IR_f16 && c->list->rule.range != RANGE_OFF;
    for (size_t i = 0; i < n && all; i++) {
        const ir_storage *s = m->storage.items[i];
        const range_count *count = count_of_storage(stats, s);
        stats->lost[i] = count && is_unrepresentable(count, c);
        if (stats->lost[i])
            diag_remark(
                c->diag, ir_storage_loc(m, s),
                "fp16 cannot represent it: %.3g %% of %lld values overflow, %.3g %% become zero, %.3g %% subnormal",
                share(count->overflow, count), (long long)count->elements, share(count->zeroed, count),
                share(count->subnormal, count));
    }
    return stats;
}

static const range_count *count_of(const weight_stats *stats, const ir_value *v)
{
    return v->kind == IR_VALUE_STORAGE ? count_of_storage(stats, v->storage) : NULL;
}

/* Whether the storage has finite numbers beyond -bound, and none beyond +bound. `sign` -1: the other way round. */
static bool is_extreme(const range_count *c, int sign, double bound)
{
    const double low = sign < 0 ? -(double)c->max : (double)c->min, high = sign < 0 ? -(double)c->min : (double)c->max;
    return low < -bound && high <= bound;
}

static bool is_lost(const weight_stats *stats, const ir_value *v)
{
    return v->kind == IR_VALUE_STORAGE && v->storage->id < stats->count && stats->lost[v->storage->id];
}

/* ---- queries of one node --------------------------------------------------------------------- */

bool range_get_number(const ir_value *v, const compile *c, double *x)
{
    char bytes[8];
    if (!v || v->kind != IR_VALUE_STORAGE || !ir_dtype_is_float(v->type.dtype)) return false;
    for (int i = 0; i < v->type.rank; i++)
        if (v->type.dims[i] != 1) return false;
    if (!range_read_part(v->storage, c, 0, bytes, ir_dtype_size(v->type.dtype))) return false;
    *x = ir_load_f64(v->type.dtype, bytes);
    return true;
}

/* ---- links of patterns ----------------------------------------------------------------------- */

typedef enum range_link {
    NO_LINK,
    QUOTIENT,
    ROOT,
    GUARD,
    REDUCTION,
    SQUARE,
    SUM_OF_SQUARES,
    EXPONENTIAL,
    ADDITION,
    MASKING,
    SUBTRACTION,
    SUM,
    SHIFTED,
    SOFTMAX,
    DIVISION,
    NORM,
    POSITIVE
} range_link;

typedef struct link_row {
    range_link is;
    ir_op op;
    int next; /* the operand whose producer is the next link */
    bool (*holds)(const ir_node *n, const struct link_row *row, const compile *c); /* NULL: always */
    double min, max;                                                               /* limits of the exponent */
} link_row;

static bool has_exponent(const ir_node *n, const link_row *row, const compile *c)
{
    double x;
    return range_get_number(ir_in(n, IR_IN(pow, b)), c, &x) && x >= row->min && x <= row->max;
}

/* y+eps, max(y, eps), clip(y, eps) with an eps that is not a normal number of fp16. */
static bool has_tiny_bound(const ir_node *n, const link_row *row, const compile *c)
{
    (void)row;
    for (int i = 0; i < n->n_in && i < 2; i++) {
        double x;
        if (range_get_number(ir_in(n, i), c, &x) && x > 0 && x < FP16_NORMAL) return true;
    }
    return false;
}

static bool has_equal_operands(const ir_node *n, const link_row *row, const compile *c)
{
    (void)row, (void)c;
    return ir_in(n, 0) == ir_in(n, 1);
}

static const link_row link_rows[] = {
    {QUOTIENT, IR_OP_div, IR_IN(div, b), NULL, 0, 0},
    {QUOTIENT, IR_OP_reciprocal, 0, NULL, 0, 0},
    {QUOTIENT, IR_OP_log, 0, NULL, 0, 0},
    {QUOTIENT, IR_OP_pow, 0, has_exponent, -INFINITY, -0x1p-24},
    {ROOT, IR_OP_sqrt, 0, NULL, 0, 0},
    {ROOT, IR_OP_pow, 0, has_exponent, 0.5, 0.5},
    {GUARD, IR_OP_add, 0, has_tiny_bound, 0, 0},
    {GUARD, IR_OP_max, 0, has_tiny_bound, 0, 0},
    {GUARD, IR_OP_clip, 0, has_tiny_bound, 0, 0},
    {REDUCTION, IR_OP_reduce_sum, 0, NULL, 0, 0},
    {REDUCTION, IR_OP_reduce_mean, 0, NULL, 0, 0},
    {SUM_OF_SQUARES, IR_OP_reduce_sum_square, 0, NULL, 0, 0},
    {SUM_OF_SQUARES, IR_OP_reduce_l2, 0, NULL, 0, 0},
    {SQUARE, IR_OP_mul, 0, has_equal_operands, 0, 0},
    {SQUARE, IR_OP_pow, 0, has_exponent, 2, INFINITY},
    {EXPONENTIAL, IR_OP_exp, 0, NULL, 0, 0},
    {ADDITION, IR_OP_add, 0, NULL, 0, 0},
    {MASKING, IR_OP_add, 0, NULL, 0, 0},
    {MASKING, IR_OP_sub, 0, NULL, 0, 0},
    {MASKING, IR_OP_mul, 0, NULL, 0, 0},
    {SUBTRACTION, IR_OP_sub, IR_IN(sub, b), NULL, 0, 0},
    {SUM, IR_OP_add, 0, NULL, 0, 0},
    {SUM, IR_OP_sub, 0, NULL, 0, 0},
    {SHIFTED, IR_OP_conv, IR_IN(conv, bias), NULL, 0, 0},
    {SOFTMAX, IR_OP_softmax, 0, NULL, 0, 0},
    {SOFTMAX, IR_OP_log_softmax, 0, NULL, 0, 0},
    {DIVISION, IR_OP_div, IR_IN(div, b), NULL, 0, 0},
    {NORM, IR_OP_reduce_l1, 0, NULL, 0, 0},
    {NORM, IR_OP_reduce_l2, 0, NULL, 0, 0},
    {POSITIVE, IR_OP_reduce_l1, 0, NULL, 0, 0},
    {POSITIVE, IR_OP_reduce_l2, 0, NULL, 0, 0},
    {POSITIVE, IR_OP_abs, 0, NULL, 0, 0},
    {POSITIVE, IR_OP_relu, 0, NULL, 0, 0},
    {POSITIVE, IR_OP_exp, 0, NULL, 0, 0},
    {POSITIVE, IR_OP_sigmoid, 0, NULL, 0, 0},
    {POSITIVE, IR_OP_softmax, 0, NULL, 0, 0},
};

/* The row by which node n is such a link, or NULL. */
static const link_row *find_link(range_link link, const ir_node *n, const compile *c)
{
    for (size_t i = 0; i < sizeof link_rows / sizeof *link_rows; i++) {
        const link_row *row = &link_rows[i];
        if (row->is == link && row->op == n->op && (!row->holds || row->holds(n, row, c))) return row;
    }
    return NULL;
}

/* ---- patterns -------------------------------------------------------------------------------- */

static const struct range_row {
    list_place place; /* what --explain prints as the cause */
    range_link links[MAX_LINKS];
} rows[] = {
    {{"pattern x/(y+eps), eps below the smallest normal fp16 number", 0}, {QUOTIENT, GUARD}},
    {{"pattern x/sqrt(y+eps), eps below the smallest normal fp16 number", 0}, {QUOTIENT, ROOT, GUARD}},
    {{"pattern sum or mean of squares", 0}, {REDUCTION, SQUARE}},
    {{"pattern sum or mean of squares", 0}, {SUM_OF_SQUARES}},
    {{"pattern sum or mean of exponentials", 0}, {REDUCTION, EXPONENTIAL}},
};

/* The node that computes the operand, or NULL. */
static const ir_node *producer(const ir_node *n, int operand)
{
    const ir_value *v = ir_in(n, operand);
    return v && v->kind == IR_VALUE_RESULT ? v->def : NULL;
}

/* Finds the first node that is such a link, from n on, across nodes that only move values; sets *row to its row.
 * Returns NULL if there is none. */
static const ir_node *match_link(range_link link, const ir_node *n, const compile *c, const link_row **row)
{
    while (n && !(*row = find_link(link, n, c))) n = amp_only_moves(n) ? producer(n, 0) : NULL;
    return n;
}

/* Whether n divides x by the norm of x, or by the mean or sum of an x without negative elements, which the guard keeps
 * from zero. The quotient is then not larger than the number of terms, whatever eps is. */
static bool divides_by_own_size(const ir_node *n, const ir_node *guard, const compile *c)
{
    double eps;
    if (!find_link(DIVISION, n, c)) return false;
    const ir_node *size = producer(guard, range_get_number(ir_in(guard, 0), c, &eps) ? 1 : 0), *x = producer(n, 0);
    while (size && amp_only_moves(size)) size = producer(size, 0);
    if (!size || ir_in(size, 0) != ir_in(n, 0)) return false;
    return find_link(NORM, size, c) || (find_link(REDUCTION, size, c) && x && find_link(POSITIVE, x, c));
}

static void match(const struct range_row *row, const ir_node *n, const compile *c, range_mark *marks)
{
    const ir_node *found[MAX_LINKS];
    const link_row *link = find_link(row->links[0], n, c);
    int count = 0;
    if (!link) return;
    for (found[count++] = n; count < MAX_LINKS && row->links[count]; found[count++] = n) {
        n = match_link(row->links[count], producer(n, link->next), c, &link);
        if (!n) return;
    }
    if (c->consumer && row->links[1] == GUARD && divides_by_own_size(found[0], found[1], c)) return;
    for (int i = 0; i < count; i++)
        if (!marks[found[i]->id].pattern) {
            marks[found[i]->id].pattern = &row->place;
            marks[found[i]->id].alone = count == 1;
        }
}

/* ---- limits ---------------------------------------------------------------------------------- */

static bool is_off(const amp_scope *s) { return s->off || s->compile->list->rule.range == RANGE_OFF; }

static bool trains(const ir_graph *g) { return ir_graph_by_role(g->module, IR_GRAPH_train) != NULL; }

/* How a value reaches the operand of a softmax; bits. */
enum { ADDED = 1, SUBTRACTED = 2, THROUGH_NODE = 4, COMPUTED = 8 };

/* The limit of a value that reaches a softmax, or, if `how` is 0, reaches none. */
static double limit_of(int how, const compile *c)
{
    return how & COMPUTED ? range_mask_bound(c->options->low) : ir_dtype_largest(c->options->low);
}

/* Whether a storage has values so low where it is added, or so high where it is subtracted, that a softmax maps them to
 * zero. */
static bool masks_scores(const range_count *count, int how, const compile *c)
{
    const double bound = limit_of(how, c);
    return (how & ADDED && is_extreme(count, 1, bound)) || (how & SUBTRACTED && is_extreme(count, -1, bound));
}

/* Weights that train are not changed, only what is computed from them. */
static bool is_trained(const ir_value *v)
{
    return v->kind == IR_VALUE_STORAGE && v->storage->kind == IR_PARAM && trains(v->graph);
}

/* The limit of an input or a storage, 0 if it needs none. The values of an input are unknown. */
static double limit_of_source(const ir_value *v, int how, bool only_masks, const compile *c)
{
    const double largest = ir_dtype_largest(c->options->low);
    if (v->kind == IR_VALUE_INPUT) return how & THROUGH_NODE && ir_dtype_is_float(v->type.dtype) ? limit_of(how, c) : 0;
    const bool trained = is_trained(v);
    const range_count *count = trained && (only_masks || !how) ? NULL : count_of(c->weights, v);
    if (!count) return 0;
    if (masks_scores(count, how, c)) return limit_of(how, c);
    return !only_masks && (count->min < -largest || count->max > largest) ? largest : 0;
}

static bool passes_mask(const ir_node *n, const compile *c) { return find_link(MASKING, n, c) || amp_only_moves(n); }

/* How operand i of n reaches a softmax if the result of n does so in the way `how`. */
static int pass_on(const ir_node *n, int i, int how, const compile *c)
{
    const link_row *subtraction = find_link(SUBTRACTION, n, c);
    how |= THROUGH_NODE | (amp_only_moves(n) ? 0 : COMPUTED);
    if (!subtraction || i != subtraction->next) return how;
    return (how & ~(ADDED | SUBTRACTED)) | (how & ADDED ? SUBTRACTED : 0) | (how & SUBTRACTED ? ADDED : 0);
}

/* By value id: how values reach a softmax. */
static const int *find_reached(const ir_graph *g, const amp_scope *s)
{
    const compile *c = s->compile;
    int *reached = arena_array(s->arena, g->value_ids + 1, sizeof *reached);
    for (const ir_node *n = g->last; n && !is_off(s); n = n->prev) {
        bool softmax = find_link(SOFTMAX, n, c);
        int how = softmax ? ADDED : n->n_out == 1 && passes_mask(n, c) ? reached[n->out[0]->id] : 0;
        for (int i = 0; how && i < n->n_in; i++)
            if (ir_in(n, i)) reached[ir_in(n, i)->id] |= softmax ? how : pass_on(n, i, how, c);
    }
    return reached;
}

static const double *find_limits(const ir_graph *g, const amp_scope *s, bool only_masks)
{
    const compile *c = s->compile;
    const int *reached = find_reached(g, s);
    double *limits = arena_array(s->arena, g->value_ids + 1, sizeof *limits);
    for (const ir_node *n = g->first; n; n = n->next) {
        double *result = n->n_out == 1 ? &limits[n->out[0]->id] : NULL;
        int how = result ? reached[n->out[0]->id] : 0;
        bool passes = result && (how || !only_masks) && (how ? passes_mask(n, c) : amp_only_moves(n));
        for (int i = 0; i < n->n_in; i++) {
            const ir_value *v = ir_in(n, i);
            if (!v) continue;
            if (v->kind != IR_VALUE_RESULT) limits[v->id] = limit_of_source(v, reached[v->id], only_masks, c);
            if (passes && limits[v->id] > 0) *result = limit_of(how, c);
        }
    }
    for (const ir_node *n = g->first; n; n = n->next)
        for (int i = 0; i < n->n_in; i++)
            if (ir_in(n, i) && is_trained(ir_in(n, i))) limits[ir_in(n, i)->id] = 0;
    return limits;
}

const double *range_find_limits(const ir_graph *g, const amp_scope *s) { return find_limits(g, s, false); }

/* Whether v is a constant, or for a consumer any number, that n selects from, or whose lowest numbers n adds: it
 * saturates. */
static bool is_bound(const ir_node *n, const ir_value *v, const compile *c)
{
    double x;
    bool lowest = find_link(ADDITION, n, c) && is_extreme(count_of(c->weights, v), 1, FP16_LARGEST);
    bool constant = v->storage->kind == IR_CONST || (c->consumer && range_get_number(v, c, &x));
    return constant && (amp_only_moves(n) || lowest);
}

/* ---- marks ----------------------------------------------------------------------------------- */

/* Whether n adds operand i to something, or moves it to where it is only added. */
static bool adds(const ir_node *n, int i, const bool *added, const compile *c)
{
    const link_row *bias = find_link(SHIFTED, n, c);
    if (find_link(SUM, n, c) || (bias && bias->next == i)) return true;
    return n->n_out && amp_only_moves(n) && added[n->out[0]->id];
}

/* By value id: whether all that read a result only add it. */
static const bool *find_added(const ir_graph *g, const compile *c, arena *a)
{
    bool *added = arena_array(a, g->value_ids + 1, sizeof *added);
    for (const ir_node *n = g->last; n; n = n->prev)
        for (int i = 0; i < n->n_out; i++) {
            bool all = n->out[i]->first_use != NULL;
            for (const ir_use *u = n->out[i]->first_use; u && all; u = u->next) all = adds(u->user, u->index, added, c);
            added[n->out[i]->id] = all;
        }
    return added;
}

/* The first operand that fp16 would lose, also across nodes that only move it. For a consumer, what becomes zero may be
 * added: a low sum is rounded by as much. */
static const ir_value *lost_operand(const ir_node *n, const ir_value *const *lost, const double *masks,
                                    const bool *added, const compile *c)
{
    for (int i = 0; i < n->n_in; i++) {
        const ir_value *v = ir_in(n, i), *tensor = NULL;
        if (!v || !amp_is_cast_operand(n, i) || masks[v->id] > 0) continue;
        if (lost[v->id]) tensor = lost[v->id];
        else if (is_lost(c->weights, v) && !is_bound(n, v, c)) tensor = v;
        const bool small = c->consumer && tensor && !count_of(c->weights, tensor)->overflow;
        if (tensor && !(small && adds(n, i, added, c))) return tensor;
    }
    return NULL;
}

/* The first initializer with an element above the rule init_max that n reads, also across nodes that only move it. */
static const ir_value *large_operand(const ir_node *n, const ir_value *const *moved, const compile *c)
{
    for (int i = 0; i < n->n_in; i++) {
        if (ir_in(n, i) && moved[ir_in(n, i)->id]) return moved[ir_in(n, i)->id];
        const range_count *count = ir_in(n, i) ? count_of(c->weights, ir_in(n, i)) : NULL;
        if (count && !((double)ir_f32_bits(count->largest) <= c->list->rule.init_max)) return ir_in(n, i);
    }
    return NULL;
}

static void mark_large(const ir_graph *g, const amp_scope *s, range_mark *marks)
{
    const ir_value **moved = arena_array(s->arena, g->value_ids + 1, sizeof *moved);
    for (const ir_node *n = g->first; n; n = n->next) {
        marks[n->id].large = large_operand(n, moved, s->compile);
        for (int i = 0; i < n->n_out && amp_only_moves(n); i++) moved[n->out[i]->id] = marks[n->id].large;
    }
}

const range_mark *range_find(const ir_graph *g, const amp_scope *s)
{
    const compile *c = s->compile;
    const bool ranges = !is_off(s) && c->options->low == IR_f16, large = !s->off && c->list->rule.init_max > 0;
    if (!ranges && !large) return NULL;
    range_mark *marks = arena_array(s->arena, g->node_ids + 1, sizeof *marks);
    if (large) mark_large(g, s, marks);
    if (!ranges) return marks;
    const ir_value **lost = arena_array(s->arena, g->value_ids + 1, sizeof *lost);
    const double *masks = find_limits(g, s, true);
    const bool *added = find_added(g, c, s->arena);
    for (const ir_node *n = g->first; n && n->phase == IR_FORWARD; n = n->next) {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) match(&rows[i], n, c, marks);
        if (!c->weights) continue;
        marks[n->id].tensor = lost_operand(n, lost, masks, added, c);
        for (int i = 0; i < n->n_out && amp_only_moves(n); i++) lost[n->out[i]->id] = marks[n->id].tensor;
    }
    range_mark_sums(g, c->list, marks, s->arena);
    return marks;
}
