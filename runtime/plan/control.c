/* control.c - plans the regions of `if` and `loop`.
 *
 * Each region gets a plan of its own, for the sizes of the outer one (plan.c). Its inputs are read where they are,
 * storage is shared, and its arena is at the start of the step's workspace, so the outer plan counts and places it. Its
 * outputs are copied to the results of the step. */
#include "ir/ops/shape_text.h"
#include "runtime/plan/plan_edit.h"

#include <inttypes.h>
#include <stdio.h>

bool rt_control_runs(ir_op op) { return op == IR_OP_if || op == IR_OP_loop; }

/* ---- a subgraph ---------------------------------------------------------------------------------- */

static ampc_status bind_inputs(rt_plan *p, rt_body *body)
{
    const ir_region *r = body->region;
    const size_t count = r->graph->inputs.count + 1;
    body->operand = rt_plan_alloc(p, count, sizeof *body->operand);
    body->own = rt_plan_alloc(p, count, sizeof *body->own);
    if (!body->operand || !body->own) return AMPC_NO_MEMORY;
    for (size_t i = 0; i < r->graph->inputs.count; i++) {
        body->operand[i] = ir_capture_of(r, i);
        if (body->operand[i] < 0) body->own[body->n_own++] = (int)i;
    }
    return AMPC_OK;
}

static ampc_status find_body(rt_step *s, const char *name, diag *d)
{
    const ir_region *r = ir_region_find(s->node, name);
    if (!r) return diag_error(d, AMPC_REJECTED, ir_diag_loc(s->node), "it has no region '%s'", name);
    if (ir_first_store(r->graph))
        return diag_error(d, AMPC_UNSUPPORTED, ir_diag_loc(s->node), "its region %s changes a state", r->name);
    s->control->bodies[s->control->n_bodies++].region = r;
    return AMPC_OK;
}

ampc_status rt_control_open(rt_plan *p, rt_step *s, diag *d)
{
    s->control = rt_plan_alloc(p, 1, sizeof *s->control);
    if (!s->control) return AMPC_NO_MEMORY;
    s->control->repeats = s->op == IR_OP_loop;
    if (s->control->repeats) return find_body(s, "body", d);
    TRY(find_body(s, "then_branch", d));
    return find_body(s, "else_branch", d);
}

/* ---- results ------------------------------------------------------------------------------------- */

static const char *show(const k_view *v, char text[IR_SHAPE_TEXT])
{
    return ir_shape_text(text, ir_dtype_name(v->dtype), v->rank, v->dims);
}

static const k_view *output_view(const rt_body *body, int i)
{
    return &body->plan->values[body->plan->outputs[i].value].view;
}

static ampc_status differ(const rt_step *s, const rt_body *body, int output, const k_view *wanted, diag *d)
{
    char is[IR_SHAPE_TEXT], expected[IR_SHAPE_TEXT];
    return diag_error(d, AMPC_REJECTED, ir_diag_loc(s->node), "output '%s' of @%s is %s, but must be %s",
                      body->plan->outputs[output].name, body->plan->graph->name, show(output_view(body, output), is),
                      show(wanted, expected));
}

static ampc_status count_outputs(const rt_step *s, const rt_body *body, int low, diag *d)
{
    if (body->plan->n_outputs >= low) return AMPC_OK;
    return diag_error(d, AMPC_REJECTED, ir_diag_loc(s->node), "@%s has %d outputs, expected %d",
                      body->plan->graph->name, body->plan->n_outputs, low);
}

/* Maps outputs of the subgraphs to results; the first `skip` outputs belong to none. */
static ampc_status map_results(rt_plan *p, rt_step *s, int skip, diag *d)
{
    rt_control *c = s->control;
    const int positions = s->node->layout.n_out;
    for (int b = 0; b < c->n_bodies; b++) TRY(count_outputs(s, &c->bodies[b], skip + positions, d));
    const int outputs = c->bodies[0].plan->n_outputs;
    c->result = rt_plan_alloc(p, (size_t)outputs + 1, sizeof *c->result);
    if (!c->result) return AMPC_NO_MEMORY;
    for (int i = 0; i < outputs; i++) {
        const int k = i < skip ? -1 : ir_opaque_result_at(s->node, i - skip);
        c->result[i] = k >= 0 && s->out_buffer[k] != RT_NO_BUFFER ? k : -1;
    }
    return AMPC_OK;
}

/* ---- if ------------------------------------------------------------------------------------------ */

