/* fused.c - runs fused kernels (kernels/fused.h) tile by tile, with registers of one tile each.
 *
 * A value is an operand or the result of an instruction. Its form is its carrier, or bytes for booleans. An operand
 * that already has its form is read in place; one that is a broadcast scalar is loaded once per run. One that repeats
 * the same elements, as a vector with one element per channel in NHWC does, is expanded: a period and a tile of it are
 * in the thread's memory, so that every tile is a part of them. Any other is loaded into a register before the first
 * instruction that reads it. `prepare` allocates registers for all other
 * values, up to their last use, so that a long kernel needs few of them and all stay in the nearest caches. An
 * instruction's result is rounded to its type if anything but a store reads it. Results are stored last, or computed in
 * place if no operand aliases them that is read later.
 *
 * Values are counted tile by tile, in the nearest cache, by each thread apart.
 * A folded result is summed as in reduce.c: rows that fit into a tile are computed several at a time; longer ones are
 * divided into the same groups as there, and these into tiles from their first element on. */
#include "kernels/cpu/program.h"
#include "kernels/cpu/tiles.h"

#include <omp.h>
#include <stdlib.h>

enum {
    NO_VALUE = -1,
    MAX_VALUES = K_MAX_OPERANDS + K_MAX_CODE, /* operands, then instructions */
    LINE = 64,                                /* bytes; alignment of workspace and registers */
    MAX_PERIOD = 8 * CPU_TILE,                /* of an expanded operand, to stay in the nearest caches */
    MIN_REUSE = 4,                            /* an expanded operand is read that many times or more */
};

/* Where a value is stored. */
typedef enum place { UNREAD, IN_MEMORY, EVERYWHERE_SAME, EXPANDED, IN_REGISTER } place;

typedef struct value {
    ir_dtype type, form;
    place place;
    int slot;  /* index of its register, among the values loaded once, or among the expanded ones */
    int until; /* the instruction that reads it last; n_code: a result of the kernel */
} value;

/* Each block of `length` positions repeats `period` elements. Blocks may have different elements. */
typedef struct cycle {
    int64_t period, length;
    size_t at; /* of the expansion of one block, in the thread's memory */
} cycle;

typedef struct step step;

/* The scalar operands of an instruction, read once per run. */
typedef union once {
    cpu_numbers numbers;
    cpu_draw draw;
} once;

typedef struct tile {
    int64_t first, n;
    void **value; /* addresses of the MAX_VALUES values */
} tile;

typedef void run_fn(const step *s, const once *o, const tile *t);

struct step {
    run_fn *run; /* NULL: its result is an earlier value */
    const ir_attr *attr;
    int arg[K_MAX_ARGS], to; /* values; without operands that are read once per run */
    int n_arg, n_load;
    int load[K_MAX_ARGS]; /* operands to load before it runs */
    ir_dtype from, type, form;
    cpu_tile_fn *loop;      /* of pointwise ops, except pow of floats with one exponent */
    int operands;           /* of the op */
    ir_dtype carrier, made; /* types that the loop reads and writes */
    bool rounds;
};

/* Chunks run in parallel. If rows are divided, each chunk has one partial sum per folded result. */
typedef struct cut {
    int64_t chunks, length; /* length: elements per chunk if rows are not divided */
    int64_t groups;         /* chunks per row; 0: rows are not divided */
} cut;

typedef struct state {
    int n_registers, n_same, n_cycles, threads;
    size_t register_bytes, thread_bytes; /* thread_bytes: registers, then expanded operands */
    cycle cycles[K_MAX_OPERANDS];
    value values[MAX_VALUES];
    int value_of[K_MAX_CODE]; /* the value of each instruction's result */
    step steps[K_MAX_CODE];
    cut cut;
    int n_counted, counted[MAX_VALUES]; /* values that are counted, in order */
} state;

/* ---- instructions ---------------------------------------------------------------------------- */

