/* nms_body.h - template over REAL, included by nms.c. */

#ifndef CPU_NMS_PAIR
#define CPU_NMS_PAIR
/* The choice for one batch and class. */
typedef struct nms_pair {
    int64_t batch, class, boxes, most;
    double iou, score;
    bool filters;  /* only scores above `score` count */
    int64_t *heap; /* [boxes] */
    int64_t *rows; /* [most][3] */
} nms_pair;
#endif

typedef struct R(corners) {
    REAL x0, x1, y0, y1, area;
} R(corners);

/* Boxes are (y, x, y, x) of two opposite corners or, if `center`, (x, y, width, height). */
static void R(find_corners)(const void *boxes, int64_t n, bool center, R(corners) * out)
{
    const REAL *b = boxes;
    for (int64_t i = 0; i < n; i++, b += 4) {
        R(corners) c;
        if (center) {
            c = (R(corners)){b[0] - b[2] / 2, b[0] + b[2] / 2, b[1] - b[3] / 2, b[1] + b[3] / 2, 0};
        } else {
            c = (R(corners)){b[1] < b[3] ? b[1] : b[3], b[1] < b[3] ? b[3] : b[1], b[0] < b[2] ? b[0] : b[2],
                             b[0] < b[2] ? b[2] : b[0], 0};
        }
        c.area = (c.x1 - c.x0) * (c.y1 - c.y0);
        out[i] = c;
    }
}

/* Whether the area that both share is more than `iou` of the area that they cover; never for an empty box. */
static bool R(overlap)(const R(corners) * a, const R(corners) * b, REAL iou)
{
    const REAL x0 = a->x0 > b->x0 ? a->x0 : b->x0, x1 = a->x1 < b->x1 ? a->x1 : b->x1;
    const REAL y0 = a->y0 > b->y0 ? a->y0 : b->y0, y1 = a->y1 < b->y1 ? a->y1 : b->y1;
    if (x1 <= x0 || y1 <= y0) return false;
    const REAL both = (x1 - x0) * (y1 - y0), all = a->area + b->area - both;
    if (both <= 0 || a->area <= 0 || b->area <= 0 || all <= 0) return false;
    return both / all > iou;
}

/* Moves the item at `at` to its place in a heap whose root has the largest score; of equal scores the first. */
static void R(sift_down)(const REAL *scores, int64_t *heap, int64_t n, int64_t at)
{
    const int64_t item = heap[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        const int64_t next = child + 1;
        if (next < n && (scores[heap[next]] > scores[heap[child]] ||
                         (scores[heap[next]] == scores[heap[child]] && heap[next] < heap[child])))
            child = next;
        if (scores[heap[child]] < scores[item] || (scores[heap[child]] == scores[item] && heap[child] > item)) break;
        heap[at] = heap[child];
    }
    heap[at] = item;
}

static bool R(overlaps_any)(const nms_pair *p, const R(corners) * boxes, int64_t box, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (R(overlap)(&boxes[box], &boxes[p->rows[3 * i + 2]], (REAL)p->iou)) return true;
    return false;
}

/* Stores the chosen rows; returns their number. A score that is NaN is never chosen. */
static int64_t R(choose)(const nms_pair *p, const void *corners, const REAL *scores)
{
    const R(corners) *boxes = (const R(corners) *)corners + p->batch * p->boxes;
    int64_t n = 0, chosen = 0;
    for (int64_t i = 0; i < p->boxes; i++)
        if (p->filters ? scores[i] > (REAL)p->score : scores[i] == scores[i]) p->heap[n++] = i;
    for (int64_t i = n / 2; i-- > 0;) R(sift_down)(scores, p->heap, n, i);
    while (n > 0 && chosen < p->most) {
        const int64_t box = p->heap[0];
        p->heap[0] = p->heap[--n];
        if (n) R(sift_down)(scores, p->heap, n, 0);
        if (R(overlaps_any)(p, boxes, box, chosen)) continue;
        int64_t *row = p->rows + 3 * chosen++;
        row[0] = p->batch;
        row[1] = p->class;
        row[2] = box;
    }
    return chosen;
}