static ampc_status need_single(const rt_step *s, int operand, diag *d)
{
    char is[IR_SHAPE_TEXT];
    if (operand < 0 || k_count(&s->in[operand]) == 1) return AMPC_OK;
    return diag_error(d, AMPC_REJECTED, ir_diag_loc(s->node), "operand '%s' must have one element, is %s",
                      ir_in(s->node, operand)->name, show(&s->in[operand], is));
}

/* Both branches must return what the node declares. */
static ampc_status check_branches(const rt_step *s, diag *d)
{
    const rt_control *c = s->control;
    for (int b = 0; b < c->n_bodies; b++) {
        const rt_body *body = &c->bodies[b];
        if (body->n_own)
            return diag_error(d, AMPC_REJECTED, ir_diag_loc(s->node), "@%s has an input that is not a captured value",
                              body->plan->graph->name);
        for (int i = 0; i < body->plan->n_outputs; i++) {
            const int k = i < c->bodies[0].plan->n_outputs ? c->result[i] : -1;
            if (k >= 0 && !rt_same_view(output_view(body, i), &s->out[k])) return differ(s, body, i, &s->out[k], d);
        }
    }
    return AMPC_OK;
}

static ampc_status prepare_if(rt_plan *p, rt_step *s, diag *d)
{
    TRY(need_single(s, 0, d));
    TRY(map_results(p, s, 0, d));
    TRY(check_branches(s, d));
    const int64_t a = s->control->bodies[0].plan->arena_bytes, b = s->control->bodies[1].plan->arena_bytes;
    s->workspace_bytes = (size_t)(a > b ? a : b);
    return AMPC_OK;
}

/* ---- loop ---------------------------------------------------------------------------------------- */

/* The shape of one of the places of a stacked operand or result along an axis. */
static bool drop_axis(const k_view *stacked, int64_t axis, k_view *one)
{
    if (axis < 0) axis += stacked->rank;
    if (axis < 0 || axis >= stacked->rank) return false;
    *one = *stacked;
    one->rank--;
    for (int i = (int)axis; i < one->rank; i++) one->dims[i] = stacked->dims[i + 1];
    return true;
}

int rt_loop_axis(const rt_step *s, int attr, int i, int rank)
{
    const ir_attr *axes = &s->attr[attr];
    const int64_t axis = i < axes->list.count ? axes->list.items[i] : 0;
    return (int)(axis < 0 ? axis + rank : axis);
}

static ampc_status mismatch(const rt_step *s, const char *name, const k_view *is, const k_view *wanted, diag *d)
{
    char a[IR_SHAPE_TEXT], b[IR_SHAPE_TEXT];
    return diag_error(d, AMPC_REJECTED, ir_diag_loc(s->node), "'%s' of its body is %s, but must be %s", name,
                      show(is, a), show(wanted, b));
}

static const ir_value *own_input(const rt_body *body, int i) { return body->plan->graph->inputs.items[body->own[i]]; }

static const k_view *own_view(const rt_body *body, int i) { return &body->plan->values[own_input(body, i)->id].view; }

static ampc_status check_fixed(const rt_step *s, const rt_body *body, diag *d)
{
    const ir_loop_form *f = &s->control->form;
    for (int i = 0; i < f->fixed; i++) {
        const k_view *v = own_view(body, i);
        if (k_count(v) != 1 || v->dtype != (i ? IR_bool : IR_i64))
            return mismatch(s, own_input(body, i)->name, v, &(k_view){.dtype = i ? IR_bool : IR_i64}, d);
    }
    if (f->fixed_out && (k_count(output_view(body, 0)) != 1 || output_view(body, 0)->dtype != IR_bool))
        return mismatch(s, body->plan->outputs[0].name, output_view(body, 0), &(k_view){.dtype = IR_bool}, d);
    return need_single(s, f->condition, d) == AMPC_OK ? need_single(s, f->trip_count, d) : AMPC_REJECTED;
}

/* A carried value has one type and shape before, during and after the loop. */
static ampc_status check_states(const rt_step *s, const rt_body *body, diag *d)
{
    const ir_loop_form *f = &s->control->form;
    for (int i = 0; i < f->states; i++) {
        const k_view *first = &s->in[f->first + i], *in = own_view(body, f->fixed + i);
        const k_view *out = output_view(body, f->fixed_out + i);
        if (!rt_same_view(in, first)) return mismatch(s, own_input(body, f->fixed + i)->name, in, first, d);
        if (!rt_same_view(out, first)) return mismatch(s, body->plan->outputs[f->fixed_out + i].name, out, first, d);
    }
    return AMPC_OK;
}

