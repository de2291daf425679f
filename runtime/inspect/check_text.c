/* check_text.c - findings in words. */
#include "ir/ops/shape_text.h"
#include "runtime/inspect/check_state.h"

#include <math.h>
#include <stdio.h>

const char *const rt_phase_names[IR_PHASE_COUNT] = {
    [IR_FORWARD] = "forward", [IR_BACKWARD] = "backward", [IR_UPDATE] = "update"};

/* The model node that reads what the node converts. */
static const ir_node *model_node(const ir_node *n, int depth)
{
    if (n->loc.op || !depth || !(ir_op_get(n->op)->traits & IR_CONVERTS)) return n;
    for (const ir_use *u = n->out[0]->first_use; u; u = u->next) {
        const ir_node *user = model_node(u->user, depth - 1);
        if (user->loc.op) return user;
    }
    return n;
}

diag_loc rt_checked_loc(const rt_checked *v)
{
    if (!v->node) return DIAG_FILE(ir_module_source(v->value->graph->module));
    const ir_node *n = model_node(v->node, 3);
    return n->loc.file || n->loc.op ? ir_diag_loc(n) : DIAG_FILE(ir_module_source(v->value->graph->module));
}

static void add_counts(text_buffer *t, const rt_numbers *n)
{
    if (n->nan) text_add(t, "%lld NaN", (long long)n->nan);
    if (n->nan && n->inf) text_add(t, " and ");
    if (n->inf) text_add(t, "%lld infinit%s", (long long)n->inf, n->inf == 1 ? "y" : "ies");
}

static void add_place(text_buffer *t, const rt_check *c, const rt_checked *v)
{
    const char *place = c->found.value == v->value ? c->place : "";
    int64_t rest = v->numbers.first_bad, inner = v->numbers.count;
    if (!v->tensor.rank) return;
    text_add(t, ", the first at [");
    for (int i = 0; i < v->tensor.rank; i++) {
        inner /= v->tensor.dims[i];
        text_add(t, "%s%lld", i ? "," : "", (long long)(rest / inner));
        rest %= inner;
    }
    text_add(t, "]");
    if (*place) text_add(t, " (%s)", place);
    else if (v->value->kind == IR_VALUE_INPUT)
        text_add(t, " (sample %lld of the batch)",
                 (long long)(v->numbers.first_bad / (v->numbers.count / v->tensor.dims[0])));
}

static void add_operands(text_buffer *t, const rt_check *c, const ir_node *n)
{
    const char *before = "; operands:";
    for (int i = 0; i < n->n_in; i++) {
        const rt_checked *o = ir_in(n, i) ? rt_check_value(c, ir_in(n, i)) : NULL;
        if (!o || !ir_dtype_is_float(o->tensor.dtype)) continue;
        text_add(t, "%s '%s' ", before, ir_in(n, i)->name);
        before = ",";
        if (!rt_numbers_finite(&o->numbers)) {
            text_add(t, "with ");
            add_counts(t, &o->numbers);
        } else text_add(t, "%.4g .. %.4g", o->numbers.min, o->numbers.max);
    }
}

static const char *kind_of(const ir_value *v)
{
    if (v->kind == IR_VALUE_INPUT) return "input ";
    if (v->kind != IR_VALUE_STORAGE) return "";
    return v->storage->kind == IR_PARAM ? "parameter " : v->storage->kind == IR_STATE ? "state " : "constant ";
}

void rt_check_describe(const rt_check *c, const rt_checked *v, char *text, size_t n)
{
    text_buffer t = text_in(text, n);
    text_add(&t, "%s'%s' ", kind_of(v->value), v->value->name);
    ir_shape_add(&t, ir_dtype_name(v->tensor.dtype), NULL, v->tensor.rank, v->tensor.dims);
    if (v->node) text_add(&t, " of the %s", rt_phase_names[v->node->phase]);
    if (v->node && !v->node->loc.op) text_add(&t, " (%s)", ir_op_get(v->node->op)->name);
    text_add(&t, " has ");
    add_counts(&t, &v->numbers);
    add_place(&t, c, v);
    if (isfinite(v->numbers.max)) text_add(&t, ", otherwise %.4g .. %.4g", v->numbers.min, v->numbers.max);
    if (v->node) add_operands(&t, c, v->node);
}
