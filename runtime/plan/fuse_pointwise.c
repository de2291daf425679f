/* fuse_pointwise.c - fuses runs of elementwise ops into single kernels (kernels/fused.h).
 *
 *     %h = matmul ...                 0  matmul
 *     %s = add %h, %bias              1  program %h, %bias, %x
 *     %r = relu %s            ->           .0 = add %h, %bias   .1 = relu .0   .2 = add .1, %x
 *     %y = add %r, %x                      %y of .2
 *
 * A region starts with the first step that may be in one and grows along the edges between steps. A step may join if it
 * has the same number of elements and if the whole region can still run at one position: after the definitions of all
 * its operands and before the first reader of its results. A region runs at the position of its last or first step.
 * Positions of steps and regions refer to the old order; every edge always leads from a lower to a higher position, so
 * positions determine the new order. Values read only inside the region need no memory; values with other readers are
 * results. A sum or mean over rows may end a region. */
#include "runtime/backend/alloc.h"
#include "runtime/plan/stages.h"

#include <string.h>

enum {
    MAX_CODE = 32, /* keeps live values within the registers of a device */
    MAX_OPERANDS = 12,
    MAX_RESULTS = 6,
    MIN_ROWS = 128 /* of a folded result in host memory, because rows run in parallel; devices cut rows into groups */
};
_Static_assert(IR_ATTR(dropout, ratio) == IR_ATTR(dropout_grad, ratio), "one instruction reads either");
_Static_assert(IR_ATTR(reduce_sum, axes) == 0 && IR_ATTR(reduce_mean, axes) == 0, "axes are the first attribute");

typedef struct region {
    int64_t count, row; /* length of a folded row; 0: no result is folded */
    int n, code, position;
    bool update, hoisted;
    rt_step *member[MAX_CODE]; /* in the old order */
} region;

/* State of the stage for one step of the old order. */
typedef struct place {
    const region *in; /* NULL: not fused */
    int position;
    bool inside; /* in the region that is growing */
} place;

typedef struct fusion_state {
    rt_plan *p;
    place *places; /* by step */
    region *regions;
    int n_regions;
} fusion_state;

/* The step must have been in the plan when the stage began. */
static place *place_of(const fusion_state *f, const rt_step *s) { return &f->places[s->index]; }

static bool computes_in_f32(const fusion_state *f, const rt_step *s) { return s && place_of(f, s)->inside; }

/* ---- instructions -------------------------------------------------------------------------------- */

typedef struct writer {
    rt_plan *p;
    const region *r;
    rt_step *step; /* the fused step */
} writer;

/* Returns the fused step's operand for a value defined outside the region, adding it if needed. */
static int find_view(writer *w, uint32_t root)
{
    for (int i = 0; i < w->step->n_in; i++)
        if (w->step->in_value[i] == root) return i;
    rt_step_read(w->p, w->step, w->step->n_in, root);
    return w->step->n_in - 1;
}

/* Returns the operand that step s reads in the slot, broadcast to `space`, in the form of an argument: ~index. */
static int find_operand(writer *w, const rt_step *s, int slot, const k_view *space)
{
    k_fused *fused = w->step->fused;
    const uint32_t root = rt_root(w->p, s->in_value[slot]);
    k_operand o = {.in = find_view(w, root), .walk = k_walk_broadcast(&s->in[slot], space)};
    o.dense = k_count(&s->in[slot]) == k_count(space);
    for (int i = 0; i < fused->n_operands; i++) {
        const k_operand *other = &fused->operands[i];
        if (other->in == o.in && other->dense == o.dense && (o.dense || !memcmp(&other->walk, &o.walk, sizeof o.walk)))
            return ~i;
    }
    fused->operands[fused->n_operands] = o;
    return ~fused->n_operands++;
}

/* The mark of a root value is 1 + the instruction that computes it; 0: none. */
static int *code_of(const writer *w, uint32_t value) { return &w->p->values[rt_root(w->p, value)].mark; }

static int argument(writer *w, const rt_step *s, int slot)
{
    const uint32_t value = s->in_value[slot];
    if (value == RT_NO_VALUE) return K_NO_ARG;
    return *code_of(w, value) ? *code_of(w, value) - 1 : find_operand(w, s, slot, &s->out[0]);
}