static ampc_status check_slices(const rt_step *s, const rt_body *body, diag *d)
{
    const ir_loop_form *f = &s->control->form;
    int64_t length = -1;
    for (int i = 0; i < f->slices; i++) {
        const k_view *all = &s->in[f->first + f->states + i];
        const int axis = rt_loop_axis(s, IR_ATTR(loop, slice_axes), i, all->rank);
        k_view one;
        if (!drop_axis(all, axis, &one))
            return diag_error(d, AMPC_REJECTED, ir_diag_loc(s->node), "scanned operand %d has no axis %d", i, axis);
        const k_view *in = own_view(body, f->fixed + f->states + i);
        if (!rt_same_view(in, &one)) return mismatch(s, own_input(body, f->fixed + f->states + i)->name, in, &one, d);
        if (length >= 0 && all->dims[axis] != length)
            return diag_error(d, AMPC_REJECTED, ir_diag_loc(s->node),
                              "scanned operands differ in length: %" PRId64 " and %" PRId64, length, all->dims[axis]);
        length = all->dims[axis];
    }
    return AMPC_OK;
}

static ampc_status check_stacks(const rt_step *s, const rt_body *body, diag *d)
{
    const rt_control *c = s->control;
    const int first = c->form.fixed_out + c->form.states;
    for (int i = first; i < body->plan->n_outputs; i++) {
        if (c->result[i] < 0) continue;
        const k_view *all = &s->out[c->result[i]];
        k_view one;
        if (!drop_axis(all, rt_loop_axis(s, IR_ATTR(loop, stack_axes), i - first, all->rank), &one))
            return diag_error(d, AMPC_REJECTED, ir_diag_loc(s->node), "stacked result %d has no such axis", i - first);
        if (!rt_same_view(output_view(body, i), &one))
            return mismatch(s, body->plan->outputs[i].name, output_view(body, i), &one, d);
    }
    return AMPC_OK;
}

static int64_t reserve(const rt_plan *p, rt_step *s, int64_t bytes)
{
    const int64_t at = (int64_t)s->workspace_bytes;
    s->workspace_bytes += (size_t)rt_plan_align(p, bytes);
    return at;
}

/* Workspace: the arena of the body, iteration number and condition, carried values without a result, slices. */
static ampc_status place_values(rt_plan *p, rt_step *s)
{
    rt_control *c = s->control;
    c->state_at = rt_plan_alloc(p, (size_t)(c->form.states + c->form.slices) + 1, sizeof *c->state_at);
    if (!c->state_at) return AMPC_NO_MEMORY;
    c->slice_at = c->state_at + c->form.states;
    reserve(p, s, c->bodies[0].plan->arena_bytes);
    c->fixed_at = reserve(p, s, 2 * p->backend->alignment);
    for (int i = 0; i < c->form.states + c->form.slices; i++) {
        const bool in_result = i < c->form.states && c->result[c->form.fixed_out + i] >= 0;
        const k_view *v = own_view(&c->bodies[0], c->form.fixed + i);
        c->state_at[i] = in_result ? -1 : reserve(p, s, (int64_t)k_bytes(v));
    }
    return AMPC_OK;
}

static ampc_status prepare_loop(rt_plan *p, rt_step *s, diag *d)
{
    const ir_loop_form f = s->control->form = ir_loop_form_of(s->node);
    const rt_body *body = &s->control->bodies[0];
    if (body->n_own != f.fixed + f.states + f.slices)
        return diag_error(d, AMPC_REJECTED, ir_diag_loc(s->node), "@%s has %d inputs, expected %d",
                          body->plan->graph->name, body->n_own, f.fixed + f.states + f.slices);
    TRY(count_outputs(s, body, f.fixed_out + f.states, d));
    TRY(map_results(p, s, f.fixed_out, d));
    TRY(check_fixed(s, body, d));
    TRY(check_states(s, body, d));
    TRY(check_slices(s, body, d));
    TRY(check_stacks(s, body, d));
    return place_values(p, s);
}

ampc_status rt_control_prepare(rt_plan *p, rt_step *s, diag *d)
{
    for (int i = 0; i < s->control->n_bodies; i++) TRY(bind_inputs(p, &s->control->bodies[i]));
    return s->control->repeats ? prepare_loop(p, s, d) : prepare_if(p, s, d);
}
