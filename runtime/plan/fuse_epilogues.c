/* fuse_epilogues.c - fuses ops that follow a matmul into its library epilogue (kernels/epilogue.h), and on the CPU the
 * addition of a bias into a convolution.
 *
 *     %m = matmul %x, @w          %h = add %m, @b           matmul with bias, if %m has no other readers
 *     %m = matmul %x, @w          %y = add %m, %r           matmul that also reads %r, if %m has no other readers; so
 *                                                           with all kernels that add (k_kernel.adds)
 *     %h = matmul %x, @w, @b      %g = gelu %h              matmul that writes %g, and %h if it has other readers
 *     %dg = matmul %dy, @v        %dh = slope %dg, %h       matmul that also reads %h and writes %dh
 *     %dw = matmul %x, %dh        %db = reduce_sum %dh      matmul that writes %dw and %db
 *
 * All of them are computed at the position of the first op. The backend decides which epilogues it supports; it is
 * queried once per form, which consists of types, shapes and the parts of the epilogue. Other ops are left to
 * fuse_pointwise. */
#include "kernels/epilogue.h"
#include "runtime/plan/stages.h"

#include <string.h>

enum {
    SLOTS_IN = IR_IN(matmul, bias) + 1,
    SLOTS_OUT = IR_OUT(matmul, y) + 1,
    MAX_IN = SLOTS_IN + K_SLOT(epilogue, n_in),
    MAX_OUT = SLOTS_OUT + K_SLOT(epilogue, n_out)
};

/* A matmul with an epilogue as the backend is queried about it, and the answer. */
typedef struct form {
    k_view in[MAX_IN], out[MAX_OUT];
    int n_in, n_out;
    const ir_attr *attr;
    const rt_step *activation; /* the step to fuse as activation; NULL: none */
    k_fused *fused;            /* the activation as the kernel sees it; NULL: none */
    bool supported;
    struct form *next;
} form;

typedef struct epilogue_state {
    rt_plan *p;
    form *forms; /* all that the backend was queried about */
} epilogue_state;

/* ---- querying the backend ------------------------------------------------------------------------ */

static form form_of(const rt_step *matmul)
{
    form f = {.n_in = matmul->n_in > SLOTS_IN ? matmul->n_in : SLOTS_IN, .n_out = SLOTS_OUT, .attr = matmul->attr};
    for (int i = 0; i < MAX_IN; i++) f.in[i].dtype = IR_NO_DTYPE;
    for (int i = 0; i < MAX_OUT; i++) f.out[i].dtype = IR_NO_DTYPE;
    memcpy(f.in, matmul->in, (size_t)matmul->n_in * sizeof *f.in);
    memcpy(f.out, matmul->out, (size_t)matmul->n_out * sizeof *f.out);
    return f;
}

/* Adds extra operand `slot`. */
static void form_read(form *f, int slot, const k_view *view)
{
    f->in[SLOTS_IN + slot] = *view;
    if (f->n_in <= SLOTS_IN + slot) f->n_in = SLOTS_IN + slot + 1;
}

static bool same_views(const k_view *a, const k_view *b, int n)
{
    for (int i = 0; i < n; i++)
        if (!rt_same_view(&a[i], &b[i])) return false;
    return true;
}

static bool same_form(const form *a, const form *b)
{
    const rt_step *x = a->activation, *y = b->activation;
    if (!x != !y || a->n_in != b->n_in || a->n_out != b->n_out) return false;
    if (x && ir_formula_of(x->op, x->attr) != ir_formula_of(y->op, y->attr)) return false;
    return a->attr[IR_ATTR(matmul, trans_a)].i == b->attr[IR_ATTR(matmul, trans_a)].i &&
           a->attr[IR_ATTR(matmul, trans_b)].i == b->attr[IR_ATTR(matmul, trans_b)].i &&
           same_views(a->in, b->in, a->n_in) && same_views(a->out, b->out, a->n_out);
}

static int operands_of(const rt_step *s) { return ir_formula_get(ir_formula_of(s->op, s->attr))->operands; }

