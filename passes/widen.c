/* widen.c - pass widen: makes the graphs compute in f64, as the reference of a comparison.
 *
 * Storage and inputs keep their types and are read through a cast. An op that f64 is not defined for computes in f32
 * between casts, as do subgraphs and operators of the caller; a remark counts such nodes. The backward follows, because
 * the pass runs before it is made.
 *
 *   before  %y = matmul @x, @w : f32[N,10]      after  %x.d = cast @x {to=f64} : f64[N,784]
 *                                                      %w.d = cast @w {to=f64} : f64[784,10]
 *                                                      %y   = matmul %x.d, %w.d : f64[N,10] */
#include "passes/pass.h"

typedef struct widening {
    ir_graph *graph;
    arena *arena;
    diag *diag, *quiet;
    int kept; /* number of nodes that compute in f32 */
    const ir_node *first_kept;
} widening;

static bool is_narrow(const ir_value *v) { return v && ir_dtype_is_float(v->type.dtype) && v->type.dtype != IR_f64; }

/* Lets the nodes that read v read a cast of it, which is inserted before `at`. Statements keep their type. */
static void read_through(widening *w, ir_value *v, ir_node *at, ir_dtype to)
{
    ir_builder b = {.graph = w->graph, .before = at, .phase = IR_FORWARD, .diag = w->diag};
    ir_value *cast = NULL;
    for (ir_use *u = v->first_use, *next; u; u = next) {
        next = u->next;
        if (ir_op_has(u->user->op, IR_EFFECT) || (cast && u->user == cast->def)) continue;
        if (!cast) cast = ir_cast(&b, v, to);
        if (!cast) return;
        ir_node_set_input(u->user, u->index, cast);
    }
    if (cast) ir_value_rename(cast, arena_printf(w->graph->module->arena, "%s.d", v->name));
}

/* Everything that no node of the graph computes. */
static void widen_sources(widening *w)
{
    ir_node *first = w->graph->first;
    for (ir_node *n = first; n; n = n->next)
        for (int i = 0; i < n->n_in && !ir_op_has(n->op, IR_EFFECT); i++) {
            ir_value *v = ir_in(n, i);
            if (is_narrow(v) && v->kind != IR_VALUE_RESULT) read_through(w, v, first, IR_f64);
        }
}

/* The storage or state that an output or store must have the type of, or NULL. */
static const ir_type *fixed_type(const ir_node *n)
{
    if (ir_op_has(n->op, IR_STORES)) return &ir_in(n, 0)->type;
    return n->role != IR_OUTPUT_result && n->of && n->of->kind == IR_VALUE_STORAGE ? &n->of->type : NULL;
}

static ir_value *convert(widening *w, ir_node *at, ir_value *v, ir_dtype to)
{
    ir_builder b = ir_builder_before(at, w->diag);
    return ir_cast(&b, v, to);
}

static void narrow_statement(widening *w, ir_node *n)
{
    const ir_type *type = fixed_type(n);
    const int operand = n->n_in - 1;
    if (type && ir_in(n, operand)->type.dtype != type->dtype)
        ir_node_set_input(n, operand, convert(w, n, ir_in(n, operand), type->dtype));
}

/* Replaces types in attributes, such as that of a cast or of `out`. Returns the previous values. */
static ir_attr *widen_attributes(widening *w, ir_node *n)
{
    const ir_op_info *info = ir_op_get(n->op);
    ir_attr *before = arena_array(w->arena, (size_t)info->n_attr + 1, sizeof *before);
    for (int i = 0; i < info->n_attr; i++) {
        before[i] = n->attr[i];
        if (info->attr[i].kind == IR_SLOT_DTYPE && ir_dtype_is_float(n->attr[i].dtype)) n->attr[i].dtype = IR_f64;
    }
    return before;
}

/* Lets a node compute in f32: its operands are cast to f32, and its results to f64. */
static void keep(widening *w, ir_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (ir_in(n, i) && ir_in(n, i)->type.dtype == IR_f64)
            ir_node_set_input(n, i, convert(w, n, ir_in(n, i), IR_f32));
    if (!w->kept++) w->first_kept = n;
    ir_infer(n, w->diag);
}

static void widen_node(widening *w, ir_node *n)
{
    const bool opaque = ir_op_has(n->op, IR_BODIES) || ir_op_has(n->op, IR_DECLARED);
    const ir_attr *before = widen_attributes(w, n);
    if (opaque || ir_infer(n, w->quiet) != AMPC_OK) {
        for (int i = 0; i < ir_op_get(n->op)->n_attr; i++) n->attr[i] = before[i];
        keep(w, n);
    }
    for (int i = 0; i < n->n_out; i++)
        if (is_narrow(n->out[i])) read_through(w, n->out[i], n->next, IR_f64);
}

static ampc_status widen_graph(widening *w)
{
    widen_sources(w);
    for (ir_node *n = w->graph->first, *next; n; n = next) {
        next = n->next;
        if (ir_op_has(n->op, IR_EFFECT)) narrow_statement(w, n);
        else if (!(n->n_in == 1 && ir_op_has(n->op, IR_CONVERTS) && !n->loc.op)) widen_node(w, n);
    }
    return diag_status(w->diag);
}

ampc_status pass_widen(ir_module *m, compile *c)
{
    if (!c->options->wide) return AMPC_OK;
    if (c->options->level != PASS_O0)
        return diag_error(c->diag, AMPC_USAGE, DIAG_USE(DIAG_OPTION(wide), OPTION_amp, .value = "O0"),
                          "f64 excludes mixed precision");
    arena *scratch = pass_scratch_new(m);
    diag *quiet = diag_new(NULL, NULL);
    widening w = {.arena = scratch, .diag = c->diag, .quiet = quiet};
    ampc_status status = quiet ? AMPC_OK : AMPC_NO_MEMORY;
    const size_t graphs = m->graphs.count;
    for (size_t i = 0; i < graphs && status == AMPC_OK; i++) {
        w.graph = m->graphs.items[i];
        status = widen_graph(&w);
    }
    c->report.kept_narrow = w.kept;
    if (w.kept)
        diag_remark(c->diag, ir_diag_loc(w.first_kept),
                    "%d nodes compute in f32, because they do not support f64; the "
                    "first is this one",
                    w.kept);
    diag_free(quiet);
    arena_free(scratch);
    return status;
}
