/* reduce_body.h - template over REAL (carrier) and TOTAL (type of sums), included by reduce.c. */

#ifndef MEAN
#define MEAN(sum, n) ((sum) / (double)(n))
#define MEAN_IS_DEFAULT
#endif

CPU_CLONES static void R(add)(REAL *sum, const REAL *x, int64_t n)
{
    CPU_SIMD for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

static const REAL *R(tile)(const k_view *x, int64_t first, int64_t n, cpu_tile *scratch)
{
    return cpu_tile_load(x, first, n, cpu_carrier(x->dtype), scratch);
}

/* Sums terms [low, high) of the output at offset `base`; rows of p->shape.length are contiguous. */
static TOTAL R(sum_inner)(const k_view *x, const plan *p, int64_t base, int64_t low, int64_t high)
{
    TOTAL total = 0;
    for (int64_t i = low; i < high;) {
        int64_t start = i % p->shape.length, m = k_min(k_min(CPU_TILE, p->shape.length - start), high - i);
        cpu_tile scratch;
        int64_t at = base + walk_offset(&p->shape.reduced, i / p->shape.length) + start;
        total += R(lanes_sum)(R(tile)(x, at, m, &scratch), m);
        i += m;
    }
    return total;
}

/* Sums terms [low, high) of `columns` adjacent outputs at offset `base`. */
static void R(sum_outer)(const k_view *x, const plan *p, int64_t base, int64_t columns, int64_t low, int64_t high,
                         TOTAL *total)
{
    for (int64_t j = 0; j < columns; j++) total[j] = 0;
    for (int64_t i = low; i < high; i += BLOCK_ROWS) {
        REAL block[CPU_TILE] = {0};
        for (int64_t k = i; k < k_min(i + BLOCK_ROWS, high); k++) {
            cpu_tile scratch;
            int64_t at = base + walk_offset(&p->shape.reduced, k);
            R(add)(block, R(tile)(x, at, columns, &scratch), columns);
        }
        for (int64_t j = 0; j < columns; j++) total[j] += (TOTAL)block[j];
    }
}

/* Computes group g of the outputs of unit u into `total`. Returns the number of outputs and stores the first one in
 * *first. */
static int64_t R(unit)(const k_view *x, const plan *p, int64_t u, int64_t g, TOTAL *total, int64_t *first)
{
    int64_t low = p->shape.terms * g / p->groups, high = p->shape.terms * (g + 1) / p->groups;
    int64_t kept = u / p->column_tiles, column = u % p->column_tiles * p->columns;
    if (p->shape.inner_kept) {
        int64_t columns = k_min(p->columns, p->shape.length - column);
        *first = kept * p->shape.length + column;
        R(sum_outer)(x, p, walk_offset(&p->shape.kept, kept) + column, columns, low, high, total);
        return columns;
    }
    int64_t outputs = k_min(p->columns, p->shape.n_kept - column);
    *first = column;
    for (int64_t j = 0; j < outputs; j++)
        total[j] = R(sum_inner)(x, p, walk_offset(&p->shape.kept, column + j), low, high);
    return outputs;
}

static void R(finish)(const k_args *args, const plan *p, int64_t first, int64_t n, const TOTAL *total)
{
    REAL values[CPU_TILE];
    for (int64_t j = 0; j < n; j++) values[j] = (REAL)(p->mean ? MEAN(total[j], p->shape.terms) : total[j]);
    cpu_tile_store(&args->out[0], first, n, cpu_carrier(args->in[0].dtype), values);
}

static void R(reduce)(const k_args *args, const plan *p)
{
    const k_view *x = &args->in[0];
    TOTAL *partial = args->workspace;
#pragma omp parallel for num_threads(cpu_threads(args->ctx, k_count(x))) schedule(static)
    for (int64_t t = 0; t < p->units * p->groups; t++) {
        TOTAL total[CPU_TILE];
        int64_t first, g = t % p->groups, n = R(unit)(x, p, t / p->groups, g, total, &first);
        if (p->groups == 1) R(finish)(args, p, first, n, total);
        else memcpy(partial + g * p->shape.outputs + first, total, (size_t)n * sizeof(TOTAL));
    }
    if (p->groups == 1) return;
    for (int64_t first = 0; first < p->shape.outputs; first += CPU_TILE) {
        TOTAL total[CPU_TILE] = {0};
        int64_t n = k_min(CPU_TILE, p->shape.outputs - first);
        for (int64_t g = 0; g < p->groups; g++)
            for (int64_t j = 0; j < n; j++) total[j] += partial[g * p->shape.outputs + first + j];
        R(finish)(args, p, first, n, total);
    }
}

#ifdef MEAN_IS_DEFAULT
#undef MEAN
#undef MEAN_IS_DEFAULT
#endif