/* Makes the activation of result 0. Its second operand is in K_SLOT(epilogue, x). Returns NULL if out of memory. */
static k_fused *make_program(rt_plan *p, const form *f)
{
    const rt_step *s = f->activation;
    k_fused *fused = rt_plan_alloc(p, 1, sizeof *fused);
    if (!fused) return NULL;
    fused->count = k_count(&f->out[0]);
    fused->n_code = fused->n_results = 1;
    fused->n_operands = operands_of(s) - 1;
    fused->operands[0] = (k_operand){.in = SLOTS_IN + K_SLOT(epilogue, x), .dense = true};
    fused->code[0] = (k_instruction){
        .op = s->op, .type = s->out[0].dtype, .attr = s->attr, .n_arg = operands_of(s), .arg = {K_ACCUMULATOR, ~0}};
    return fused;
}

static ampc_status query_backend(const rt_plan *p, form *f)
{
    for (int j = 0; j < f->n_in; j++) f->in[j].data = k_present(&f->in[j]) ? rt_placeholder : NULL;
    for (int k = 0; k < f->n_out; k++) f->out[k].data = k_present(&f->out[k]) ? rt_placeholder : NULL;
    const k_args args = {.op = IR_OP_matmul,
                         .in = f->in,
                         .out = f->out,
                         .n_in = f->n_in,
                         .n_out = f->n_out,
                         .attr = f->attr,
                         .fused = f->fused,
                         .ctx = p->ctx};
    const ampc_status status = p->backend->absorbs(&args);
    f->supported = status == AMPC_OK;
    return status == AMPC_UNSUPPORTED ? AMPC_OK : status;
}

/* Completes the form with the backend's answer. */
static ampc_status find_support(epilogue_state *e, form *f)
{
    form *cached = e->forms;
    while (cached && !same_form(cached, f)) cached = cached->next;
    if (!cached) {
        cached = rt_plan_alloc(e->p, 1, sizeof *cached);
        f->fused = f->activation ? make_program(e->p, f) : NULL;
        if (!cached || (f->activation && !f->fused)) return AMPC_NO_MEMORY;
        TRY(query_backend(e->p, f));
        f->next = e->forms;
        *cached = *f;
        e->forms = cached;
    }
    f->fused = cached->fused;
    f->supported = cached->supported;
    return AMPC_OK;
}

/* ---- what may be fused ------------------------------------------------------------------------- */

/* Whether m is a matmul without any epilogue except a bias and an addend, and runs as often as the step. */
static bool is_plain(const rt_step *m, const rt_step *s)
{
    return m && m->kind == RT_STEP_OP && rt_step_has(m, IR_EPILOGUE) && !m->fused && m->n_out == SLOTS_OUT &&
           m->hoisted == s->hoisted;
}

static bool has_same_size(const k_view *a, const k_view *b) { return a->dtype == b->dtype && k_count(a) == k_count(b); }

/* Whether the value is defined before the step runs. */
static bool is_ready(const rt_plan *p, uint32_t value, const rt_step *s)
{
    const rt_step *def = rt_def(p, value);
    return !def || def->index < s->index;
}

/* Makes the matmul compute the result of the step, viewed in the matmul's own shape. */
static void replace_result(rt_plan *p, rt_step *matmul, rt_step *s)
{
    const uint32_t value = s->out_value[0];
    const k_view shape = matmul->out[0];
    rt_step_remove(p, s);
    rt_step_write(p, matmul, 0, value);
    matmul->out[0] = shape;
}

/* ---- activations --------------------------------------------------------------------------------- */

/* Returns the plain matmul that computes operand 0 of the step; NULL if there is none, if an operand or the result
 * differs in type or number of elements, or if another operand is not ready at the matmul. */
static rt_step *find_source(const rt_plan *p, const rt_step *s)
{
    rt_step *m = rt_def(p, s->in_value[0]);
    if (!is_plain(m, s)) return NULL;
    for (int j = 0; j < operands_of(s); j++)
        if (!has_same_size(&s->in[j], &m->out[0]) || (j > 0 && !is_ready(p, s->in_value[j], m))) return NULL;
    return has_same_size(&s->out[0], &m->out[0]) ? m : NULL;
}

