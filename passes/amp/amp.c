/* amp.c - cast insertion: the graph made to agree with the table of colour.c.
 *
 * Every node's float operands are read in the type of its entry; one cast per (value, type) serves all consumers and
 * stands before the first. Results follow by inference. Graph outputs and states get their own type back.
 * Types are edges keyed by (node, slot), so x*x is no special case. Requires: forward phase, no inserted casts.
 *
 *   before  %mm = matmul @x, @w : f32[N,10]      after  %x.h = cast @x {to=f16} : f16[N,784]     # for white matmul
 *                                                       %w.h = cast @w {to=f16} : f16[784,10]    # for white matmul
 *                                                       %mm  = matmul %x.h, %w.h : f16[N,10]     # white           */
#include "passes/amp/cost.h"
#include "passes/amp/draw.h"
#include "passes/amp/placement.h"
#include "passes/amp/range.h"

#include <math.h>
#include <string.h>

typedef struct caster {
    ir_graph *graph;
    const amp_entry *entries;
    const amp_list *list;
    const pass_options *options;
    arena *arena;
    diag *diag;
    cast_table *casts;
    const ir_dtype *asked; /* by value id: dtype before casting, for statements */
    uint32_t values, nodes; /* ids that existed before */
    pass_stats *stats;
    const bool *masks;     /* by value id: saturates, infinities too; or NULL */
} caster;

static double largest_finite(ir_dtype t)
{
    return t == IR_f16 ? 65504.0 : 0x1.fep127;
}

static bool is_mask(const caster *c, const ir_value *v, ir_dtype to)
{
    return c->masks && v->id < c->values && c->masks[v->id] && ir_dtype_is_low(to);
}

static double saturate(double x, ir_dtype to, bool mask)
{
    double most = largest_finite(to);
    return (isfinite(x) || (mask && isinf(x))) && ir_dtype_is_low(to) ? fmax(-most, fmin(most, x)) : x;
}

static void report_saturated(caster *c, const ir_value *v, ir_dtype to, size_t saturated, size_t count)
{
    if (!saturated || c->graph != pass_primary(c->graph->module)) return;
    diag_loc loc = {.file = ir_module_source(c->graph->module), .node = v->name};
    diag_remark(c->diag, loc, "%zu of %zu elements are beyond %s and became %.8g or the opposite", saturated, count,
                ir_dtype_name(to), largest_finite(to));
}

/* A constant whose elements are at hand is written in the other type; what is finite stays finite, and in the
 * mask of a
 * softmax all is. NULL: its bytes are in a file, so it is cast like any other value. */
static ir_value *convert_constant(caster *c, ir_builder *b, const ir_value *v, ir_dtype to)
{
    ir_module *m = c->graph->module;
    const ir_storage *s = v->storage;
    bool mask = is_mask(c, v, to);
    bool stored = v->kind == IR_VALUE_STORAGE && (amp_converts(v) || mask);
    const char *source = stored ? range_read(s, c->options, c->arena) : NULL;
    if (!source) return NULL;
    ir_dtype from = v->type.dtype;
    size_t size = ir_dtype_size(to), count = (size_t)ir_storage_bytes(s) / ir_dtype_size(from), saturated = 0;
    char *bytes = arena_alloc(c->arena, count * size + 8);
    for (size_t i = 0; i < count; i++) {
        double x = ir_load_f64(from, source + i * ir_dtype_size(from)), y = saturate(x, to, mask);
        ir_store_f64(to, bytes + i * size, y);
        saturated += x < y || x > y;
    }
    /* A weight of another runtime keeps its name: it is stored in the type that it is read in. */
    if (c->options->plain_runtime && !saturated && !ir_is_scalar(v)) return NULL;
    report_saturated(c, v, to, saturated, count);
    if (v->type.rank == 0) return ir_scalar(b, to, ir_load_f64(to, bytes));
    ir_type type = v->type;
    type.dtype = to;
    const char *name = arena_printf(c->arena, "%s.%s", s->name, ir_dtype_is_low(to) ? "h" : "s");
    ir_storage *known = ir_storage_find(m, name); /* made for another graph */
    if (known && known->kind == IR_CONST && known->data.kind == IR_DATA_INLINE && ir_type_equal(&known->type, &type) &&
        memcmp(known->data.bytes, bytes, count * size) == 0)
        return ir_graph_storage(c->graph, known);
    ir_value *converted = ir_constant(b, name, &type, bytes);
    if (saturated)
        converted->storage->note = arena_printf(m->arena, "%zu of %zu elements saturate", saturated, count);
    return converted;
}

