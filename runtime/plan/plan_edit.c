/* plan_edit.c - the only code that changes the order of steps, or the definitions and uses of values. */
#include "runtime/plan/plan_edit.h"
#include "runtime/backend/alloc.h"

#include <string.h>

/* ---- memory ---- */

struct rt_block {
    rt_block *next;
};
enum { BLOCK_HEADER = 64 };

void *rt_plan_alloc(rt_plan *p, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - BLOCK_HEADER) return NULL;
    rt_block *b = rt_alloc(1, BLOCK_HEADER + bytes);
    if (!b) return NULL;
    b->next = p->pool;
    p->pool = b;
    return (char *)b + BLOCK_HEADER;
}

void rt_plan_free(rt_plan *p)
{
    if (!p) return;
    for (rt_step *s = p->first_step; s; s = s->next) {
        if (s->kernel && s->kernel->release) s->kernel->release(s->state);
        for (int i = 0; s->control && i < s->control->n_bodies; i++) rt_plan_free(s->control->bodies[i].plan);
    }
    for (rt_block *b = p->pool, *next; b; b = next) {
        next = b->next;
        rt_free(b);
    }
    rt_free(p->sizes);
    rt_free(p->values);
    rt_free(p->steps);
    rt_free(p);
}

/* ---- values ---- */

bool rt_is_storage(const rt_plan *p, uint32_t value)
{
    const rt_value *v = &p->values[rt_root(p, value)];
    return !v->derived && v->value && v->value->kind == IR_VALUE_STORAGE;
}

bool rt_same_dims(const k_view *a, const k_view *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) == 0;
}

static bool reserve_value(rt_plan *p)
{
    if (p->n_values < p->max_values) return true;
    const uint32_t capacity = p->max_values + p->max_values / 2 + 16;
    rt_value *values = rt_alloc(capacity, sizeof *values);
    if (!values) return false;
    memcpy(values, p->values, p->n_values * sizeof *values);
    rt_free(p->values);
    p->values = values;
    p->max_values = capacity;
    return true;
}

uint32_t rt_plan_new_view(rt_plan *p, uint32_t of, uint32_t root, const k_view *view)
{
    const k_view copy = *view; /* `view` may point into p->values, which may move */
    if (!reserve_value(p)) return RT_NO_VALUE;
    p->values[p->n_values] = (rt_value){.value = p->values[of].value,
                                        .derived = true,
                                        .view = copy,
                                        .root = root,
                                        .buffer = RT_NO_BUFFER,
                                        .last_use = -1};
    return p->n_values++;
}

uint32_t rt_plan_new_value(rt_plan *p, uint32_t of, const k_view *view)
{
    return rt_plan_new_view(p, of, p->n_values, view);
}

/* ---- uses ---- */

static void link_use(rt_plan *p, rt_use *u, uint32_t value)
{
    rt_use **head = &p->values[rt_root(p, value)].uses;
    u->prev = NULL;
    u->next = *head;
    if (*head) (*head)->prev = u;
    *head = u;
    p->edited = true;
}

static void unlink_use(rt_plan *p, rt_use *u, uint32_t value)
{
    if (u->next) u->next->prev = u->prev;
    if (u->prev) u->prev->next = u->next;
    else p->values[rt_root(p, value)].uses = u->next;
    p->edited = true;
}

void rt_step_redirect(rt_plan *p, rt_step *s, int i, uint32_t value)
{
    if (i >= s->n_in) s->n_in = i + 1;
    if (s->in_value[i] != RT_NO_VALUE) unlink_use(p, &s->uses[i], s->in_value[i]);
    s->in_value[i] = value;
    s->uses[i] = (rt_use){.step = s, .slot = i};
    if (value != RT_NO_VALUE) link_use(p, &s->uses[i], value);
}

void rt_step_read(rt_plan *p, rt_step *s, int i, uint32_t value)
{
    rt_step_redirect(p, s, i, value);
    s->in_at[i] = 0;
    s->in[i] = value == RT_NO_VALUE ? (k_view){.dtype = IR_NO_DTYPE} : p->values[value].view;
}

void rt_step_write(rt_plan *p, rt_step *s, int i, uint32_t value)
{
    if (i >= s->n_out) s->n_out = i + 1;
    const uint32_t old = s->out_value[i];
    if (old != RT_NO_VALUE && p->values[old].def == s) p->values[old].def = NULL;
    s->out_value[i] = value;
    s->out_at[i] = 0;
    s->out[i] = value == RT_NO_VALUE ? (k_view){.dtype = IR_NO_DTYPE} : p->values[value].view;
    if (value != RT_NO_VALUE) p->values[value].def = s;
}