static const void *in_carrier(const step *s, const tile *t, int arg, void *scratch)
{
    const void *x = t->value[s->arg[arg]];
    if (s->from == s->carrier) return x;
    cpu_convert(s->carrier, scratch, s->from, x, t->n);
    return scratch;
}

static void run_pointwise(const step *s, const once *o, const tile *t)
{
    cpu_tile sa, sb, sy;
    const void *a = in_carrier(s, t, 0, &sa), *b = s->n_arg > 1 ? in_carrier(s, t, 1, &sb) : a;
    void *y = s->made == s->form ? t->value[s->to] : &sy;
    cpu_tile_fn *loop = s->loop ? s->loop : cpu_power_tile(ir_load_f64(s->carrier, b), s->carrier);
    loop(a, b, y, t->n, &o->numbers);
    if (s->made != s->form) cpu_convert(s->form, t->value[s->to], s->made, y, t->n);
}

static void run_copy(const step *s, const once *o, const tile *t)
{
    (void)o;
    memmove(t->value[s->to], t->value[s->arg[0]], (size_t)t->n * ir_dtype_size(s->form));
}

static void run_cast(const step *s, const once *o, const tile *t)
{
    cpu_tile stored;
    (void)o;
    if (s->type == s->form) {
        cpu_convert(s->form, t->value[s->to], s->from, t->value[s->arg[0]], t->n);
        return;
    }
    cpu_convert(s->type, &stored, s->from, t->value[s->arg[0]], t->n);
    cpu_convert(s->form, t->value[s->to], s->type, &stored, t->n);
}

static void run_where(const step *s, const once *o, const tile *t)
{
    (void)o;
    cpu_choose_tile(ir_dtype_size(s->form), t->value[s->to], t->value[s->arg[0]], t->value[s->arg[1]],
                    t->value[s->arg[2]], t->n);
}

static void run_select(const step *s, const once *o, const tile *t)
{
    (void)o;
    const uint8_t *cond = t->value[s->arg[0]];
    memcpy(t->value[s->to], t->value[s->arg[*cond ? 1 : 2]], (size_t)t->n * ir_dtype_size(s->form));
}

static void run_dropout(const step *s, const once *o, const tile *t)
{
    cpu_draw_tile(&o->draw, t->first, t->n, t->value[s->to]);
}

static void run_dropout_grad(const step *s, const once *o, const tile *t)
{
    (void)o;
    cpu_mask_tile(s->form, t->value[s->arg[0]], t->value[s->arg[1]], s->attr[IR_ATTR(dropout_grad, ratio)].f,
                  t->value[s->to], t->n);
}

/* ---- prepare: instructions ------------------------------------------------------------------- */

static ir_dtype form_of(ir_dtype t) { return t == IR_bool ? IR_bool : cpu_formula_carrier(t); }

static int value_number(const state *st, int arg)
{
    assert(arg != K_ACCUMULATOR); /* fuse_pointwise.c has replaced them all */
    return arg == K_NO_ARG ? NO_VALUE : arg < 0 ? ~arg : st->value_of[arg];
}

static ir_dtype type_of(const k_args *args, int arg)
{
    const k_fused *p = args->fused;
    return arg < 0 ? args->in[p->operands[~arg].in].dtype : p->code[arg].type;
}

static bool is_one_element(const k_args *args, int arg)
{
    return arg < 0 && k_count(&args->in[args->fused->operands[~arg].in]) == 1;
}

static ampc_status make_pointwise(const k_args *args, const k_instruction *c, step *s)
{
    const ir_formula formula = ir_formula_of(c->op, c->attr);
    const ir_dtype t = type_of(args, c->arg[0]);
    s->operands = s->n_arg = ir_formula_get(formula)->operands;
    s->carrier = cpu_formula_carrier(t);
    s->made = c->type == IR_bool ? IR_bool : s->carrier;
    s->loop = cpu_formula_tile(formula, t);
    if (!s->loop)
        return cpu_fail(args->ctx, AMPC_UNSUPPORTED, "%s is not defined for %s", ir_op_get(c->op)->name,
                        ir_dtype_name(t));
    if (formula == IR_FORMULA_pow && ir_dtype_is_float(t) && is_one_element(args, c->arg[1])) s->loop = NULL;
    return AMPC_OK;
}