/* rule cast_names = LOW, WIDE: what is appended to the name of the value, "h, s" without the rule. */
static const char *cast_name(const caster *c, const ir_value *v, ir_dtype to)
{
    const char *rule = c->list->rule.cast_names, *comma = strchr(rule, ',');
    if (!comma) return arena_printf(c->arena, "%s.%s", v->name, ir_dtype_is_low(to) ? "h" : "s");
    const char *wide = comma + 1 + strspn(comma + 1, " ");
    return ir_dtype_is_low(to) ? arena_printf(c->arena, "%s.%.*s", v->name, (int)(comma - rule), rule)
                               : arena_printf(c->arena, "%s.%s", v->name, wide);
}

/* What an attention adds or selects, when it comes out of f32 that counts: only there its size is anybody's guess. */
static bool is_wide_mask(const caster *c, const ir_node *user, const ir_value *v, ir_dtype to)
{
    if (user->id >= c->nodes || c->entries[user->id].rule != AMP_ATTENTION || !ir_dtype_is_low(to)) return false;
    if (v->kind != IR_VALUE_RESULT || v->def->id >= c->nodes) return false;
    const amp_entry *from = &c->entries[v->def->id];
    return from->colour == IR_BLACK || from->counts;
}

/* ---- casts of the graphs around a body -------------------------------------------------------- */

static bool is_behind(const ir_node *n, const ir_node *at)
{
    while (at && at != n) at = at->next;
    return at != NULL;
}

/* The value of the graph around the body that v of the body stands for, or NULL. */
static ir_value *find_outside(const amp_outside *outside, const ir_value *v)
{
    if (v->kind == IR_VALUE_STORAGE) return ir_graph_storage(outside->node->graph, v->storage);
    int operand = v->kind == IR_VALUE_INPUT ? ir_capture_find(outside->node, v) : -1;
    return operand < 0 ? NULL : ir_in(outside->node, operand);
}

/* What a body reads in the other type, where a graph around it does too: that cast, then before the node. */
static ir_value *share_cast(const amp_outside *outside, ir_graph *body, const ir_value *v, ir_dtype to)
{
    ir_value *source = outside ? find_outside(outside, v) : NULL;
    if (!source) return NULL;
    ir_value *cast = casts_find(outside->casts, source, (cast_kind){.to = to});
    ir_graph *around = outside->node->graph;
    if (!cast) cast = share_cast(outside->outside, around, source, to);
    if (!cast || cast->kind == IR_VALUE_STORAGE) return NULL;
    bool made = cast->kind == IR_VALUE_RESULT;
    if (made && ir_in(cast->def, 0) != source) return NULL; /* bounded */
    if (made && is_behind(cast->def, outside->node)) ir_node_move_before(cast->def, outside->node);
    return ir_capture_add(outside->node, body, cast);
}

/* ---- casts ------------------------------------------------------------------------------------ */

/* v as it fits `to`: masks saturate. */
static ir_value *bound_mask(ir_builder *b, ir_value *v, ir_dtype to, bool mask, bool wide)
{
    ir_value *least = mask || wide ? ir_scalar_like(b, v, -largest_finite(to)) : NULL;
    if (wide) return ir_done(b, ir_new(b, IR_OP_clip, 3, v, least, ir_scalar_like(b, v, largest_finite(to))));
    return mask ? ir_binary(b, IR_OP_max, v, least) : v;
}

static ir_value *share_outside(caster *c, const ir_value *v, ir_dtype to)
{
    bool shares = c->list->rule.outer_casts == OUTER_CASTS_SHARED;
    ir_value *cast = shares ? share_cast(c->options->outside, c->graph, v, to) : NULL;
    if (cast) casts_add(c->casts, v, (cast_kind){.to = to}, cast);
    return cast;
}