/* The pre-activation y becomes an additional result if it has other readers. */
static ampc_status fuse_activation(epilogue_state *e, rt_step *s)
{
    const int x = SLOTS_IN + K_SLOT(epilogue, x), aux = SLOTS_OUT + K_SLOT(epilogue, aux);
    rt_plan *p = e->p;
    rt_step *m = find_source(p, s);
    if (!m) return AMPC_OK;
    const int operands = operands_of(s);
    const uint32_t y = m->out_value[0], operand = operands > 1 ? s->in_value[1] : RT_NO_VALUE;
    const bool others = !rt_has_one_use(p, y);
    form f = form_of(m);
    f.activation = s;
    if (operand != RT_NO_VALUE) form_read(&f, K_SLOT(epilogue, x), &m->out[0]);
    if (others) f.out[aux] = p->values[y].view;
    f.n_out += others;
    TRY(find_support(e, &f));
    if (!f.supported) return AMPC_OK;
    m->fused = f.fused;
    replace_result(p, m, s);
    if (others && !rt_step_write_extra(p, m, K_SLOT(epilogue, aux), y)) return AMPC_NO_MEMORY;
    if (operand == RT_NO_VALUE) return AMPC_OK;
    if (!rt_step_read_extra(p, m, K_SLOT(epilogue, x), operand)) return AMPC_NO_MEMORY;
    m->in[x] = m->out[0];
    return AMPC_OK;
}

/* ---- bias ---------------------------------------------------------------------------------------- */

/* Whether the step adds one number per column to the operand in the slot, which is the result of a matmul without a
 * bias and without other readers. */
static bool adds_bias(const rt_plan *p, const rt_step *s, int slot, const rt_step *m)
{
    const k_view *y = &m->out[0], *product = &s->in[slot], *bias = &s->in[1 - slot];
    const int64_t n = y->dims[y->rank - 1];
    return !rt_step_reads(m, IR_IN(matmul, bias)) && rt_has_one_use(p, m->out_value[0]) && has_same_size(product, y) &&
           has_same_size(&s->out[0], y) && bias->rank > 0 && bias->dtype == y->dtype && k_count(bias) == n &&
           bias->dims[bias->rank - 1] == n && product->dims[product->rank - 1] == n &&
           is_ready(p, s->in_value[1 - slot], m);
}

static ampc_status fuse_bias(epilogue_state *e, rt_step *s)
{
    const int at = IR_IN(matmul, bias);
    rt_plan *p = e->p;
    for (int slot = 0; slot < 2; slot++) {
        rt_step *m = rt_def(p, s->in_value[slot]);
        if (!is_plain(m, s) || !adds_bias(p, s, slot, m)) continue;
        const uint32_t bias = s->in_value[1 - slot];
        form f = form_of(m);
        f.in[at] = (k_view){.dtype = s->out[0].dtype, .rank = 1, .dims = {m->out[0].dims[m->out[0].rank - 1]}};
        TRY(find_support(e, &f));
        if (!f.supported) return AMPC_OK;
        replace_result(p, m, s);
        rt_step_read(p, m, at, bias);
        m->in[at] = f.in[at];
        return AMPC_OK;
    }
    return AMPC_OK;
}

static int addend_of(const rt_step *m) { return k_extra_in_at(m->op, m->listed, K_SLOT(epilogue, addend)); }

/* Whether the kernel of m can add values to result 0, runs as often as the step, and has no addend yet. */
static bool can_add(const rt_step *m, const rt_step *s)
{
    if (!m || m->kind != RT_STEP_OP || !m->kernel->adds || rt_step_reads(m, addend_of(m))) return false;
    return rt_step_has(m, IR_EPILOGUE) ? is_plain(m, s) : m->hoisted == s->hoisted;
}

/* Whether the step adds a value of the same size to the operand in the slot, which is result 0 of m and has no other
 * readers. */
