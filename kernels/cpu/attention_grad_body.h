/* attention_grad_body.h - template over REAL, included by attention_grad.c. */

/* A block of queries of an item of q, as the products read it; a row of the scores belongs to a key. */
typedef struct R(block) {
    const division *d;
    attention_mask mask;
    int64_t first, n;
    const REAL *q, *dy;           /* as in memory */
    REAL *crossed_q, *crossed_dy; /* crossed_q times the scale */
    int64_t q_row, dy_row;
    REAL *largest, *log_sum, *delta; /* by query */
    REAL *sums;                      /* dq */
} R(block);

/* What the tasks of an item of k and v share: its keys and the sums dk and dv, from key `first` on. */
typedef struct R(item) {
    const k_args *args;
    const division *d;
    REAL *memory;
    attention_rows k, v;
    int64_t number, first;
} R(item);

static R(block) R(load_block)(const R(item) * it, int64_t item, int64_t number)
{
    const k_args *args = it->args;
    const division *d = it->d;
    const attention_sizes *s = &d->s;
    const attention_rows q = attention_item(&args->in[IR_IN(attention_grad, q)], item),
                         y = attention_item(&args->in[IR_IN(attention_grad, y)], item),
                         dy = attention_item(&args->in[IR_IN(attention_grad, dy)], item);
    const REAL *lse = (const REAL *)args->in[IR_IN(attention_grad, lse)].data;
    REAL *state = it->memory + d->state;
    R(block)
    b = {.d = d,
         .mask = attention_mask_of(args, item, 0),
         .first = number * ATTENTION_QUERIES,
         .crossed_q = it->memory + d->crossed_q,
         .crossed_dy = it->memory + d->crossed_dy,
         .largest = state,
         .log_sum = state + s->block,
         .delta = state + 2 * s->block,
         .sums = it->memory + d->sums_q};
    int64_t y_row;
    b.n = k_min(ATTENTION_QUERIES, s->queries - b.first);
    b.q = R(attention_load)(&q, b.first, b.n, it->memory + d->queries, &b.q_row);
    b.dy = R(attention_load)(&dy, b.first, b.n, it->memory + d->dy, &b.dy_row);
    R(attention_cross)(b.crossed_q, s->block, b.q, b.q_row, b.n, s->depth, (REAL)s->scale);
    R(attention_cross)(b.crossed_dy, s->block, b.dy, b.dy_row, b.n, s->width, 1);
    const REAL *ys = R(attention_load)(&y, b.first, b.n, it->memory + d->y, &y_row);
    memset(state, 0, (size_t)(3 * s->block) * sizeof *state);
    for (int64_t i = 0; i < b.n; i++) {
        const REAL *parts = lse + 2 * (item * s->queries + b.first + i);
        b.largest[i] = parts[0] == -(REAL)INFINITY ? 0 : parts[0];
        b.log_sum[i] = parts[1];
        b.delta[i] = (REAL)R(lanes_dot)(b.dy + i * b.dy_row, ys + i * y_row, s->width);
    }
    return b;
}

/* scores: P; slopes: from dP to dS. */
CPU_CLONES static void R(differentiate)(REAL *restrict scores, REAL *restrict slopes, int64_t keys, int64_t n,
                                        const REAL *restrict largest, const REAL *restrict log_sum,
                                        const REAL *restrict delta)
{
    for (int64_t j = 0; j < keys; j++) CPU_SIMD for (int64_t i = 0; i < n; i++)
        {
            const REAL p = R(attention_exp)(scores[j * n + i] - largest[i] - log_sum[i]);
            scores[j * n + i] = p;
            slopes[j * n + i] = p == 0 ? 0 : p * (slopes[j * n + i] - delta[i]);
        }
}

