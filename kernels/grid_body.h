/* grid_body.h - template over REAL (real.h), for all devices: the elements along one axis that a sample combines.
 * The includer defines K_FORMULA. */

/* A position in elements, moved into the axis if the rule says so, and its derivative by the coordinate. */
typedef struct R(grid_place) {
    REAL at, step;
} R(grid_place);

/* Reflects at both ends of the elements, or at the outermost elements; *step changes its sign with the direction. */
K_FORMULA REAL R(grid_reflect)(const grid_rule *r, long long size, REAL at, REAL *step)
{
    const REAL low = r->corners ? 0 : (REAL)-0.5, span = (REAL)(r->corners ? size - 1 : size);
    if (span <= 0) {
        *step = 0;
        return 0;
    }
    REAL from = at - low;
    if (from < 0) from = -from, *step = -*step;
    const REAL turns = (REAL)floor(from / span), rest = from - turns * span;
    if (turns - 2 * (REAL)floor(turns / 2) == 0) return rest + low;
    *step = -*step;
    return span - rest + low;
}

K_FORMULA REAL R(grid_bound)(const grid_rule *r, long long size, REAL at, REAL *step)
{
    const REAL last = (REAL)(size - 1);
    if (r->border == IR_WORD(border, reflection)) at = R(grid_reflect)(r, size, at, step);
    if (at > 0 && at < last) return at;
    *step = 0;
    return at >= last ? last : 0; /* NaN becomes 0 */
}

K_FORMULA R(grid_place) R(grid_place_of)(const grid_rule *r, long long size, REAL g)
{
    R(grid_place) p;
    const REAL whole = (REAL)size;
    p.step = r->absolute ? 1 : (r->corners ? whole - 1 : whole) / 2;
    p.at = r->absolute ? g : r->corners ? (g + 1) / 2 * (whole - 1) : ((g + 1) * whole - 1) / 2;
    if (r->method != IR_WORD(sampling, cubic) && r->border != IR_WORD(border, zeros))
        p.at = R(grid_bound)(r, size, p.at, &p.step);
    if (!(p.at > -(REAL)GRID_FAR && p.at < (REAL)GRID_FAR)) p.at = -(REAL)GRID_FAR;
    return p;
}

/* The weight at a distance from the position, with its derivative. */
K_FORMULA REAL R(grid_cubic)(REAL d, REAL *slope)
{
    const REAL a = (REAL)-0.75;
    if (d <= 1) {
        *slope = (3 * (a + 2) * d - 2 * (a + 3)) * d;
        return ((a + 2) * d - (a + 3)) * d * d + 1;
    }
    *slope = (3 * a * d - 10 * a) * d + 8 * a;
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
}

/* The element of tap k, -1 if it is outside; its weight, and the derivative of the weight by the coordinate. */
K_FORMULA long long R(grid_tap)(const grid_rule *r, long long size, R(grid_place) p, int k, REAL *weight, REAL *slope)
{
    const REAL low = (REAL)floor(p.at), part = p.at - low;
    REAL at = low + (REAL)k, unused = 0;
    if (r->method == IR_WORD(sampling, nearest)) {
        at = (REAL)rint(p.at);
        *weight = 1;
        *slope = 0;
    } else if (r->method == IR_WORD(sampling, linear)) {
        *weight = k ? part : 1 - part;
        *slope = k ? p.step : -p.step;
    } else {
        const REAL distance = (REAL)(k - 1) - part;
        at -= 1;
        *weight = R(grid_cubic)(distance < 0 ? -distance : distance, slope);
        *slope *= distance < 0 ? p.step : -p.step;
        if (r->border != IR_WORD(border, zeros)) at = R(grid_bound)(r, size, at, &unused);
    }
    return at >= 0 && at < (REAL)size ? (long long)at : -1;
}