void rt_effect_read(rt_plan *p, rt_effect *e, uint32_t value)
{
    if (e->value != RT_NO_VALUE) unlink_use(p, &e->use, e->value);
    e->value = value;
    e->use = (rt_use){.slot = (int)(e - p->effects)};
    link_use(p, &e->use, value);
}

void rt_plan_retype(rt_plan *p, uint32_t value, ir_dtype type)
{
    rt_value *root = &p->values[rt_root(p, value)];
    root->view.dtype = type;
    for (int i = 0; root->def && i < root->def->n_out; i++)
        if (root->def->out_value[i] == root->root) root->def->out[i].dtype = type;
    for (const rt_use *u = root->uses; u; u = u->next) {
        if (u->step) u->step->in[u->slot].dtype = type;
        p->values[u->step ? u->step->in_value[u->slot] : p->effects[u->slot].value].view.dtype = type;
    }
}

/* ---- steps ---- */

bool rt_step_has(const rt_step *s, unsigned trait)
{
    unsigned traits = s->kind == RT_STEP_OP     ? ir_op_get(s->op)->traits
                      : s->kind == RT_STEP_PACK ? IR_PURE
                      : s->fused->commits       ? IR_PURE | IR_INPLACE | IR_DROPS | IR_COMMITS
                                                : IR_PURE | IR_INPLACE | IR_DROPS;
    return (traits & trait) != 0;
}

static bool cannot_fail(const rt_step *s)
{
    return s->node->phase == IR_UPDATE && !rt_step_has(s, IR_BODIES | IR_COLLECTIVE) &&
           (rt_step_has(s, IR_INPLACE) || ir_op_get(s->op)->colour == IR_KEEP);
}

int rt_plan_safe_from(const rt_plan *p)
{
    int from = p->n_steps;
    while (from > 0 && cannot_fail(p->steps[from - 1])) from--;
    return from;
}

/* Allocates everything that a step has per operand and per result, in one block. */
static bool alloc_operands(rt_plan *p, rt_step *s, int in, int out)
{
    const size_t all = (size_t)(in + out);
    s->in = rt_plan_alloc(
        p, all, sizeof *s->in + sizeof *s->uses + sizeof *s->in_at + sizeof *s->in_buffer + sizeof *s->in_value);
    if (!s->in) return false;
    s->out = s->in + in;
    s->uses = (rt_use *)(s->in + all);
    s->in_at = (int64_t *)(s->uses + all);
    s->out_at = s->in_at + in;
    s->in_buffer = (int *)(s->in_at + all);
    s->out_buffer = s->in_buffer + in;
    s->in_value = (uint32_t *)(s->in_buffer + all);
    s->out_value = s->in_value + in;
    for (size_t i = 0; i < all; i++) {
        s->in[i] = (k_view){.dtype = IR_NO_DTYPE};
        s->in_buffer[i] = RT_NO_BUFFER;
        s->in_value[i] = RT_NO_VALUE;
    }
    return true;
}

static int larger(int a, int b) { return a > b ? a : b; }

rt_step *rt_step_new(rt_plan *p, const ir_node *node, ir_op op, int n_in, int n_out)
{
    const ir_op_info *info = ir_op_get(op);
    rt_step *s = rt_plan_alloc(p, 1, sizeof *s + (size_t)info->n_attr * sizeof *s->attr);
    if (!s || !alloc_operands(p, s, larger(n_in, info->n_in), larger(n_out, info->n_out))) return NULL;
    s->index = -1;
    s->node = node;
    s->op = op;
    s->kernel = p->backend->kernel(op);
    if (!s->kernel) s->kernel = &rt_idle_kernel; /* a step with subgraphs */
    s->n_in = n_in;
    s->n_out = n_out;
    s->listed = k_listed(op, n_in);
    s->attr = (ir_attr *)(s + 1);
    s->workspace = RT_NO_BUFFER;
    s->batch = 1;
    s->pack = RT_NO_PACK;
    return s;
}

rt_step *rt_step_new_fused(rt_plan *p, const ir_node *node)
{
    rt_step *s = rt_step_new(p, node, node->op, K_MAX_OPERANDS, K_MAX_RESULTS);
    if (!s) return NULL;
    s->kind = RT_STEP_FUSED;
    s->kernel = p->backend->fused;
    s->n_in = s->n_out = s->listed = 0;
    s->attr = NULL;
    s->fused = rt_plan_alloc(p, 1, sizeof *s->fused);
    return s->fused ? s : NULL;
}

