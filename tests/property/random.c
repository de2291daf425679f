/* random.c - generates the graphs. */
#include "tests/property/random.h"

#include <string.h>

static uint64_t state;

void random_seed(uint64_t seed)
{
    state = seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u;
    for (int i = 0; i < 4; i++) random_below(2);
}

int64_t random_below(int64_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}

int64_t random_in(int64_t low, int64_t high) { return low + random_below(high - low + 1); }

double random_real(void)
{
    double x = 0.25 + 1.75 * (double)random_below(1 << 24) / (1 << 24);
    return random_below(2) ? x : -x;
}

static bool chance(int percent) { return random_below(100) < percent; }

static int new_value(graph *g, int rank)
{
    int v = g->n_values++;
    g->rank[v] = rank;
    memset(g->one[v], 0, sizeof g->one[v]);
    return v;
}

static int like(graph *g, int v)
{
    int y = new_value(g, g->rank[v]);
    memcpy(g->one[y], g->one[v], sizeof g->one[y]);
    return y;
}

/* ---- parameters ---- */

static bound bound_number(int64_t n) { return (bound){.value = -1, .number = n}; }

/* Returns a bound counted from either end, or computed from the shape. */
static bound any_bound(const graph *g, int v, int axis)
{
    static const int64_t far[] = {INT64_MAX, INT32_MAX, INT64_MIN, INT32_MIN, 1000};
    if (chance(15)) return bound_number(far[random_below(5)]);
    if (chance(75)) return bound_number(random_in(-7, 7));
    bound b = {.value = v, .axis = chance(80) ? axis : (int)random_below(g->rank[v]), .div = 1};
    if (chance(60)) b.add = random_in(-6, 3);
    else b.div = random_in(2, 3), b.add = random_in(0, 2);
    return b;
}

static void draw_slice(graph *g, step *s)
{
    int x = s->in[0], rank = g->rank[x];
    bool used[MAX_RANK] = {false};
    int y = like(g, x);
    for (int i = 0; i < rank; i++) {
        int axis = (int)random_below(rank);
        if (used[axis] || (i && chance(50))) continue;
        used[axis] = true;
        s->axes[s->count] = axis;
        s->a[s->count] = any_bound(g, x, axis);
        s->b[s->count] = any_bound(g, x, axis);
        s->list[s->count] = chance(60) ? 1 : random_in(1, 3) * (chance(50) ? 1 : -1);
        g->one[y][axis] = false;
        s->count++;
    }
    s->out[s->n_out++] = y;
}

static void draw_pad(graph *g, step *s)
{
    static const char *const modes[] = {"constant", "constant", "reflect", "edge", "wrap"};
    int rank = g->rank[s->in[0]], y = like(g, s->in[0]);
    s->mode = modes[random_below(g->opset >= 19 ? 5 : 4)];
    s->value = chance(50) ? 0 : random_in(1, 3);
    s->count = rank;
    for (int i = 0; i < 2 * rank; i++) {
        s->list[i] = chance(50) ? 0 : chance(25) ? -random_in(1, 3) : random_in(1, 3);
        if (s->list[i]) g->one[y][i % rank] = false;
    }
    s->out[s->n_out++] = y;
}

static void draw_split(graph *g, step *s)
{
    s->axis = (int)random_below(g->rank[s->in[0]]);
    s->a[0] = bound_number(random_in(0, 4));
    for (int i = 0; i < 2; i++) {
        s->out[s->n_out++] = like(g, s->in[0]);
        g->one[s->out[i]][s->axis] = false;
    }
}

static void draw_window(graph *g, step *s)
{
    int n = g->rank[s->in[0]] - 2, y = like(g, s->in[0]);
    bool average = s->kind == AVG_POOL;
    s->count = n;
    for (int i = 0; i < n; i++) {
        int64_t kernel = random_in(1, 4), dilation = !average && chance(25) ? 2 : 1, pad = kernel > 1 ? kernel / 2 : 0;
        s->list[i] = kernel;
        s->list[n + i] = random_in(1, 3);
        s->list[2 * n + i] = dilation;
        s->list[3 * n + i] = chance(40) ? random_in(0, pad) : 0;
        s->list[4 * n + i] = chance(40) ? random_in(0, pad) : 0;
        g->one[y][2 + i] = false;
    }
    s->ceil = chance(40);
    s->count_pad = average && chance(50);
    s->out[s->n_out++] = y;
}

