/* cast.c - cast insertion: makes the graph agree with the table of colour.c.
 *
 * Every node reads its float operands in the type of its entry. One cast per (value, type) serves all users and is
 * placed before the first. Types of results are inferred. Graph outputs and states keep their own type. Types belong to
 * edges (node, slot), so x*x is not a special case. Requires: forward phase, no inserted casts.
 *
 *   before  %mm = matmul @x, @w : f32[N,10]      after  %x.h = cast @x {to=f16} : f16[N,784]     # for white matmul
 *                                                       %w.h = cast @w {to=f16} : f16[784,10]    # for white matmul
 *                                                       %mm  = matmul %x.h, %w.h : f16[N,10]     # white */
#include "ir/ops/formulas.h"
#include "passes/amp/cast.h"
#include "passes/amp/colour.h"
#include "passes/amp/operands.h"
#include "passes/amp/range.h"

#include <math.h>
#include <string.h>

#define FP16_SMALLEST 0x1p-24

typedef struct cast_state {
    ir_graph *graph;
    const amp_entry *entries;
    const amp_scope *scope;
    const amp_list *list;
    const compile_options *options;
    arena *arena;
    diag *diag;
    cast_table *casts;
    const ir_dtype *model_dtypes; /* by value id: dtype before casting, for statements */
    uint32_t values, nodes;       /* number of ids before casts are inserted */
    const double *limits;         /* by value id: range_find_limits */
} cast_state;

/* The limit of the numbers of v where it is converted; 0: none. */
static double limit_of(const cast_state *c, const ir_value *v, ir_dtype to)
{
    return v->id < c->values && ir_dtype_is_low(to) ? c->limits[v->id] : 0;
}

static double saturate(double x, double limit) { return isfinite(x) ? fmax(-limit, fmin(limit, x)) : x; }

/* A weight that an operator computes with is another one if it saturates, so that is a warning. */
static void report_saturated(cast_state *c, const ir_node *user, const ir_value *v, const char *what)
{
    const diag_loc loc = ir_storage_loc(c->graph->module, v->storage);
    if (c->graph != pass_primary(c->graph->module)) return;
    bool mask = amp_only_moves(user) || limit_of(c, v, c->options->low) != ir_dtype_largest(c->options->low);
    if (mask || v->storage->kind != IR_PARAM) diag_remark(c->diag, loc, "%s", what);
    else diag_warning(c->diag, loc, "%s", what);
}

/* For a consumer, a number that would become zero, such as the eps of max(y, eps), is the smallest one instead; 0 if v
 * is none. */
static double smallest_for(const cast_state *c, const ir_value *v, ir_dtype to)
{
    double x;
    if (!c->scope->compile->consumer || to != IR_f16 || !range_get_number(v, c->scope->compile, &x)) return 0;
    return x != 0 && fabs(x) < FP16_SMALLEST ? copysign(FP16_SMALLEST, x) : 0;
}

/* Converts a constant in memory at compile time. Finite elements stay finite, infinite ones infinite. Returns NULL if
 * the bytes are in a file: the value is then cast like any other. */
static ir_value *convert_constant(cast_state *c, ir_builder *b, const ir_node *user, const ir_value *v, ir_dtype to,
                                  double limit)
{
    ir_module *m = c->graph->module;
    const ir_storage *s = v->storage;
    const double smallest = smallest_for(c, v, to);
    bool stored = v->kind == IR_VALUE_STORAGE && (amp_converts(v) || limit > 0 || smallest != 0);
    const char *source = stored ? range_read(s, c->scope->compile, c->arena) : NULL;
    if (!source) return NULL;
    ir_dtype from = v->type.dtype;
    if (limit == 0) limit = ir_dtype_is_low(to) ? ir_dtype_largest(to) : INFINITY;
    size_t size = ir_dtype_size(to), count = (size_t)ir_storage_bytes(s) / ir_dtype_size(from), saturated = 0;
    char *bytes = arena_alloc(c->arena, count * size + 8);
    for (size_t i = 0; i < count; i++) {
        const double x = ir_load_f64(from, source + i * ir_dtype_size(from)), y = saturate(x, limit);
        ir_store_f64(to, bytes + i * size, smallest != 0 ? smallest : y);
        saturated += x < y || x > y;
    }
    /* A weight for another runtime keeps its name and is stored in the type that its users read. */
    if (c->options->plain_runtime && !saturated && smallest == 0 && !ir_is_scalar(v)) return NULL;
    if (smallest != 0 && c->graph == pass_primary(m))
        diag_remark(c->diag, ir_storage_loc(m, s), "zero in fp16, so it was replaced by %.3g", smallest);
    if (saturated)
        report_saturated(c, user, v,
                         arena_printf(c->arena, "%zu of %zu elements exceed %s and were saturated to +/-%.8g",
                                      saturated, count, ir_dtype_name(to), limit));
    if (v->type.rank == 0) return ir_scalar(b, to, ir_load_f64(to, bytes));
    ir_type type = v->type;
    type.dtype = to;
    const char *name = arena_printf(c->arena, "%s.%s", s->name, ir_dtype_is_low(to) ? "h" : "s");
    ir_storage *existing = ir_storage_find(m, name); /* converted for another graph */
    if (existing && existing->kind == IR_CONST && existing->data.kind == IR_DATA_INLINE &&
        ir_type_equal(&existing->type, &type) && memcmp(existing->data.bytes, bytes, count * size) == 0)
        return ir_graph_storage(c->graph, existing);
    ir_value *converted = ir_constant(b, name, &type, bytes);
    if (saturated) converted->storage->note = arena_printf(m->arena, "%zu of %zu elements saturate", saturated, count);
    return converted;
}

