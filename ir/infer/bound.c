/* bound.c - checks nodes with the sizes of their symbols known.
 *
 * With symbols, inference accepts what it cannot decide: whether an index is in range, a window fits, or a crop leaves
 * any elements. A binding makes it decidable: the same inference rule checks a copy of the node whose types and
 * attributes have sizes in place of symbols. Kernels can therefore rely on everything that inference checks, and on
 * nothing else. */
#include "ir/infer/infer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct ir_binding {
    const ir_graph *graph;
    const int64_t *sizes;
    arena *scratch; /* for one node */
    diag *inner;
    char *message; /* of the inference rule, in scratch */
};

static void record_message(void *user, diag_level level, const char *message)
{
    ir_binding *b = user;
    if (level == DIAG_ERROR && !b->message) b->message = arena_strdup(b->scratch, diag_message_text(message));
}

ir_binding *ir_binding_new(const ir_graph *g, const int64_t *sizes)
{
    ir_binding *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    *b = (ir_binding){.graph = g, .sizes = sizes, .scratch = arena_new(0), .inner = diag_new(record_message, b)};
    if (b->scratch && b->inner) return b;
    ir_binding_free(b);
    return NULL;
}

void ir_binding_free(ir_binding *b)
{
    if (!b) return;
    arena_free(b->scratch);
    diag_free(b->inner);
    free(b);
}

ampc_status ir_binding_dim(const ir_graph *g, const int64_t *sizes, ir_dim dim, diag_loc loc, diag *d, int64_t *out)
{
    const ir_dim_table *t = g->module->dims;
    size_t symbol;
    bool ok = ir_dim_eval(t, dim, sizes, out, &symbol);
    if (ok && *out >= IR_DIM_LOWEST) return AMPC_OK;
    if (!ok && symbol != SIZE_MAX)
        return diag_error(
            d, AMPC_REJECTED, DIAG_USE(loc, OPTION_dims, .key = ir_dim_symbol_name(t, symbol), .value = "SIZE"),
            "graph @%s: symbol '%s' is not determined by the inputs", g->name, ir_dim_symbol_name(t, symbol));
    return diag_error(d, AMPC_REJECTED, loc, "graph @%s: a dimension is too large for these sizes", g->name);
}

/* ---- the bound copy of a node -------------------------------------------------------------------------------- */

static bool any_symbolic(const ir_dim *dims, int count)
{
    for (int i = 0; i < count; i++)
        if (ir_dim_is_symbolic(dims[i])) return true;
    return false;
}

static bool has_symbols(const ir_node *n)
{
    const ir_op_info *info = ir_op_get(n->op);
    bool found = false;
    for (int i = 0; i < n->n_in && !found; i++)
        found = ir_in(n, i) && any_symbolic(ir_in(n, i)->type.dims, ir_in(n, i)->type.rank);
    for (int i = 0; i < n->n_out && !found; i++) found = any_symbolic(n->out[i]->type.dims, n->out[i]->type.rank);
    for (int i = 0; i < info->n_attr && !found; i++)
        found = info->attr[i].kind == IR_SLOT_DIMS && any_symbolic(n->attr[i].list.items, n->attr[i].list.count);
    return found;
}

static ampc_status bind_dims(ir_binding *b, const ir_node *n, const ir_dim *from, int count, diag *d, int64_t *to)
{
    for (int i = 0; i < count; i++) TRY(ir_binding_dim(b->graph, b->sizes, from[i], ir_diag_loc(n), d, &to[i]));
    return AMPC_OK;
}

static ampc_status bind_value(ir_binding *b, const ir_node *n, const ir_value *v, diag *d, ir_value **out)
{
    ir_value *bound = *out = arena_alloc(b->scratch, sizeof *bound);
    *bound = *v;
    return bind_dims(b, n, v->type.dims, v->type.rank, d, bound->type.dims);
}

static ampc_status bind_attributes(ir_binding *b, const ir_node *n, diag *d, ir_node *to)
{
    const ir_op_info *info = ir_op_get(n->op);
    to->attr = arena_array(b->scratch, (size_t)info->n_attr, sizeof *to->attr);
    for (int i = 0; i < info->n_attr; i++) {
        to->attr[i] = n->attr[i];
        if (info->attr[i].kind != IR_SLOT_DIMS) continue;
        const int count = n->attr[i].list.count;
        int64_t *items = arena_array(b->scratch, (size_t)count, sizeof *items);
        TRY(bind_dims(b, n, n->attr[i].list.items, count, d, items));
        to->attr[i].list.items = items;
    }
    return AMPC_OK;
}

/* The copy has its own module and graph, so that inference writes nothing shared: numbers add no dimensions to the
 * table, and message texts are in scratch. */