static void draw_reduction(graph *g, step *s)
{
    int x = s->in[0], rank = g->rank[x];
    s->keep = chance(60);
    bool reduced[MAX_RANK] = {false};
    for (int i = 0; i < rank; i++) reduced[i] = chance(40);
    reduced[random_below(rank)] = true;
    for (int i = 0; i < rank; i++)
        if (reduced[i]) s->list[s->count++] = i;
    int y = new_value(g, s->keep ? rank : rank - s->count);
    for (int i = 0, k = 0; i < rank; i++) {
        if (!reduced[i]) g->one[y][k++] = g->one[x][i];
        else if (s->keep) g->one[y][k++] = true;
    }
    s->out[s->n_out++] = y;
}

static void draw_transpose(graph *g, step *s)
{
    int x = s->in[0], rank = g->rank[x], y = new_value(g, rank);
    s->count = rank;
    for (int i = 0; i < rank; i++) s->list[i] = i;
    for (int i = rank - 1; i > 0; i--) {
        int k = (int)random_below(i + 1);
        int64_t swap = s->list[i];
        s->list[i] = s->list[k];
        s->list[k] = swap;
    }
    for (int i = 0; i < rank; i++) g->one[y][i] = g->one[x][s->list[i]];
    s->out[s->n_out++] = y;
}

static void draw_merge(graph *g, step *s)
{
    int x = s->in[0], rank = g->rank[x], y = new_value(g, rank - 1);
    s->axis = (int)random_below(rank - 1);
    s->infer = chance(50);
    for (int i = 0; i < rank - 1; i++) g->one[y][i] = i != s->axis && g->one[x][i < s->axis ? i : i + 1];
    s->out[s->n_out++] = y;
}

static void draw_axis_change(graph *g, step *s)
{
    int x = s->in[0], rank = g->rank[x];
    if (s->kind == UNSQUEEZE) {
        s->axis = (int)random_below(rank + 1);
        int y = new_value(g, rank + 1);
        for (int i = 0; i <= rank; i++) g->one[y][i] = i == s->axis || g->one[x][i < s->axis ? i : i - 1];
        s->out[s->n_out++] = y;
        return;
    }
    s->axis = 0;
    while (!g->one[x][s->axis]) s->axis++;
    int y = new_value(g, rank - 1);
    for (int i = 0; i < rank - 1; i++) g->one[y][i] = g->one[x][i < s->axis ? i : i + 1];
    s->out[s->n_out++] = y;
}

static void draw_gather(graph *g, step *s)
{
    s->axis = (int)random_below(g->rank[s->in[0]]);
    s->count = (int)random_in(1, 3);
    for (int i = 0; i < s->count; i++) s->list[i] = random_in(-2, 2);
    int y = like(g, s->in[0]);
    g->one[y][s->axis] = s->count == 1;
    s->out[s->n_out++] = y;
}

static void draw_plain(graph *g, step *s)
{
    int rank = g->rank[s->in[0]];
    if (s->kind == FLATTEN) {
        s->axis = (int)random_below(rank + 1);
        s->out[s->n_out++] = new_value(g, 2);
        return;
    }
    s->axis = rank ? (int)random_below(rank) : 0;
    s->upper = chance(50);
    s->number = random_in(-2, 2);
    int y = like(g, s->in[0]);
    s->count = rank;
    for (int i = 0; i < rank; i++) {
        s->list[i] = chance(60) ? 1 : random_in(0, 3);
        if (s->kind == TILE && s->list[i] != 1) g->one[y][i] = false;
    }
    for (int i = 2; s->kind == GLOBAL_POOL && i < rank; i++) g->one[y][i] = true;
    s->out[s->n_out++] = y;
}

/* ---- steps ---- */

static bool possible(const graph *g, kind k, int x)
{
    int rank = g->rank[x], ones = 0;
    for (int i = 0; i < rank; i++) ones += g->one[x][i];
    switch (k) {
    case MERGE:
    case TRILU: return rank >= 2;
    case UNSQUEEZE: return rank < 5;
    case SQUEEZE: return ones > 0;
    case MAX_POOL:
    case AVG_POOL:
    case GLOBAL_POOL: return rank == 3 || rank == 4;
    case CHUNK: return g->opset >= 18 && rank >= 1;
    case FLATTEN:
    case FILL:
    case NEG:
    case RELU:
    case SIN: return true;
    default: return rank >= 1;
    }
}