/* A cast that does not change the form only rounds. */
static void make_cast(const value *from, step *s)
{
    if (s->from != s->form) {
        s->rounds = false;
    } else {
        s->run = s->rounds || from->place == IN_MEMORY ? run_copy : NULL;
    }
}

static const struct {
    run_fn *run;
    int data; /* the argument whose type determines `from` */
} kinds[K_KIND_COUNT] = {
    [K_COMPUTE] = {run_pointwise, 0}, [K_CAST] = {run_cast, 0},    [K_WHERE] = {run_where, 1},
    [K_SELECT] = {run_select, 1},     [K_DRAW] = {run_dropout, 0}, [K_MASK] = {run_dropout_grad, 0},
};

static ampc_status make_step(const k_args *args, state *st, int i)
{
    const k_instruction *c = &args->fused->code[i];
    const k_instruction_kind kind = k_kind_of(c);
    step *s = &st->steps[i];
    s->attr = c->attr;
    s->type = c->type;
    s->form = form_of(c->type);
    s->from = form_of(type_of(args, c->arg[kinds[kind].data]));
    s->to = K_MAX_OPERANDS + i;
    s->run = kinds[kind].run;
    s->n_arg = kind == K_DRAW ? 0 : c->n_arg; /* the seed is read once per run */
    ampc_status status = AMPC_OK;
    if (kind == K_CAST) make_cast(&st->values[value_number(st, c->arg[0])], s);
    if (kind == K_COMPUTE) status = make_pointwise(args, c, s);
    st->value_of[i] = s->run ? s->to : value_number(st, c->arg[0]);
    st->values[s->to] = (value){c->type, s->form, IN_REGISTER, 0, i};
    for (int k = 0; k < s->n_arg; k++) s->arg[k] = value_number(st, c->arg[k]);
    return status;
}

/* The result of an instruction has to be rounded unless it is only stored, which rounds it anyway. */
static void find_rounding(const k_fused *p, state *st)
{
    for (int i = 0; i < p->n_code; i++)
        for (int k = 0; k < p->code[i].n_arg; k++) {
            int arg = p->code[i].arg[k];
            if (arg >= 0 && arg != K_NO_ARG) st->steps[arg].rounds = true;
        }
    for (int i = 0; i < p->n_results; i++)
        if (p->results[i].fold != K_EACH) st->steps[p->results[i].from].rounds = true;
    for (int i = 0; i < p->n_code; i++)
        if (ir_op_has(ir_op_like(p->code[i].op, p->code[i].attr), IR_EXACT) && ir_dtype_is_float(p->code[i].type))
            st->steps[i].rounds = false;
}

static bool is_same_everywhere(const k_operand *o)
{
    for (int i = 0; i < o->walk.rank; i++)
        if (o->walk.src[i] != 0 && o->walk.dims[i] > 1) return false;
    return !o->dense;
}

/* Finds the longest blocks that are worth expanding; period 0: there are none. */
static cycle cycle_of(const k_operand *o)
{
    cycle best = {.period = 0};
    int64_t period = 1;
    for (int i = o->walk.rank - 1; i >= 0 && period <= MAX_PERIOD; i--) {
        const int64_t length = period * o->walk.dims[i];
        if (o->walk.src[i] == 0 && length >= MIN_REUSE * (period + CPU_TILE)) best = (cycle){period, length, 0};
        period = length;
    }
    return best;
}

static void place_operand(const k_args *args, state *st, int i)
{
    const k_operand *o = &args->fused->operands[i];
    ir_dtype t = args->in[o->in].dtype, form = form_of(t);
    place at = IN_REGISTER;
    if (o->dense) at = t == form ? IN_MEMORY : IN_REGISTER;
    else if (is_same_everywhere(o)) at = EVERYWHERE_SAME;
    else if (cycle_of(o).period) at = EXPANDED;
    st->values[i] = (value){t, form, at, 0, NO_VALUE};
}

