/* attention_grad_body.h - template over REAL, included by attention_grad.c. */

/* A block of queries of an item of q, as the products read it; a row of the scores belongs to a key. */
typedef struct R(block) {
    division d; /* with a block as small as n allows */
    attention_mask mask;
    int64_t first, n, row; /* row: the number of `first`, counted over all items */
    const REAL *q, *dy;    /* as in memory */
    int64_t q_row, dy_row;
    REAL *largest, *log_sum, *delta; /* by query */
    attention_rows to;               /* dq */
    REAL *sums;
    int64_t sums_row;
} R(block);

/* What the tasks of an item of k and v share: its keys and the sums dk and dv, from key `first` on. */
typedef struct R(item) {
    const k_args *args;
    const division *d;
    REAL *memory;
    attention_rows k, v, to_k, to_v; /* to_k, to_v: dk and dv */
    int64_t number, first, k_row, v_row;
    REAL *sums_k, *sums_v;
} R(item);

/* By query: the two parts of lse, and delta if the keys are more than a block. */
static void R(load_state)(const R(block) * b, const k_args *args, int64_t item, const REAL *dy, int64_t dy_row,
                          REAL *copy)
{
    const attention_sizes *s = &b->d.s;
    const attention_rows rows = attention_item(&args->in[IR_IN(attention_grad, y)], item);
    const REAL *lse = (const REAL *)args->in[IR_IN(attention_grad, lse)].data + 2 * (item * s->queries + b->first);
    int64_t row = 0;
    const bool dots = s->key_blocks > 1;
    const REAL *y = dots ? R(attention_load)(&rows, b->first, b->n, copy, &row) : NULL;
    memset(b->largest, 0, (size_t)(3 * s->block) * sizeof *copy);
    for (int64_t i = 0; i < b->n; i++) {
        b->largest[i] = lse[2 * i] == -(REAL)INFINITY ? 0 : lse[2 * i];
        b->log_sum[i] = lse[2 * i + 1];
        if (dots) b->delta[i] = (REAL)R(lanes_dot)(dy + i * dy_row, y + i * row, s->width);
    }
}

static R(block) R(load_block)(const R(item) * it, int64_t item, int64_t number)
{
    const k_args *args = it->args;
    const attention_rows q = attention_item(&args->in[IR_IN(attention_grad, q)], item),
                         dy = attention_item(&args->in[IR_IN(attention_grad, dy)], item);
    const int64_t first = number * ATTENTION_QUERIES;
    R(block) b = {.d = *it->d, .mask = attention_mask_of(args, item, 0), .first = first};
    const division *d = &b.d;
    attention_sizes *s = &b.d.s;
    REAL *m = it->memory, *crossed_q = m + d->crossed_q, *crossed_dy = m + d->crossed_dy;
    b.n = k_min(ATTENTION_QUERIES, s->queries - first);
    b.row = item * s->queries + first;
    s->block = attention_block(s, b.n);
    b.to = attention_item(&args->out[IR_OUT(attention_grad, dq)], item);
    b.sums = R(attention_target)(&b.to, first, m + d->sums_q, &b.sums_row);
    b.largest = m + d->state, b.log_sum = b.largest + s->block, b.delta = b.log_sum + s->block;
    if (!s->low || s->key_blocks > 1)
        b.dy = R(attention_load)(&dy, first, b.n, s->low ? crossed_dy : m + d->dy, &b.dy_row);
    R(load_state)(&b, args, item, b.dy, b.dy_row, m + d->y);
    if (s->low) {
        cross_low(d, &q, first, b.n, (void *)(m + d->queries), (void *)crossed_q, s->depth_row);
        cross_low(d, &dy, first, b.n, (void *)(m + d->dy), (void *)crossed_dy, s->width_row);
        return b;
    }
    b.q = R(attention_load)(&q, first, b.n, m + d->queries, &b.q_row);
    R(attention_cross)(crossed_q, s->block, b.q, b.q_row, b.n, s->depth, (REAL)s->scale);
    R(attention_cross)(crossed_dy, s->block, b.dy, b.dy_row, b.n, s->width, 1);
    return b;
}

