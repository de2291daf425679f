/* attention_body.h - template over REAL, included by attention.c. */

/* The state of a block of queries, each vector s->block long. */
typedef struct R(state) {
    REAL *largest, *total, *factor; /* maximum, sum of exponentials, and what the last block of keys scales them by */
} R(state);

/* Replaces the scores of a block by exponentials relative to the maxima, which it updates. */
ATTENTION_CLONES static void R(fold_scores)(REAL *restrict scores, int64_t keys, const R(state) * st, int64_t n)
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

CPU_CLONES static void R(scale_rows)(REAL *restrict rows, int64_t row, const REAL *restrict factor, int64_t n,
                                     int64_t columns)
{
    for (int64_t i = 0; i < n; i++) CPU_SIMD for (int64_t j = 0; j < columns; j++) rows[i * row + j] *= factor[i];
}

/* Turns sums of exponentials into their logarithms. factor: their inverses. Both are 0 if no key is seen. */
ATTENTION_CLONES static void R(divide)(REAL *restrict total, REAL *restrict factor, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++)
    {
        const REAL sum = total[i];
        factor[i] = sum == 0 ? 0 : 1 / sum;
        total[i] = sum == 0 ? 0 : R(m_log)(sum);
    }
}

/* Writes y, of which there are the sums, and lse. The sum of a query that sees no key is 0. */
static void R(finish)(const task *t, const R(state) * st, const attention_rows *y, REAL *sums, int64_t row)
{
    const attention_sizes *s = &t->s;
    const k_view *lse = cpu_result(t->args, IR_OUT(attention, lse));
    R(divide)(st->total, st->factor, t->n);
    R(scale_rows)(sums, row, st->factor, t->n, s->width);
    R(attention_store)(y, t->first, t->n, sums, row);
    for (int64_t i = 0; i < t->n && cpu_is_used(lse); i++) {
        REAL *to = (REAL *)lse->data + 2 * (t->item * s->queries + t->first + i);
        to[0] = st->largest[i];
        to[1] = st->total[i];
    }
}

static void R(cross_queries)(const task *t, REAL *memory)
{
    int64_t row;
    const REAL *q = R(attention_load)(&t->q, t->first, t->n, memory + t->b.queries, &row);
    R(attention_cross)(memory + t->b.crossed, t->s.block, q, row, t->n, t->s.depth, (REAL)t->s.scale);
}

/* The scores of keys [key, key + keys), not masked. */
static void R(score)(const task *t, REAL *memory, int64_t key, int64_t keys)
{
    const int64_t block = t->s.block;
    R(attention_product) p = {.b = memory + t->b.crossed, .b_row = block, .m = keys, .n = block, .k = t->s.depth};
    p.a = R(attention_load)(&t->k, key, keys, memory + t->b.keys, &p.a_row);
    p.a_column = 1;
    p.c = memory + t->b.scores;
    p.c_row = block;
    R(attention_multiply)(&p);
}

/* Adds the values of these keys. */
static void R(add_values)(const task *t, REAL *memory, REAL *sums, int64_t row, int64_t key, int64_t keys)
{
    const int64_t width = t->s.width_row;
    R(attention_product) p = {.a = memory + t->b.scores, .a_row = 1, .a_column = t->s.block, .m = t->n, .n = width};
    p.k = keys;
    p.b = R(attention_load)(&t->v, key, keys, memory + t->b.values, &p.b_row);
    p.c = sums;
    p.c_row = row;
    p.adds = key > 0;
    R(attention_multiply)(&p);
}

/* Applies dropout to the exponentials of these keys, of which the sum has all. */
static void R(drop)(const task *t, REAL *scores, int64_t key, int64_t keys)
{
    const attention_sizes *s = &t->s;
    uint8_t keep[ATTENTION_KEYS * ATTENTION_QUERIES];
    attention_draw(s, t->item * s->queries + t->first, t->n, key, keys, keep);
    cpu_mask_tile(cpu_carrier(t->q.dtype), scores, keep, s->ratio, scores, keys * s->block);
}

static void R(attend)(const task *t, REAL *memory)
{
    const attention_sizes *s = &t->s;
    const int64_t block = s->block, seen = attention_seen(s, t->first + t->n - 1);
    const attention_rows y = attention_item(&t->args->out[IR_OUT(attention, y)], t->item);
    int64_t row;
    REAL *scores = memory + t->b.scores, *state = memory + t->b.state,
         *sums = R(attention_target)(&y, t->first, memory + t->b.sums, &row);
    const R(state) st = {state, state + block, state + 2 * block};
    for (int64_t i = 0; i < block; i++) st.largest[i] = -(REAL)INFINITY, st.total[i] = 0;
    for (int64_t i = 0; i < t->n && seen == 0; i++) memset(sums + i * row, 0, (size_t)s->width * sizeof *sums);
    if (s->low) cross_queries_low(t, (void *)memory);
    else R(cross_queries)(t, memory);
    for (int64_t key = 0; key < seen; key += ATTENTION_KEYS) {
        const int64_t keys = k_min(ATTENTION_KEYS, seen - key);
        if (s->low) score_low(t, (void *)memory, key, keys);
        else R(score)(t, memory, key, keys);
        R(attention_apply_mask)(s, &t->mask, scores, t->first, t->n, key, keys, memory + t->b.mask);
        R(fold_scores)(scores, keys, &st, block);
        if (s->drops) R(drop)(t, scores, key, keys);
        if (key > 0) R(scale_rows)(sums, row, st.factor, t->n, s->width);
        if (s->low) add_values_low(t, (void *)memory, (void *)sums, key, keys);
        else R(add_values)(t, memory, sums, row, key, keys);
    }
    R(finish)(t, &st, &y, sums, row);
}