/* ---- prepare: registers ---------------------------------------------------------------------- */

static int alloc_register(state *st, bool *used)
{
    int i = 0;
    while (used[i]) i++;
    used[i] = true;
    if (i == st->n_registers) st->n_registers++;
    return i;
}

static void find_last_uses(const k_fused *p, state *st)
{
    for (int i = 0; i < p->n_code; i++)
        for (int k = 0; k < st->steps[i].n_arg; k++) st->values[st->steps[i].arg[k]].until = i;
    for (int i = 0; i < p->n_results; i++) st->values[st->value_of[p->results[i].from]].until = p->n_code;
}

/* Allocates registers for the operands that a step loads and for its result, and frees those of values without further
 * uses. */
static void assign_registers(const k_fused *p, state *st)
{
    bool used[MAX_VALUES] = {false}, loaded[K_MAX_OPERANDS] = {false};
    for (int i = 0; i < p->n_code; i++) {
        step *s = &st->steps[i];
        for (int k = 0; k < s->n_arg; k++) {
            int v = s->arg[k];
            if (v >= K_MAX_OPERANDS || loaded[v] || st->values[v].place != IN_REGISTER) continue;
            loaded[v] = true;
            s->load[s->n_load++] = v;
            st->values[v].slot = alloc_register(st, used);
        }
        if (s->run) st->values[s->to].slot = alloc_register(st, used);
        for (int v = 0; v < K_MAX_OPERANDS + i + 1; v++) {
            const value *x = &st->values[v];
            bool lives = v < K_MAX_OPERANDS ? loaded[v] : st->value_of[v - K_MAX_OPERANDS] == v;
            if (lives && x->place == IN_REGISTER && x->until == i) used[x->slot] = false;
        }
    }
}

/* Assigns memory to the expanded operands, after the registers. */
static void assign_cycles(const k_fused *p, state *st)
{
    st->thread_bytes = st->register_bytes * (size_t)st->n_registers;
    for (int v = 0; v < p->n_operands; v++) {
        value *x = &st->values[v];
        if (x->place != EXPANDED) continue;
        cycle c = cycle_of(&p->operands[v]);
        c.at = st->thread_bytes;
        st->thread_bytes += cpu_lines((size_t)(c.period + CPU_TILE) * ir_dtype_size(x->form)) + LINE;
        x->slot = st->n_cycles;
        st->cycles[st->n_cycles++] = c;
    }
}

/* The value of the graph that is counted as value v; NULL: none is. */
static const struct ir_value *counted(const k_fused *p, int v)
{
    return v < K_MAX_OPERANDS ? p->operands[v].counted : p->code[v - K_MAX_OPERANDS].counted;
}

static void assign_places(const k_fused *p, state *st)
{
    find_last_uses(p, st);
    assign_registers(p, st);
    size_t widest = sizeof(float);
    for (int v = 0; v < MAX_VALUES; v++) {
        value *x = &st->values[v];
        if (v < K_MAX_OPERANDS && x->until == NO_VALUE && !counted(p, v)) x->place = UNREAD;
        if (counted(p, v)) st->counted[st->n_counted++] = v;
        if (x->place == EVERYWHERE_SAME) x->slot = st->n_same++;
        if (x->place != UNREAD && ir_dtype_size(x->form) > widest) widest = ir_dtype_size(x->form);
    }
    st->register_bytes = (size_t)CPU_TILE * widest + LINE; /* avoids the same page offset for all */
    assign_cycles(p, st);
}

static cut cut_of(const k_fused *p)
{
    if (p->count == 0) return (cut){0, CPU_TILE, 0};
    if (p->row > CPU_TILE) {
        int64_t rows = p->count / p->row, groups = cpu_sum_groups(rows, p->row);
        return (cut){rows * groups, 0, groups};
    }
    int64_t length = p->row ? CPU_TILE / p->row * p->row : CPU_TILE;
    return (cut){cpu_ceil_div(p->count, length), length, 0};
}

