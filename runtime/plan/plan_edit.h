/* plan_edit.h - how stages change a plan.
 *
 * The list of steps, definitions and uses reflect each edit at once. p->steps and rt_step.index keep the order at the
 * start of the stage until rt_plan_renumber, so a stage may iterate over p->steps while it edits. */
#ifndef RT_PLAN_EDIT_H
#define RT_PLAN_EDIT_H

#include "runtime/plan/plan.h"

/* ---- queries ---- */

static inline uint32_t rt_root(const rt_plan *p, uint32_t value) { return p->values[value].root; }
/* Returns the step that defines the memory of the value; NULL: storage, an input, or RT_NO_VALUE. */
static inline rt_step *rt_def(const rt_plan *p, uint32_t value)
{
    return value == RT_NO_VALUE ? NULL : p->values[rt_root(p, value)].def;
}
/* Returns the uses of the value and of all views of its memory, by steps and effects. */
static inline const rt_use *rt_uses(const rt_plan *p, uint32_t value) { return p->values[rt_root(p, value)].uses; }
static inline bool rt_has_one_use(const rt_plan *p, uint32_t value)
{
    const rt_use *u = rt_uses(p, value);
    return u && !u->next;
}
/* Whether the value is in memory before the first step: storage, an input, or carried. */
static inline bool rt_is_external(const rt_value *v)
{
    return !v->derived && v->value && (v->carried || v->value->kind != IR_VALUE_RESULT);
}
/* Whether the value is a parameter, state or constant, or a view of one. */
bool rt_is_storage(const rt_plan *p, uint32_t value);
/* Whether the value is storage that the plan does not write, or is computed from such storage once. */
static inline bool rt_is_invariant(const rt_plan *p, uint32_t value)
{
    const rt_value *root = &p->values[rt_root(p, value)];
    return root->invariant || (rt_is_storage(p, value) && !root->store);
}
bool rt_step_has(const rt_step *s, unsigned trait);
/* Whether s is a step of that op, and computed in each run; no: NULL. */
static inline bool rt_step_is(const rt_step *s, ir_op op)
{
    return s && s->kind == RT_STEP_OP && s->op == op && !s->hoisted;
}
/* Whether s, unless it is NULL, accepts operands and results with strides. */
static inline bool rt_step_is_strided(const rt_step *s)
{
    return s && s->kind == RT_STEP_OP && ir_op_has(s->op, IR_STRIDED);
}
/* The step before which step i is joined (n_steps: the end), or i if it is not. */
int rt_step_ends(const rt_plan *p, int i);
/* Whether operand or result i is present. */
static inline bool rt_step_reads(const rt_step *s, int i) { return i < s->n_in && s->in_value[i] != RT_NO_VALUE; }
static inline bool rt_step_writes(const rt_step *s, int i) { return i < s->n_out && s->out_value[i] != RT_NO_VALUE; }
bool rt_same_dims(const k_view *a, const k_view *b);
/* Whether all dimensions and the type are equal. */
static inline bool rt_same_view(const k_view *a, const k_view *b) { return a->dtype == b->dtype && rt_same_dims(a, b); }
/* The size of the memory of a view. */
static inline int64_t rt_view_bytes(const k_view *v) { return (int64_t)(v->packed ? v->packed->bytes : k_bytes(v)); }
/* Returns the position of the first step of the plan's tail in which no step can fail. */
int rt_plan_safe_from(const rt_plan *p);

/* ---- creation; NULL, RT_NO_VALUE or false: out of memory ---- */

/* Allocates zeroed memory that is freed with the plan. */
void *rt_plan_alloc(rt_plan *p, size_t count, size_t size);
/* Adds a derived value with its own memory that stands for value `of`. */
uint32_t rt_plan_new_value(rt_plan *p, uint32_t of, const k_view *view);
/* Adds a derived value that is a view of the memory of `root` and stands for value `of`. */
uint32_t rt_plan_new_view(rt_plan *p, uint32_t of, uint32_t root, const k_view *view);
/* Creates a step that is not in the plan yet. Its n_in operands and n_out results are absent, and the attributes of the
 * op are zero. It has capacity for all slots of the op. */