/* An attribute of its operator is no value that a cast is inserted for: what has to run belongs to the operator. */
static ir_value *cast_for(caster *c, ir_node *user, ir_value *v, ir_dtype to, const char *why, bool attribute)
{
    if (v->type.dtype == to) return v;
    ir_builder b = ir_builder_before(user, c->diag);
    bool wide = is_wide_mask(c, user, v, to);
    cast_kind kind = {to, attribute, wide};
    ir_value *cast = casts_find(c->casts, v, kind);
    if (cast) return cast;
    bool convert = c->list->rule.constants == CONSTANTS_CONVERT || attribute;
    if (convert && (cast = convert_constant(c, &b, v, to))) {
        casts_add(c->casts, v, kind, cast);
        return cast;
    }
    bool mask = is_mask(c, v, to);
    if (!attribute && !mask && !wide && (cast = share_outside(c, v, to))) return cast;
    if (!attribute) b.loc.op = b.loc.node = NULL;
    b.nameless = !mask && !wide;
    cast = ir_cast(&b, bound_mask(&b, v, to, mask, wide), to);
    if (!cast) return NULL;
    ir_value_rename(cast, cast_name(c, v, to));
    cast->def->note = arena_printf(c->graph->module->arena, "for %s", why);
    casts_add(c->casts, v, kind, cast);
    if (c->stats && !attribute) c->stats->casts_inserted++;
    return cast;
}

static const char *describe(caster *c, const ir_node *n, const amp_entry *e)
{
    const char *op = ir_op_get(n->op)->name;
    return arena_printf(c->arena, "%s %s", ir_colour_name(e->colour), op);
}

static void set_operand(caster *c, ir_node *n, int i, ir_dtype to, const char *why)
{
    bool attribute = !(ir_op_get(n->op)->traits & IR_EFFECT) && amp_list_is_attribute(c->list, n, i);
    ir_value *v = cast_for(c, n, ir_in(n, i), to, why, attribute);
    if (v && v != ir_in(n, i)) ir_node_set_input(n, i, v);
}

static void cast_operands(caster *c, ir_node *n, const amp_entry *e)
{
    const char *why = describe(c, n, e);
    bool along = ir_dtype_is_low(e->want) && amp_second_follows(n, e, c->list);
    for (int i = 0; i < n->n_in; i++) {
        const ir_slot *slot = ir_op_in_slot(n->op, i, n->n_in);
        if (!ir_in(n, i) || !ir_dtype_is_float(ir_in(n, i)->type.dtype)) continue;
        bool first = amp_takes_part(n, i);
        bool second = slot->group == IR_GROUP_G && (along || (e->want == IR_f32 && e->rule != AMP_INSIDE));
        if (first || second || ir_op_has(n->op, IR_CONVERTS)) set_operand(c, n, i, e->want, why);
    }
}

static void set_result(ir_node *n, const amp_entry *e)
{
    if (ir_body_count(n)) ir_foreign_retype(n, e->result);
    int attr = ir_op_out_attr(n->op);
    if (attr >= 0 && e->result != e->want) ir_set_dtype(n, attr, e->result);
    if (ir_op_has(n->op, IR_CONVERTS)) ir_set_dtype(n, IR_ATTR(cast, to), e->result);
}

/* The narrowing is part of the node: its location says so. */
static void narrow_results(caster *c, ir_node *n, const amp_entry *e)
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

/* Level O2: the forward reads the low copy of a parameter; what leaves the graph is the master. */
static void copy_params(caster *c)
{
    ir_graph *g = c->graph;
    const bool *low = amp_low_params(g, c->list, c->options, c->entries, c->arena);
    ir_value **copies = arena_array(c->arena, c->values + 1, sizeof(ir_value *));
    for (ir_node *n = g->first; n && n->phase == IR_FORWARD; n = n->next)
        for (int i = 0; i < n->n_in; i++) {
            ir_value *v = ir_in(n, i);
            if (!v || v->id >= c->values || !low[v->id] || ir_op_get(n->op)->traits & IR_EFFECT) continue;
            if (!copies[v->id]) copies[v->id] = share_outside(c, v, c->options->low);
            if (!copies[v->id]) {
                ir_builder b = ir_builder_before(n, c->diag);
                b.loc.op = b.loc.node = NULL;
                copies[v->id] = ir_cast(&b, v, c->options->low);
                ir_value_rename(copies[v->id], arena_printf(c->arena, "%s.h", v->name));
                copies[v->id]->def->note = "low copy of the parameter";
                casts_add(c->casts, v, (cast_kind){.to = c->options->low}, copies[v->id]);
            }
            ir_node_set_input(n, i, copies[v->id]);
        }
}

