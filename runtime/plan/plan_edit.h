/* plan_edit.h - how stages change a plan. Steps are linked and unlinked at once, and definitions and uses always agree
 * with them; p->steps and the positions in it (rt_step.index) stay those of the start of the stage until
 * rt_plan_renumber, so that a stage may walk p->steps while it edits. */
#ifndef RT_PLAN_EDIT_H
#define RT_PLAN_EDIT_H

#include "runtime/plan/plan.h"

/* ---- looking ---- */

static inline uint32_t rt_root(const rt_plan *p, uint32_t value) { return p->values[value].root; }
/* The step that makes the memory of the value; NULL: storage, an input, or RT_NO_VALUE. */
static inline rt_step *rt_def(const rt_plan *p, uint32_t value)
{
    return value == RT_NO_VALUE ? NULL : p->values[rt_root(p, value)].def;
}
/* By steps and effects, of the value or of any view of its memory. */
static inline const rt_use *rt_uses(const rt_plan *p, uint32_t value) { return p->values[rt_root(p, value)].uses; }
static inline bool rt_has_one_use(const rt_plan *p, uint32_t value)
{
    const rt_use *u = rt_uses(p, value);
    return u && !u->next;
}
/* A parameter, state or constant, or a view of one. */
bool rt_is_storage(const rt_plan *p, uint32_t value);
bool rt_step_has(const rt_step *s, unsigned trait);
/* It converts its operand to another type. */
bool rt_step_is_cast(const rt_step *s);
/* The operand is there. */
static inline bool rt_step_reads(const rt_step *s, int i) { return i < s->n_in && s->in_value[i] != RT_NO_VALUE; }
static inline bool rt_step_writes(const rt_step *s, int i) { return i < s->n_out && s->out_value[i] != RT_NO_VALUE; }
bool rt_same_dims(const k_view *a, const k_view *b);
/* All dimensions and the type. */
static inline bool rt_same_view(const k_view *a, const k_view *b) { return a->dtype == b->dtype && rt_same_dims(a, b); }
/* The first step of the tail of the plan in which no step can fail. */
int rt_plan_safe_from(const rt_plan *p);

/* ---- making. NULL, RT_NO_VALUE, false: out of memory ---- */

/* Zeroed memory that lives as long as the plan. */
void *rt_plan_alloc(rt_plan *p, size_t count, size_t size);
/* A value beside those of the graph that stands for `of`, with memory of its own. */
uint32_t rt_plan_new_value(rt_plan *p, uint32_t of, const k_view *view);
/* The same as a view of the memory of `root`. */
uint32_t rt_plan_new_view(rt_plan *p, uint32_t of, uint32_t root, const k_view *view);
/* A step of n_in operands and n_out results that are still absent, with room for the slots of the op, and with the
 * attributes of the op all zero. It is not in the plan yet. */
rt_step *rt_step_new(rt_plan *p, const ir_node *node, ir_op op, int n_in, int n_out);
/* The same with an empty program and room for as many operands and results as a program may have. */
rt_step *rt_step_new_fused(rt_plan *p, const ir_node *node);
/* Room for at least that many operands and results beyond the slots of the op (kernels/update.h), absent at first. */
bool rt_step_widen(rt_plan *p, rt_step *s, int n_in, int n_out);
int rt_plan_add_buffer(rt_plan *p, rt_buffer b);

/* ---- editing ---- */

/* Operand i becomes `value`, or absent (RT_NO_VALUE), seen as the value is. */
void rt_step_read(rt_plan *p, rt_step *s, int i, uint32_t value);
/* The same, seen as it was. */
void rt_step_redirect(rt_plan *p, rt_step *s, int i, uint32_t value);
/* Result i becomes `value`, or absent. */
void rt_step_write(rt_plan *p, rt_step *s, int i, uint32_t value);
void rt_effect_read(rt_plan *p, rt_effect *e, uint32_t value);
/* The memory of the value holds another type, for the step that makes it and for all that read it. */
void rt_plan_retype(rt_plan *p, uint32_t value, ir_dtype type);
/* A step that is not in the plan; `at` is. NULL: at the end. */
void rt_step_insert_before(rt_plan *p, rt_step *s, rt_step *at);
void rt_step_insert_after(rt_plan *p, rt_step *s, rt_step *at);
/* A step of the plan goes behind another one; NULL: to the front. */
void rt_step_move_after(rt_plan *p, rt_step *s, rt_step *at);
/* It reads and writes nothing any more. */
void rt_step_remove(rt_plan *p, rt_step *s);
/* After a stage: p->steps, positions, the order of uses, n_hoisted; marks are 0 again. False: out of memory. */
bool rt_plan_renumber(rt_plan *p);

/* To a multiple of the backend's alignment. */
static inline int64_t rt_plan_align(const rt_plan *p, int64_t bytes)
{
    return (bytes + p->backend->alignment - 1) & -p->backend->alignment;
}

#endif