static ampc_status check_folds(const k_args *args)
{
    const k_fused *p = args->fused;
    for (int i = 0; i < p->n_results; i++)
        if (p->results[i].fold != K_EACH && !ir_dtype_is_float(p->code[p->results[i].from].type))
            return cpu_fail(args->ctx, AMPC_UNSUPPORTED, "fused row sums require a float type, not %s",
                            ir_dtype_name(p->code[p->results[i].from].type));
    return AMPC_OK;
}

static ampc_status fused_prepare(const k_args *args, void **out, size_t *workspace)
{
    const k_fused *p = args->fused;
    state *st = calloc(1, sizeof *st);
    *out = st;
    if (!st) return cpu_fail(args->ctx, AMPC_NO_MEMORY, "out of memory");
    ampc_status status = check_folds(args);
    find_rounding(p, st);
    for (int i = 0; i < p->n_operands; i++) place_operand(args, st, i);
    for (int i = 0; i < p->n_code && !status; i++) status = make_step(args, st, i);
    if (status) return status;
    assign_places(p, st);
    st->cut = cut_of(p);
    st->threads = args->ctx->threads;
    *workspace = st->register_bytes * (size_t)st->n_same + st->thread_bytes * (size_t)st->threads +
                 (size_t)(st->threads * st->n_counted) * sizeof(ir_exponents) +
                 (st->cut.groups > 1 ? (size_t)(st->cut.chunks * p->n_results) * sizeof(double) : 0);
    return AMPC_OK;
}

/* ---- run ------------------------------------------------------------------------------------- */

typedef struct running {
    const k_args *args;
    const state *st;
    cpu_part part;
    once once[K_MAX_CODE];
    char *same, *memory;        /* memory: of the threads */
    ir_exponents *numbers;      /* [thread][counted value] */
    double *partial;            /* [result][chunk] */
    bool direct[K_MAX_RESULTS]; /* computed in the result's memory */
} running;

/* Reads the scalar operands of an instruction. */
static once read_scalars(const k_args *args, const k_instruction *c, const step *s)
{
    const k_fused *p = args->fused;
    if (k_kind_of(c) == K_DRAW)
        return (once){.draw = cpu_draw_of(&args->in[p->operands[~c->arg[0]].in], c->attr[IR_ATTR(dropout, ratio)].f,
                                          c->attr[IR_ATTR(dropout, stream)].i)};
    if (!s->loop) return (once){.numbers = {0}};
    k_view in[K_MAX_ARGS] = {{.dtype = type_of(args, c->arg[0])}};
    for (int k = s->operands; k < c->n_arg; k++)
        in[k] = c->arg[k] == K_NO_ARG ? (k_view){.dtype = IR_NO_DTYPE} : args->in[p->operands[~c->arg[k]].in];
    const k_args call = {.op = c->op, .attr = c->attr, .in = in, .n_in = c->n_arg};
    return (once){.numbers = cpu_numbers_of(&call)};
}

/* Whether view k of the operands is read in place, and never after instruction `last`. */
static bool is_read_before(const k_args *args, const state *st, int k, int last)
{
    for (int v = 0; v < args->fused->n_operands; v++)
        if (args->fused->operands[v].in == k && (st->values[v].place != IN_MEMORY || st->values[v].until > last))
            return false;
    return true;
}

/* Whether result i can be computed in its own memory: no operand that aliases it is read later, and no earlier result
 * has the same value. */
static bool is_apart(const k_args *args, const state *st, int i)
{
    const k_result *r = &args->fused->results[i];
    const k_view *y = &args->out[i];
    const value *v = &st->values[st->value_of[r->from]];
    const char *begin = y->data, *end = begin + k_bytes(y);
    if (r->fold != K_EACH || v->form != y->dtype || st->value_of[r->from] < K_MAX_OPERANDS) return false;
    for (int k = 0; k < i; k++)
        if (st->value_of[args->fused->results[k].from] == st->value_of[r->from]) return false;
    for (int k = 0; k < args->n_in; k++) {
        const char *x = args->in[k].data;
        if (!k_present(&args->in[k]) || !x || x >= end || begin >= x + k_bytes(&args->in[k])) continue;
        if (x != begin || !is_read_before(args, st, k, st->value_of[r->from] - K_MAX_OPERANDS)) return false;
    }
    return true;
}

