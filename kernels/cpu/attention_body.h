/* attention_body.h - template over REAL, included by attention.c. */

/* The state of a block of queries, each vector s->block long. */
typedef struct R(state) {
    REAL *largest, *total, *factor; /* maximum, sum of exponentials, and what the last block of keys scales them by */
} R(state);

/* Replaces the scores of a block by exponentials relative to the maxima, which it updates. */
CPU_CLONES static void R(fold_scores)(REAL *restrict scores, int64_t keys, const R(state) * st, int64_t n)
{
    REAL *restrict largest = st->largest, *restrict total = st->total, *restrict factor = st->factor;
    memcpy(factor, largest, (size_t)n * sizeof *factor);
    for (int64_t j = 0; j < keys; j++)
        CPU_SIMD for (int64_t i = 0; i < n; i++) largest[i] = scores[j * n + i] > largest[i] ? scores[j * n + i]
                                                                                             : largest[i];
    CPU_SIMD for (int64_t i = 0; i < n; i++)
    {
        const REAL base = largest[i] == -(REAL)INFINITY ? 0 : largest[i];
        factor[i] = R(attention_exp)(factor[i] - base);
        total[i] *= factor[i];
    }
    for (int64_t j = 0; j < keys; j++) CPU_SIMD for (int64_t i = 0; i < n; i++)
        {
            const REAL base = largest[i] == -(REAL)INFINITY ? 0 : largest[i];
            const REAL p = R(attention_exp)(scores[j * n + i] - base);
            scores[j * n + i] = p;
            total[i] += p;
        }
}

CPU_CLONES static void R(scale_rows)(REAL *restrict rows, const REAL *restrict factor, int64_t n, int64_t columns)
{
    for (int64_t i = 0; i < n; i++) CPU_SIMD for (int64_t j = 0; j < columns; j++) rows[i * columns + j] *= factor[i];
}

/* Writes y and lse. The sum of a query that sees no key is 0. */
static void R(finish)(const k_args *args, const attention_sizes *s, int64_t item, int64_t first, int64_t n,
                      const R(state) * st, REAL *sums)
{
    const attention_rows y = attention_item(&args->out[IR_OUT(attention, y)], item);
    const k_view *lse = cpu_result(args, IR_OUT(attention, lse));
    for (int64_t i = 0; i < n; i++) st->factor[i] = st->total[i] == 0 ? 0 : 1 / st->total[i];
    R(scale_rows)(sums, st->factor, n, s->width_row);
    R(attention_store)(&y, first, n, sums, s->width_row);
    for (int64_t i = 0; i < n && cpu_is_used(lse); i++) {
        REAL *to = (REAL *)lse->data + 2 * (item * s->queries + first + i);
        to[0] = st->largest[i];
        to[1] = st->total[i] == 0 ? 0 : (REAL)log((double)st->total[i]);
    }
}

static void R(attend)(const k_args *args, const attention_sizes *s, int64_t item, int64_t block, REAL *memory)
{
    const attention_mask mask = attention_mask_of(args, item, 0);
    const buffers b = buffers_of(s, mask.data);
    const attention_rows q = attention_item(&args->in[IR_IN(attention, q)], item),
                         k = attention_item(&args->in[IR_IN(attention, k)], item / s->group),
                         v = attention_item(&args->in[IR_IN(attention, v)], item / s->group);
    const int64_t first = block * ATTENTION_QUERIES, n = k_min(ATTENTION_QUERIES, s->queries - first);
    const int64_t seen = attention_seen(s, first + n - 1);
    REAL *crossed = memory + b.crossed, *scores = memory + b.scores, *sums = memory + b.sums;
    const R(state) st = {memory + b.state, memory + b.state + s->block, memory + b.state + 2 * s->block};
    int64_t row;
    const REAL *from = R(attention_load)(&q, first, n, memory + b.queries, &row);
    R(attention_cross)(crossed, s->block, from, row, n, s->depth, (REAL)s->scale);
    for (int64_t i = 0; i < s->block; i++) st.largest[i] = -(REAL)INFINITY, st.total[i] = 0;
    memset(sums, 0, (size_t)(s->block * s->width_row) * sizeof *sums);
    for (int64_t key = 0; key < seen; key += ATTENTION_KEYS) {
        const int64_t keys = k_min(ATTENTION_KEYS, seen - key);
        from = R(attention_load)(&k, key, keys, memory + b.keys, &row);
        R(attention_multiply)
        (&(R(attention_product)){from, row, 1, crossed, s->block, scores, s->block, keys, s->block, s->depth, false});
        R(attention_apply_mask)(s, &mask, scores, first, n, key, keys, memory + b.mask);
        R(fold_scores)(scores, keys, &st, s->block);
        if (key > 0) R(scale_rows)(sums, st.factor, n, s->width_row);
        from = R(attention_load)(&v, key, keys, memory + b.values, &row);
        R(attention_multiply)
        (&(R(attention_product)){scores, 1, s->block, from, row, sums, s->width_row, n, s->width_row, keys, true});
    }
    R(finish)(args, s, item, first, n, &st, sums);
}
