/* plan_fuse.c - runs of ops that work element by element become programs (kernels/program.h).
 *
 *     %h = matmul ...                 0  matmul
 *     %s = add %h, %bias              1  program %h, %bias, %x
 *     %r = relu %s            ->           .0 = add %h, %bias   .1 = relu .0   .2 = add .1, %x
 *     %y = add %r, %x                      %y of .2
 *
 * A region grows from the first step that may be in one, along the values between steps, while a step has as many
 * elements and the whole may run at one point of the order: after all that it reads is made, before anyone reads
 * what it makes. That point is the last of its steps, or the first. Points of steps and regions are positions in the
 * old order; every edge leads from a lower to a higher one at all times, so the new order is by position. What only the
 * region reads needs no memory; what others read as well is a result. A sum or mean over rows may end it. */
#include "runtime/backend/alloc.h"
#include "runtime/plan/plan.h"

#include <string.h>

enum {
    MOST_CODE = 32,     /* so that what is alive fits the registers of a device */
    MOST_OPERANDS = 12,
    MOST_RESULTS = 6,
    FEWEST_ROWS = 128,  /* of a folded result: rows are what runs in parallel */
    NOT_FUSED = -1
};

/* How an op stands in a program. */
typedef enum op_form {
    FORM_NONE,
    FORM_OP,      /* one instruction of the same op and operands */
    FORM_COPY,    /* a broadcast: one instruction, a cast to the type that the operand has */
    FORM_DROPOUT, /* two instructions: the mask, and its use */
    FORM_FOLD     /* a result over rows */
} op_form;

static const op_form forms[IR_OP_COUNT] = {
#define FORMULA_OP(op) [IR_OP_##op] = FORM_OP,
#include "ir/formulas.def"
    [IR_OP_cast] = FORM_OP,
    [IR_OP_where] = FORM_OP,
    [IR_OP_select] = FORM_OP,
    [IR_OP_dropout_grad] = FORM_OP,
    [IR_OP_dropout] = FORM_DROPOUT,
    [IR_OP_expand] = FORM_COPY,
    [IR_OP_reduce_sum] = FORM_FOLD,
    [IR_OP_reduce_mean] = FORM_FOLD,
};

/* Operands (a bit each) that are looked at once, so that they come from outside. */
static const unsigned looked_at_once[IR_OP_COUNT] = {
    [IR_OP_clip] = 1u << IR_IN(clip, lo) | 1u << IR_IN(clip, hi),
    [IR_OP_clip_grad] = 1u << IR_IN(clip_grad, lo) | 1u << IR_IN(clip_grad, hi),
    [IR_OP_pow] = 1u << IR_IN(pow, b),
    [IR_OP_select] = 1u << IR_IN(select, cond),
    [IR_OP_dropout] = 1u << IR_IN(dropout, rng),
};
_Static_assert(IR_ATTR(dropout, ratio) == IR_ATTR(dropout_grad, ratio), "one instruction reads either");

typedef struct edge {
    int step, slot;
} edge;

typedef struct region {
    int64_t count, row; /* row 0: nothing is folded */
    int n, code, position;
    bool update, kept;
    int member[MOST_CODE]; /* in the old order */
} region;

typedef struct fuser {
    rt_plan *p;
    int *maker;      /* by root value: the step, or -1 */
    int *first_user; /* by root value, and one more: into users */
    edge *users;
    bool *wanted;    /* by root value: a store or an output reads it */
    int *of;         /* by step: its region, or NOT_FUSED */
    int *position;   /* by step */
    bool *inside;    /* by step: in the region that grows */
    region *regions;
    int n_regions;
} fuser;

static uint32_t root_of(const fuser *f, uint32_t value) { return f->p->values[value].root; }

static op_form form_of(const rt_step *s) { return s->op == IR_OP_COUNT ? FORM_NONE : forms[s->op]; }

static bool once(const rt_step *s, int slot) { return (looked_at_once[s->op] & 1u << slot) != 0; }

static int maker_of(const fuser *f, const rt_step *s, int slot)
{
    return s->in_value[slot] == RT_NO_VALUE ? -1 : f->maker[root_of(f, s->in_value[slot])];
}

/* ---- who reads what ------------------------------------------------------------------------------ */

