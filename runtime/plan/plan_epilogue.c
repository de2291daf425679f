/* plan_epilogue.c - matmuls take what follows them into the epilogue of their library (kernels/epilogue.h).
 *
 *     %m = matmul %x, @w          %h = add %m, @b           matmul with bias, where nobody else reads %m
 *     %h = matmul %x, @w, @b      %g = gelu %h              matmul that gives %g, and %h where others read it, too
 *     %dg = matmul %dy, @v        %dh = gelu_grad %dg, %h   matmul that reads %h as well and gives %dh
 *     %dw = matmul %x, %dh        %db = reduce_sum %dh      matmul that gives both: what both read is summed on the way
 *
 * Everything moves to where the matmul stands. What is taken says the backend; it is asked once for each form: types,
 * shapes and what is beside the product. The rest stays as it is, for programs. */
#include "kernels/epilogue.h"
#include "runtime/backend/alloc.h"
#include "runtime/plan/plan.h"

#include <string.h>

/* What the backend said of a form. */
typedef struct answer {
    rt_step step;        /* a matmul of this form */
    const rt_step *tail; /* what becomes its tail; NULL: none */
    bool taken;
    struct answer *next;
} answer;

typedef struct absorber {
    rt_plan *p;
    int *maker;   /* by root value: the step, or -1 */
    int *readers; /* by root value: operands of steps, stores and outputs */
    bool *gone;   /* by step: a matmul does it */
    answer *answers;
} absorber;

static uint32_t root_of(const absorber *a, uint32_t value) { return a->p->values[value].root; }

/* ---- asking ------------------------------------------------------------------------------------ */

static bool same_views(const k_view *a, const k_view *b, int n)
{
    for (int i = 0; i < n; i++)
        if (a[i].dtype != b[i].dtype || a[i].rank != b[i].rank ||
            memcmp(a[i].dims, b[i].dims, (size_t)a[i].rank * sizeof a[i].dims[0]) != 0)
            return false;
    return true;
}

_Static_assert(IR_ATTR(gelu, tanh) == 0 && IR_ATTR(gelu_grad, tanh) == 0, "one attribute, of the same meaning");

static bool same_form(const answer *known, const rt_step *s, const rt_step *tail)
{
    const rt_step *other = &known->step;
    if (!known->tail != !tail || s->n_in != other->n_in || s->n_out != other->n_out) return false;
    if (tail && (known->tail->op != tail->op || known->tail->attr[0].i != tail->attr[0].i)) return false;
    return s->attr[IR_ATTR(matmul, trans_a)].i == other->attr[IR_ATTR(matmul, trans_a)].i &&
           s->attr[IR_ATTR(matmul, trans_b)].i == other->attr[IR_ATTR(matmul, trans_b)].i &&
           same_views(s->in, other->in, s->n_in) && same_views(s->out, other->out, s->n_out);
}

/* `tail` on the result of s, its second operand at K_EPILOGUE_X. NULL: out of memory. */
static k_program *make_tail(rt_plan *p, const rt_step *s, const rt_step *tail)
{
    k_program *program = rt_plan_take(p, 1, sizeof *program);
    if (!program) return NULL;
    program->count = k_count(&s->out[0]);
    program->n_code = program->n_results = 1;
    program->n_operands = tail->n_in - 1;
    program->operands[0] = (k_operand){.in = ir_op_get(s->op)->n_in + K_EPILOGUE_X, .dense = true};
    program->code[0] = (k_instruction){
        .op = tail->op, .type = tail->out[0].dtype, .attr = tail->attr, .n_arg = tail->n_in, .arg = {K_OWN_RESULT, ~0}};
    return program;
}

/* Of the step as it stands in the plan. */
static ampc_status ask(const rt_plan *p, const rt_step *s)
{
    static _Alignas(256) char somewhere[256]; /* stands for addresses that are not known yet */
    for (int j = 0; j < s->n_in; j++) s->in[j].data = k_present(&s->in[j]) ? somewhere : NULL;
    for (int k = 0; k < s->n_out; k++) s->out[k].data = k_present(&s->out[k]) ? somewhere : NULL;
    const k_args args = rt_step_args(p, s);
    return p->backend->absorbs(&args);
}

/* What the backend says of the form that `s`, in the plan, has with that tail. */
static ampc_status find_answer(absorber *a, rt_step *s, const rt_step *tail, const answer **out)
{
    answer *known = a->answers;
    while (known && !same_form(known, s, tail)) known = known->next;
    *out = known;
    if (known) return AMPC_OK;
    *out = known = rt_plan_take(a->p, 1, sizeof *known);
    if (tail) s->program = make_tail(a->p, s, tail);
    if (!known || (tail && !s->program)) return AMPC_NO_MEMORY;
    const ampc_status status = ask(a->p, s);
    *known = (answer){.step = *s, .tail = tail, .taken = status == AMPC_OK, .next = a->answers};
    a->answers = known;
    return status == AMPC_UNSUPPORTED ? AMPC_OK : status;
}

