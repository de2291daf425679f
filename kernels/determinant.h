/* determinant.h - determinants and cofactors of small matrices in f64, for all devices; needs K_FORMULA.
 *
 * Gaussian elimination with pivots from the whole remaining matrix. A remainder of zeros has pivots that are tiny
 * instead of 0: the product of the determinant and the inverse, which is the matrix of cofactors, remains exact to
 * rounding, because the tiny factors cancel. */
#ifndef AMPC_DETERMINANT_H
#define AMPC_DETERMINANT_H

#define DETERMINANT_TINY 1e-100

K_FORMULA double det_size(double v) { return v < 0 ? -v : v; }

/* Finds the largest element of rows and columns from `step` on. */
K_FORMULA void det_find_pivot(const double *a, int64_t n, int64_t step, int64_t *row, int64_t *column)
{
    *row = *column = step;
    for (int64_t i = step; i < n; i++)
        for (int64_t j = step; j < n; j++)
            if (det_size(a[i * n + j]) > det_size(a[*row * n + *column])) *row = i, *column = j;
}

K_FORMULA void det_swap(double *p, double *q)
{
    const double v = *p;
    *p = *q;
    *q = v;
}

/* Reduces a to the product of triangular matrices and returns its determinant. Row i of the permuted matrix was row
 * rows[i]; likewise columns. NULL: no permutation is wanted, and zero pivots stay zero. */
K_FORMULA double det_factor(double *a, int64_t n, double *rows, double *columns)
{
    double det = 1;
    for (int64_t k = 0; rows && k < n; k++) rows[k] = columns[k] = (double)k;
    for (int64_t k = 0; k < n; k++) {
        int64_t row, column;
        det_find_pivot(a, n, k, &row, &column);
        for (int64_t j = 0; row != k && j < n; j++) det_swap(&a[k * n + j], &a[row * n + j]);
        for (int64_t i = 0; column != k && i < n; i++) det_swap(&a[i * n + k], &a[i * n + column]);
        if (rows) det_swap(&rows[k], &rows[row]), det_swap(&columns[k], &columns[column]);
        if ((row != k) != (column != k)) det = -det;
        double pivot = a[k * n + k];
        if (pivot == 0 && !rows) return 0;
        if (pivot == 0) pivot = a[k * n + k] = DETERMINANT_TINY;
        det *= pivot;
        for (int64_t i = k + 1; i < n; i++) {
            const double factor = a[i * n + k] /= pivot;
            for (int64_t j = k + 1; j < n; j++) a[i * n + j] -= factor * a[k * n + j];
        }
    }
    return det;
}

/* Overwrites y, which has n elements, by column c of the inverse of the factored matrix, still permuted. */
K_FORMULA void det_solve(const double *a, int64_t n, int64_t c, double *y)
{
    for (int64_t i = 0; i < n; i++) {
        double v = i == c;
        for (int64_t j = 0; j < i; j++) v -= a[i * n + j] * y[j];
        y[i] = v;
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        double v = y[i];
        for (int64_t j = i + 1; j < n; j++) v -= a[i * n + j] * y[j];
        y[i] = v / a[i * n + i];
    }
}

/* Overwrites a by its cofactors. `space`: n * (n + 3) elements. */
K_FORMULA void det_cofactors(double *a, int64_t n, double *space)
{
    double *rows = space, *columns = space + n, *y = space + 2 * n, *result = space + 3 * n;
    const double det = det_factor(a, n, rows, columns);
    for (int64_t c = 0; c < n; c++) {
        det_solve(a, n, c, y);
        for (int64_t i = 0; i < n; i++) result[(int64_t)rows[c] * n + (int64_t)columns[i]] = det * y[i];
    }
    for (int64_t i = 0; i < n * n; i++) a[i] = result[i];
}

#endif