/* Counts, sums of counts (where the users of the next value begin), and places from the last one backwards. */
static void find_users(fuser *f)
{
    const rt_plan *p = f->p;
    int *end = f->first_user;
    for (int i = 0; i < p->n_steps; i++)
        for (int j = 0; j < p->steps[i].n_in; j++)
            if (p->steps[i].in_value[j] != RT_NO_VALUE) end[root_of(f, p->steps[i].in_value[j])]++;
    for (uint32_t v = 0; v < p->n_values; v++) end[v + 1] += end[v];
    for (int i = p->n_steps - 1; i >= 0; i--)
        for (int j = p->steps[i].n_in - 1; j >= 0; j--)
            if (p->steps[i].in_value[j] != RT_NO_VALUE)
                f->users[--end[root_of(f, p->steps[i].in_value[j])]] = (edge){i, j};
}

/* ---- may it join? -------------------------------------------------------------------------------- */

static int64_t count_of(const rt_step *s) { return k_count(&s->out[0]); }

static bool fusable(const fuser *f, const rt_step *s)
{
    if (form_of(s) == FORM_NONE || count_of(s) == 0) return false;
    bool wide = s->out[0].dtype == IR_f64 || s->in[0].dtype == IR_f64;
    return !(wide && f->p->backend->away); /* which says of the op that it lacks it */
}

/* The length of the rows that a reduction folds: those along the last axes. 0: it folds otherwise. */
static int64_t folded_row(const rt_step *s)
{
    const k_view *x = &s->in[0];
    const ir_attr *axes = &s->attr[s->op == IR_OP_reduce_sum ? IR_ATTR(reduce_sum, axes) : IR_ATTR(reduce_mean, axes)];
    bool folded[IR_MAX_RANK] = {false};
    int64_t row = 1, rows = 1;
    for (int i = 0; i < axes->list.count; i++) folded[k_axis_number(axes->list.items[i], x->rank)] = true;
    for (int i = x->rank - 1; i >= 0; i--) {
        if (x->dims[i] == 1) continue;
        if (folded[i] && rows > 1) return 0;
        *(folded[i] ? &row : &rows) *= x->dims[i];
    }
    bool is_float = ir_dtype_is_float(x->dtype) && x->dtype != IR_f64;
    return is_float && row > 1 && rows >= FEWEST_ROWS ? row : 0;
}

/* The steps that the region holds, and `more` of them: whether they may run at one point, and which. */
static bool find_position(const fuser *f, const region *r, int more, int *position)
{
    const rt_plan *p = f->p;
    int low = -1, high = p->n_steps, first = more, last = more;
    for (int i = -1; i < r->n; i++) {
        int at = i < 0 ? more : r->member[i];
        const rt_step *s = &p->steps[at];
        if (at < first) first = at;
        if (at > last) last = at;
        for (int j = 0; j < s->n_in; j++) {
            int from = maker_of(f, s, j);
            if (from >= 0 && from != more && !f->inside[from] && f->position[from] > low) low = f->position[from];
        }
        for (int k = 0; k < s->n_out; k++) {
            if (s->out_value[k] == RT_NO_VALUE) continue;
            for (int u = f->first_user[s->out_value[k]]; u < f->first_user[s->out_value[k] + 1]; u++) {
                int to = f->users[u].step;
                if (to != more && !f->inside[to] && f->position[to] < high) high = f->position[to];
            }
        }
    }
    *position = last < high ? last : first;
    return low < *position && *position < high;
}

/* Operands from outside and results of the region and `more`, as upper bounds. */
static bool small_enough(const fuser *f, const region *r, int more)
{
    uint32_t seen[MOST_OPERANDS];
    int operands = 0, results = 0;
    for (int i = -1; i < r->n; i++) {
        int at = i < 0 ? more : r->member[i];
        const rt_step *s = &f->p->steps[at];
        for (int j = 0; j < s->n_in; j++) {
            int from = maker_of(f, s, j), k = 0;
            if (s->in_value[j] == RT_NO_VALUE || (from >= 0 && (from == more || f->inside[from]))) continue;
            while (k < operands && seen[k] != s->in_value[j]) k++;
            if (k == MOST_OPERANDS) return false;
            if (k == operands) seen[operands++] = s->in_value[j];
        }
        for (int k = 0; k < s->n_out; k++) {
            if (s->out_value[k] == RT_NO_VALUE) continue;
            bool leaves = f->wanted[s->out_value[k]];
            for (int u = f->first_user[s->out_value[k]]; u < f->first_user[s->out_value[k] + 1]; u++)
                leaves = leaves || !(f->users[u].step == more || f->inside[f->users[u].step]);
            results += leaves;
        }
    }
    return results <= MOST_RESULTS;
}