/* `wider` does what the matmul and `step` do, if the backend takes it. */
static ampc_status offer(absorber *a, int matmul, const rt_step *wider, int step, const rt_step *tail)
{
    rt_step *s = &a->p->steps[matmul];
    const rt_step old = *s;
    const answer *known;
    *s = *wider;
    TRY(find_answer(a, s, tail, &known));
    if (!known->taken) {
        *s = old;
        return AMPC_OK;
    }
    s->program = known->step.program;
    a->maker[a->p->steps[step].out_value[0]] = matmul;
    a->gone[step] = true;
    return AMPC_OK;
}

/* ---- what may be taken ------------------------------------------------------------------------- */

/* The step is a product and at most a bias, and step `other` runs as often. */
static bool is_plain(const absorber *a, int step, int other)
{
    const rt_step *s = &a->p->steps[step];
    return s->op == IR_OP_matmul && !s->program && s->n_out == ir_op_get(s->op)->n_out &&
           s->kept == a->p->steps[other].kept;
}

/* Ops that become tails: of operand 0, with operand 1, if there is one, at K_EPILOGUE_X. */
static bool is_tail(const rt_step *s) { return s->op == IR_OP_gelu || s->op == IR_OP_gelu_grad; }

static bool is_alike(const k_view *a, const k_view *b) { return a->dtype == b->dtype && k_count(a) == k_count(b); }

/* The plain matmul of whose result y the step computes as many elements of the same type, or -1. */
static int source_of(const absorber *a, int step)
{
    const rt_step *s = &a->p->steps[step];
    const int m = a->maker[root_of(a, s->in_value[0])];
    if (m < 0 || !is_plain(a, m, step)) return -1;
    const k_view *y = &a->p->steps[m].out[0];
    for (int j = 0; j < s->n_in; j++)
        if (!is_alike(&s->in[j], y) || (j > 0 && a->maker[root_of(a, s->in_value[j])] >= m)) return -1;
    return is_alike(&s->out[0], y) ? m : -1;
}

/* With y as a result where others read it. */
static ampc_status take_tail(absorber *a, int step)
{
    rt_plan *p = a->p;
    const rt_step *s = &p->steps[step];
    const int m = source_of(a, step);
    if (m < 0) return AMPC_OK;
    rt_step wider = p->steps[m];
    const uint32_t y = wider.out_value[0];
    const bool others = a->readers[y] > 1;
    if (!rt_step_widen(p, &wider, s->n_in - 1, others ? K_EPILOGUE_START + 1 : 0)) return AMPC_NO_MEMORY;
    if (s->n_in > 1) {
        const int at = ir_op_get(wider.op)->n_in + K_EPILOGUE_X;
        wider.in_value[at] = s->in_value[1];
        wider.in[at] = wider.out[0];
    }
    if (others) rt_step_write(p, &wider, ir_op_get(wider.op)->n_out + K_EPILOGUE_START, y);
    wider.out_value[0] = s->out_value[0]; /* seen in the shape of y */
    return offer(a, m, &wider, step, s);
}

/* ---- bias ---------------------------------------------------------------------------------------- */

/* The step adds one number a column to what it reads in the slot, the result of a product without bias and without
 * other readers. */
static bool adds_bias(const absorber *a, int step, int slot, int m)
{
    const rt_step *s = &a->p->steps[step], *matmul = &a->p->steps[m];
    const k_view *y = &matmul->out[0], *seen = &s->in[slot], *bias = &s->in[1 - slot];
    const int64_t n = y->dims[y->rank - 1];
    const bool has_bias = matmul->n_in > IR_IN(matmul, bias) && k_present(&matmul->in[IR_IN(matmul, bias)]);
    return !has_bias && a->readers[matmul->out_value[0]] == 1 && is_alike(seen, y) && is_alike(&s->out[0], y) &&
           bias->rank > 0 && bias->dtype == y->dtype && k_count(bias) == n && bias->dims[bias->rank - 1] == n &&
           seen->dims[seen->rank - 1] == n && a->maker[root_of(a, s->in_value[1 - slot])] < m;
}

