/* assign_buffers.c - assigns the values of a plan to buffers.
 *
 * Once the last use of every value is known, one walk over the steps assigns results: to the storage that the result is
 * committed to, if it may be computed there; else to its place in the result of a concat; else to the buffer of an
 * operand whose last use is this step; else to a new buffer. */
#include "kernels/update.h"
#include "runtime/plan/concat_parts.h"
#include "runtime/plan/stages.h"

static rt_value *root_value(const rt_plan *p, uint32_t value) { return &p->values[rt_root(p, value)]; }

static bool is_result(const rt_value *v) { return !rt_is_external(v); }

/* ---- uses ------------------------------------------------------------------------------------ */

/* Outputs and commits keep results live until the end. For storage and inputs they refer to the value before the first
 * step (see snapshot). A step that is joined later reads until then; of its results and theirs, see keep_until. */
static int larger(int a, int b) { return a > b ? a : b; }

static void find_last_use(rt_plan *p, rt_value *v)
{
    for (const rt_use *u = v->uses; u; u = u->next) {
        const rt_effect *e = u->step ? NULL : &p->effects[u->slot];
        if (u->step) v->last_use = is_result(v) ? u->step->index : larger(v->last_use, rt_step_ends(p, u->step->index));
        if (e && e->state == RT_NO_VALUE) v->is_output = true;
        if (!e || !is_result(v)) continue;
        v->last_use = p->n_steps;
        if (e->state != RT_NO_VALUE && !v->store) v->store = e;
    }
}

/* ---- assigning ------------------------------------------------------------------------------- */

static void assign_external(rt_plan *p)
{
    for (uint32_t i = 0; i < p->n_values; i++) {
        rt_value *v = &p->values[i];
        if (!v->value || is_result(v) || v->value->kind != IR_VALUE_STORAGE) continue;
        v->buffer = rt_plan_add_buffer(
            p, (rt_buffer){.home = RT_STORAGE, .index = v->value->storage->id, .bytes = (int64_t)k_bytes(&v->view)});
    }
    for (size_t i = 0; i < p->graph->inputs.count; i++) {
        rt_value *v = &p->values[p->graph->inputs.items[i]->id];
        v->buffer = rt_plan_add_buffer(
            p, (rt_buffer){.home = RT_INPUT, .index = (uint32_t)i, .bytes = (int64_t)k_bytes(&v->view)});
    }
    for (int i = 0; i < p->n_carried; i++) {
        rt_value *v = &p->values[p->carried[i]];
        v->buffer = rt_plan_add_buffer(
            p, (rt_buffer){.home = RT_CARRIED, .index = (uint32_t)i, .bytes = (int64_t)k_bytes(&v->view)});
    }
}

/* Whether the fused kernel reads element i of view j only while it computes element i. */
static bool reads_in_place(const k_fused *fused, int j)
{
    for (int i = 0; i < fused->n_operands; i++)
        if (fused->operands[i].in == j && !fused->operands[i].dense) return false;
    return true;
}

/* Whether result k of a finite check continues what extra operand j is of an earlier one (kernels/update.h). */
static bool continues(const rt_step *s, int j, int k)
{
    const bool found = k == k_out_at(s->op, s->listed, IR_OUT(check_finite_and_unscale, found_inf));
    return j == k_extra_in_at(s->op, s->listed, found ? K_SLOT(check, found_before) : K_SLOT(check, squares_before)) &&
           (found || k == k_extra_out_at(s->op, s->listed, K_SLOT(check, squares)));
}

/* Whether result k is the only one of its op, to which some kernels add others. Updates overwrite parameters only. */
static bool is_only_result(const rt_step *s, int k)
{
    const ir_op_info *op = ir_op_get(s->op);
    return s->n_out == 1 || (k == 0 && op->n_out == 1 && op->variadic_out < 0 && !k_updates(s->op));
}

/* Whether operand j is added to result 0 (kernels/epilogue.h). */
static bool is_addend(const rt_step *s, int j)
{
    return s->kernel->adds && !s->fused && j == k_extra_in_at(s->op, s->listed, K_SLOT(epilogue, addend));
}

/* Whether result k may overwrite operand j (INPLACE in ir/ops/ops.def). */
static bool overwrites(const rt_step *s, int j, int k)
{
    if (s->in[j].strides) return false; /* the rest of its value may still be needed */
    if (is_addend(s, j)) return k == 0 && !s->out[k].strides;
    if (!rt_step_has(s, IR_INPLACE)) return false;
    if (rt_step_has(s, IR_CHECKS) && j >= k_extra_in_at(s->op, s->listed, 0)) return continues(s, j, k);
    if (s->kind == RT_STEP_FUSED)
        return s->fused->results[k].fold == K_EACH && reads_in_place(s->fused, j) &&
               s->in[j].dtype == s->out[k].dtype && k_count(&s->in[j]) == k_count(&s->out[k]);
    return rt_same_view(&s->in[j], &s->out[k]) && (is_only_result(s, k) || j == k);
}