/* scores: P; slopes: from dP to dS. If there are no other keys, computes delta as well, which is 0 before. */
ATTENTION_CLONES static void R(differentiate)(REAL *restrict scores, REAL *restrict slopes, int64_t keys, int64_t n,
                                              const REAL *restrict largest, const REAL *restrict log_sum,
                                              REAL *restrict delta, bool all, REAL scale)
{
    for (int64_t j = 0; j < keys; j++) CPU_SIMD for (int64_t i = 0; i < n; i++)
        {
            const REAL p = R(attention_exp)(scores[j * n + i] - largest[i] - log_sum[i]);
            scores[j * n + i] = p;
            if (all) delta[i] += p == 0 ? 0 : p * slopes[j * n + i];
        }
    for (int64_t j = 0; j < keys; j++) CPU_SIMD for (int64_t i = 0; i < n; i++)
        {
            const REAL p = scores[j * n + i];
            slopes[j * n + i] = p == 0 ? 0 : p * scale * (slopes[j * n + i] - delta[i]);
        }
}

/* Scores and slopes, that is dP, of keys [key, key + keys). Returns the rows of k. */
static const REAL *R(multiply_keys)(const R(item) * it, const division *d, int64_t key, int64_t keys, int64_t *k_row)
{
    typedef R(attention_product) product;
    const int64_t block = d->s.block;
    REAL *m = it->memory;
    int64_t row;
    const REAL *k = R(attention_load)(&it->k, key, keys, m + d->keys, k_row),
               *v = R(attention_load)(&it->v, key, keys, m + d->values, &row);
    const product score = {k, *k_row, 1, m + d->crossed_q, block, m + d->scores, block, keys, block, d->s.depth, false};
    const product slope = {v, row, 1, m + d->crossed_dy, block, m + d->slopes, block, keys, block, d->s.width, false};
    R(attention_multiply)(&score);
    R(attention_multiply)(&slope);
    return k;
}

/* Adds to dq, if it is not NULL, and to dk and dv, if dk is not. */
static void R(add_products)(const R(item) * it, const R(block) * b, const REAL *k, int64_t k_row, int64_t keys,
                            REAL *dq, REAL *dk, REAL *dv, bool adds_q, bool adds_k)
{
    typedef R(attention_product) product;
    const division *d = &b->d;
    const int64_t depth = d->s.depth_row, width = d->s.width_row, block = d->s.block;
    const REAL *scores = it->memory + d->scores, *slopes = it->memory + d->slopes;
    const product to_q = {slopes, 1, block, k, k_row, dq, b->sums_row, b->n, depth, keys, adds_q},
                  to_k = {slopes, block, 1, b->q, b->q_row, dk, it->k_row, keys, depth, b->n, adds_k},
                  to_v = {scores, block, 1, b->dy, b->dy_row, dv, it->v_row, keys, width, b->n, adds_k};
    if (dq) R(attention_multiply)(&to_q);
    if (!dk) return;
    R(attention_multiply)(&to_k);
    R(attention_multiply)(&to_v);
}

/* Adds what block b and keys [key, key + keys) contribute to dq and to dk and dv, of which it is the first summand
 * unless adds_q and adds_k. */
static void R(add_block)(const R(item) * it, const R(block) * b, int64_t key, int64_t keys, bool dq, bool dkv,
                         bool adds_q, bool adds_k)
{
    const division *d = &b->d;
    const attention_sizes *s = &d->s;
    REAL *m = it->memory, *scores = m + d->scores, *slopes = m + d->slopes, *to_q = dq ? b->sums : NULL,
         *to_k = dkv ? it->sums_k + (key - it->first) * it->k_row : NULL,
         *to_v = dkv ? it->sums_v + (key - it->first) * it->v_row : NULL;
    const ir_dtype carrier = cpu_carrier(it->k.dtype);
    uint8_t keep[ATTENTION_KEYS * ATTENTION_QUERIES];
    const REAL *k = NULL;
    int64_t row = 0;
    if (s->low) multiply_keys_low(d, &it->k, &it->v, key, keys, (void *)m);
    else k = R(multiply_keys)(it, d, key, keys, &row);
    R(attention_apply_mask)(s, &b->mask, scores, b->first, b->n, key, keys, m + d->mask);
    if (s->drops) attention_draw(s, b->row, b->n, key, keys, keep);
    if (s->drops) cpu_mask_tile(carrier, slopes, keep, s->ratio, slopes, keys * s->block);
    R(differentiate)
    (scores, slopes, keys, s->block, b->largest, b->log_sum, b->delta, s->key_blocks == 1, (REAL)s->scale);
    if (s->drops) cpu_mask_tile(carrier, scores, keep, s->ratio, scores, keys * s->block);
    if (s->low) add_products_low(d, keys, (void *)m, (void *)to_q, (void *)to_k, (void *)to_v, adds_q, adds_k);
    else R(add_products)(it, b, k, row, keys, to_q, to_k, to_v, adds_q, adds_k);
}