static bool adds_value(const rt_plan *p, const rt_step *s, int slot, const rt_step *m)
{
    const k_view *y = &m->out[0];
    return rt_root(p, s->in_value[slot]) == m->out_value[0] && rt_has_one_use(p, m->out_value[0]) &&
           has_same_size(&s->in[0], y) && has_same_size(&s->in[1], y) && has_same_size(&s->out[0], y) &&
           is_ready(p, s->in_value[1 - slot], m);
}

/* The library decides what a matmul can add. */
static ampc_status find_addend_support(epilogue_state *e, const rt_step *m, bool *supported)
{
    *supported = true;
    if (!rt_step_has(m, IR_EPILOGUE)) return AMPC_OK;
    form f = form_of(m);
    form_read(&f, K_SLOT(epilogue, addend), &m->out[0]);
    TRY(find_support(e, &f));
    *supported = f.supported;
    return AMPC_OK;
}

static ampc_status fuse_addend(epilogue_state *e, rt_step *s)
{
    rt_plan *p = e->p;
    for (int slot = 0; slot < 2 && s->index >= 0; slot++) {
        rt_step *m = rt_def(p, s->in_value[slot]);
        bool supported;
        if (!can_add(m, s) || !adds_value(p, s, slot, m)) continue;
        TRY(find_addend_support(e, m, &supported));
        if (!supported) continue;
        const uint32_t addend = s->in_value[1 - slot];
        replace_result(p, m, s);
        if (!rt_step_read_extra(p, m, K_SLOT(epilogue, addend), addend)) return AMPC_NO_MEMORY;
        m->in[addend_of(m)] = m->out[0];
    }
    return AMPC_OK;
}

/* Whether the step adds one number per channel to the operand in the slot, which is the result of a convolution without
 * a bias and without other readers. */
static bool adds_channel_bias(const rt_plan *p, const rt_step *s, int slot, const rt_step *c)
{
    const k_view *y = &c->out[0], *x = &s->in[slot], *bias = &s->in[1 - slot];
    const bool last = p->values[rt_root(p, s->in_value[slot])].channels_last;
    const int axis = last ? x->rank - 1 : 1, at = axis - (x->rank - bias->rank);
    if (c->kind != RT_STEP_OP || !rt_step_has(c, IR_ABSORBS) || !rt_step_has(c, IR_SPATIAL) ||
        c->hoisted != s->hoisted || rt_step_reads(c, IR_IN(conv, bias)))
        return false;
    return rt_has_one_use(p, c->out_value[0]) && x->rank == y->rank && has_same_size(x, y) &&
           x->dims[axis] == y->dims[1] && has_same_size(&s->out[0], y) && bias->dtype == y->dtype && at >= 0 &&
           bias->dims[at] == y->dims[1] && k_count(bias) == y->dims[1] && is_ready(p, s->in_value[1 - slot], c);
}

/* A convolution has a slot for its bias, so every kernel adds one; those of other devices in another kernel. */
static ampc_status fuse_channel_bias(epilogue_state *e, rt_step *s)
{
    const int at = IR_IN(conv, bias);
    rt_plan *p = e->p;
    for (int slot = 0; slot < 2 && p->backend->tails; slot++) {
        rt_step *c = rt_def(p, s->in_value[slot]);
        if (!c || !adds_channel_bias(p, s, slot, c)) continue;
        const uint32_t bias = s->in_value[1 - slot];
        const k_view view = {.dtype = s->in[1 - slot].dtype, .rank = 1, .dims = {c->out[0].dims[1]}};
        replace_result(p, c, s);
        rt_step_read(p, c, at, bias);
        c->in[at] = view;
        return AMPC_OK;
    }
    return AMPC_OK;
}

/* ---- sums ---------------------------------------------------------------------------------------- */

/* Whether the step sums over all rows, which have n elements each. */
static bool sums_rows(const rt_step *s, int64_t n)
{
    const ir_attr *axes = &s->attr[IR_ATTR(reduce_sum, axes)];
    const k_view *x = &s->in[0];
    bool summed[IR_MAX_RANK] = {false};
    int64_t columns = 1;
    for (int i = 0; i < axes->list.count; i++) summed[k_axis_number(axes->list.items[i], x->rank)] = true;
    for (int i = x->rank - 1; i >= 0 && (!summed[i] || x->dims[i] == 1); i--) columns *= x->dims[i];
    return columns == n && k_count(&s->out[0]) == n;
}