/* Whether the buffer is a part of the other one. */
static bool is_part_of(const rt_plan *p, int buffer, int whole)
{
    return buffer != RT_NO_BUFFER && p->buffers[buffer].is_part && p->buffers[buffer].whole == whole;
}

/* Whether result k may overwrite all operands that the step reads from the buffer, which is not a part. */
static bool may_overwrite(const rt_plan *p, const rt_step *s, int k, int buffer)
{
    if (!rt_step_has(s, IR_INPLACE) && !s->kernel->adds) return false;
    for (int j = 0; j < s->n_in; j++)
        if (is_part_of(p, s->in_buffer[j], buffer) || (s->in_buffer[j] == buffer && !overwrites(s, j, k))) return false;
    return true;
}

/* Returns the storage that the result is committed to, if it may be computed there; else RT_NO_BUFFER. */
static int storage_for(const rt_plan *p, int step, int k)
{
    const rt_step *s = p->steps[step];
    const rt_value *result = &p->values[s->out_value[k]];
    if (!result->store || result->is_output || step < p->safe_from || p->observed) return RT_NO_BUFFER;
    if (p->backend->device_ops && !rt_step_has(s, IR_COMMITS)) return RT_NO_BUFFER;
    const rt_value *old = &p->values[result->store->state];
    bool free = old->last_use < step || (old->last_use == step && may_overwrite(p, s, k, old->buffer));
    return free ? old->buffer : RT_NO_BUFFER;
}

/* Returns the buffer of an operand whose last use is this step, if the result may overwrite it; else RT_NO_BUFFER. */
static int operand_for(const rt_plan *p, int step, int k)
{
    const rt_step *s = p->steps[step];
    for (int j = 0; j < s->n_in && !p->observed; j++) {
        int buffer = s->in_buffer[j];
        if (buffer == RT_NO_BUFFER || p->buffers[buffer].home != RT_ARENA || p->buffers[buffer].last != step) continue;
        if (p->buffers[buffer].is_part) continue; /* the whole would live longer */
        if (overwrites(s, j, k) && may_overwrite(p, s, k, buffer)) return buffer;
    }
    return RT_NO_BUFFER;
}

/* Returns a part of the buffer of the whole, which is added if it does not exist yet, if the value is a part; else
 * RT_NO_BUFFER. */
static int part_for(rt_plan *p, int step, uint32_t value)
{
    int64_t at;
    const uint32_t whole = rt_concat_whole(p, value, &at);
    rt_value *w = &p->values[whole];
    if (whole == value) return RT_NO_BUFFER;
    if (w->buffer == RT_NO_BUFFER)
        w->buffer = rt_plan_add_buffer(
            p, (rt_buffer){.home = RT_ARENA, .bytes = (int64_t)k_bytes(&w->view), .first = step, .last = w->last_use});
    return rt_plan_add_buffer(p, (rt_buffer){.home = RT_ARENA,
                                             .bytes = (int64_t)k_bytes(&p->values[value].view),
                                             .first = step,
                                             .last = w->last_use,
                                             .is_part = true,
                                             .whole = w->buffer,
                                             .at = at});
}

static int add_persistent(rt_plan *p, const rt_value *v)
{
    int64_t bytes = rt_view_bytes(&v->view), at = p->persistent_bytes;
    p->persistent_bytes += rt_plan_align(p, bytes);
    return rt_plan_add_buffer(p, (rt_buffer){.home = RT_PERSISTENT, .bytes = bytes, .offset = at});
}

static int add_pack(rt_plan *p, int pack)
{
    return rt_plan_add_buffer(
        p, (rt_buffer){.home = RT_PACK, .index = (uint32_t)pack, .bytes = (int64_t)p->packs[pack].format->bytes});
}

/* Whether a result is written although it is unread: a kernel may omit it only if it is not the first result or the op
 * has the trait DROPS (ir/ops/ops.def). */
static bool is_written_unread(const rt_plan *p, const rt_step *s, int k)
{
    return k == 0 && p->values[s->out_value[k]].root == s->out_value[k] && !rt_step_has(s, IR_DROPS);
}