rt_step *rt_step_new(rt_plan *p, const ir_node *node, ir_op op, int n_in, int n_out);
/* Creates a step with an empty fused kernel and capacity for the maximum number of operands and results. */
rt_step *rt_step_new_fused(rt_plan *p, const ir_node *node);
/* Adds capacity for n_in operands and n_out results beyond the slots of the op, absent at first. */
bool rt_step_widen(rt_plan *p, rt_step *s, int n_in, int n_out);
/* Makes the step read or write the value in an extra slot (K_SLOT), which it adds if it lacks it. */
bool rt_step_read_extra(rt_plan *p, rt_step *s, int slot, uint32_t value);
bool rt_step_write_extra(rt_plan *p, rt_step *s, int slot, uint32_t value);
/* Whether the step computes any element that is needed. Valid once values have buffers. */
bool rt_step_computes(const rt_plan *p, const rt_step *s);
/* Adds a buffer and returns its index; p->buffers must have capacity (assign_buffers.c). */
int rt_plan_add_buffer(rt_plan *p, rt_buffer b);

/* ---- editing ---- */

/* Sets operand i to `value`, or to absent (RT_NO_VALUE), and its view to that of the value. */
void rt_step_read(rt_plan *p, rt_step *s, int i, uint32_t value);
/* Like rt_step_read, but operand i keeps its current view. */
void rt_step_redirect(rt_plan *p, rt_step *s, int i, uint32_t value);
/* Sets result i to `value`, or to absent (RT_NO_VALUE), and its view to that of the value. */
void rt_step_write(rt_plan *p, rt_step *s, int i, uint32_t value);
void rt_effect_read(rt_plan *p, rt_effect *e, uint32_t value);
/* Changes the type of the value's memory in its definition, its views and all its uses. */
void rt_plan_retype(rt_plan *p, uint32_t value, ir_dtype type);
/* Insert a step that is not in the plan before or after `at`, which is; rt_step_insert_before accepts NULL and then
 * appends the step. */
void rt_step_insert_before(rt_plan *p, rt_step *s, rt_step *at);
void rt_step_insert_after(rt_plan *p, rt_step *s, rt_step *at);
/* Moves a step of the plan after `at`; NULL: to the front. */
void rt_step_move_after(rt_plan *p, rt_step *s, rt_step *at);
/* Removes the step from the plan, together with its uses and definitions. */
void rt_step_remove(rt_plan *p, rt_step *s);
/* Ends a stage: updates p->steps, positions, the order of uses and n_hoisted, and resets marks to 0. Returns false if
 * out of memory. */
bool rt_plan_renumber(rt_plan *p);

/* ---- control.c ---- */

/* Whether plans run the subgraphs of the op themselves; such a step has no kernel. */
bool rt_control_runs(ir_op op);
/* Finds the subgraphs of the step. */
ampc_status rt_control_open(rt_plan *p, rt_step *s, diag *d);
/* Once they have plans, sets the size of the step's workspace. */
ampc_status rt_control_prepare(rt_plan *p, rt_step *s, diag *d);

/* ---- fuse_pointwise.c ---- */

/* Whether the step, which is a single op, could be a fused kernel. */
bool rt_can_be_program(const rt_plan *p, const rt_step *s);
/* Replaces the step, for which that is so, by a fused kernel, which is returned; NULL: out of memory. */
rt_step *rt_make_program(rt_plan *p, rt_step *s);

/* Rounds up to a multiple of the backend's alignment. */
static inline int64_t rt_plan_align(const rt_plan *p, int64_t bytes)
{
    return (bytes + p->backend->alignment - 1) & -p->backend->alignment;
}

#endif