static ampc_status make_bound_node(ir_binding *b, const ir_node *n, diag *d, ir_node *to)
{
    ir_module *m = arena_alloc(b->scratch, sizeof *m);
    ir_graph *g = arena_alloc(b->scratch, sizeof *g);
    m->arena = b->scratch;
    m->dims = b->graph->module->dims;
    g->module = m;
    *to = *n;
    to->graph = g;
    to->in = arena_array(b->scratch, (size_t)n->n_in, sizeof *to->in);
    to->out = arena_array(b->scratch, (size_t)n->n_out, sizeof *to->out);
    for (int i = 0; i < n->n_in; i++)
        if (ir_in(n, i)) TRY(bind_value(b, n, ir_in(n, i), d, &to->in[i].value));
    for (int i = 0; i < n->n_out; i++) TRY(bind_value(b, n, n->out[i], d, &to->out[i]));
    return bind_attributes(b, n, d, to);
}

/* ---- the check ----------------------------------------------------------------------------------------------- */

static bool depends_on(const ir_binding *b, const ir_node *n, int64_t *sizes, size_t symbol)
{
    const ir_op_info *info = ir_op_get(n->op);
    const int64_t size = sizes[symbol];
    int64_t value;
    bool depends = false;
    sizes[symbol] = -1;
    for (int i = 0; i < n->n_in; i++)
        for (int k = 0; ir_in(n, i) && k < ir_in(n, i)->type.rank; k++)
            depends |= !ir_dim_eval(b->graph->module->dims, ir_in(n, i)->type.dims[k], sizes, &value, NULL);
    for (int i = 0; i < info->n_attr; i++)
        for (int k = 0; info->attr[i].kind == IR_SLOT_DIMS && k < n->attr[i].list.count; k++)
            depends |= !ir_dim_eval(b->graph->module->dims, n->attr[i].list.items[k], sizes, &value, NULL);
    sizes[symbol] = size;
    return depends;
}

/* "N=3, T=5": the symbols that the node depends on. */
static const char *show_sizes(const ir_binding *b, const ir_node *n)
{
    const ir_dim_table *t = b->graph->module->dims;
    const size_t count = ir_dim_symbol_count(t);
    int64_t *sizes = arena_array(b->scratch, count, sizeof *sizes);
    const char *text = "";
    memcpy(sizes, b->sizes, count * sizeof *sizes);
    for (size_t i = 0; i < count; i++)
        if (sizes[i] >= 0 && depends_on(b, n, sizes, i))
            text = arena_printf(b->scratch, "%s%s%s=%" PRId64, text, *text ? ", " : "", ir_dim_symbol_name(t, i),
                                sizes[i]);
    return text;
}

static ampc_status refuse(ir_binding *b, const ir_node *n, ampc_status status, const char *message, diag *d)
{
    return diag_error(d, status, ir_diag_loc(n), "%s (%s)", message, show_sizes(b, n));
}

/* Checks that the rule yields the shapes of the inferred types; if not, a formula for a dimension does not hold for all
 * sizes. */
static ampc_status check_results(ir_binding *b, const ir_node *n, const ir_node *bound, const ir_type *expected,
                                 diag *d)
{
    for (int i = 0; i < n->n_out; i++) {
        const ir_type *is = &bound->out[i]->type;
        if (n->out[i]->type.dtype == IR_NO_DTYPE || ir_type_same_shape(is, &expected[i])) continue;
        const char *message = arena_printf(b->scratch, "'%s' would be %s, not %s", n->out[i]->name,
                                           ir_type_print(bound->graph->module, is, b->scratch),
                                           ir_type_print(bound->graph->module, &expected[i], b->scratch));
        return refuse(b, n, AMPC_REJECTED, message, d);
    }
    return AMPC_OK;
}

static ampc_status check(ir_binding *b, const ir_node *n, diag *d)
{
    ir_node bound;
    TRY(make_bound_node(b, n, d, &bound));
    ir_type *expected = arena_array(b->scratch, (size_t)n->n_out, sizeof *expected);
    for (int i = 0; i < n->n_out; i++) expected[i] = bound.out[i]->type;
    ampc_status status = ir_infer(&bound, b->inner);
    return status == AMPC_OK ? check_results(b, n, &bound, expected, d)
                             : refuse(b, n, status, b->message ? b->message : ampc_status_sentence(status), d);
}

ampc_status ir_binding_check(ir_binding *b, const ir_node *n, diag *d)
{
    jmp_buf guard;
    if (ir_op_has(n->op, IR_DECLARED) || !has_symbols(n)) return AMPC_OK;
    arena_clear(b->scratch);
    diag_clear(b->inner);
    b->message = NULL;
    if (setjmp(guard))
        return diag_error(d, AMPC_NO_MEMORY, ir_diag_loc(n), "out of memory while checking the sizes of a node");
    arena_set_guard(b->scratch, &guard);
    return check(b, n, d);
}