static void assign_result(rt_plan *p, int step, int k)
{
    rt_step *s = p->steps[step];
    if (s->out_value[k] == RT_NO_VALUE) return;
    rt_value *v = &p->values[s->out_value[k]];
    if (v->root != s->out_value[k]) s->out_buffer[k] = root_value(p, v->root)->buffer; /* updates its root */
    if (v->last_use < 0 && !is_written_unread(p, s, k)) return;
    if (s->pack != RT_NO_PACK) {
        v->buffer = s->out_buffer[k] = add_pack(p, s->pack);
        return;
    }
    if (s->hoisted && v->last_use >= p->n_hoisted) {
        v->buffer = s->out_buffer[k] = add_persistent(p, v);
        return;
    }
    if (v->buffer != RT_NO_BUFFER || (v->buffer = part_for(p, step, s->out_value[k])) != RT_NO_BUFFER) {
        s->out_buffer[k] = v->buffer;
        return;
    }
    v->buffer = storage_for(p, step, k);
    if (v->buffer == RT_NO_BUFFER) v->buffer = operand_for(p, step, k);
    if (v->buffer == RT_NO_BUFFER)
        v->buffer = rt_plan_add_buffer(
            p, (rt_buffer){.home = RT_ARENA, .bytes = (int64_t)k_bytes(&v->view), .first = step});
    p->buffers[v->buffer].last = v->last_use < step ? step : v->last_use;
    s->out_buffer[k] = v->buffer;
}

/* Keeps the buffer, or the whole that it is a part of, alive. */
static void keep_until(rt_plan *p, int buffer, int step)
{
    while (buffer != RT_NO_BUFFER) {
        rt_buffer *b = &p->buffers[buffer];
        if (b->last < step) b->last = step;
        buffer = b->is_part ? b->whole : RT_NO_BUFFER;
    }
}

static void assign_step(rt_plan *p, int step)
{
    rt_step *s = p->steps[step];
    for (int j = 0; j < s->n_in; j++)
        if (s->in_value[j] != RT_NO_VALUE) s->in_buffer[j] = root_value(p, s->in_value[j])->buffer;
    for (int k = 0; k < s->n_out; k++) assign_result(p, step, k);
    for (int j = 0; j < s->n_in; j++) keep_until(p, s->in_buffer[j], rt_step_ends(p, step));
    for (int k = 0; k < s->n_out; k++) keep_until(p, s->out_buffer[k], rt_step_ends(p, step));
}

/* Copies the value before the first step to a buffer that is live until the end. */
static int snapshot(rt_plan *p, const rt_value *v)
{
    int to = rt_plan_add_buffer(
        p, (rt_buffer){.home = RT_ARENA, .bytes = (int64_t)k_bytes(&v->view), .first = -1, .last = p->n_steps});
    p->before[p->n_before++] = (rt_copy){v->buffer, to};
    return to;
}

static void assign_output(rt_plan *p, const rt_effect *e)
{
    const rt_value *root = root_value(p, e->value);
    const bool is_carried = e->carries != RT_NO_VALUE;
    p->outputs[p->n_outputs++] = (rt_output){.name = is_carried ? NULL : e->node->attr[IR_ATTR(output, name)].s,
                                             .value = e->value,
                                             .carries = e->carries,
                                             .buffer = is_result(root) ? root->buffer : snapshot(p, root)};
}

static void commit(rt_plan *p, const rt_effect *e)
{
    const rt_value *root = root_value(p, e->value);
    const int to = p->values[e->state].buffer;
    if (root->buffer == to) return;
    bool changes = !is_result(root) && root->store;
    p->after[p->n_after++] = (rt_copy){changes ? snapshot(p, root) : root->buffer, to};
}

/* Allocates for the worst case: a buffer for every value, workspace and snapshot. */
static bool reserve_space(rt_plan *p)
{
    const size_t effects = (size_t)p->n_effects;
    p->buffers = rt_plan_alloc(p, p->n_values + p->graph->inputs.count + (size_t)p->n_steps + effects,
                               sizeof *p->buffers);
    p->before = rt_plan_alloc(p, effects, sizeof *p->before);
    p->after = rt_plan_alloc(p, effects, sizeof *p->after);
    p->outputs = rt_plan_alloc(p, effects, sizeof *p->outputs);
    return p->buffers && p->before && p->after && p->outputs;
}

ampc_status rt_stage_assign_buffers(rt_plan *p, diag *d)
{
    (void)d;
    if (!reserve_space(p)) return AMPC_NO_MEMORY;
    for (uint32_t i = 0; i < p->n_values; i++) find_last_use(p, &p->values[i]);
    p->safe_from = rt_plan_safe_from(p);
    rt_concat_find_parts(p);
    assign_external(p);
    for (int i = 0; i < p->n_steps; i++) assign_step(p, i);
    for (int i = 0; i < p->n_effects; i++) {
        const rt_effect *e = &p->effects[i];
        e->state == RT_NO_VALUE ? assign_output(p, e) : commit(p, e);
    }
    return AMPC_OK;
}