/* What the step looks at once, and what was folded, comes from outside of the region. */
static bool reads_well(const fuser *f, int step)
{
    const rt_step *s = &f->p->steps[step];
    for (int j = 0; j < s->n_in; j++) {
        int from = maker_of(f, s, j);
        if (from < 0 || !f->inside[from]) continue;
        if (once(s, j) || form_of(&f->p->steps[from]) == FORM_FOLD) return false;
    }
    return true;
}

/* The members that read what the step gives do not look at it once. */
static bool is_read_well(const fuser *f, int step)
{
    const rt_step *s = &f->p->steps[step];
    for (int k = 0; k < s->n_out; k++) {
        if (s->out_value[k] == RT_NO_VALUE) continue;
        for (int u = f->first_user[s->out_value[k]]; u < f->first_user[s->out_value[k] + 1]; u++) {
            edge e = f->users[u];
            if (f->inside[e.step] && once(&f->p->steps[e.step], e.slot)) return false;
        }
    }
    return true;
}

static bool may_join(const fuser *f, const region *r, int step, int *position)
{
    const rt_step *s = &f->p->steps[step];
    const op_form form = form_of(s);
    if (f->of[step] != NOT_FUSED || f->inside[step] || !fusable(f, s)) return false;
    if ((s->node->phase == IR_UPDATE) != r->update || s->kept != r->kept || r->code + 2 > MOST_CODE) return false;
    if (form == FORM_FOLD) {
        int64_t row = folded_row(s);
        if (!row || (r->row && row != r->row) || k_count(&s->in[0]) != r->count) return false;
        if (maker_of(f, s, 0) < 0 || !f->inside[maker_of(f, s, 0)]) return false;
    } else if (count_of(s) != r->count || !is_read_well(f, step)) {
        return false;
    }
    return reads_well(f, step) && small_enough(f, r, step) && find_position(f, r, step, position);
}

/* ---- growing --------------------------------------------------------------------------------------- */

static void join(fuser *f, region *r, int step)
{
    const op_form form = form_of(&f->p->steps[step]);
    int at = r->n++;
    for (; at > 0 && r->member[at - 1] > step; at--) r->member[at] = r->member[at - 1];
    r->member[at] = step;
    r->code += form == FORM_DROPOUT ? 2 : form == FORM_FOLD ? 0 : 1;
    if (form == FORM_FOLD) r->row = folded_row(&f->p->steps[step]);
    f->inside[step] = true;
}

static bool try_join(fuser *f, region *r, int step)
{
    int position;
    if (r->n == MOST_CODE || !may_join(f, r, step, &position)) return false;
    join(f, r, step);
    r->position = position;
    return true;
}

/* The makers of what a member reads and the readers of what it makes join where they may. */
static bool grow_from(fuser *f, region *r, int member)
{
    const rt_step *s = &f->p->steps[member];
    bool grew = false;
    for (int j = 0; j < s->n_in; j++) {
        int from = maker_of(f, s, j);
        if (from >= 0 && form_of(&f->p->steps[from]) != FORM_FOLD) grew |= try_join(f, r, from);
    }
    for (int k = 0; k < s->n_out; k++) {
        if (s->out_value[k] == RT_NO_VALUE || form_of(s) == FORM_FOLD) continue;
        for (int u = f->first_user[s->out_value[k]]; u < f->first_user[s->out_value[k] + 1]; u++)
            grew |= try_join(f, r, f->users[u].step);
    }
    return grew;
}

static void grow(fuser *f, int seed)
{
    const rt_step *s = &f->p->steps[seed];
    region *r = &f->regions[f->n_regions];
    *r = (region){.count = count_of(s), .position = seed, .update = s->node->phase == IR_UPDATE, .kept = s->kept};
    join(f, r, seed);
    for (bool grew = true; grew;) {
        int member[MOST_CODE], n = r->n;
        memcpy(member, r->member, sizeof member);
        grew = false;
        for (int i = 0; i < n; i++) grew |= grow_from(f, r, member[i]);
    }
    for (int i = 0; i < r->n; i++) {
        f->inside[r->member[i]] = false;
        if (r->n == 1) continue;
        f->of[r->member[i]] = f->n_regions;
        f->position[r->member[i]] = r->position;
    }
    f->n_regions += r->n > 1;
}