/* `cast_names = LOW, WIDE`: suffixes of names of casts; "h" and "s" without this rule. */
static const char *cast_name(const cast_state *c, const ir_value *v, ir_dtype to)
{
    const char *rule = c->list->rule.cast_names, *comma = strchr(rule, ',');
    if (!comma) return arena_printf(c->arena, "%s.%s", v->name, ir_dtype_is_low(to) ? "h" : "s");
    const char *wide = comma + 1 + strspn(comma + 1, " ");
    return ir_dtype_is_low(to) ? arena_printf(c->arena, "%s.%.*s", v->name, (int)(comma - rule), rule)
                               : arena_printf(c->arena, "%s.%s", v->name, wide);
}

/* A mask of an attention that a black node or a counted f32 producer computed: only there its range is unknown. */
static bool is_wide_mask(const cast_state *c, const ir_node *user, const ir_value *v, ir_dtype to)
{
    if (user->id >= c->nodes || c->entries[user->id].rule != AMP_ATTENTION || !ir_dtype_is_low(to)) return false;
    if (v->kind != IR_VALUE_RESULT || v->def->id >= c->nodes) return false;
    const amp_entry *from = &c->entries[v->def->id];
    return from->colour == IR_BLACK || from->counts;
}

/* ---- casts of enclosing graphs ---------------------------------------------------------------- */

static bool is_after(const ir_node *n, const ir_node *at)
{
    while (at && at != n) at = at->next;
    return at != NULL;
}

/* The value of the enclosing graph that v of a subgraph refers to, or NULL. */
static ir_value *find_in_enclosing(ir_node *node, const ir_value *v)
{
    if (v->kind == IR_VALUE_STORAGE) return ir_graph_storage(node->graph, v->storage);
    int operand = v->kind == IR_VALUE_INPUT ? ir_capture_find(v) : -1;
    return operand < 0 ? NULL : ir_in(node, operand);
}

/* Reuses the cast of an enclosing graph to the same type, which is moved before the node if it comes later. */
static ir_value *share_cast(const amp_scope *s, ir_graph *subgraph, const ir_value *v, ir_dtype to)
{
    ir_value *source = s->enclosing ? find_in_enclosing(s->node, v) : NULL;
    if (!source) return NULL;
    ir_value *cast = casts_find(s->enclosing->casts, source, (cast_kind){.to = to});
    if (!cast) cast = share_cast(s->enclosing, s->node->graph, source, to);
    if (!cast || cast->kind == IR_VALUE_STORAGE) return NULL;
    bool made = cast->kind == IR_VALUE_RESULT;
    if (made && ir_in(cast->def, 0) != source) return NULL; /* its operand is clamped */
    if (made && is_after(cast->def, s->node)) ir_node_move_before(cast->def, s->node);
    return ir_capture_add(subgraph, cast);
}

/* ---- casts ------------------------------------------------------------------------------------ */

/* Clamps the finite numbers: where(is_inf(v), v, clip(v, -limit, limit)). */
static ir_value *clamp_finite(ir_builder *b, ir_value *v, double limit)
{
    ir_value *infinite = ir_done(b, ir_new(b, IR_OP_is_inf, 1, v));
    ir_value *high = ir_scalar_like(b, v, limit), *low = ir_scalar_like(b, v, -limit);
    ir_value *clamped = ir_done(b, ir_new(b, IR_OP_clip, 3, v, low, high));
    return infinite && clamped ? ir_done(b, ir_new(b, IR_OP_where, 3, infinite, v, clamped)) : NULL;
}