static const char *decision(const amp_entry *e, arena *a)
{
    const char *colour = ir_colour_name(e->colour);
    if (e->rule == AMP_LOSS) return arena_printf(a, "%s, f32 for the loss", colour);
    if (e->rule == AMP_CLEAR_MIXED || e->rule == AMP_INSIDE_MIXED)
        return arena_printf(a, "%s, operands of both types", colour);
    if (e->rule == AMP_UNLISTED) return "on no list";
    if (e->rule == AMP_UNSUPPORTED) return "no low-precision kernel";
    if (e->rule == AMP_RANGE) return arena_printf(a, "%s, %s", colour, e->line->file);
    if (e->rule == AMP_INITIALIZER) return "beyond fp16";
    if (e->rule != AMP_NODE && e->rule != AMP_TENSOR) return colour;
    return e->line->line ? arena_printf(a, "named in %s:%d", e->line->file, e->line->line)
                         : arena_printf(a, "named on the %s", e->line->file);
}

static void note_colour(caster *c, ir_node *n, const amp_entry *e)
{
    if (n->note) return;
    arena *a = c->graph->module->arena;
    const char *text = decision(e, a);
    n->note = e->cause ? arena_printf(a, "%s, follows %s%s", text, e->cause->kind == IR_VALUE_RESULT ? "%" : "@",
                                      e->cause->name)
                       : text;
}

static bool is_loss(const ir_node *output)
{
    const char *loss = ir_meta_get(output->graph->module, "loss");
    return loss && !output->graph->body && strcmp(loss, output->attr[IR_ATTR(output, name)].s) == 0;
}

/* Outputs keep the type of the model, the loss and results of a body do in any case; a state keeps its own. */
static void cast_statement(caster *c, ir_node *n)
{
    if (ir_op_has(n->op, IR_STORES)) {
        set_operand(c, n, 1, ir_in(n, 0)->type.dtype, "state");
        return;
    }
    ir_value *v = ir_in(n, 0);
    bool kept = c->options->keep_io_types || n->graph->body || is_loss(n);
    if (!kept || v->id >= c->values || !ir_dtype_is_float(v->type.dtype)) return;
    ir_dtype asked = c->asked[v->id], result = c->options->outside ? c->options->outside->result : IR_NO_DTYPE;
    set_operand(c, n, 0, asked == IR_f32 && result != IR_NO_DTYPE ? result : asked, "output");
}

/* What is carried along has the types of the model; a body takes what it captures as it is, and where the node has a
 * colour also as that wants it. */
static void keep_operands(caster *c, ir_node *n, const amp_entry *e, bool coloured)
{
    for (int i = 0; i < n->n_in; i++) {
        ir_value *v = ir_in(n, i);
        bool capture = amp_is_free_capture(c->list, c->options, n, i);
        if (capture && coloured && ir_dtype_is_float(v->type.dtype))
            cast_for(c, n, v, e->want, describe(c, n, e), false);
        if (capture) continue;
        if (coloured && amp_takes_part(n, i)) continue;
        if (v && v->id < c->values && ir_dtype_is_float(v->type.dtype))
            set_operand(c, n, i, c->asked[v->id], "foreign");
    }
}

const ir_dtype *amp_asked(const ir_graph *g, arena *a)
{
    ir_dtype *asked = arena_array(a, g->value_ids + 1, sizeof *asked);
    for (const ir_node *n = g->first; n; n = n->next)
        for (int i = 0; i < n->n_in; i++)
            if (ir_in(n, i)) asked[ir_in(n, i)->id] = ir_in(n, i)->type.dtype;
    return asked;
}

