/* check_text.c - findings in words. */
#include "runtime/inspect/check_state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

typedef struct writer {
    char *text;
    size_t size, used;
} writer;

__attribute__((format(printf, 2, 3))) static void add(writer *w, const char *format, ...)
{
    va_list args;
    if (w->used >= w->size) return;
    va_start(args, format);
    const int n = vsnprintf(w->text + w->used, w->size - w->used, format, args);
    va_end(args);
    w->used += n > 0 ? (size_t)n : 0;
}

static void add_counts(writer *w, const rt_numbers *n)
{
    if (n->nan) add(w, "%lld NaN", (long long)n->nan);
    if (n->nan && n->inf) add(w, " and ");
    if (n->inf) add(w, "%lld infinit%s", (long long)n->inf, n->inf == 1 ? "y" : "ies");
}

static void add_type(writer *w, const rt_tensor *t)
{
    add(w, "%s[", ir_dtype_name(t->dtype));
    for (int i = 0; i < t->rank; i++) add(w, "%s%lld", i ? "," : "", (long long)t->dims[i]);
    add(w, "]");
}

static void add_place(writer *w, const rt_check *c, const rt_checked *v)
{
    const char *place = c->found.value == v->value ? c->place : "";
    int64_t rest = v->numbers.first_bad, inner = v->numbers.count;
    if (!v->tensor.rank) return;
    add(w, ", the first at [");
    for (int i = 0; i < v->tensor.rank; i++) {
        inner /= v->tensor.dims[i];
        add(w, "%s%lld", i ? "," : "", (long long)(rest / inner));
        rest %= inner;
    }
    add(w, "]");
    if (*place) add(w, " (%s)", place);
    else if (v->value->kind == IR_VALUE_INPUT)
        add(w, " (sample %lld of the batch)",
            (long long)(v->numbers.first_bad / (v->numbers.count / v->tensor.dims[0])));
}

static void add_operands(writer *w, const rt_check *c, const ir_node *n)
{
    const char *before = "; operands:";
    for (int i = 0; i < n->n_in; i++) {
        const rt_checked *o = ir_in(n, i) ? rt_check_value(c, ir_in(n, i)) : NULL;
        if (!o || !ir_dtype_is_float(o->tensor.dtype)) continue;
        add(w, "%s '%s' ", before, ir_in(n, i)->name);
        before = ",";
        if (!rt_numbers_finite(&o->numbers)) {
            add(w, "with ");
            add_counts(w, &o->numbers);
        } else add(w, "%.4g .. %.4g", o->numbers.min, o->numbers.max);
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
    writer w = {text, n, 0};
    text[0] = '\0';
    add(&w, "%s'%s' ", kind_of(v->value), v->value->name);
    add_type(&w, &v->tensor);
    if (v->node) add(&w, " of the %s", rt_phase_names[v->node->phase]);
    if (v->node && !v->node->loc.op) add(&w, " (%s)", ir_op_get(v->node->op)->name);
    add(&w, " has ");
    add_counts(&w, &v->numbers);
    add_place(&w, c, v);
    if (isfinite(v->numbers.max)) add(&w, ", otherwise %.4g .. %.4g", v->numbers.min, v->numbers.max);
    if (v->node) add_operands(&w, c, v->node);
}
