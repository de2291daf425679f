/* reduce_body.h - template over REAL (carrier) and TOTAL (type of folded values), included by reduce.c. */

typedef struct R(fold) {
    TOTAL (*row)(const REAL *x, int64_t n);              /* fold of n > 0 elements */
    void (*rows)(REAL *s, const REAL *x, int64_t n);     /* joins element i to s[i] */
    void (*totals)(TOTAL *s, const TOTAL *t, int64_t n); /* joins t[i] to s[i] */
    TOTAL (*join)(TOTAL s, TOTAL t);
} R(fold);

#define JOIN_TOTAL(name) REAL_PASTE(join_##name, TOTAL)
#define COMBINE(name, ...) \
    CPU_CLONES static void R(rows_##name)(REAL * s, const REAL *x, int64_t n) \
    { \
        CPU_SIMD for (int64_t i = 0; i < n; i++) s[i] = R(join_##name)(s[i], R(map_##name)(x[i])); \
    } \
    static TOTAL R(pair_##name)(TOTAL s, TOTAL t) { return JOIN_TOTAL(name)(s, t); } \
    static void R(totals_##name)(TOTAL * s, const TOTAL *t, int64_t n) \
    { \
        for (int64_t i = 0; i < n; i++) s[i] = JOIN_TOTAL(name)(s[i], t[i]); \
    }
#include "ir/ops/reductions.def"
#undef JOIN_TOTAL

static const R(fold) R(folds)[] = {
#define COMBINE(name, ...) [IR_COMBINE_##name] = {R(lanes_##name), R(rows_##name), R(totals_##name), R(pair_##name)},
#include "ir/ops/reductions.def"
};

static const REAL *R(tile)(const k_view *x, int64_t first, int64_t n, cpu_tile *scratch)
{
    return cpu_tile_load(x, first, n, cpu_formula_carrier(x->dtype), scratch);
}

/* Folds terms [low, high) of the output at offset `base`; rows of p->shape.length are contiguous. */
static TOTAL R(fold_inner)(const k_view *x, const plan *p, int64_t base, int64_t low, int64_t high)
{
    const R(fold) *f = &R(folds)[p->of.combine];
    TOTAL total = R(start)(p);
    for (int64_t i = low; i < high;) {
        int64_t start = i % p->shape.length, m = k_min(k_min(CPU_TILE, p->shape.length - start), high - i);
        cpu_tile scratch;
        int64_t at = base + walk_offset(&p->shape.reduced, i / p->shape.length) + start;
        total = f->join(total, f->row(R(tile)(x, at, m, &scratch), m));
        i += m;
    }
    return total;
}

/* Folds terms [low, high) of `columns` adjacent outputs at offset `base`. */
static void R(fold_outer)(const k_view *x, const plan *p, int64_t base, int64_t columns, int64_t low, int64_t high,
                          TOTAL *total)
{
    const R(fold) *f = &R(folds)[p->of.combine];
    const TOTAL begin = R(start)(p);
    for (int64_t j = 0; j < columns; j++) total[j] = begin;
    for (int64_t i = low; i < high; i += BLOCK_ROWS) {
        REAL block[CPU_TILE];
        TOTAL wide[CPU_TILE];
        for (int64_t j = 0; j < columns; j++) block[j] = (REAL)begin;
        for (int64_t k = i; k < k_min(i + BLOCK_ROWS, high); k++) {
            cpu_tile scratch;
            int64_t at = base + walk_offset(&p->shape.reduced, k);
            f->rows(block, R(tile)(x, at, columns, &scratch), columns);
        }
        for (int64_t j = 0; j < columns; j++) wide[j] = (TOTAL)block[j];
        f->totals(total, wide, columns);
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
        R(fold_outer)(x, p, walk_offset(&p->shape.kept, kept) + column, columns, low, high, total);
        return columns;
    }
    int64_t outputs = k_min(p->columns, p->shape.n_kept - column);
    *first = column;
    for (int64_t j = 0; j < outputs; j++)
        total[j] = R(fold_inner)(x, p, walk_offset(&p->shape.kept, column + j), low, high);
    return outputs;
}

static void R(finish)(const k_args *args, const plan *p, int64_t first, int64_t n, const TOTAL *total)
{
    REAL values[CPU_TILE];
    const TOTAL terms = (TOTAL)p->shape.terms;
    switch (p->of.finish) {
        /* clang-format off */
#define FINISH(name, types, ...) FINISH_##types(name)
#define FINISH_CASE(name) \
    case IR_FINISH_##name: \
        for (int64_t j = 0; j < n; j++) values[j] = (REAL)REAL_PASTE(finish_##name, TOTAL)(total[j], terms); \
        break;
#define FINISH_N FINISH_CASE
#ifdef REAL_IS_FLOAT
#define FINISH_F FINISH_CASE
#else
#define FINISH_F(name) case IR_FINISH_##name:
#endif
#include "ir/ops/reductions.def"
#undef FINISH_CASE
#undef FINISH_N
#undef FINISH_F
    /* clang-format on */
    default: return;
    }
    cpu_tile_store(&args->out[0], first, n, cpu_formula_carrier(args->in[0].dtype), values);
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
        TOTAL total[CPU_TILE];
        int64_t n = k_min(CPU_TILE, p->shape.outputs - first);
        memcpy(total, partial + first, (size_t)n * sizeof(TOTAL));
        for (int64_t g = 1; g < p->groups; g++)
            R(folds)[p->of.combine].totals(total, partial + g * p->shape.outputs + first, n);
        R(finish)(args, p, first, n, total);
    }
}