/* ---- writing programs -------------------------------------------------------------------------------- */

typedef struct writer {
    fuser *f;
    const region *r;
    rt_step step;
    int *code_of; /* by value: the instruction that gives it; -1: none */
} writer;

/* The view that the step reads at a root value. */
static int take_view(writer *w, uint32_t root)
{
    for (int i = 0; i < w->step.n_in; i++)
        if (w->step.in_value[i] == root) return i;
    rt_step_read(w->f->p, &w->step, w->step.n_in, root);
    return w->step.n_in++;
}

/* What step s reads in the slot, broadcast to `space`. */
static int take_operand(writer *w, const rt_step *s, int slot, const k_view *space)
{
    k_program *program = w->step.program;
    k_operand o = {.in = take_view(w, root_of(w->f, s->in_value[slot])), .walk = k_walk_broadcast(&s->in[slot], space)};
    o.dense = k_count(&s->in[slot]) == k_count(space);
    for (int i = 0; i < program->n_operands; i++) {
        const k_operand *other = &program->operands[i];
        if (other->in == o.in && other->dense == o.dense && (o.dense || !memcmp(&other->walk, &o.walk, sizeof o.walk)))
            return ~i;
    }
    program->operands[program->n_operands] = o;
    return ~program->n_operands++;
}

static int argument(writer *w, const rt_step *s, int slot)
{
    uint32_t value = s->in_value[slot];
    if (value == RT_NO_VALUE) return K_NO_ARG;
    int made = w->code_of[root_of(w->f, value)];
    return made >= 0 ? made : take_operand(w, s, slot, &s->out[0]);
}

static int emit(writer *w, k_instruction c)
{
    w->step.program->code[w->step.program->n_code] = c;
    return w->step.program->n_code++;
}

static void write_dropout(writer *w, const rt_step *s)
{
    uint32_t y = s->out_value[IR_OUT(dropout, y)], mask = s->out_value[IR_OUT(dropout, mask)];
    k_instruction draw = {.op = IR_OP_dropout, .type = IR_bool, .attr = s->attr, .n_arg = 1};
    draw.arg[0] = take_operand(w, s, IR_IN(dropout, rng), &s->in[IR_IN(dropout, rng)]);
    int drawn = emit(w, draw);
    if (mask != RT_NO_VALUE) w->code_of[mask] = drawn;
    k_instruction use = {.op = IR_OP_dropout_grad, .type = s->out[0].dtype, .attr = s->attr, .n_arg = 2};
    use.arg[0] = argument(w, s, IR_IN(dropout, x));
    use.arg[1] = drawn;
    if (y != RT_NO_VALUE) w->code_of[y] = emit(w, use);
}

static void write_member(writer *w, const rt_step *s)
{
    const op_form form = form_of(s);
    if (form == FORM_FOLD) return;
    if (form == FORM_DROPOUT) {
        write_dropout(w, s);
        return;
    }
    k_instruction c = {.op = form == FORM_COPY ? IR_OP_cast : s->op, .type = s->out[0].dtype, .attr = s->attr};
    c.n_arg = form == FORM_COPY ? 1 : s->n_in;
    for (int j = 0; j < c.n_arg; j++) c.arg[j] = argument(w, s, j);
    w->code_of[s->out_value[0]] = emit(w, c);
}

/* Somebody outside of the region reads it. */
static bool leaves(const writer *w, uint32_t value)
{
    const fuser *f = w->f;
    if (value == RT_NO_VALUE) return false;
    bool read = f->wanted[value];
    for (int u = f->first_user[value]; u < f->first_user[value + 1]; u++)
        read = read || f->of[f->users[u].step] != w->r - f->regions;
    return read;
}

