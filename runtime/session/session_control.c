/* session_control.c - executes steps with subgraphs.
 *
 * The host decides which subgraph runs. On a discrete device it therefore waits for the condition, and such plans are
 * not recorded. */
#include "runtime/files/trace.h"
#include "runtime/session/session_state.h"

#define PATIENCE 0.5 /* seconds for the loops of a run, once the program is asked to stop */

/* ---- words read and copies made on the device ---------------------------------------------------- */

static ampc_status ready_word(rt_session *s, diag *d)
{
    if (s->host_word) return AMPC_OK;
    ampc_status status = rt_host_alloc(s, sizeof(int64_t), &s->host_word);
    return status == AMPC_OK ? AMPC_OK : rt_memory_error(s, status, d, "a condition", sizeof(int64_t));
}

/* Reads a view of one element, an integer or bool. */
static ampc_status read_word(rt_session *s, const k_view *v, diag *d, int64_t *out)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    const void *from = v->data;
    if (device_ops) {
        TRY(ready_word(s, d));
        RT_DEVICE(s, d, device_ops->download(&s->ctx, s->host_word, v->data, ir_dtype_size(v->dtype)));
        RT_DEVICE(s, d, device_ops->wait(&s->ctx, NULL));
        from = s->host_word;
    }
    *out = ir_load_i64(v->dtype, from);
    return AMPC_OK;
}

static ampc_status copy(rt_session *s, void *to, const void *from, size_t bytes, diag *d)
{
    if (bytes && to != from) RT_DEVICE(s, d, s->backend->copy(&s->ctx, to, from, bytes));
    return AMPC_OK;
}

/* ---- subgraphs ----------------------------------------------------------------------------------- */

static const rt_body *body_of(const rt_control_run *r, int b) { return &r->step->control->bodies[b]; }

static void set_captures(const rt_control_run *r, int b)
{
    const rt_body *body = body_of(r, b);
    for (size_t i = 0; i < body->plan->graph->inputs.count; i++)
        if (body->operand[i] >= 0) r->bodies[b].inputs[i] = r->args->in[body->operand[i]].data;
}

/* Output i of subgraph b, at its address. */
static k_view output_of(const rt_control_run *r, int b, int i)
{
    const rt_plan *p = body_of(r, b)->plan;
    const rt_frame f = {r->session, &r->bodies[b], r->args->workspace, r->bodies[b].inputs, r->args->step};
    k_view v = p->values[p->outputs[i].value].view;
    v.data = rt_address(&f, p->outputs[i].buffer);
    return v;
}

/* ---- if ------------------------------------------------------------------------------------------ */

static ampc_status begin_if(rt_control_run *r, diag *d)
{
    int64_t condition = 0;
    TRY(read_word(r->session, &r->args->in[0], d, &condition));
    r->body = condition ? 0 : 1;
    set_captures(r, r->body);
    return AMPC_OK;
}

static ampc_status end_if(rt_control_run *r, diag *d)
{
    const rt_control *c = r->step->control;
    for (int i = 0; i < c->bodies[0].plan->n_outputs; i++) {
        if (c->result[i] < 0) continue;
        const k_view from = output_of(r, r->body, i);
        TRY(copy(r->session, r->args->out[c->result[i]].data, from.data, k_bytes(&from), d));
    }
    r->body = -1;
    return AMPC_OK;
}

/* ---- loop ---------------------------------------------------------------------------------------- */

static const ir_loop_form *form_of(const rt_control_run *r) { return &r->step->control->form; }

static char *state_of(const rt_control_run *r, int i)
{
    const rt_control *c = r->step->control;
    if (c->state_at[i] >= 0) return (char *)r->args->workspace + c->state_at[i];
    return r->args->out[c->result[form_of(r)->fixed_out + i]].data;
}