/* Returns the value of the graph, if the fused step counts it; else NULL. */
static const ir_value *count(rt_plan *p, uint32_t value)
{
    rt_value *v = &p->values[value];
    if (!p->counted || v->derived || v->counted || v->view.dtype != IR_f32 || !rt_uses(p, value)) return NULL;
    v->counted = true;
    return v->value;
}

/* Appends an instruction that computes `result`, which may be absent, and returns its index. */
static int emit(writer *w, k_instruction c, uint32_t result)
{
    const int at = w->step->fused->n_code++;
    if (result != RT_NO_VALUE) c.counted = count(w->p, result);
    w->step->fused->code[at] = c;
    if (result != RT_NO_VALUE) *code_of(w, result) = at + 1;
    return at;
}

static void write_pointwise(writer *w, const rt_step *s)
{
    k_instruction c = {.op = s->op, .type = s->out[0].dtype, .attr = s->attr, .n_arg = s->n_in};
    for (int j = 0; j < c.n_arg; j++) c.arg[j] = argument(w, s, j);
    emit(w, c, s->out_value[0]);
}

/* A broadcast is a cast to the type that the operand already has. */
static void write_expand(writer *w, const rt_step *s)
{
    k_instruction c = {.op = IR_OP_cast, .type = s->out[0].dtype, .attr = s->attr, .n_arg = 1};
    c.arg[0] = argument(w, s, 0);
    emit(w, c, s->out_value[0]);
}

/* Dropout is two instructions: one draws the mask, one applies it. */
static void write_dropout(writer *w, const rt_step *s)
{
    const uint32_t y = s->out_value[IR_OUT(dropout, y)];
    k_instruction draw = {.op = IR_OP_dropout, .type = IR_bool, .attr = s->attr, .n_arg = 1};
    draw.arg[0] = find_operand(w, s, IR_IN(dropout, rng), &s->in[IR_IN(dropout, rng)]);
    const int drawn = emit(w, draw, s->out_value[IR_OUT(dropout, mask)]);
    k_instruction use = {.op = IR_OP_dropout_grad, .type = s->out[0].dtype, .attr = s->attr, .n_arg = 2};
    use.arg[0] = argument(w, s, IR_IN(dropout, x));
    use.arg[1] = drawn;
    if (y != RT_NO_VALUE) emit(w, use, y);
}

/* ---- forms ----------------------------------------------------------------------------------------- */

/* How a step becomes part of a fused step. */
typedef struct form {
    unsigned trait;
    int code;                                   /* number of instructions */
    void (*write)(writer *w, const rt_step *s); /* NULL: folds rows of an instruction's result */
    k_fold fold;
} form;

static const form forms[] = {
    {IR_ELEMENTWISE, 1, write_pointwise, K_EACH},
    {IR_EXPANDS, 1, write_expand, K_EACH},
    {IR_DRAWS, 2, write_dropout, K_EACH},
    {IR_SUMS, 0, NULL, K_ROW_SUM},
    {IR_MEANS, 0, NULL, K_ROW_MEAN},
};

/* Returns NULL if the step cannot be in a region. */
static const form *form_of(const rt_step *s)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (s->kind == RT_STEP_OP && rt_step_has(s, forms[i].trait)) return &forms[i];
    return NULL;
}

static bool folds(const rt_step *s) { return form_of(s)->fold != K_EACH; }

/* Whether the operand must be in memory before the kernel starts. */
static bool reads_once(const rt_step *s, int slot) { return ir_op_get(s->op)->in[slot].once; }

/* ---- can a step join? ------------------------------------------------------------------------------ */

static int64_t count_of(const rt_step *s) { return k_count(&s->out[0]); }

static bool can_fuse(const rt_plan *p, const rt_step *s)
{
    if (!form_of(s) || count_of(s) == 0) return false;
    const bool wide = s->out[0].dtype == IR_f64 || s->in[0].dtype == IR_f64;
    if (p->counted && ir_dtype_is_float(s->out[0].dtype) && s->out[0].dtype != IR_f32) return false;
    return !(wide && p->backend->device_ops); /* alone, the op is reported as unsupported */
}