/* Where operand v holds the elements from `first` on. */
static int64_t element(const running *r, int v, int64_t first)
{
    return r->args->fused->operands[v].in == r->part.hot ? first - r->part.base : first;
}

static void load_operand(const running *r, int v, int64_t first, int64_t n, void *to)
{
    const k_operand *o = &r->args->fused->operands[v];
    cpu_operand_tile(&r->args->in[o->in], o->dense ? NULL : &o->walk, element(r, v, first), n, r->st->values[v].form,
                     to);
}

static void begin(running *r, const k_args *args)
{
    const k_fused *p = args->fused;
    const state *st = r->st;
    r->same = args->workspace;
    r->memory = r->same + st->register_bytes * (size_t)st->n_same;
    r->numbers = (ir_exponents *)(void *)(r->memory + st->thread_bytes * (size_t)st->threads);
    r->partial = (double *)(void *)(r->numbers + st->threads * st->n_counted);
    memset(r->numbers, 0, (size_t)(st->threads * st->n_counted) * sizeof *r->numbers);
    for (int i = 0; i < p->n_code; i++) r->once[i] = read_scalars(args, &p->code[i], &st->steps[i]);
    for (int i = 0; i < p->n_results; i++) r->direct[i] = is_apart(args, st, i);
    for (int v = 0; v < p->n_operands; v++)
        if (st->values[v].place == EVERYWHERE_SAME)
            load_operand(r, v, 0, k_min(CPU_TILE, p->count), r->same + st->register_bytes * (size_t)st->values[v].slot);
}

/* A thread, its addresses of values, and the blocks of which it has the expansions; -1: none. */
typedef struct worker {
    char *memory;
    void *at[MAX_VALUES];
    int64_t block[K_MAX_OPERANDS];
    ir_exponents *numbers; /* by counted value */
} worker;

/* Finds the addresses that are the same for all tiles. */
static void start_worker(const running *r, int thread, worker *w)
{
    const state *st = r->st;
    w->memory = r->memory + st->thread_bytes * (size_t)thread;
    for (int v = 0; v < MAX_VALUES; v++) {
        const value *x = &st->values[v];
        w->at[v] = (x->place == EVERYWHERE_SAME ? r->same : w->memory) + st->register_bytes * (size_t)x->slot;
    }
    for (int i = 0; i < st->n_cycles; i++) w->block[i] = -1;
    w->numbers = r->numbers + thread * st->n_counted;
}

/* Returns n elements of an expanded operand. A tile in two blocks is loaded in place of the expansion. */
static void *expanded(const running *r, worker *w, int v, int64_t first, int64_t n)
{
    const value *x = &r->st->values[v];
    const cycle *c = &r->st->cycles[x->slot];
    const int64_t block = first / c->length, start = block * c->length, size = (int64_t)ir_dtype_size(x->form);
    char *memory = w->memory + c->at;
    if (first + n > start + c->length) {
        w->block[x->slot] = -1;
        load_operand(r, v, first, n, memory);
        return memory;
    }
    for (int64_t i = 0, all = c->period + CPU_TILE; i < all && w->block[x->slot] != block; i += CPU_TILE)
        load_operand(r, v, start + i, k_min(CPU_TILE, all - i), memory + i * size);
    w->block[x->slot] = block;
    return memory + first % c->period * size; /* blocks are whole periods */
}