ampc_status amp_cast(ir_graph *g, const amp_entry *entries, const amp_list *l, const pass_options *o, cast_table *casts,
                     arena *a, diag *d)
{
    caster c = {.graph = g, .entries = entries, .list = l, .options = o, .arena = a, .diag = d, .stats = o->stats};
    c.nodes = g->node_ids;
    c.casts = casts;
    c.values = g->value_ids;
    c.asked = o->outside ? o->outside->asked : amp_asked(g, a);
    c.masks = range_find_masks(g, l, o, a);
    copy_params(&c);
    for (ir_node *n = g->first, *next; n; n = next) {
        next = n->next;
        if (n->id >= c.nodes) continue; /* a cast of ours */
        const amp_entry *e = &entries[n->id];
        bool coloured = e->colour != IR_KEEP && e->want != IR_NO_DTYPE;
        if (ir_op_get(n->op)->traits & IR_EFFECT) cast_statement(&c, n);
        if (ir_op_has(n->op, IR_DECLARED)) keep_operands(&c, n, e, coloured);
        if (coloured) {
            cast_operands(&c, n, e);
            set_result(n, e);
            note_colour(&c, n, e);
        }
        if (ir_infer(n, d) != AMPC_OK) return diag_status(d);
        if (coloured) narrow_results(&c, n, e);
    }
    return diag_status(d);
}

/* ---- the pass -------------------------------------------------------------------------------- */

static const char *level_name(const pass_options *o)
{
    static const char *const levels[] = {"O0", "O1", "O2", "OD"};
    return levels[o->level];
}

/* rule levels = O1, ...: those that the profile has; without the rule all of them. */
static ampc_status check_level(const amp_list *l, const pass_options *o, diag *d)
{
    bool has = !*l->rule.levels || rules_text_has(l->rule.levels, level_name(o));
    if (o->level == PASS_O0 || has) return AMPC_OK;
    return diag_error(d, AMPC_UNSUPPORTED, DIAG_NOWHERE, "profile %s has no level %s", l->base ? l->base : "ampc",
                      level_name(o));
}

/* The minimum cut decides; says what it predicts for the graph that counts, and warns when f32 would cost less. */
static ampc_status place(ir_graph *g, amp_entry *entries, const amp_list *l, const pass_options *o,
                         const ir_device *device, arena *a, diag *d)
{
    bool primary = g == pass_primary(g->module);
    placement_costs costs = amp_place(g, entries, l, o, device, primary && o->explain, a);
    if (!primary) return AMPC_OK;
    const char *cut = cost_print(device, costs.cut, a), *f32 = cost_print(device, costs.f32, a);
    diag_remark(d, DIAG_NOWHERE, "predicted on %s: %s, %s with --placement=greedy, %s in f32", device->name, cut,
                cost_print(device, costs.greedy, a), f32);
    if (device->measure != DEVICE_TIME || costs.cut <= costs.f32) return AMPC_OK;
    return diag_warning(d, DIAG_NOWHERE, "mixed precision is predicted to lose on %s: %s instead of %s in f32%s",
                        device->name, cut, f32, o->white_soft ? "" : " (--white-soft keeps in f32 what does not pay)");
}

/* ---- graph by graph -------------------------------------------------------------------------- */

typedef struct amp_run {
    const amp_list *list;
    const ir_device *device; /* NULL: no minimum cut */
    arena *arena;
    diag *diag;
    bool primary, explained; /* the graph that counts, or a body of it; --explain had something to say */
} amp_run;

static ampc_status lower_graph(amp_run *r, ir_graph *g, const pass_options *o);

/* Whether the value, as a body captures it, counts as a producer there: as what it was cast from. */
static bool counts_outside(const ir_graph *g, const ir_value *v, const amp_entry *entries, uint32_t nodes,
                           const amp_outside *outside)
{
    while (v->kind == IR_VALUE_RESULT && v->def->id >= nodes) v = ir_in(v->def, 0);
    if (v->kind == IR_VALUE_RESULT) return entries[v->def->id].counts;
    for (size_t i = 0; outside && i < g->inputs.count; i++)
        if (g->inputs.items[i] == v) return outside->counts[i];
    return false;
}

/* A graph whose casts are made: what its bodies have to know of it. */
typedef struct lowered {
    const amp_entry *entries;
    uint32_t nodes; /* ids that existed before */
    const cast_table *casts;
} lowered;