/* Returns the length of the rows that a reduction folds along the last axes; 0: it cannot be fused. */
static int64_t folded_row(const rt_plan *p, const rt_step *s)
{
    const int min_rows = p->backend->device_ops ? 1 : MIN_ROWS;
    const k_view *x = &s->in[0];
    const ir_attr *axes = &s->attr[0];
    bool folded[IR_MAX_RANK] = {false};
    int64_t row = 1, rows = 1;
    for (int i = 0; i < axes->list.count; i++) folded[k_axis_number(axes->list.items[i], x->rank)] = true;
    for (int i = x->rank - 1; i >= 0; i--) {
        if (x->dims[i] == 1) continue;
        if (folded[i] && rows > 1) return 0;
        *(folded[i] ? &row : &rows) *= x->dims[i];
    }
    bool is_float = ir_dtype_is_float(x->dtype) && x->dtype != IR_f64;
    return is_float && row > 1 && rows >= min_rows ? row : 0;
}

/* Returns member i of the region; member -1 is `more`. */
static const rt_step *member(const region *r, const rt_step *more, int i) { return i < 0 ? more : r->member[i]; }

/* Whether the step is neither in the region nor `more`. */
static bool is_external(const fusion_state *f, const rt_step *s, const rt_step *more)
{
    return s != more && !place_of(f, s)->inside;
}

/* Narrows the positions that the step may have while all other steps that it depends on, or that depend on it, stay. */
static void narrow_range(const fusion_state *f, const rt_step *s, const rt_step *more, int *low, int *high)
{
    for (int j = 0; j < s->n_in; j++) {
        const rt_step *from = rt_def(f->p, s->in_value[j]);
        if (from && is_external(f, from, more) && place_of(f, from)->position > *low)
            *low = place_of(f, from)->position;
    }
    for (int k = 0; k < s->n_out; k++)
        for (const rt_use *u = rt_step_writes(s, k) ? rt_uses(f->p, s->out_value[k]) : NULL; u && u->step; u = u->next)
            if (is_external(f, u->step, more) && place_of(f, u->step)->position < *high)
                *high = place_of(f, u->step)->position;
}

/* Whether the steps of the region and `more` may run at one position, which is returned in *position. */
static bool find_position(const fusion_state *f, const region *r, const rt_step *more, int *position)
{
    int low = -1, high = f->p->n_steps, first = more->index, last = more->index;
    for (int i = -1; i < r->n; i++) {
        const rt_step *s = member(r, more, i);
        if (s->index < first) first = s->index;
        if (s->index > last) last = s->index;
        narrow_range(f, s, more, &low, &high);
    }
    *position = last < high ? last : first;
    return low < *position && *position < high;
}

/* Whether the value has a reader outside the region and `more`. */
static bool would_escape(const fusion_state *f, uint32_t value, const rt_step *more)
{
    for (const rt_use *u = rt_uses(f->p, value); u; u = u->next)
        if (!u->step || is_external(f, u->step, more)) return true;
    return false;
}

/* Whether the region and `more` stay within MAX_OPERANDS and MAX_RESULTS; both counts are upper bounds. */
static bool is_small_enough(const fusion_state *f, const region *r, const rt_step *more)
{
    uint32_t seen[MAX_OPERANDS];
    int operands = 0, results = 0;
    for (int i = -1; i < r->n; i++) {
        const rt_step *s = member(r, more, i);
        for (int j = 0; j < s->n_in; j++) {
            const rt_step *from = rt_def(f->p, s->in_value[j]);
            int k = 0;
            if (!rt_step_reads(s, j) || (from && !is_external(f, from, more))) continue;
            while (k < operands && seen[k] != s->in_value[j]) k++;
            if (k == MAX_OPERANDS) return false;
            if (k == operands) seen[operands++] = s->in_value[j];
        }
        for (int k = 0; k < s->n_out; k++) results += rt_step_writes(s, k) && would_escape(f, s->out_value[k], more);
    }
    return results <= MAX_RESULTS;
}