static ir_value *share_enclosing_cast(cast_state *c, const ir_value *v, ir_dtype to)
{
    bool shares = c->list->rule.outer_casts == OUTER_CASTS_SHARED;
    ir_value *cast = shares ? share_cast(c->scope, c->graph, v, to) : NULL;
    if (cast) casts_add(c->casts, v, (cast_kind){.to = to}, cast);
    return cast;
}

/* No cast is inserted for an attribute of the operator: if it needs a conversion, that is part of the operator. */
static ir_value *cast_for(cast_state *c, ir_node *user, ir_value *v, ir_dtype to, const char *why, bool attribute)
{
    if (v->type.dtype == to) return v;
    ir_builder b = ir_builder_before(user, c->diag);
    double limit = is_wide_mask(c, user, v, to) ? range_mask_bound(to) : limit_of(c, v, to);
    cast_kind kind = {to, attribute, limit};
    ir_value *cast = casts_find(c->casts, v, kind);
    if (cast) return cast;
    bool convert = c->list->rule.constants == CONSTANTS_CONVERT || attribute || limit > 0;
    if (convert && (cast = convert_constant(c, &b, user, v, to, limit))) {
        casts_add(c->casts, v, kind, cast);
        return cast;
    }
    if (!attribute && limit == 0 && (cast = share_enclosing_cast(c, v, to))) return cast;
    if (!attribute) b.loc.op = b.loc.node = NULL;
    b.nameless = limit == 0;
    cast = ir_cast(&b, limit > 0 ? clamp_finite(&b, v, limit) : v, to);
    if (!cast) return NULL;
    ir_value_rename(cast, cast_name(c, v, to));
    cast->def->note = arena_printf(c->graph->module->arena, "for %s", why);
    casts_add(c->casts, v, kind, cast);
    if (c->scope->report && !attribute) c->scope->report->casts_inserted++;
    return cast;
}

static const char *describe(cast_state *c, const ir_node *n, const amp_entry *e)
{
    const char *op = ir_op_label(n->op, n->attr);
    return arena_printf(c->arena, "%s %s", ir_colour_name(e->colour), op);
}

static void set_operand(cast_state *c, ir_node *n, int i, ir_dtype to, const char *why)
{
    bool attribute = !(ir_op_get(n->op)->traits & IR_EFFECT) && amp_list_is_attribute(c->list, n, i);
    ir_value *v = cast_for(c, n, ir_in(n, i), to, why, attribute);
    if (v && v != ir_in(n, i)) ir_node_set_input(n, i, v);
}

/* The type of the second float group, whose operands must agree. If the node leaves it as it is, but low-precision
 * operators compute some of the operands, it is the widest of their types. */
static ir_dtype type_of_second(const cast_state *c, const ir_node *n, const amp_entry *e)
{
    ir_dtype widest = IR_NO_DTYPE;
    if (ir_dtype_is_low(e->compute_dtype) && amp_second_follows(n, e, c->list)) return e->compute_dtype;
    if (e->compute_dtype == IR_f32 && e->rule != AMP_F32_COMPUTE) return IR_f32;
    for (int i = 0; i < n->n_in; i++) {
        const ir_value *v = ir_in(n, i);
        if (!v || ir_op_in_slot(n->op, i, n->n_in)->group != IR_GROUP_G || widest == v->type.dtype) continue;
        widest = widest == IR_NO_DTYPE ? v->type.dtype : widest == IR_f64 || v->type.dtype == IR_f64 ? IR_f64 : IR_f32;
    }
    return widest;
}

static void cast_operands(cast_state *c, ir_node *n, const amp_entry *e)
{
    const char *why = describe(c, n, e);
    const ir_dtype second = type_of_second(c, n, e);
    for (int i = 0; i < n->n_in; i++) {
        const ir_slot *slot = ir_op_in_slot(n->op, i, n->n_in);
        if (!ir_in(n, i) || !ir_dtype_is_float(ir_in(n, i)->type.dtype)) continue;
        if (slot->group == IR_GROUP_G) set_operand(c, n, i, second, why);
        else if (amp_is_cast_operand(n, i) || ir_op_has(n->op, IR_CONVERTS))
            set_operand(c, n, i, e->compute_dtype, why);
        else if (slot->group == IR_GROUP_F32 && ir_dtype_is_low(ir_in(n, i)->type.dtype))
            set_operand(c, n, i, IR_f32, why);
    }
}