/* Prefetches the operands of the next tile while this one is computed. */
static void fetch_next(const running *r, int64_t first)
{
    const k_fused *p = r->args->fused;
    for (int v = 0; v < p->n_operands; v++) {
        const k_view *x = &r->args->in[p->operands[v].in];
        if (!p->operands[v].dense || r->st->values[v].place == UNREAD || p->operands[v].in == r->part.hot) continue;
        int64_t bytes = k_min(CPU_TILE, r->part.end - first) * (int64_t)ir_dtype_size(x->dtype);
        for (int64_t i = 0; i < bytes; i += LINE) __builtin_prefetch((const char *)cpu_at(x, first) + i);
    }
}

/* Counts a tile of the next counted value, if that is v. */
static void count_tile(const state *st, const worker *w, int v, const void *x, const tile *t, int *next)
{
    if (*next == st->n_counted || st->counted[*next] != v) return;
    ir_exponents_add(&w->numbers[(*next)++], IR_f32, x, t->n, 1);
}

static void report_counts(const running *r, int threads)
{
    const k_context *ctx = r->args->ctx;
    for (int i = 0, n = r->st->n_counted; i < n; i++) {
        for (int k = 1; k < threads; k++) ir_exponents_merge(&r->numbers[i], &r->numbers[k * n + i]);
        ctx->count(ctx->count_user, counted(r->args->fused, r->st->counted[i]), &r->numbers[i]);
    }
}

static void run_tile(const running *r, worker *w, const tile *t)
{
    const k_args *args = r->args;
    const k_fused *p = args->fused;
    const state *st = r->st;
    int counted = 0;
    for (int v = 0; v < p->n_operands; v++) {
        if (st->values[v].place == IN_MEMORY)
            t->value[v] = cpu_at(&args->in[p->operands[v].in], element(r, v, t->first));
        if (st->values[v].place == EXPANDED) t->value[v] = expanded(r, w, v, t->first, t->n);
        count_tile(st, w, v, t->value[v], t, &counted);
    }
    for (int i = 0; i < p->n_results; i++)
        if (r->direct[i]) t->value[st->value_of[p->results[i].from]] = cpu_at(&args->out[i], t->first);
    for (int i = 0; i < p->n_code; i++) {
        const step *s = &st->steps[i];
        for (int k = 0; k < s->n_load; k++) load_operand(r, s->load[k], t->first, t->n, t->value[s->load[k]]);
        if (s->run) {
            s->run(s, &r->once[i], t);
            if (s->rounds) cpu_as_stored(s->type, s->form, t->value[s->to], t->n);
        }
        count_tile(st, w, K_MAX_OPERANDS + i, t->value[st->value_of[i]], t, &counted);
    }
}

static void store_tile(const running *r, const tile *t)
{
    const k_fused *p = r->args->fused;
    for (int i = 0; i < p->n_results; i++) {
        const k_view *y = &r->args->out[i];
        if (p->results[i].fold != K_EACH || r->direct[i]) continue;
        int from = r->st->value_of[p->results[i].from];
        if (y->dtype == r->st->values[from].form)
            memcpy(cpu_at(y, t->first), t->value[from], (size_t)t->n * ir_dtype_size(y->dtype));
        else cpu_tile_store(y, t->first, t->n, r->st->values[from].form, t->value[from]);
    }
}

/* ---- folds ----------------------------------------------------------------------------------- */

static double sum(ir_dtype form, const void *x, int64_t first, int64_t n)
{
    return form == IR_f64 ? lanes_sum_double((const double *)x + first, n)
                          : lanes_sum_float((const float *)x + first, n);
}

/* Stores rows [first, first + n) of result i, given their sums. */
static void store_rows(const running *r, int i, int64_t first, int64_t n, const double *total)
{
    const k_fused *p = r->args->fused;
    ir_dtype form = r->st->values[r->st->value_of[p->results[i].from]].form;
    cpu_tile values;
    for (int64_t j = 0; j < n; j++) {
        double v = p->results[i].fold == K_ROW_MEAN ? total[j] / (double)p->row : total[j];
        if (form == IR_f64) values.f64[j] = v;
        else values.f32[j] = (float)v;
    }
    cpu_tile_store(&r->args->out[i], first, n, form, &values);
}