/* Whether operands that the step reads once, and folded operands, are defined outside the region. */
static bool can_read_operands(const fusion_state *f, const rt_step *s)
{
    for (int j = 0; j < s->n_in; j++) {
        const rt_step *from = rt_def(f->p, s->in_value[j]);
        if (computes_in_f32(f, from) && (reads_once(s, j) || folds(from))) return false;
    }
    return true;
}

/* Whether no member reads a result of the step once for all elements. */
static bool can_serve_readers(const fusion_state *f, const rt_step *s)
{
    for (int k = 0; k < s->n_out; k++)
        for (const rt_use *u = rt_step_writes(s, k) ? rt_uses(f->p, s->out_value[k]) : NULL; u; u = u->next)
            if (computes_in_f32(f, u->step) && reads_once(u->step, u->slot)) return false;
    return true;
}

static bool can_fold(const fusion_state *f, const region *r, const rt_step *s)
{
    const int64_t row = folded_row(f->p, s);
    if (!row || (r->row && row != r->row) || k_count(&s->in[0]) != r->count) return false;
    return computes_in_f32(f, rt_def(f->p, s->in_value[0]));
}

static bool can_join(const fusion_state *f, const region *r, const rt_step *s, int *position)
{
    if (place_of(f, s)->in || place_of(f, s)->inside || !can_fuse(f->p, s)) return false;
    if ((s->node->phase == IR_UPDATE) != r->update || s->hoisted != r->hoisted || r->code + 2 > MAX_CODE) return false;
    if (folds(s) ? !can_fold(f, r, s) : count_of(s) != r->count || !can_serve_readers(f, s)) return false;
    return can_read_operands(f, s) && is_small_enough(f, r, s) && find_position(f, r, s, position);
}

/* ---- growing --------------------------------------------------------------------------------------- */

static void join(fusion_state *f, region *r, rt_step *s)
{
    int at = r->n++;
    for (; at > 0 && r->member[at - 1]->index > s->index; at--) r->member[at] = r->member[at - 1];
    r->member[at] = s;
    r->code += form_of(s)->code;
    if (folds(s)) r->row = folded_row(f->p, s);
    place_of(f, s)->inside = true;
}

static bool try_join(fusion_state *f, region *r, rt_step *s)
{
    int position;
    if (r->n == MAX_CODE || !can_join(f, r, s, &position)) return false;
    join(f, r, s);
    r->position = position;
    return true;
}

/* Adds the definitions of a member's operands and the readers of its results where possible. */
static bool grow_from(fusion_state *f, region *r, const rt_step *s)
{
    bool grew = false;
    for (int j = 0; j < s->n_in; j++) {
        rt_step *from = rt_def(f->p, s->in_value[j]);
        if (from && !(form_of(from) && folds(from))) grew |= try_join(f, r, from);
    }
    for (int k = 0; k < s->n_out && !folds(s); k++)
        for (const rt_use *u = rt_step_writes(s, k) ? rt_uses(f->p, s->out_value[k]) : NULL; u && u->step; u = u->next)
            grew |= try_join(f, r, u->step);
    return grew;
}

static void grow(fusion_state *f, rt_step *seed)
{
    region *r = &f->regions[f->n_regions];
    *r = (region){.count = count_of(seed),
                  .position = seed->index,
                  .update = seed->node->phase == IR_UPDATE,
                  .hoisted = seed->hoisted};
    join(f, r, seed);
    for (bool grew = true; grew;) {
        const region now = *r;
        grew = false;
        for (int i = 0; i < now.n; i++) grew |= grow_from(f, r, now.member[i]);
    }
    for (int i = 0; i < r->n; i++) {
        place *at = place_of(f, r->member[i]);
        at->inside = false;
        if (r->n == 1) continue;
        at->in = r;
        at->position = r->position;
    }
    f->n_regions += r->n > 1;
}

/* ---- writing fused steps ----------------------------------------------------------------------------- */

static bool is_member(const region *r, const rt_step *s)
{
    for (int i = 0; i < r->n; i++)
        if (r->member[i] == s) return true;
    return false;
}