/* Whether the step sums operand `slot` of the matmul over k, which is the outer dimension of that operand in memory. */
static bool reads_rows(const rt_plan *p, const rt_step *matmul, int slot, const rt_step *s)
{
    const k_view *v = &matmul->in[slot];
    const bool outer = slot == IR_IN(matmul, a) ? matmul->attr[IR_ATTR(matmul, trans_a)].i
                                                : !matmul->attr[IR_ATTR(matmul, trans_b)].i;
    return outer && rt_root(p, matmul->in_value[slot]) == rt_root(p, s->in_value[0]) && has_same_size(v, &s->in[0]) &&
           sums_rows(s, v->dims[v->rank - 1]);
}

/* Whether a step up to `end` reads the result of the step. */
static bool is_read_until(const rt_plan *p, const rt_step *s, const rt_step *end)
{
    for (const rt_use *u = rt_uses(p, s->out_value[0]); u; u = u->next)
        if (u->step && u->step->index <= end->index) return true;
    return false;
}

static ampc_status fuse_sum_at(epilogue_state *e, rt_step *s, rt_step *m, int slot)
{
    const int extra = slot == IR_IN(matmul, a) ? K_SLOT(epilogue, sum_a) : K_SLOT(epilogue, sum_b);
    const uint32_t sum = s->out_value[0];
    form f = form_of(m);
    f.out[SLOTS_OUT + extra] = e->p->values[sum].view;
    f.n_out += extra + 1;
    TRY(find_support(e, &f));
    if (!f.supported) return AMPC_OK;
    rt_step_remove(e->p, s);
    return rt_step_write_extra(e->p, m, extra, sum) ? AMPC_OK : AMPC_NO_MEMORY;
}

static ampc_status fuse_sum(epilogue_state *e, rt_step *s)
{
    static const int slots[] = {IR_IN(matmul, b), IR_IN(matmul, a)};
    const rt_plan *p = e->p;
    for (int i = 0; i < 2 * p->n_steps && s->index >= 0; i++) {
        rt_step *m = p->steps[i / 2];
        if (m->index < 0 || !is_plain(m, s) || m->out[0].dtype != s->out[0].dtype) continue;
        if (reads_rows(p, m, slots[i % 2], s) && !is_read_until(p, s, m)) TRY(fuse_sum_at(e, s, m, slots[i % 2]));
    }
    return AMPC_OK;
}

/* ---- the stage ------------------------------------------------------------------------------------- */

static const struct rule {
    ir_formula formula;
    ampc_status (*fuse)(epilogue_state *e, rt_step *s);
} rules[] = {
    {IR_FORMULA_add, fuse_bias},
    {IR_FORMULA_add, fuse_addend},
    {IR_FORMULA_add, fuse_channel_bias},
    {IR_FORMULA_gelu, fuse_activation},
    {IR_FORMULA_gelu_tanh, fuse_activation},
    {IR_FORMULA_gelu_slope, fuse_activation},
    {IR_FORMULA_gelu_tanh_slope, fuse_activation},
};

ampc_status rt_stage_fuse_epilogues(rt_plan *p, diag *d)
{
    epilogue_state e = {.p = p};
    (void)d;
    for (int i = 0; i < p->n_steps; i++)
        for (size_t j = 0; j < sizeof rules / sizeof *rules; j++)
            if (p->steps[i]->index >= 0 && rules[j].formula == ir_formula_of(p->steps[i]->op, p->steps[i]->attr))
                TRY(rules[j].fuse(&e, p->steps[i]));
    for (int i = 0; i < p->n_steps; i++)
        if (rt_step_has(p->steps[i], IR_SUMS)) TRY(fuse_sum(&e, p->steps[i]));
    return AMPC_OK;
}