/* Adds what block b and keys [key, key + keys) contribute to dq and to dk and dv. */
static void R(add_block)(const R(item) * it, const R(block) * b, int64_t key, int64_t keys, bool dq, bool dkv)
{
    typedef R(attention_product) product;
    const division *d = it->d;
    const attention_sizes *s = &d->s;
    const int64_t depth = s->depth_row, width = s->width_row, block = s->block;
    REAL *scores = it->memory + d->scores, *slopes = it->memory + d->slopes;
    int64_t k_row, v_row;
    const REAL *k = R(attention_load)(&it->k, key, keys, it->memory + d->keys, &k_row);
    const REAL *v = R(attention_load)(&it->v, key, keys, it->memory + d->values, &v_row);
    R(attention_multiply)(&(product){k, k_row, 1, b->crossed_q, block, scores, block, keys, block, s->depth, false});
    R(attention_multiply)(&(product){v, v_row, 1, b->crossed_dy, block, slopes, block, keys, block, s->width, false});
    R(attention_apply_mask)(s, &b->mask, scores, b->first, b->n, key, keys, it->memory + d->mask);
    R(differentiate)(scores, slopes, keys, block, b->largest, b->log_sum, b->delta);
    if (dq) R(attention_multiply)(&(product){slopes, 1, block, k, k_row, b->sums, depth, b->n, depth, keys, true});
    if (!dkv) return;
    REAL *dk = it->memory + d->sums_k + (key - it->first) * depth,
         *dv = it->memory + d->sums_v + (key - it->first) * width;
    R(attention_multiply)(&(product){scores, block, 1, b->dy, b->dy_row, dv, width, keys, width, b->n, true});
    R(attention_multiply)(&(product){slopes, block, 1, b->q, b->q_row, dk, depth, keys, depth, b->n, true});
}

/* Stores n rows of a gradient from row `first` on, times `factor`. */
static void R(store)(const k_view *to, int64_t item, int64_t first, int64_t n, REAL *sums, int64_t row, REAL factor)
{
    const attention_rows rows = attention_item(to, item);
    if (!cpu_is_used(to)) return;
    for (int64_t i = 0; i < n * row; i++) sums[i] *= factor;
    R(attention_store)(&rows, first, n, sums, row);
}

static void R(clear_keys)(const R(item) * it, int64_t n)
{
    const division *d = it->d;
    memset(it->memory + d->sums_k, 0, (size_t)(n * d->s.depth_row) * sizeof(REAL));
    memset(it->memory + d->sums_v, 0, (size_t)(n * d->s.width_row) * sizeof(REAL));
}

static void R(store_keys)(const R(item) * it, int64_t n)
{
    const division *d = it->d;
    R(store)
    (cpu_result(it->args, IR_OUT(attention_grad, dk)), it->number, it->first, n, it->memory + d->sums_k, d->s.depth_row,
     (REAL)d->s.scale);
    R(store)
    (cpu_result(it->args, IR_OUT(attention_grad, dv)), it->number, it->first, n, it->memory + d->sums_v, d->s.width_row,
     1);
}

/* Block `number` of the queries of item `item` of q, with the keys that it sees. */
static void R(add_queries)(const R(item) * it, int64_t item, int64_t number, bool dq, bool dkv)
{
    const attention_sizes *s = &it->d->s;
    const R(block) b = R(load_block)(it, item, number);
    const int64_t seen = attention_seen(s, b.first + b.n - 1);
    memset(b.sums, 0, (size_t)(s->block * s->depth_row) * sizeof(REAL));
    for (int64_t key = 0; key < seen; key += ATTENTION_KEYS)
        R(add_block)(it, &b, key, k_min(ATTENTION_KEYS, seen - key), dq, dkv);
    if (dq) R(store)
    (cpu_result(it->args, IR_OUT(attention_grad, dq)), item, b.first, b.n, b.sums, s->depth_row, (REAL)s->scale);
}

/* A block of keys, with the queries that see it. */
static void R(add_keys)(const R(item) * it)
{
    const attention_sizes *s = &it->d->s;
    const int64_t n = k_min(ATTENTION_KEYS, s->keys - it->first);
    R(clear_keys)(it, n);
    for (int64_t i = 0; i < s->group * s->query_blocks; i++) {
        const int64_t number = i % s->query_blocks;
        const int64_t end = k_min(s->queries, (number + 1) * ATTENTION_QUERIES);
        const int64_t keys = k_min(n, attention_seen(s, end - 1) - it->first);
        if (keys <= 0) continue;
        const R(block) b = R(load_block)(it, it->number * s->group + i / s->query_blocks, number);
        R(add_block)(it, &b, it->first, keys, false, true);
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
        R(add_queries)(&it, task / s->query_blocks, task % s->query_blocks, true, false);
    } else if (d->by_block) {
        it.first = (task - query_tasks) % s->key_blocks * ATTENTION_KEYS;
        R(add_keys)(&it);
    } else {
        R(clear_keys)(&it, s->keys);
        for (int64_t i = 0; i < s->group * s->query_blocks; i++)
            R(add_queries)(&it, number * s->group + i / s->query_blocks, i % s->query_blocks, d->dq, d->dkv);
        R(store_keys)(&it, s->keys);
    }
}