static void write_results(writer *w, const rt_step *s)
{
    k_program *program = w->step.program;
    for (int k = 0; k < s->n_out; k++) {
        uint32_t value = s->out_value[k];
        if (!leaves(w, value)) continue;
        k_result result = {.from = w->code_of[value], .fold = K_EACH};
        if (form_of(s) == FORM_FOLD) {
            result.from = w->code_of[root_of(w->f, s->in_value[0])];
            result.fold = s->op == IR_OP_reduce_sum ? K_ROW_SUM : K_ROW_MEAN;
        }
        program->results[program->n_results++] = result;
        rt_step_write(w->f->p, &w->step, w->step.n_out++, value);
    }
}

static void forget_code(writer *w, const rt_step *s)
{
    for (int k = 0; k < s->n_out; k++)
        if (s->out_value[k] != RT_NO_VALUE) w->code_of[s->out_value[k]] = -1;
}

/* The region as one step. */
static bool write_program(fuser *f, const region *r, int *code_of, rt_step *out)
{
    rt_plan *p = f->p;
    writer w = {.f = f, .r = r, .code_of = code_of};
    if (!rt_step_make(p, &w.step, p->steps[r->member[r->n - 1]].node, IR_OP_COUNT, K_MOST_OPERANDS, K_MOST_RESULTS))
        return false;
    w.step.n_in = w.step.n_out = 0;
    w.step.kernel = p->backend->program;
    w.step.kept = r->kept;
    w.step.program = rt_plan_take(p, 1, sizeof *w.step.program);
    if (!w.step.program) return false;
    w.step.program->count = r->count;
    w.step.program->row = r->row;
    w.step.program->commits = r->update;
    for (int i = 0; i < r->n; i++) write_member(&w, &p->steps[r->member[i]]);
    for (int i = 0; i < r->n; i++) write_results(&w, &p->steps[r->member[i]]);
    for (int i = 0; i < r->n; i++) forget_code(&w, &p->steps[r->member[i]]);
    *out = w.step;
    return true;
}

static bool write_steps(fuser *f, int *code_of)
{
    rt_plan *p = f->p;
    rt_step *steps = rt_plan_take(p, (size_t)p->n_steps, sizeof *steps);
    int n = 0;
    if (!steps) return false;
    for (uint32_t v = 0; v < p->n_values; v++) code_of[v] = -1;
    for (int i = 0; i < p->n_steps; i++) {
        if (f->of[i] == NOT_FUSED)
            steps[n++] = p->steps[i];
        else if (f->position[i] == i && !write_program(f, &f->regions[f->of[i]], code_of, &steps[n++]))
            return false;
    }
    p->steps = steps;
    p->n_steps = n;
    for (p->n_kept = 0; p->n_kept < n && steps[p->n_kept].kept;) p->n_kept++;
    return true;
}

bool rt_plan_fuse(rt_plan *p)
{
    if (!p->backend->program) return true;
    const size_t values = p->n_values, steps = (size_t)p->n_steps;
    size_t reads = 0;
    for (int i = 0; i < p->n_steps; i++) reads += (size_t)p->steps[i].n_in;
    fuser f = {.p = p};
    f.maker = rt_plan_makers(p);
    f.first_user = rt_alloc(values + 2, sizeof *f.first_user);
    f.users = rt_alloc(reads, sizeof *f.users);
    f.wanted = rt_alloc(values, sizeof *f.wanted);
    f.of = rt_alloc(steps, sizeof *f.of);
    f.position = rt_alloc(steps, sizeof *f.position);
    f.inside = rt_alloc(steps, sizeof *f.inside);
    f.regions = rt_alloc(steps, sizeof *f.regions);
    bool done = f.maker && f.first_user && f.users && f.wanted && f.of && f.position && f.inside && f.regions;
    if (done) {
        for (int i = 0; i < p->n_effects; i++) f.wanted[root_of(&f, p->effects[i].value)] = true;
        find_users(&f);
        for (int i = 0; i < p->n_steps; i++) {
            f.of[i] = NOT_FUSED;
            f.position[i] = i;
        }
        for (int i = 0; i < p->n_steps; i++)
            if (f.of[i] == NOT_FUSED && fusable(&f, &p->steps[i]) && form_of(&p->steps[i]) != FORM_FOLD) grow(&f, i);
        done = write_steps(&f, f.maker); /* whose table is no longer needed */
    }
    void *owned[] = {f.maker, f.first_user, f.users, f.wanted, f.of, f.position, f.inside, f.regions};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) rt_free(owned[i]);
    return done;
}
