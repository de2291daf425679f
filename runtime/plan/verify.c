/* verify.c - checks that a plan is consistent (rt_plan_verify in plan.h). */
#include "runtime/plan/plan_edit.h"

/* Whether the value is defined before the step runs. */
static bool is_defined(const rt_plan *p, const rt_step *s, uint32_t value)
{
    const rt_value *root = &p->values[rt_root(p, value)];
    if (root->def) return root->def->index < s->index;
    return rt_is_external(root);
}

static bool is_listed(const rt_plan *p, const rt_use *u, uint32_t value)
{
    return u->prev ? u->prev->next == u : rt_uses(p, value) == u;
}

/* Whether the part that the view shows is within that many bytes. */
static bool is_inside(const k_view *v, int64_t at, int64_t bytes)
{
    int64_t last = 0;
    for (int i = 0; i < v->rank; i++) last += (v->dims[i] - 1) * v->strides[i];
    return at >= 0 && at + (last + 1) * (int64_t)ir_dtype_size(v->dtype) <= bytes;
}

/* Whether a step's view has the type and size of the memory and, for spatial ops, the layout of the stored image. */
static bool agrees(const rt_plan *p, const rt_step *s, const k_view *seen, int64_t at, uint32_t value)
{
    const rt_value *root = &p->values[rt_root(p, value)];
    const bool one_order = seen->rank < 3 || seen->dims[1] == 1 || k_count(seen) == seen->dims[0] * seen->dims[1];
    if (seen->packed != root->view.packed) return false;
    if (seen->strides) return seen->dtype == root->view.dtype && is_inside(seen, at, (int64_t)k_bytes(&root->view));
    if (at != 0) return false;
    if (seen->dtype != root->view.dtype || k_count(seen) != k_count(&root->view)) return false;
    return !rt_step_has(s, IR_SPATIAL) || one_order || seen->rank != root->view.rank ||
           seen->channels_last == root->channels_last;
}

static const char *check_operand(const rt_plan *p, const rt_step *s, int j)
{
    const uint32_t value = s->in_value[j];
    if (value == RT_NO_VALUE) return k_present(&s->in[j]) ? "an absent operand has a type" : NULL;
    if (s->uses[j].step != s || s->uses[j].slot != j || !is_listed(p, &s->uses[j], value)) return "a use is not listed";
    if (!is_defined(p, s, value)) return "an operand is used before its definition";
    return agrees(p, s, &s->in[j], s->in_at[j], value) ? NULL : "an operand has the wrong type or layout";
}

static const char *check_result(const rt_plan *p, const rt_step *s, int k)
{
    const uint32_t value = s->out_value[k];
    if (value == RT_NO_VALUE) return k_present(&s->out[k]) ? "an absent result has a type" : NULL;
    if (p->values[value].def != s) return "a result has another definition";
    return agrees(p, s, &s->out[k], s->out_at[k], value) ? NULL : "a result has the wrong type or layout";
}

/* Whether the buffer is live while step `at` runs. */
static bool is_alive(const rt_plan *p, int buffer, int at)
{
    const rt_buffer *b = buffer == RT_NO_BUFFER ? NULL : &p->buffers[buffer];
    return !b || b->home != RT_ARENA || (b->first <= at && at <= b->last);
}

static const char *check_buffers(const rt_plan *p, const rt_step *s)
{
    for (int j = 0; j < s->n_in; j++)
        if (!is_alive(p, s->in_buffer[j], s->index)) return "an operand is read outside the live range of its buffer";
    for (int k = 0; k < s->n_out; k++)
        if (!is_alive(p, s->out_buffer[k], s->index)) return "a result is written outside the live range of its buffer";
    return is_alive(p, s->workspace, s->index) ? NULL : "workspace is used outside its live range";
}

static const char *check_step(const rt_plan *p, const rt_step *s, int index)
{
    const char *wrong = s->index == index && p->steps[index] == s ? NULL : "wrong position";
    for (int j = 0; j < s->n_in && !wrong; j++) wrong = check_operand(p, s, j);
    for (int k = 0; k < s->n_out && !wrong; k++) wrong = check_result(p, s, k);
    return wrong ? wrong : check_buffers(p, s);
}

static bool is_in_arena(const rt_plan *p, const rt_buffer *b)
{
    const int64_t end = b->home == RT_ARENA        ? p->arena_bytes
                        : b->home == RT_PERSISTENT ? p->persistent_bytes
                                                   : INT64_MAX;
    return b->bytes == 0 || (b->offset >= 0 && b->offset % p->backend->alignment == 0 && b->offset <= end - b->bytes);
}

/* Whether a part is in its whole, and live only while that is. */
static bool is_in_whole(const rt_plan *p, const rt_buffer *b)
{
    const rt_buffer *whole = &p->buffers[b->whole];
    return !b->is_part || (!whole->is_part && whole->home == b->home && b->at >= 0 &&
                           b->at <= whole->bytes - b->bytes && whole->first <= b->first && b->last <= whole->last &&
                           (!p->has_offsets || b->offset == whole->offset + b->at));
}

static ampc_status violation(const rt_plan *p, const char *stage, const rt_step *s, const char *what, diag *d)
{
    return diag_error(d, AMPC_REJECTED, s ? ir_diag_loc(s->node) : DIAG_NOWHERE,
                      "graph @%s: invalid plan after stage %s: %s%s%s", p->graph->name, stage, s ? rt_step_name(s) : "",
                      s ? ": " : "", what);
}

/* Returns the first step that waits for other ranks in another order than the nodes of the graph, which all ranks have
 * in common, while their sizes differ. */
static const rt_step *find_out_of_order(const rt_plan *p)
{
    const ir_node *n = p->graph->first;
    for (const rt_step *s = p->first_step; s; s = s->next) {
        if (!rt_step_has(s, IR_COLLECTIVE)) continue;
        while (n && n != s->node) n = n->next;
        if (!n) return s;
    }
    return NULL;
}

ampc_status rt_plan_verify(const rt_plan *p, const char *stage, diag *d)
{
    int index = 0;
    for (const rt_step *s = p->first_step; s; s = s->next) {
        const char *wrong = check_step(p, s, index++);
        if (wrong) return violation(p, stage, s, wrong, d);
    }
    const rt_step *late = find_out_of_order(p);
    if (late) return violation(p, stage, late, "it waits for other ranks after a later node that does", d);
    for (int i = 0; i < p->n_effects; i++)
        if (!is_listed(p, &p->effects[i].use, p->effects[i].value))
            return violation(p, stage, NULL, "the use of an effect is not listed", d);
    for (int i = 0; i < p->n_buffers; i++)
        if (!is_in_whole(p, &p->buffers[i])) return violation(p, stage, NULL, "a part is outside its buffer", d);
    for (int i = 0; p->has_offsets && i < p->n_buffers; i++)
        if (!is_in_arena(p, &p->buffers[i])) return violation(p, stage, NULL, "a buffer is outside the arena", d);
    return AMPC_OK;
}