static void R(clear)(REAL *rows, int64_t row, int64_t n, int64_t columns)
{
    for (int64_t i = 0; i < n; i++) memset(rows + i * row, 0, (size_t)columns * sizeof *rows);
}

/* Starts the sums dk and dv of n keys from key `first` on. */
static void R(start_keys)(R(item) * it, int64_t first, int64_t n)
{
    const division *d = it->d;
    it->first = first;
    it->to_k = attention_item(&it->args->out[IR_OUT(attention_grad, dk)], it->number);
    it->to_v = attention_item(&it->args->out[IR_OUT(attention_grad, dv)], it->number);
    it->sums_k = R(attention_target)(&it->to_k, first, it->memory + d->sums_k, &it->k_row);
    it->sums_v = R(attention_target)(&it->to_v, first, it->memory + d->sums_v, &it->v_row);
    if (!d->clears) return;
    R(clear)(it->sums_k, it->k_row, n, d->s.depth);
    R(clear)(it->sums_v, it->v_row, n, d->s.width);
}

static void R(store_keys)(const R(item) * it, int64_t n)
{
    R(attention_store)(&it->to_k, it->first, n, it->sums_k, it->k_row);
    R(attention_store)(&it->to_v, it->first, n, it->sums_v, it->v_row);
}

/* Block `number` of the queries of item `item` of q, with the keys that it sees. */
static void R(add_queries)(const R(item) * it, int64_t item, int64_t number, bool dq, bool dkv, bool adds_k)
{
    const attention_sizes *s = &it->d->s;
    const R(block) b = R(load_block)(it, item, number);
    const int64_t seen = attention_seen(s, b.first + b.n - 1);
    for (int64_t key = 0; key < seen; key += ATTENTION_KEYS)
        R(add_block)(it, &b, key, k_min(ATTENTION_KEYS, seen - key), dq, dkv, key > 0, adds_k);
    if (!dq) return;
    if (seen == 0) R(clear)(b.sums, b.sums_row, b.n, s->depth);
    R(attention_store)(&b.to, b.first, b.n, b.sums, b.sums_row);
}

/* A block of keys, with the queries that see it. */
static void R(add_keys)(R(item) * it, int64_t first)
{
    const attention_sizes *s = &it->d->s;
    const int64_t n = k_min(ATTENTION_KEYS, s->keys - first);
    R(start_keys)(it, first, n);
    for (int64_t i = 0; i < s->group * s->query_blocks; i++) {
        const int64_t number = i % s->query_blocks;
        const int64_t end = k_min(s->queries, (number + 1) * ATTENTION_QUERIES);
        const int64_t keys = k_min(n, attention_seen(s, end - 1) - first);
        if (keys <= 0) continue;
        const R(block) b = R(load_block)(it, it->number * s->group + i / s->query_blocks, number);
        R(add_block)(it, &b, first, keys, false, true, false, i > 0 || it->d->clears);
    }
    R(store_keys)(it, n);
}

static void R(run_task)(const k_args *args, const division *d, int64_t task, REAL *memory)
{
    const attention_sizes *s = &d->s;
    const int64_t query_tasks = d->by_block && d->dq ? s->items * s->query_blocks : 0;
    const bool is_query = task < query_tasks;
    const int64_t number = !d->by_block ? task
                           : is_query   ? task / s->query_blocks / s->group
                                        : (task - query_tasks) / s->key_blocks;
    R(item)
    it = {.args = args,
          .d = d,
          .memory = memory,
          .k = attention_item(&args->in[IR_IN(attention_grad, k)], number),
          .v = attention_item(&args->in[IR_IN(attention_grad, v)], number),
          .number = number};
    if (is_query) {
        R(add_queries)(&it, task / s->query_blocks, task % s->query_blocks, true, false, false);
    } else if (d->by_block) {
        R(add_keys)(&it, (task - query_tasks) % s->key_blocks * ATTENTION_KEYS);
    } else {
        R(start_keys)(&it, 0, s->keys);
        for (int64_t i = 0; i < s->group * s->query_blocks; i++) R(add_queries)
        (&it, number * s->group + i / s->query_blocks, i % s->query_blocks, d->dq, d->dkv, i > 0 || d->clears);
        R(store_keys)(&it, s->keys);
    }
}