/* Folds a tile of whole rows. */
static void fold_rows(const running *r, const tile *t)
{
    const k_fused *p = r->args->fused;
    double total[CPU_TILE];
    for (int i = 0; i < p->n_results; i++) {
        if (p->results[i].fold == K_EACH) continue;
        int from = r->st->value_of[p->results[i].from];
        for (int64_t j = 0; j < t->n / p->row; j++)
            total[j] = sum(r->st->values[from].form, t->value[from], j * p->row, p->row);
        store_rows(r, i, t->first / p->row, t->n / p->row, total);
    }
}

/* Adds a tile, which is part of one row, to the row's sums. */
static void add_tile(const running *r, const tile *t, double *total)
{
    const k_fused *p = r->args->fused;
    for (int i = 0; i < p->n_results; i++) {
        int from = r->st->value_of[p->results[i].from];
        if (p->results[i].fold != K_EACH) total[i] += sum(r->st->values[from].form, t->value[from], 0, t->n);
    }
}

static void finish_chunk(const running *r, int64_t chunk, const double *total)
{
    const k_fused *p = r->args->fused;
    for (int i = 0; i < p->n_results; i++) {
        if (p->results[i].fold == K_EACH) continue;
        if (r->st->cut.groups == 1) store_rows(r, i, chunk, 1, &total[i]);
        else r->partial[i * r->st->cut.chunks + chunk] = total[i];
    }
}

/* Adds the partial sums of rows that were divided into groups. */
static void finish_rows(const running *r)
{
    const k_fused *p = r->args->fused;
    const cut *c = &r->st->cut;
    for (int i = 0; i < p->n_results; i++)
        for (int64_t row = 0; row < c->chunks / c->groups && p->results[i].fold != K_EACH; row++) {
            double total = 0;
            for (int64_t g = 0; g < c->groups; g++) total += r->partial[i * c->chunks + row * c->groups + g];
            store_rows(r, i, row, 1, &total);
        }
}

static void run_chunk(const running *r, int64_t chunk, worker *w)
{
    const k_fused *p = r->args->fused;
    const cut *c = &r->st->cut;
    double total[K_MAX_RESULTS] = {0};
    int64_t first = r->part.first + chunk * c->length, end = k_min(first + c->length, r->part.end);
    if (c->groups) {
        int64_t row = chunk / c->groups * p->row, g = chunk % c->groups;
        first = row + p->row * g / c->groups;
        end = row + p->row * (g + 1) / c->groups;
    }
    for (; first < end; first += CPU_TILE) {
        const tile t = {first, k_min(CPU_TILE, end - first), w->at};
        fetch_next(r, first + t.n);
        run_tile(r, w, &t);
        store_tile(r, &t);
        if (c->groups) add_tile(r, &t, total);
        else if (p->row) fold_rows(r, &t);
    }
    if (c->groups) finish_chunk(r, chunk, total);
}

void cpu_program_run(const k_args *args, cpu_part part)
{
    running r = {.args = args, .st = args->state, .part = part};
    const int64_t count = part.end - part.first;
    const int64_t chunks = r.st->cut.groups ? r.st->cut.chunks : cpu_ceil_div(count, r.st->cut.length);
    if (count == 0) return;
    begin(&r, args);
    int threads = (int)k_min(cpu_threads(args->ctx, count * args->fused->n_code), r.st->threads);
#pragma omp parallel num_threads(threads)
    {
        worker w;
        start_worker(&r, omp_get_thread_num(), &w);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < chunks; i++) run_chunk(&r, i, &w);
    }
    if (r.st->cut.groups > 1) finish_rows(&r);
    report_counts(&r, threads);
}

static ampc_status fused_run(const k_args *args)
{
    cpu_program_run(args, (cpu_part){0, args->fused->count, -1, 0});
    return AMPC_OK;
}

const k_kernel cpu_fused = {.prepare = fused_prepare, .run = fused_run, .release = free};
