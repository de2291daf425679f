/* select_body.h - template over REAL, included by select.c. */

/* The position of the extreme element, found with two passes of vector loops; n > 0. */
static int64_t R(find_extreme)(const void *row, int64_t n, bool largest, bool last)
{
    const REAL *x = row;
    const REAL extreme = (REAL)(largest ? R(lanes_largest)(x, n) : R(lanes_smallest)(x, n));
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        if (x[i] != extreme && !(extreme != extreme && x[i] != x[i])) continue;
        found = i;
        if (!last) break;
    }
    return found;
}

/* Whether element i comes before element j in the order of the result; NaN is the largest number. */
static inline bool R(precedes)(const REAL *x, int64_t i, int64_t j, bool largest)
{
    const bool i_nan = x[i] != x[i], j_nan = x[j] != x[j];
    if (i_nan || j_nan) return i_nan && j_nan ? i < j : i_nan == largest;
    if (x[i] == x[j]) return i < j;
    return (x[i] > x[j]) == largest;
}

/* Moves the item at `at` of a heap of k positions, whose root is the last in the order, to its place. */
static void R(sift)(const REAL *x, int64_t *heap, int64_t k, int64_t at, bool largest)
{
    const int64_t item = heap[at];
    for (int64_t child; (child = 2 * at + 1) < k; at = child) {
        if (child + 1 < k && R(precedes)(x, heap[child], heap[child + 1], largest)) child++;
        if (!R(precedes)(x, item, heap[child], largest)) break;
        heap[at] = heap[child];
    }
    heap[at] = item;
}

/* Stores the first k <= n positions in the order, sorted, and their elements. */
static void R(select_first)(const void *row, int64_t n, int64_t k, bool largest, void *values, int64_t *positions)
{
    const REAL *x = row;
    for (int64_t i = 0; i < k; i++) positions[i] = i;
    for (int64_t i = k / 2 - 1; i >= 0; i--) R(sift)(x, positions, k, i, largest);
    for (int64_t i = k; k > 0 && i < n; i++) {
        if (!R(precedes)(x, i, positions[0], largest)) continue;
        positions[0] = i;
        R(sift)(x, positions, k, 0, largest);
    }
    for (int64_t rest = k - 1; rest > 0; rest--) {
        const int64_t worst = positions[0];
        positions[0] = positions[rest];
        positions[rest] = worst;
        R(sift)(x, positions, rest, 0, largest);
    }
    for (int64_t i = 0; i < k; i++) ((REAL *)values)[i] = x[positions[i]];
}
