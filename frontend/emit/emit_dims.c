/* emit_dims.c - sizes that are only known at run time.
 *
 * A symbol is a dimension of a graph input, or of the result of an opaque operator: Shape(input, start=k, end=k+1).
 * Polynomials in symbols are computed from these in i64[1]: floor divisions by Div, since dividends are never
 * negative, and maxima by Max. A list of dimensions is a Concat, in which consecutive numbers are one constant.
 * Computed dimensions are shared. */
#include "frontend/emit/emit.h"
#include "ir/ops/dim_table.h"

#include <assert.h>

static const char *dim_text(emitter *e, ir_dim d) { return ir_dim_print(e->module->dims, d, e->arena); }

static bool carries(const emit_scope *s, const ir_value *v, ir_dim d, int *k)
{
    for (*k = 0; s->value[v->id] && *k < v->type.rank; ++*k)
        if (v->type.dims[*k] == d) return true;
    return false;
}

/* The name of a value whose k-th dimension is d: an input of this or an enclosing graph, or a result of an earlier
 * opaque node. */
static const char *find_carrier(const emitter *e, ir_dim d, int *k)
{
    for (const emit_scope *s = e->scope; s; s = s->outer) {
        for (size_t i = 0; i < s->graph->inputs.count; i++)
            if (carries(s, s->graph->inputs.items[i], d, k)) return s->value[s->graph->inputs.items[i]->id];
        for (const ir_node *n = s->graph->first; n; n = n->next)
            for (int i = 0; ir_op_has(n->op, IR_DECLARED) && i < n->n_out; i++)
                if (carries(s, n->out[i], d, k)) return s->value[n->out[i]->id];
    }
    return NULL;
}

static const char *read_shape(emitter *e, const ir_node *n, const char *input, int k)
{
    const char *name = emit_name(e, arena_printf(e->arena, "%s.dim%d", input, k));
    emit_op op = emit_helper(e, n, "Shape");
    emit_in(&op, input);
    emit_int(&op, "start", k);
    emit_int(&op, "end", k + 1);
    emit_out(&op, name);
    emit_end(&op);
    emit_declare_sizes(e, name, 1);
    return name;
}

static const char *dimension(emitter *e, const ir_node *n, ir_dim d);

static const char *atom_value(emitter *e, const ir_node *n, uint32_t index)
{
    const atom a = e->module->dims->atoms.items[index];
    if (a.kind == ATOM_SYMBOL) return dimension(e, n, ir_dim_symbol(e->module->dims, a.name));
    const char *inner = dimension(e, n, a.inner);
    if (!inner) return NULL;
    if (a.kind == ATOM_FLOOR) return emit_size_call(e, n, "Div", inner, emit_i64s(e, &a.divisor, 1));
    return emit_size_call(e, n, "Max", inner, emit_i64s(e, &(int64_t){0}, 1));
}

static const char *product(emitter *e, const ir_node *n, const term *t)
{
    const char *value = t->factor != 1 || !t->degree ? emit_i64s(e, &t->factor, 1) : NULL;
    for (uint32_t i = 0; i < t->degree; i++) {
        const char *factor = atom_value(e, n, t->atoms[i]);
        if (!factor) return NULL;
        value = value ? emit_size_call(e, n, "Mul", value, factor) : factor;
    }
    return value;
}

static bool is_symbol(const emitter *e, ir_dim d)
{
    const expression *x = ir_dim_expression(e->module->dims, d);
    return x->count == 1 && x->terms[0].factor == 1 && x->terms[0].degree == 1 &&
           e->module->dims->atoms.items[x->terms[0].atoms[0]].kind == ATOM_SYMBOL;
}

static const char *polynomial(emitter *e, const ir_node *n, ir_dim d)
{
    const expression *x = ir_dim_expression(e->module->dims, d);
    const char *sum = NULL;
    for (int i = 0; i < x->count; i++) {
        const char *value = product(e, n, &x->terms[i]);
        if (!value) return NULL;
        sum = sum ? emit_size_call(e, n, "Add", sum, value) : value;
    }
    return sum;
}

/* i64[1] */
static const char *dimension(emitter *e, const ir_node *n, ir_dim d)
{
    assert(d != IR_DIM_NONE); /* sizes of types and attributes exist; sums of them are the caller's */
    if (!ir_dim_is_symbolic(d)) return emit_i64s(e, &d, 1);
    const char *key = arena_printf(e->arena, "dim %s", dim_text(e, d));
    const char *value = emit_made(e, key);
    if (value) return value;
    int k;
    const char *input = find_carrier(e, d, &k);
    if (input) value = read_shape(e, n, input, k);
    else if (!is_symbol(e, d)) value = polynomial(e, n, d);
    else emit_refuse(e, n, "no graph input has the size %s", dim_text(e, d));
    if (value) emit_make(e, key, value);
    return value;
}

const char *emit_concat(emitter *e, const ir_node *n, const char *const *parts, int count, int size)
{
    if (count == 1) return parts[0];
    const char *name = emit_name(e, arena_printf(e->arena, "%s.shape", n->out[0]->name));
    emit_op op = emit_helper(e, n, "Concat");
    for (int i = 0; i < count; i++) emit_in(&op, parts[i]);
    emit_int(&op, "axis", 0);
    emit_out(&op, name);
    emit_end(&op);
    emit_declare_sizes(e, name, size);
    return name;
}

const char *emit_dims(emitter *e, const ir_node *n, const ir_dim *items, int count)
{
    const char **parts = arena_array(e->arena, (size_t)count + 1, sizeof *parts);
    int n_fused = 0;
    for (int i = 0, run; i < count; i += run) {
        for (run = 0; i + run < count && !ir_dim_is_symbolic(items[i + run]);) run++;
        parts[n_fused] = run ? emit_i64s(e, items + i, run) : dimension(e, n, items[i]);
        if (!parts[n_fused++]) return NULL;
        if (!run) run = 1;
    }
    if (!n_fused) return emit_i64s(e, items, 0);
    return emit_concat(e, n, parts, n_fused, count);
}

const char *emit_dim_scalar(emitter *e, const ir_node *n, ir_dim d)
{
    if (!ir_dim_is_symbolic(d)) return emit_i64(e, d);
    const char *value = dimension(e, n, d);
    return value ? emit_call(e, n, "Reshape", value, emit_i64s(e, NULL, 0)) : NULL;
}