static ampc_status take_bias(absorber *a, int step)
{
    rt_plan *p = a->p;
    const rt_step *s = &p->steps[step];
    for (int slot = 0; slot < 2; slot++) {
        const int m = a->maker[root_of(a, s->in_value[slot])];
        if (m < 0 || !is_plain(a, m, step) || !adds_bias(a, step, slot, m)) continue;
        rt_step wider = p->steps[m];
        if (!rt_step_widen(p, &wider, 0, 0)) return AMPC_NO_MEMORY;
        k_view *bias = &wider.in[IR_IN(matmul, bias)];
        wider.in_value[IR_IN(matmul, bias)] = s->in_value[1 - slot];
        *bias = (k_view){.dtype = s->out[0].dtype, .rank = 1, .dims = {wider.out[0].dims[wider.out[0].rank - 1]}};
        wider.out_value[0] = s->out_value[0]; /* seen in the shape of y */
        return offer(a, m, &wider, step, NULL);
    }
    return AMPC_OK;
}

/* ---- sums ---------------------------------------------------------------------------------------- */

/* What is summed is all rows, of n elements each. */
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

/* Operand `slot` of the matmul, in memory the rows of k that the product runs along, is what the step sums. */
static bool reads_rows(const absorber *a, const rt_step *matmul, int slot, const rt_step *s)
{
    const k_view *v = &matmul->in[slot];
    const bool along = slot == IR_IN(matmul, a) ? matmul->attr[IR_ATTR(matmul, trans_a)].i
                                                : !matmul->attr[IR_ATTR(matmul, trans_b)].i;
    return along && root_of(a, matmul->in_value[slot]) == root_of(a, s->in_value[0]) &&
           v->dtype == s->in[0].dtype && k_count(v) == k_count(&s->in[0]) && sums_rows(s, v->dims[v->rank - 1]);
}

/* Somebody before or at `end` reads what step gives. */
static bool is_read_by(const absorber *a, int step, int end)
{
    const rt_plan *p = a->p;
    for (int i = step + 1; i <= end; i++)
        for (int j = 0; j < p->steps[i].n_in && !a->gone[i]; j++) {
            const uint32_t value = p->steps[i].in_value[j];
            if (value != RT_NO_VALUE && root_of(a, value) == p->steps[step].out_value[0]) return true;
        }
    return false;
}

static ampc_status take_sum_at(absorber *a, int step, int m, int slot)
{
    rt_plan *p = a->p;
    const int extra = slot == IR_IN(matmul, a) ? K_EPILOGUE_SUM_A : K_EPILOGUE_SUM_B;
    rt_step wider = p->steps[m];
    if (!rt_step_widen(p, &wider, 0, extra + 1)) return AMPC_NO_MEMORY;
    rt_step_write(p, &wider, ir_op_get(wider.op)->n_out + extra, p->steps[step].out_value[0]);
    return offer(a, m, &wider, step, NULL);
}

static ampc_status take_sum(absorber *a, int step)
{
    static const int slots[] = {IR_IN(matmul, b), IR_IN(matmul, a)};
    const rt_plan *p = a->p;
    const rt_step *s = &p->steps[step];
    for (int m = 0; m < p->n_steps; m++) {
        if (a->gone[m] || !is_plain(a, m, step) || p->steps[m].out[0].dtype != s->out[0].dtype) continue;
        for (int i = 0; i < 2 && !a->gone[step]; i++)
            if (reads_rows(a, &p->steps[m], slots[i], s) && !is_read_by(a, step, m))
                TRY(take_sum_at(a, step, m, slots[i]));
        if (a->gone[step]) break;
    }
    return AMPC_OK;
}

/* ---- the stage ------------------------------------------------------------------------------------- */

static ampc_status take_all(absorber *a)
{
    const rt_plan *p = a->p;
    for (int i = 0; i < p->n_steps; i++) {
        if (p->steps[i].op == IR_OP_add) TRY(take_bias(a, i));
        if (is_tail(&p->steps[i])) TRY(take_tail(a, i));
    }
    for (int i = 0; i < p->n_steps; i++)
        if (p->steps[i].op == IR_OP_reduce_sum) TRY(take_sum(a, i));
    return AMPC_OK;
}

static void close_ranks(absorber *a)
{
    rt_plan *p = a->p;
    int n = 0;
    for (int i = 0; i < p->n_steps; i++)
        if (!a->gone[i]) p->steps[n++] = p->steps[i];
    p->n_steps = n;
    for (p->n_kept = 0; p->n_kept < n && p->steps[p->n_kept].kept;) p->n_kept++;
}

ampc_status rt_plan_absorb(rt_plan *p)
{
    absorber a = {.p = p};
    a.maker = rt_plan_makers(p);
    a.readers = rt_plan_readers(p);
    a.gone = rt_alloc((size_t)p->n_steps, sizeof *a.gone);
    ampc_status status = AMPC_NO_MEMORY;
    if (a.maker && a.readers && a.gone) {
        status = take_all(&a);
        close_ranks(&a);
    }
    rt_free(a.maker);
    rt_free(a.readers);
    rt_free(a.gone);
    return status;
}
