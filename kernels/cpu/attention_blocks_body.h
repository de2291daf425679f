/* attention_blocks_body.h - template over REAL, included by attention_blocks.c. */

const REAL *R(attention_load)(const attention_rows *m, int64_t first, int64_t n, REAL *copy, int64_t *row)
{
    const int64_t size = (int64_t)ir_dtype_size(m->dtype), padded = attention_padded(m->columns);
    const char *from = m->data + first * m->row * size;
    *row = m->row;
    if (m->dtype == CARRIER && m->columns == padded) return (const REAL *)(const void *)from;
    *row = padded;
    for (int64_t i = 0; i < n; i++) {
        cpu_convert(CARRIER, copy + i * padded, m->dtype, from + i * m->row * size, m->columns);
        for (int64_t j = m->columns; j < padded; j++) copy[i * padded + j] = 0;
    }
    return copy;
}

REAL *R(attention_target)(const attention_rows *m, int64_t first, REAL *buffer, int64_t *row)
{
    const int64_t lanes = attention_is_low(m->dtype) ? ATTENTION_TERMS : ATTENTION_LANES;
    if (m->data && m->dtype == CARRIER && m->columns % lanes == 0) {
        *row = m->row;
        return (REAL *)(void *)m->data + first * m->row;
    }
    *row = cpu_ceil_div(m->columns, lanes) * lanes;
    return buffer;
}

void R(attention_store)(const attention_rows *m, int64_t first, int64_t n, const REAL *from, int64_t row)
{
    const int64_t size = (int64_t)ir_dtype_size(m->dtype);
    if (!m->data || (const char *)from == m->data + first * m->row * size) return;
    const bool low = attention_is_low(m->dtype) && m->columns % ATTENTION_LANES == 0;
    for (int64_t i = 0; i < n; i++, from += row) {
        char *to = m->data + (first + i) * m->row * size;
        if (low) attention_round_rows((uint16_t *)(void *)to, (const void *)from, m->columns);
        else cpu_convert(m->dtype, to, CARRIER, from, m->columns);
    }
}

CPU_CLONES void R(attention_scale)(REAL *x, REAL factor, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

void R(attention_cross)(REAL *to, int64_t to_row, const REAL *from, int64_t from_row, int64_t n, int64_t columns,
                        REAL factor)
{
    R(transpose)(to, to_row, from, from_row, columns, n);
    for (int64_t j = 0; j < columns && n < to_row; j++)
        memset(to + j * to_row + n, 0, (size_t)(to_row - n) * sizeof *to);
    if (factor != 1) R(attention_scale)(to, factor, columns * to_row);
}

/* What the mask adds to the scores of a query. */
static void R(load_mask)(const attention_mask *m, int64_t query, int64_t key, int64_t keys, REAL *to)
{
    const char *from = m->data + (query * m->query + key * m->key) * (int64_t)ir_dtype_size(m->dtype);
    cpu_convert(CARRIER, to, m->dtype, from, m->key ? keys : 1);
    for (int64_t j = 1; j < keys && !m->key; j++) to[j] = to[0];
    for (int64_t j = 0; j < keys && m->dtype == IR_bool; j++) to[j] = to[j] != 0 ? 0 : -(REAL)INFINITY;
}

/* A score that is masked out is -infinity, even if it was NaN. */
CPU_CLONES static void R(add_mask)(REAL *restrict scores, const REAL *restrict mask, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++)
    {
        const REAL sum = scores[i] + mask[i];
        scores[i] = mask[i] == -(REAL)INFINITY ? mask[i] : sum;
    }
}

/* A mask that is the same for all queries. */
static void R(mask_keys)(const attention_mask *m, REAL *scores, int64_t block, int64_t key, int64_t keys, REAL *mask)
{
    R(load_mask)(m, 0, key, keys, mask);
    for (int64_t j = 0; j < keys; j++, scores += block) {
        const REAL x = mask[j];
        for (int64_t i = 0; i < block && x == -(REAL)INFINITY; i++) scores[i] = x;
        for (int64_t i = 0; i < block && x != -(REAL)INFINITY && x != 0; i++) scores[i] += x;
    }
}

static void R(mask_block)(const attention_mask *m, REAL *scores, int64_t block, int64_t query, int64_t queries,
                          int64_t key, int64_t keys, REAL *scratch)
{
    REAL *crossed = scratch + block * ATTENTION_KEYS;
    const bool in_place = m->dtype == CARRIER && m->key == 1;
    const REAL *from = in_place ? (const REAL *)(const void *)m->data + query * m->query + key : scratch;
    for (int64_t i = 0; i < queries && !in_place; i++) R(load_mask)(m, query + i, key, keys, scratch + i * keys);
    R(attention_cross)(crossed, block, from, in_place ? m->query : keys, queries, keys, 1);
    R(add_mask)(scores, crossed, keys * block);
}

void R(attention_apply_mask)(const attention_sizes *s, const attention_mask *m, REAL *scores, int64_t query,
                             int64_t queries, int64_t key, int64_t keys, REAL *scratch)
{
    if (m->data && m->query) R(mask_block)(m, scores, s->block, query, queries, key, keys, scratch);
    else if (m->data) R(mask_keys)(m, scores, s->block, key, keys, scratch);
    for (int64_t j = 0; j < keys; j++) {
        const int64_t hidden = k_min(queries, key + j - s->last - query); /* queries that come too early */
        for (int64_t i = 0; i < hidden; i++) scores[j * s->block + i] = -(REAL)INFINITY;
    }
}