static void set_result(ir_node *n, const amp_entry *e)
{
    if (n->n_regions) ir_opaque_set_result_dtype(n, e->result);
    int attr = ir_op_out_attr(n->op);
    if (attr >= 0 && e->result != e->compute_dtype) ir_set_dtype(n, attr, e->result);
    if (ir_op_has(n->op, IR_CONVERTS)) ir_set_dtype(n, IR_ATTR(cast, to), e->result);
}

/* The narrowing casts are part of the node, so they have its location. */
static void narrow_results(cast_state *c, ir_node *n, const amp_entry *e)
{
    for (int i = 0; i < n->n_out; i++) {
        ir_value *wide = n->out[i];
        if (!ir_value_used(wide) || !amp_narrows_result(n, i, e, c->list)) continue;
        ir_builder b = ir_builder_after(n, c->diag);
        ir_node *cast = ir_new(&b, IR_OP_cast, 1, wide);
        ir_set_dtype(cast, IR_ATTR(cast, to), e->result);
        ir_value *narrow = ir_done(&b, cast);
        if (!narrow) return;
        ir_value_replace(wide, narrow);
        ir_node_set_input(cast, 0, wide);
        ir_value_rename(narrow, arena_printf(c->arena, "%s.h", wide->name));
    }
}

/* The low copy of a parameter, for nodes from n on. */
static ir_value *copy_param(cast_state *c, ir_node *n, ir_value *v)
{
    const ir_dtype low = c->options->low;
    const double limit = limit_of(c, v, low);
    ir_builder b = ir_builder_before(n, c->diag);
    ir_value *copy = limit > 0 ? convert_constant(c, &b, n, v, low, limit) : share_enclosing_cast(c, v, low);
    if (copy) return copy;
    b.loc.op = b.loc.node = NULL;
    copy = ir_cast(&b, v, low);
    ir_value_rename(copy, arena_printf(c->arena, "%s.h", v->name));
    copy->def->note = "low-precision copy of the parameter";
    casts_add(c->casts, v, (cast_kind){.to = low}, copy);
    return copy;
}

/* Level O2: the forward reads the low copy of a parameter; graph outputs and stores read the master. */
static void copy_params(cast_state *c)
{
    ir_graph *g = c->graph;
    const bool *low = amp_low_params(g, c->scope);
    ir_value **copies = arena_array(c->arena, c->values + 1, sizeof(ir_value *));
    for (ir_node *n = g->first; n && n->phase == IR_FORWARD; n = n->next)
        for (int i = 0; i < n->n_in; i++) {
            ir_value *v = ir_in(n, i);
            if (!v || v->id >= c->values || !low[v->id] || ir_op_get(n->op)->traits & IR_EFFECT) continue;
            if (!copies[v->id]) copies[v->id] = copy_param(c, n, v);
            ir_node_set_input(n, i, copies[v->id]);
        }
}

static const char *decision(const amp_entry *e, arena *a)
{
    const char *colour = ir_colour_name(e->colour);
    if (e->rule == AMP_LOSS) return arena_printf(a, "%s, f32 for the loss", colour);
    if (e->rule == AMP_CLEAR_MIXED || e->rule == AMP_F32_COMPUTE_MIXED)
        return arena_printf(a, "%s, mixed operand types", colour);
    if (e->rule == AMP_UNLISTED) return "unlisted";
    if (e->rule == AMP_UNSUPPORTED) return "no low-precision kernel";
    if (e->rule == AMP_RANGE) return arena_printf(a, "%s, %s", colour, e->line->file);
    if (e->rule == AMP_INITIALIZER) return "not representable in fp16";
    if (e->rule == AMP_INIT_MAX) return "above init_max";
    if (e->rule != AMP_NODE && e->rule != AMP_TENSOR) return colour;
    return e->line->line ? arena_printf(a, "named in %s:%d", e->line->file, e->line->line)
                         : arena_printf(a, "named on the %s", e->line->file);
}

static void note_colour(cast_state *c, ir_node *n, const amp_entry *e)
{
    if (n->note) return;
    arena *a = c->graph->module->arena;
    const char *text = decision(e, a);
    n->note = e->cause ? arena_printf(a, "%s, follows %s%s", text, e->cause->kind == IR_VALUE_RESULT ? "%" : "@",
                                      e->cause->name)
                       : text;
}

/* Outputs keep the type of the model if --keep-io-types is set; the loss and subgraph results always do. States keep
 * their own type. */