/* Copies place `index` along an axis of `all`: to `one`, or from it if `put`. */
static ampc_status copy_place(rt_session *s, const k_view *all, int axis, int64_t index, void *one, bool put, diag *d)
{
    size_t inner = ir_dtype_size(all->dtype), outer = 1;
    for (int i = 0; i < axis; i++) outer *= (size_t)all->dims[i];
    for (int i = axis + 1; i < all->rank; i++) inner *= (size_t)all->dims[i];
    for (size_t i = 0; i < outer; i++) {
        char *in_all = (char *)all->data + (i * (size_t)all->dims[axis] + (size_t)index) * inner;
        char *in_one = (char *)one + i * inner;
        TRY(copy(s, put ? in_all : in_one, put ? in_one : in_all, inner, d));
    }
    return AMPC_OK;
}

static bool is_reversed(const rt_step *s, int attr, int i)
{
    const ir_attr *reversed = &s->attr[attr];
    return i < reversed->list.count && reversed->list.items[i] != 0;
}

static ampc_status write_word(const rt_control_run *r, void *to, ir_dtype type, int64_t value, diag *d)
{
    rt_session *s = r->session;
    if (!s->backend->device_ops) {
        ir_store_i64(type, to, value);
        return AMPC_OK;
    }
    TRY(ready_word(s, d));
    ir_store_i64(type, s->host_word, value);
    RT_DEVICE(s, d, s->backend->device_ops->upload(&s->ctx, to, s->host_word, ir_dtype_size(type)));
    RT_DEVICE(s, d, s->backend->device_ops->wait(&s->ctx, NULL));
    return AMPC_OK;
}

/* Sets what the op passes to the body: iteration number, condition, carried values, slices. */
static ampc_status set_own_inputs(const rt_control_run *r, diag *d)
{
    const rt_control *c = r->step->control;
    const int64_t line = r->session->backend->alignment;
    char *workspace = r->args->workspace, *fixed = workspace + c->fixed_at;
    void **inputs = r->bodies[0].inputs;
    const int *own = c->bodies[0].own;
    for (int i = 0; i < form_of(r)->fixed; i++) {
        inputs[*own++] = fixed + i * line;
        TRY(write_word(r, fixed + i * line, i ? IR_bool : IR_i64, i ? 1 : r->iteration, d));
    }
    for (int i = 0; i < form_of(r)->states; i++) inputs[*own++] = state_of(r, i);
    for (int i = 0; i < form_of(r)->slices; i++) {
        const k_view *all = &r->args->in[form_of(r)->first + form_of(r)->states + i];
        const int axis = rt_loop_axis(r->step, IR_ATTR(loop, slice_axes), i, all->rank);
        const bool reversed = is_reversed(r->step, IR_ATTR(loop, slice_reversed), i);
        char *one = workspace + c->slice_at[i];
        const int64_t at = reversed ? r->count - 1 - r->iteration : r->iteration;
        TRY(copy_place(r->session, all, axis, at, one, false, d));
        inputs[*own++] = one;
    }
    return AMPC_OK;
}

static ampc_status take_stack(const rt_control_run *r, int i, const k_view *one, diag *d)
{
    const rt_step *s = r->step;
    const int k = s->control->result[i], number = i - form_of(r)->fixed_out - form_of(r)->states;
    const k_view *all = &r->args->out[k];
    const int axis = rt_loop_axis(s, IR_ATTR(loop, stack_axes), number, all->rank);
    const bool reversed = is_reversed(s, IR_ATTR(loop, stack_reversed), number);
    const int64_t places = all->dims[axis], at = reversed ? r->count - 1 - r->iteration : r->iteration;
    if (at >= places)
        return diag_error(d, AMPC_REJECTED, ir_diag_loc(s->node), "'%s' has %lld places, but there are more iterations",
                          ir_out(s->node, k)->name, (long long)places);
    return copy_place(r->session, all, axis, at, one->data, true, d);
}