bool rt_step_widen(rt_plan *p, rt_step *s, int n_in, int n_out)
{
    const rt_step old = *s;
    const int in = larger(s->n_in, k_extra_in_at(s->op, s->listed, n_in));
    const int out = larger(s->n_out, k_extra_out_at(s->op, s->listed, n_out));
    if (!alloc_operands(p, s, in, out)) return false;
    s->n_in = in;
    s->n_out = out;
    for (int i = 0; i < old.n_in; i++) {
        s->in[i] = old.in[i];
        s->in_at[i] = old.in_at[i];
        if (old.in_value[i] == RT_NO_VALUE) continue;
        unlink_use(p, &old.uses[i], old.in_value[i]);
        rt_step_redirect(p, s, i, old.in_value[i]);
    }
    memcpy(s->out, old.out, (size_t)old.n_out * sizeof *s->out);
    memcpy(s->out_at, old.out_at, (size_t)old.n_out * sizeof *s->out_at);
    memcpy(s->out_value, old.out_value, (size_t)old.n_out * sizeof *s->out_value);
    return true;
}

bool rt_step_read_extra(rt_plan *p, rt_step *s, int slot, uint32_t value)
{
    if (!rt_step_widen(p, s, slot + 1, 0)) return false;
    rt_step_read(p, s, k_extra_in_at(s->op, s->listed, slot), value);
    return true;
}

bool rt_step_write_extra(rt_plan *p, rt_step *s, int slot, uint32_t value)
{
    if (!rt_step_widen(p, s, 0, slot + 1)) return false;
    rt_step_write(p, s, k_extra_out_at(s->op, s->listed, slot), value);
    return true;
}

int rt_plan_add_buffer(rt_plan *p, rt_buffer b)
{
    p->buffers[p->n_buffers] = b;
    return p->n_buffers++;
}

/* ---- the order ---- */

static void link_between(rt_plan *p, rt_step *prev, rt_step *s, rt_step *next)
{
    s->prev = prev;
    s->next = next;
    *(prev ? &prev->next : &p->first_step) = s;
    *(next ? &next->prev : &p->last_step) = s;
    p->edited = true;
}

static void unlink_step(rt_plan *p, rt_step *s)
{
    *(s->prev ? &s->prev->next : &p->first_step) = s->next;
    *(s->next ? &s->next->prev : &p->last_step) = s->prev;
    p->edited = true;
}

void rt_step_insert_before(rt_plan *p, rt_step *s, rt_step *at)
{
    link_between(p, at ? at->prev : p->last_step, s, at);
}

void rt_step_insert_after(rt_plan *p, rt_step *s, rt_step *at) { link_between(p, at, s, at->next); }

void rt_step_move_after(rt_plan *p, rt_step *s, rt_step *at)
{
    if (s == at) return;
    unlink_step(p, s);
    link_between(p, at, s, at ? at->next : p->first_step);
}

void rt_step_remove(rt_plan *p, rt_step *s)
{
    for (int i = 0; i < s->n_in; i++) rt_step_redirect(p, s, i, RT_NO_VALUE);
    for (int i = 0; i < s->n_out; i++) rt_step_write(p, s, i, RT_NO_VALUE);
    unlink_step(p, s);
    s->index = -1;
}

static bool reserve_steps(rt_plan *p, int n)
{
    if (n <= p->max_steps) return true;
    rt_step **steps = rt_alloc((size_t)n, sizeof *steps);
    if (!steps) return false;
    rt_free(p->steps);
    p->steps = steps;
    p->max_steps = n;
    return true;
}

/* link_use pushes to the front of a list, so uses are linked from last to first. */
static void order_uses(rt_plan *p)
{
    for (uint32_t v = 0; v < p->n_values; v++) p->values[v].uses = NULL;
    for (int i = p->n_effects - 1; i >= 0; i--) link_use(p, &p->effects[i].use, p->effects[i].value);
    for (rt_step *s = p->last_step; s; s = s->prev)
        for (int j = s->n_in - 1; j >= 0; j--)
            if (s->in_value[j] != RT_NO_VALUE) link_use(p, &s->uses[j], s->in_value[j]);
}

bool rt_plan_renumber(rt_plan *p)
{
    int n = 0;
    for (rt_step *s = p->first_step; s; s = s->next) n++;
    if (!reserve_steps(p, n)) return false;
    p->n_steps = p->n_hoisted = 0;
    for (rt_step *s = p->first_step; s; s = s->next) {
        p->n_hoisted += s->hoisted;
        s->index = p->n_steps;
        s->mark = 0;
        p->steps[p->n_steps++] = s;
    }
    for (uint32_t v = 0; v < p->n_values; v++) p->values[v].mark = 0;
    if (p->edited) order_uses(p);
    p->edited = false;
    return true;
}