static ampc_status lower_body(amp_run *r, ir_node *n, ir_graph *body, const lowered *around, const pass_options *o)
{
    ir_graph_renumber(body);
    bool *counts = arena_array(r->arena, body->inputs.count + 1, sizeof *counts);
    amp_outside inside = {.counts = counts,
                          .asked = amp_asked(body, r->arena),
                          .result = around->entries[n->id].result,
                          .node = n,
                          .casts = around->casts,
                          .outside = o->outside};
    for (size_t i = 0; i < body->inputs.count; i++) {
        int operand = ir_capture_find(n, body->inputs.items[i]);
        if (operand < 0) continue;
        body->inputs.items[i]->type = ir_in(n, operand)->type;
        counts[i] = counts_outside(n->graph, ir_in(n, operand), around->entries, around->nodes, o->outside);
    }
    pass_options own = *o;
    own.outside = &inside;
    if (!amp_lowers_bodies(r->list, o)) own.level = PASS_O0;
    return lower_graph(r, body, &own);
}

static ampc_status lower_bodies(amp_run *r, ir_graph *g, const lowered *around, const pass_options *o)
{
    for (ir_node *n = g->first; n; n = n->next)
        for (int i = 0; i < ir_body_count(n); i++)
            TRY(lower_body(r, n, ir_body_get(n, i).graph, around, o));
    return AMPC_OK;
}

static void explain(amp_run *r, const ir_graph *g, const amp_entry *entries, const pass_options *o)
{
    bool asked = r->primary && o->explain && !pass_explains_params(o);
    const char *text = asked ? amp_explain(g, entries, o, r->arena) : NULL;
    if (!text) return;
    r->explained = true;
    if (o->text_out) o->text_out(o->text_user, text);
}

static ampc_status lower_graph(amp_run *r, ir_graph *g, const pass_options *o)
{
    amp_entry *entries = amp_colour(g, r->list, o, r->arena, r->diag);
    cast_table *casts = casts_new(r->arena);
    const lowered around = {.entries = entries, .nodes = g->node_ids, .casts = casts};
    TRY(diag_status(r->diag));
    if (r->device && o->level != PASS_O0) TRY(place(g, entries, r->list, o, r->device, r->arena, r->diag));
    explain(r, g, entries, o);
    amp_count(g, entries, o, r->arena);
    draw_keep_colours(g, entries, o);
    if (o->level != PASS_O0) TRY(amp_cast(g, entries, r->list, o, casts, r->arena, r->diag));
    return lower_bodies(r, g, &around, o);
}

static ampc_status run(ir_module *m, const pass_options *o, diag *d, arena *a)
{
    amp_list *l;
    TRY(amp_list_load(o, a, d, &l));
    TRY(check_level(l, o, d));
    TRY(amp_list_check_used(l, m, d));
    amp_run r = {.list = l, .arena = a, .diag = d};
    if (o->placement == PASS_MINCUT && (o->level == PASS_O1 || o->level == PASS_O2))
        TRY(device_load(o->target, a, d, &r.device));
    const char *low = o->low == IR_bf16 ? " bf16" : " f16";
    ir_meta_set(m, "amp", arena_printf(a, "%s%s", level_name(o), o->level == PASS_O0 ? "" : low));
    bool looks = o->low == IR_f16 && o->level != PASS_O0 && l->rule.range != RANGE_OFF;
    const range_census *census = looks ? range_take_census(m, o, a, d) : NULL;
    for (size_t i = 0; i < m->graphs.count; i++) {
        ir_graph *g = m->graphs.items[i];
        pass_options own = *o;
        own.census = census;
        r.primary = g == pass_primary(m);
        if (!r.primary) own.stats = NULL;
        if (!g->body) TRY(lower_graph(&r, g, &own));
        if (!r.primary || !o->stats) continue;
        pass_casts casts = pass_count_casts(g);
        o->stats->cast_bytes = casts.bytes;
        o->stats->cast_symbolic = casts.symbolic;
        if (l->rule.stats == STATS_INSERTED) o->stats->inserted = pass_count_calls(g, m->arena);
    }
    if (o->explain && !r.explained && !pass_explains_params(o))
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--explain: no node is named '%s'", o->explain);
    return AMPC_OK;
}

ampc_status pass_amp(ir_module *m, const pass_options *o, diag *d)
{
    if (!m->graphs.count) return AMPC_OK;
    arena *a = pass_scratch_new(m);
    if (!a) return AMPC_NO_MEMORY;
    ampc_status status = run(m, o, d, a);
    arena_free(a);
    return status;
}