static void cast_statement(cast_state *c, ir_node *n)
{
    if (ir_op_has(n->op, IR_STORES)) {
        set_operand(c, n, 1, ir_in(n, 0)->type.dtype, "state");
        return;
    }
    ir_value *v = ir_in(n, 0);
    bool unchanged = c->options->keep_io_types || n->graph->owner || amp_is_loss(n);
    if (!unchanged || v->id >= c->values || !ir_dtype_is_float(v->type.dtype)) return;
    const amp_scope *s = c->scope;
    ir_dtype model = c->model_dtypes[v->id],
             result = s->enclosing ? s->enclosing->entries[s->node->id].result : IR_NO_DTYPE;
    set_operand(c, n, 0, model == IR_f32 && result != IR_NO_DTYPE ? result : model, "output");
}

/* Operands of opaque operators keep the model's types, or have that of their line. Subgraphs read captures as they are,
 * and in the type of the node's colour if it has one. */
static void restore_operands(cast_state *c, ir_node *n, const amp_entry *e, bool coloured)
{
    const list_operands *line = operands_find(c->list, n);
    operands_declare(n, c->list);
    for (int i = 0; i < n->n_in; i++) {
        ir_value *v = ir_in(n, i);
        bool capture = amp_is_free_capture(c->scope, n, i);
        if (capture && coloured && ir_dtype_is_float(v->type.dtype))
            cast_for(c, n, v, e->compute_dtype, describe(c, n, e), false);
        if (capture) continue;
        if (coloured && amp_is_cast_operand(n, i)) continue;
        if (!v || v->id >= c->values || !ir_dtype_is_float(v->type.dtype)) continue;
        const ir_dtype to = operands_type(line, n, i);
        set_operand(c, n, i, to == IR_NO_DTYPE ? c->model_dtypes[v->id] : to, "opaque");
    }
}

const ir_dtype *amp_model_dtypes(const ir_graph *g, arena *a)
{
    ir_dtype *dtypes = arena_array(a, g->value_ids + 1, sizeof *dtypes);
    for (const ir_node *n = g->first; n; n = n->next)
        for (int i = 0; i < n->n_in; i++)
            if (ir_in(n, i)) dtypes[ir_in(n, i)->id] = ir_in(n, i)->type.dtype;
    return dtypes;
}

static ampc_status cast_node(cast_state *c, ir_node *n)
{
    const amp_entry *e = &c->entries[n->id];
    bool coloured = e->colour != IR_KEEP && e->compute_dtype != IR_NO_DTYPE;
    if (ir_op_get(n->op)->traits & IR_EFFECT) cast_statement(c, n);
    if (ir_op_has(n->op, IR_DECLARED)) restore_operands(c, n, e, coloured);
    if (coloured) {
        cast_operands(c, n, e);
        set_result(n, e);
        note_colour(c, n, e);
    }
    TRY(ir_infer(n, c->diag));
    if (coloured) narrow_results(c, n, e);
    return AMPC_OK;
}

static void note_limit(const cast_state *c, const ir_value *v)
{
    compile *to = c->scope->compile;
    if (!v || !(c->limits[v->id] > 0)) return;
    double *limit = arena_alloc(to->arena, sizeof *limit);
    *limit = c->limits[v->id];
    strmap_put(to->report.limits, v->name, limit);
}

static void note_limits(const cast_state *c)
{
    if (!c->scope->compile->report.limits) c->scope->compile->report.limits = strmap_new(c->scope->compile->arena);
    for (const ir_node *n = c->graph->first; n; n = n->next)
        for (int i = 0; i < n->n_in; i++) note_limit(c, ir_in(n, i));
}

ampc_status amp_cast(ir_graph *g, const amp_scope *s)
{
    cast_state c = {.graph = g,
                    .entries = s->entries,
                    .scope = s,
                    .list = s->compile->list,
                    .options = s->compile->options,
                    .arena = s->arena,
                    .diag = s->compile->diag,
                    .casts = s->casts,
                    .model_dtypes = s->enclosing ? s->model_dtypes : amp_model_dtypes(g, s->arena),
                    .values = g->value_ids,
                    .nodes = g->node_ids,
                    .limits = range_find_limits(g, s)};
    note_limits(&c);
    copy_params(&c);
    for (ir_node *n = g->first, *next; n; n = next) {
        next = n->next;
        if (n->id < c.nodes) TRY(cast_node(&c, n)); /* otherwise an inserted cast */
    }
    return diag_status(c.diag);
}