static ampc_status take_outputs(const rt_control_run *r, diag *d)
{
    const rt_control *c = r->step->control;
    const int first_stack = form_of(r)->fixed_out + form_of(r)->states;
    for (int i = form_of(r)->fixed_out; i < c->bodies[0].plan->n_outputs; i++) {
        const k_view from = output_of(r, 0, i);
        if (i < first_stack)
            TRY(copy(r->session, state_of(r, i - form_of(r)->fixed_out), from.data, k_bytes(&from), d));
        else if (c->result[i] >= 0) TRY(take_stack(r, i, &from, d));
    }
    return AMPC_OK;
}

/* The largest number of iterations, from the length of scanned operands and the trip count. */
static ampc_status count_iterations(rt_control_run *r, diag *d)
{
    const ir_loop_form *form = form_of(r);
    const k_view *in = r->args->in;
    r->count = INT64_MAX;
    if (form->slices) {
        const k_view *all = &in[form->first + form->states];
        r->count = all->dims[rt_loop_axis(r->step, IR_ATTR(loop, slice_axes), 0, all->rank)];
    }
    int64_t trips = r->count;
    if (form->trip_count >= 0) TRY(read_word(r->session, &in[form->trip_count], d, &trips));
    if (trips < r->count) r->count = trips;
    return AMPC_OK;
}

/* Stacked results have as many places as there were iterations, unless they may be partial. */
static ampc_status end_loop(const rt_control_run *r, diag *d)
{
    const rt_step *s = r->step;
    const int first = form_of(r)->fixed_out + form_of(r)->states;
    for (int i = first; i < s->control->bodies[0].plan->n_outputs && !s->attr[IR_ATTR(loop, partial)].i; i++) {
        const int k = s->control->result[i];
        if (k < 0) continue;
        const int64_t places = s->out[k].dims[rt_loop_axis(s, IR_ATTR(loop, stack_axes), i - first, s->out[k].rank)];
        if (places != r->iteration)
            return diag_error(d, AMPC_REJECTED, ir_diag_loc(s->node),
                              "'%s' has %lld places, but there were %lld iterations", ir_out(s->node, k)->name,
                              (long long)places, (long long)r->iteration);
    }
    return AMPC_OK;
}

/* Whether the program stops and the patience with its loops is at an end. */
static bool is_abandoned(rt_session *s)
{
    if (!s->stop || !*s->stop) return false;
    if (s->stop_seen == 0) s->stop_seen = rt_trace_now();
    s->stopped = rt_trace_now() - s->stop_seen > PATIENCE;
    return s->stopped;
}

/* Lets the body run, or ends the loop. */
static ampc_status go_on(rt_control_run *r, int64_t condition, diag *d)
{
    r->body = condition && r->iteration < r->count ? 0 : -1;
    if (r->body < 0) return end_loop(r, d);
    return is_abandoned(r->session) ? AMPC_REJECTED : set_own_inputs(r, d);
}

static ampc_status begin_loop(rt_control_run *r, diag *d)
{
    const ir_loop_form *form = form_of(r);
    const k_view *in = r->args->in;
    int64_t condition = 1;
    TRY(count_iterations(r, d));
    if (form->condition >= 0) TRY(read_word(r->session, &in[form->condition], d, &condition));
    for (int i = 0; i < form->states; i++) {
        const k_view *v = &in[form->first + i];
        TRY(copy(r->session, state_of(r, i), v->data, k_bytes(v), d));
    }
    set_captures(r, 0);
    return go_on(r, condition, d);
}

static ampc_status next_iteration(rt_control_run *r, diag *d)
{
    int64_t condition = 1;
    if (form_of(r)->fixed_out) {
        const k_view again = output_of(r, 0, 0);
        TRY(read_word(r->session, &again, d, &condition));
    }
    TRY(take_outputs(r, d));
    r->iteration++;
    return go_on(r, condition, d);
}

ampc_status rt_control_begin(rt_control_run *r, diag *d)
{
    return r->step->control->repeats ? begin_loop(r, d) : begin_if(r, d);
}

ampc_status rt_control_next(rt_control_run *r, diag *d)
{
    return r->step->control->repeats ? next_iteration(r, d) : end_if(r, d);
}