/* Whether the value has a reader outside the region: an effect, or another step. */
static bool escapes(const writer *w, uint32_t value)
{
    for (const rt_use *u = rt_uses(w->p, value); u; u = u->next)
        if (!is_member(w->r, u->step)) return true;
    return false;
}

static void write_results(writer *w, const rt_step *s)
{
    k_fused *fused = w->step->fused;
    for (int k = 0; k < s->n_out; k++) {
        if (!rt_step_writes(s, k) || !escapes(w, s->out_value[k])) continue;
        const uint32_t from = folds(s) ? s->in_value[0] : s->out_value[k];
        fused->results[fused->n_results++] = (k_result){.from = *code_of(w, from) - 1, .fold = form_of(s)->fold};
        rt_step_write(w->p, w->step, w->step->n_out, s->out_value[k]);
    }
}

static void clear_code(const writer *w, const rt_step *s)
{
    for (int k = 0; k < s->n_out; k++)
        if (rt_step_writes(s, k)) *code_of(w, s->out_value[k]) = 0;
}

/* Inserts the fused step of the region before `at`. NULL: out of memory. */
static rt_step *write_region(rt_plan *p, const region *r, rt_step *at)
{
    writer w = {p, r, rt_step_new_fused(p, r->member[r->n - 1]->node)};
    if (!w.step) return NULL;
    w.step->hoisted = r->hoisted;
    w.step->fused->count = r->count;
    w.step->fused->row = r->row;
    w.step->fused->commits = r->update;
    for (int i = 0; i < r->n; i++)
        if (form_of(r->member[i])->write) form_of(r->member[i])->write(&w, r->member[i]);
    for (int i = 0; i < r->n; i++) write_results(&w, r->member[i]);
    for (int i = 0; i < r->n; i++) clear_code(&w, r->member[i]);
    rt_step_insert_before(p, w.step, at);
    return w.step;
}

bool rt_can_be_program(const rt_plan *p, const rt_step *s) { return can_fuse(p, s) && !folds(s); }

rt_step *rt_make_program(rt_plan *p, rt_step *s)
{
    const region r = {
        .count = count_of(s), .n = 1, .update = s->node->phase == IR_UPDATE, .hoisted = s->hoisted, .member = {s}};
    rt_step *program = write_region(p, &r, s);
    if (program) rt_step_remove(p, s);
    return program;
}

/* Lets the first fused step that reads the whole result of another kernel count it. */
static void count_operands(rt_plan *p)
{
    for (rt_step *s = p->first_step; s; s = s->next)
        for (int i = 0; s->fused && i < s->fused->n_operands; i++) {
            k_operand *o = &s->fused->operands[i];
            const rt_step *def = rt_def(p, s->in_value[o->in]);
            if (o->dense && def && def->kind == RT_STEP_OP) o->counted = count(p, s->in_value[o->in]);
        }
}

static ampc_status fuse(fusion_state *f)
{
    rt_plan *p = f->p;
    for (int i = 0; i < p->n_steps; i++) f->places[i].position = i;
    for (int i = 0; i < p->n_steps; i++) {
        rt_step *s = p->steps[i];
        if (!place_of(f, s)->in && can_fuse(f->p, s) && !folds(s)) grow(f, s);
    }
    for (int i = 0; i < f->n_regions; i++)
        if (!write_region(p, &f->regions[i], p->steps[f->regions[i].position])) return AMPC_NO_MEMORY;
    for (int i = 0; i < f->n_regions; i++)
        for (int j = 0; j < f->regions[i].n; j++) rt_step_remove(p, f->regions[i].member[j]);
    if (p->counted) count_operands(p);
    return AMPC_OK;
}

ampc_status rt_stage_fuse_pointwise(rt_plan *p, diag *d)
{
    fusion_state f = {.p = p};
    (void)d;
    if (!p->backend->fused) return AMPC_OK;
    f.places = rt_alloc((size_t)p->n_steps, sizeof *f.places);
    f.regions = rt_alloc((size_t)p->n_steps, sizeof *f.regions);
    const ampc_status status = f.places && f.regions ? fuse(&f) : AMPC_NO_MEMORY;
    rt_free(f.places);
    rt_free(f.regions);
    return status;
}
