/* absorb_programs.c - runs pointwise ops over the result of a matmul or convolution while it is in the caches.
 *
 *     %c = conv %x, %w, %b                   conv %x, %w, %b, %r
 *     %s = add %c, %r             ->           .0 = add conv, %r : f32
 *     %y = relu %s                             %y of .0 ...
 *
 * A program, or a single pointwise op, that is the only reader of such a result and reads element i of it at position i
 * becomes an epilogue (kernels/epilogue.h) of the last step whose result it reads, which moves to its place. In an
 * epilogue, numbers of a low type that nothing else reads are not rounded. */
#include "kernels/epilogue.h"
#include "runtime/plan/stages.h"

/* ---- which programs -------------------------------------------------------------------------------- */

/* Whether the program computes one element per position from elements at that position of operand j. */
static bool reads_dense(const rt_step *s, int j)
{
    const k_fused *program = s->fused;
    for (int i = 0; i < program->n_operands; i++)
        if (program->operands[i].in == j && !program->operands[i].dense) return false;
    return true;
}

static bool is_single(const rt_step *s, const rt_step *m, int j)
{
    if (rt_step_has(s, IR_CONVERTS) && ir_dtype_is_low(s->in[j].dtype)) return false;
    return k_count(&s->in[j]) == k_count(&s->out[0]) && k_count(&s->in[j]) == k_count(&m->out[0]);
}

static bool is_program(const rt_step *s)
{
    const k_fused *program = s->fused;
    for (int i = 0; i < program->n_results; i++)
        if (program->results[i].fold != K_EACH) return false;
    return !program->commits;
}

/* Whether the step is the only reader of the value. */
static bool is_only_reader(const rt_plan *p, uint32_t value, const rt_step *s)
{
    for (const rt_use *u = rt_uses(p, value); u; u = u->next)
        if (u->step != s) return false;
    return true;
}

/* Whether an instruction converts view j of a low type, so that its rounding is not omitted: in f16 a number that
 * overflows has to become infinite before it is f32. */
static bool converts(const rt_step *s, int j)
{
    const k_fused *program = s->fused;
    for (int i = 0; i < program->n_code && ir_dtype_is_low(s->in[j].dtype); i++)
        for (int k = 0; k < program->code[i].n_arg && ir_op_has(program->code[i].op, IR_CONVERTS); k++)
            if (program->code[i].arg[k] < 0 && program->operands[~program->code[i].arg[k]].in == j) return true;
    return false;
}

/* Returns the step that may absorb step s because of operand j; NULL: none. */
static rt_step *absorber_at(const rt_plan *p, const rt_step *s, int j)
{
    rt_step *m = rt_def(p, s->in_value[j]);
    if (!m || m->kind != RT_STEP_OP || !rt_step_has(m, IR_ABSORBS) || m->fused || m->hoisted != s->hoisted) return NULL;
    const ir_op_info *info = ir_op_get(m->op);
    if (m->n_in > info->n_in || m->n_out > info->n_out || !is_only_reader(p, m->out_value[0], s)) return NULL;
    if (k_count(&m->out[0]) == 0 || s->in[j].dtype != m->out[0].dtype) return NULL;
    if (s->kind == RT_STEP_OP) return is_single(s, m, j) ? m : NULL;
    return reads_dense(s, j) && !converts(s, j) && k_count(&m->out[0]) == s->fused->count ? m : NULL;
}

static rt_step *find_absorber(const rt_plan *p, const rt_step *s)
{
    rt_step *last = NULL;
    if (s->kind == RT_STEP_FUSED ? !is_program(s) : !rt_can_be_program(p, s)) return NULL;
    for (int j = 0; j < s->n_in; j++) {
        rt_step *m = rt_step_reads(s, j) ? absorber_at(p, s, j) : NULL;
        if (m && (!last || m->index > last->index)) last = m;
    }
    return last;
}

/* ---- epilogues ------------------------------------------------------------------------------------- */

/* Removes the operands that read view j, which are the accumulator; the others read the views from `first` on. */
static void renumber(k_fused *program, int j, int first)
{
    int operand[K_MAX_OPERANDS];
    const int n = program->n_operands;
    program->n_operands = 0;
    for (int i = 0; i < n; i++) {
        k_operand o = program->operands[i];
        operand[i] = K_ACCUMULATOR;
        if (o.in == j) continue;
        operand[i] = ~program->n_operands;
        o.in += first - (o.in > j);
        program->operands[program->n_operands++] = o;
    }
    for (int i = 0; i < program->n_code; i++)
        for (int k = 0; k < program->code[i].n_arg; k++)
            if (program->code[i].arg[k] < 0) program->code[i].arg[k] = operand[~program->code[i].arg[k]];
}

static bool is_result(const k_fused *program, int i)
{
    for (int k = 0; k < program->n_results; k++)
        if (program->results[k].from == i) return true;
    return false;
}

/* Omits roundings to a low type, except those that the graph demands. */
static void widen(k_fused *program)
{
    for (int i = 0; i < program->n_code; i++) {
        k_instruction *c = &program->code[i];
        if (ir_dtype_is_low(c->type) && !ir_op_has(c->op, IR_CONVERTS) && !is_result(program, i)) c->type = IR_f32;
    }
}

/* Views of images have the layout of their memory, as verify.c demands of all operands of a convolution. */
static void set_layout(const rt_plan *p, uint32_t value, k_view *v)
{
    const rt_value *root = &p->values[rt_root(p, value)];
    v->channels_last = root->channels_last && v->rank == root->view.rank;
}

static ampc_status absorb(rt_plan *p, rt_step *m, rt_step *s)
{
    const int slots_in = ir_op_get(m->op)->n_in, slots_out = ir_op_get(m->op)->n_out;
    const k_view y = m->out[0];
    int j = 0;
    while (rt_def(p, s->in_value[j]) != m) j++;
    if (!rt_step_widen(p, m, s->n_in - 1, s->n_out - 1)) return AMPC_NO_MEMORY;
    m->fused = s->fused;
    renumber(m->fused, j, slots_in);
    m->fused->of = y.dtype;
    widen(m->fused);
    for (int i = 0, to = slots_in; i < s->n_in; i++) {
        if (i == j) continue;
        rt_step_read(p, m, to, s->in_value[i]);
        m->in[to] = s->in[i];
        set_layout(p, s->in_value[i], &m->in[to++]);
    }
    uint32_t results[K_MAX_RESULTS];
    const int n = s->n_out;
    for (int k = 0; k < n; k++) results[k] = s->out_value[k];
    rt_step_move_after(p, m, s);
    rt_step_remove(p, s);
    for (int k = 0; k < n; k++) {
        const int to = k ? slots_out + k - 1 : 0;
        rt_step_write(p, m, to, results[k]);
        set_layout(p, results[k], &m->out[to]);
    }
    const ir_dtype type = m->out[0].dtype;
    m->out[0] = y;
    m->out[0].dtype = type;
    m->kernel = p->backend->tails;
    return AMPC_OK;
}

ampc_status rt_stage_absorb_programs(rt_plan *p, diag *d)
{
    (void)d;
    for (int i = 0; i < p->n_steps && p->backend->tails; i++) {
        rt_step *s = p->steps[i], *m = find_absorber(p, s);
        if (!m) continue;
        if (s->kind == RT_STEP_OP) s = rt_make_program(p, s);
        if (!s) return AMPC_NO_MEMORY;
        TRY(absorb(p, m, s));
    }
    return AMPC_OK;
}