static step *add_step(graph *g, kind k, int x)
{
    step *s = &g->steps[g->n_steps++];
    *s = (step){.kind = k, .in = {x}, .n_in = 1};
    g->read[x] = true;
    return s;
}

/* Combines x with a result derived from x to obtain matching shapes: a slice of it, its sum, another slice. */
static void draw_pair(graph *g, kind k, int x)
{
    if (g->n_steps + 3 > MAX_STEPS || g->n_values + 4 > MAX_VALUES) return;
    step *s = add_step(g, k == EXPAND || (k != CONCAT && chance(50)) ? SUM : SLICE, x);
    bool reduced = s->kind == SUM;
    int axis = (int)random_below(g->rank[x]);
    int64_t shift = random_in(1, 3);
    if (reduced) {
        draw_reduction(g, s);
        if (!s->keep) { /* as if it had been drawn this way */
            s->keep = true;
            g->rank[s->out[0]] = g->rank[x];
            for (int i = 0; i < g->rank[x]; i++) g->one[s->out[0]][i] = g->one[x][i];
            for (int i = 0; i < s->count; i++) g->one[s->out[0]][s->list[i]] = true;
        }
    } else {
        int y = like(g, x);
        g->one[y][axis] = false;
        s->axes[0] = axis, s->list[0] = 1, s->count = 1;
        s->a[0] = bound_number(shift), s->b[0] = bound_number(INT64_MAX);
        s->out[s->n_out++] = y;
    }
    int first = s->out[0], second = x;
    if (!reduced) { /* the other slice: [:-shift] has equal size, [:shift] completes it */
        bool whole = k == CONCAT && chance(60);
        step *t = add_step(g, SLICE, x);
        second = like(g, x);
        g->one[second][axis] = false;
        t->axes[0] = axis, t->list[0] = 1, t->count = 1;
        t->a[0] = bound_number(0), t->b[0] = bound_number(whole ? shift : -shift);
        t->out[t->n_out++] = second;
    }
    step *join = add_step(g, k, first);
    join->in[1] = second, join->n_in = 2;
    join->axis = axis;
    g->read[second] = true;
    int y = like(g, x);
    if (!reduced) g->one[y][axis] = false;
    join->out[join->n_out++] = y;
}

static void draw_step(graph *g)
{
    int x = (int)random_below(g->n_values);
    if (chance(50)) x = g->n_values - 1;
    kind k = (kind)random_below(KINDS);
    if (chance(25)) k = SLICE;
    if (!possible(g, k, x)) return;
    if (k == ADD || k == MUL || k == CONCAT || k == EXPAND) {
        draw_pair(g, k, x);
        return;
    }
    step *s = add_step(g, k, x);
    switch (k) {
    case SLICE: draw_slice(g, s); break;
    case PAD: draw_pad(g, s); break;
    case SPLIT:
    case CHUNK: draw_split(g, s); break;
    case MAX_POOL:
    case AVG_POOL: draw_window(g, s); break;
    case SUM:
    case MEAN: draw_reduction(g, s); break;
    case TRANSPOSE: draw_transpose(g, s); break;
    case MERGE: draw_merge(g, s); break;
    case UNSQUEEZE:
    case SQUEEZE: draw_axis_change(g, s); break;
    case GATHER: draw_gather(g, s); break;
    default: draw_plain(g, s);
    }
}

void random_graph(graph *g)
{
    static const int opsets[] = {14, 18, 19, 21};
    *g = (graph){.opset = opsets[random_below(4)], .f64 = chance(60), .n_inputs = (int)random_in(1, MAX_INPUTS)};
    for (int i = 0; i < g->n_inputs; i++) {
        int v = new_value(g, (int)random_in(1, 4));
        for (int a = 0; a < g->rank[v]; a++) {
            g->dims[i][a] = chance(60) ? -1 - random_below(SYMBOLS) : random_in(1, 5);
            g->one[v][a] = g->dims[i][a] == 1;
        }
    }
    int wanted = (int)random_in(1, 6);
    for (int i = 0; i < 4 * wanted && g->n_steps < wanted; i++) draw_step(g);
}
