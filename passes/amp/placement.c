/* placement.c - placement by minimum cut: builds a labelling problem (cut.h) from a coloured graph and writes a
 * solution back to the entries.
 *
 * Every float node has a vertex for the type of its operands, and a second one for the type of its results if the op
 * has the attribute `out`. Requirements of the profile are pinned:
 *   white            low, unless --white-soft
 *   black            f32; "b" has the type of its operand: it shares the vertex of the producer
 *   gray             f32 if it follows an f32 producer, else free; clear: free
 *   named, loss      as decided; inputs, storage, outputs: their own type
 * Rounding constraint: a value derived from a black node (by gray and clear nodes) may be low only if all its readers
 * are low.
 *
 * Casts of a value are paid once per direction; a constant that is converted at compile time costs its storage. In
 * training, a node with a gradient runs three times (forward and two products, or one pass over twice the data), and a
 * cast of an activation runs twice, because its gradient is cast back. The gradient of a parameter leaves its op in
 * f32. Among plans of equal cost, the one with the fewest low vertices is chosen. The profile's own plan satisfies all
 * constraints, so the cut never costs more. docs/placement.md explains the reasons. */
#include "passes/amp/problem.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- predicates ------------------------------------------------------------------------------ */

static const amp_entry *entry_of(const placement *p, const ir_node *n) { return &p->entries[n->id]; }

static uint32_t vertex_of_type(const placement *p, ir_dtype t)
{
    return t == IR_f32 ? p->high : t == p->options->low ? p->low : NO_VERTEX;
}

static cut_label label_of_type(ir_dtype t) { return ir_dtype_is_low(t) ? CUT_LOW : CUT_HIGH; }

static bool is_second_group(const ir_node *n, int i)
{
    const ir_slot *slot = ir_op_in_slot(n->op, i, n->n_in);
    return slot && slot->group == IR_GROUP_G;
}

/* Whether operand i is read in f32 whatever the node's type. */
static bool reads_f32(const ir_node *n, int i)
{
    const ir_slot *slot = ir_op_in_slot(n->op, i, n->n_in);
    return slot && slot->group == IR_GROUP_F32;
}

/* Whether operand i of a modelled node is read in the node's type. */
static bool reads_in_type(const placement *p, const ir_node *n, int i)
{
    return amp_is_cast_operand(n, i) || (is_second_group(n, i) && amp_second_follows(n, entry_of(p, n), p->list));
}

/* Whether the operand is an attribute of the operator, which is converted or cast as part of the node. */
static bool is_attribute(const placement *p, const ir_node *n, int i)
{
    return !(ir_op_get(n->op)->traits & IR_EFFECT) && amp_list_is_attribute(p->list, n, i);
}

/* Whether a result that the op computes in f32 is cast to low. The types of such a node are not changed. */
static bool narrows_after(const placement *p, const ir_node *n)
{
    for (int i = 0; i < n->n_out; i++)
        if (amp_narrows_result(n, i, entry_of(p, n), p->list)) return true;
    return false;
}

static bool computes_in_f32(const amp_entry *e)
{
    return e->rule == AMP_F32_COMPUTE || e->rule == AMP_F32_COMPUTE_MIXED;
}

bool placement_is_priced(const placement *p, const ir_node *n)
{
    const amp_rule rule = entry_of(p, n)->rule;
    return p->options->budget && n->loc.op && rule != AMP_UNSUPPORTED && rule != AMP_NODE && rule != AMP_TENSOR &&
           rule != AMP_OPERANDS;
}

static bool is_free(const placement *p, const ir_node *n)
{
    const amp_entry *e = entry_of(p, n);
    if (placement_is_priced(p, n)) return true;
    switch (e->rule) {
    case AMP_GRAY_LOW:
    case AMP_GRAY_KEEP:
    case AMP_GRAY_DEFAULT_LOW:
    case AMP_CLEAR:
    case AMP_CLEAR_MIXED:
    case AMP_MOVED_WEIGHT:
    case AMP_ATTENTION:
    case AMP_F32_COMPUTE:
    case AMP_F32_COMPUTE_MIXED: return true;
    case AMP_O2: return e->colour == IR_GRAY || e->colour == IR_CLEAR;
    case AMP_LISTED_WHITE: return p->options->white_soft;
    default: return false;
    }
}

/* Whether the profile demands f32, because low precision is dangerous there. */
static bool is_dangerous(const placement *p, const ir_node *n)
{
    const amp_entry *e = entry_of(p, n);
    return e->compute_dtype == IR_f32 && e->colour != IR_WHITE && !is_free(p, n);
}

static bool carries_gradient(const placement *p, const ir_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (ir_in(n, i) && p->carries[ir_in(n, i)->id]) return true;
    return false;
}

/* ---- vertices -------------------------------------------------------------------------------- */

static uint32_t new_vertex(placement *p, int64_t high, int64_t low, ir_dtype greedy)
{
    cut_label label = label_of_type(greedy);
    vec_push(p->arena, &p->greedy, label);
    return cut_vertex(p->cut, high, low);
}

/* Whether all float operands and results are f32 or low and have vertices. */
static bool is_modelled(const placement *p, const ir_node *n)
{
    const amp_entry *e = entry_of(p, n);
    if (ir_op_has(n->op, IR_CONVERTS) || e->colour == IR_KEEP ||
        (e->compute_dtype != IR_f32 && e->compute_dtype != p->options->low))
        return false;
    for (int i = 0; i < n->n_in; i++)
        if (amp_is_cast_operand(n, i) && p->produced[ir_in(n, i)->id] == NO_VERTEX) return false;
    return true;
}

/* The only operand that a "b" node gets its type from; NULL if there are several: it is then an ordinary reader. */
static const ir_value *only_operand(const ir_node *n)
{
    const ir_value *only = NULL;
    for (int storage = 0; storage <= 1 && !only; storage++)
        for (int i = 0; i < n->n_in; i++) {
            const ir_value *v = ir_in(n, i);
            if (!amp_is_cast_operand(n, i) || (v->kind == IR_VALUE_STORAGE) != storage) continue;
            if (only && only != v) return NULL;
            only = v;
        }
    return only;
}

/* Whether n can write a type other than that of its operands. */
static bool has_separate_result(const placement *p, const ir_node *n)
{
    return ir_op_out_attr(n->op) >= 0 && !p->options->plain_runtime;
}

bool placement_is_pinned(const placement *p, uint32_t v)
{
    return cut_is_pinned(p->cut, v, CUT_LOW) || cut_is_pinned(p->cut, v, CUT_HIGH);
}

/* What a squared error costs. */
static int64_t cost_of_error(const placement *p, double error)
{
    const double share = p->options->budget ? error / p->options->budget->limit : 0, cost = share * p->price;
    return cost < (double)p->most ? (int64_t)llround(cost) : p->most;
}

static pass_price price_of(const placement *p, const ir_node *n)
{
    const pass_price *found = placement_is_priced(p, n) ? strmap_get(p->options->budget->prices, ir_out(n, 0)->name)
                                                        : NULL;
    return found ? *found : (pass_price){0};
}

/* Operands are rounded where f32 ones are read in the low type; each accounts for an equal share of the error. */
static void price_operands(placement *p, const ir_node *n, uint32_t reads, double share)
{
    for (int i = 0; i < n->n_in; i++) {
        const ir_value *v = ir_in(n, i);
        if (amp_is_cast_operand(n, i) && v->kind != IR_VALUE_STORAGE)
            cut_pair(p->cut, p->produced[v->id], reads, cost_of_error(p, share));
    }
}

/* One operator has one type in all its nodes, since a list names operators. */
static void join_operator(placement *p, const ir_node *n, uint32_t reads, bool possible)
{
    priced_operator *op = strmap_get(p->by_name, n->loc.node);
    if (!op) {
        op = arena_alloc(p->arena, sizeof *op);
        *op = (priced_operator){n, p->operators.count, reads, ir_dtype_is_low(entry_of(p, n)->compute_dtype)};
        strmap_put(p->by_name, n->loc.node, op);
        vec_push(p->arena, &p->operators, op);
    } else if (!placement_is_pinned(p, op->vertex) || !placement_is_pinned(p, reads))
        cut_merge(p->cut, op->vertex, reads);
    if (!possible && !placement_is_pinned(p, reads)) cut_pin(p->cut, reads, CUT_HIGH);
}

static double storage_share(const ir_node *n, int *operands)
{
    int stored = 0;
    *operands = 0;
    for (int i = 0; i < n->n_in; i++) {
        if (!amp_is_cast_operand(n, i)) continue;
        stored += ir_in(n, i)->kind == IR_VALUE_STORAGE;
        ++*operands;
    }
    return *operands ? (double)stored / *operands : 1;
}

static void add_node(placement *p, const ir_node *n)
{
    const amp_entry *e = entry_of(p, n);
    int64_t runs = p->trains && carries_gradient(p, n) ? 3 : 1;
    ir_dtype low = p->options->low;
    const pass_price price = price_of(p, n);
    const bool possible = isfinite(price.result) && isfinite(price.operands), separate = has_separate_result(p, n);
    int operands;
    const double stored = storage_share(n, &operands) * price.operands;
    uint32_t reads = new_vertex(p, runs * cost_of_node(&p->cost, n, IR_f32),
                                runs * cost_of_node(&p->cost, n, low) +
                                    cost_of_error(p, separate ? stored : stored + price.result),
                                e->compute_dtype);
    uint32_t writes = reads;
    const ir_value *only = computes_in_f32(e) && !placement_is_priced(p, n) ? only_operand(n) : NULL;
    bool pinned = !is_free(p, n) || narrows_after(p, n);
    if (only) cut_merge(p->cut, p->produced[only->id], reads);
    else if (pinned) cut_pin(p->cut, reads, label_of_type(e->compute_dtype));
    if (placement_is_priced(p, n)) join_operator(p, n, reads, possible);
    if (operands && possible) price_operands(p, n, reads, price.operands / operands);
    if (separate) {
        writes = new_vertex(p, 0, cost_of_error(p, price.result), e->result);
        cut_pair(p->cut, writes, reads, runs * cost_of_results(&p->cost, n, low, IR_f32));
        if ((e->rule == AMP_LOSS && !placement_is_priced(p, n)) || e->overflows || narrows_after(p, n))
            cut_pin(p->cut, writes, label_of_type(e->result));
    }
    p->computes[n->id] = reads;
    p->writes[n->id] = writes;
}

/* The vertex for the type of result i. */
static uint32_t result_vertex(const placement *p, const ir_node *n, int i)
{
    const amp_entry *e = entry_of(p, n);
    bool modelled = p->computes[n->id] != NO_VERTEX,
         follows = amp_follows_result(n, i) || ir_op_has(n->op, IR_CONVERTS);
    bool second = ir_op_out_slot(n->op, i, n->n_out)->group == IR_GROUP_G;
    if (modelled && follows) return p->writes[n->id];
    if (modelled && second && amp_second_follows(n, e, p->list)) return p->computes[n->id];
    if (!modelled && follows && e->colour != IR_KEEP && e->result != IR_NO_DTYPE) return vertex_of_type(p, e->result);
    return vertex_of_type(p, amp_narrows_result(n, i, e, p->list) ? e->result : n->out[i]->type.dtype);
}

static void add_results(placement *p, const ir_node *n)
{
    const amp_entry *e = entry_of(p, n);
    bool modelled = p->computes[n->id] != NO_VERTEX, carries = carries_gradient(p, n),
         tainted = modelled && (is_dangerous(p, n) || e->overflows);
    if (modelled && e->colour == IR_CLEAR && e->compute_dtype == IR_f32)
        for (int i = 0; i < n->n_in; i++) tainted |= amp_is_cast_operand(n, i) && p->tainted[ir_in(n, i)->id];
    for (int i = 0; i < n->n_out; i++) {
        const ir_value *v = n->out[i];
        if (!ir_dtype_is_float(v->type.dtype)) continue;
        p->produced[v->id] = result_vertex(p, n, i);
        p->tainted[v->id] = tainted && amp_follows_result(n, i);
        p->carries[v->id] = carries;
    }
}

static void add_vertices(placement *p)
{
    const bool *low_params = amp_low_params(p->graph, p->scope);
    p->high = new_vertex(p, 0, 0, IR_f32);
    p->low = new_vertex(p, 0, 0, p->options->low);
    cut_pin(p->cut, p->high, CUT_HIGH);
    cut_pin(p->cut, p->low, CUT_LOW);
    for (size_t i = 0; i < p->graph->inputs.count; i++) {
        const ir_value *v = p->graph->inputs.items[i];
        p->produced[v->id] = vertex_of_type(p, v->type.dtype);
    }
    for (const ir_node *n = p->graph->first; n && n->phase == IR_FORWARD; n = n->next) {
        for (int i = 0; i < n->n_in; i++) {
            const ir_value *v = ir_in(n, i);
            if (!v || v->kind != IR_VALUE_STORAGE) continue;
            p->produced[v->id] = low_params[v->id] ? p->low : vertex_of_type(p, v->type.dtype);
            p->carries[v->id] = v->storage->kind == IR_PARAM && !v->storage->frozen;
        }
        if (is_modelled(p, n)) add_node(p, n);
        add_results(p, n);
    }
}

/* ---- readers --------------------------------------------------------------------------------- */

/* Pins the value to the profile's choice, because it has a user whose type is fixed. */
static void pin_as_decided(placement *p, const ir_value *v)
{
    uint32_t vertex = p->produced[v->id];
    cut_label label = p->greedy.items[vertex];
    if (p->options->budget) return; /* the node can be listed; it is cast */
    if (!cut_is_pinned(p->cut, vertex, !label)) cut_pin(p->cut, vertex, label);
}

/* The vertex for the type that this use requires, or NO_VERTEX if it accepts any. */
static uint32_t reader_at(placement *p, const ir_value *v, const ir_use *u)
{
    const ir_node *n = u->user;
    if (ir_op_has(n->op, IR_STORES)) return u->index == 1 ? vertex_of_type(p, ir_in(n, 0)->type.dtype) : NO_VERTEX;
    if (ir_op_has(n->op, IR_NAMED)) {
        bool unchanged = p->options->keep_io_types || p->graph->owner || amp_is_loss(n);
        return unchanged ? vertex_of_type(p, v->type.dtype) : NO_VERTEX;
    }
    if (ir_op_has(n->op, IR_DECLARED) && !amp_is_cast_operand(n, u->index))
        return amp_is_free_capture(p->scope, n, u->index) ? NO_VERTEX : vertex_of_type(p, v->type.dtype);
    if ((ir_op_has(n->op, IR_CONVERTS) && entry_of(p, n)->colour == IR_KEEP) || is_attribute(p, n, u->index))
        return NO_VERTEX;
    if (p->computes[n->id] != NO_VERTEX && reads_in_type(p, n, u->index)) return p->computes[n->id];
    if (reads_f32(n, u->index)) return NO_VERTEX; /* cast if it is low */
    pin_as_decided(p, v);
    return NO_VERTEX;
}

/* Whether the use is on the path to the loss, which keeps the result f32. */
static bool is_read_by_loss(const placement *p, const ir_use *u)
{
    return amp_is_loss(u->user) || entry_of(p, u->user)->rule == AMP_LOSS;
}

static void add_readers(placement *p, const ir_value *v)
{
    for (const ir_use *u = v->first_use; u; u = u->next) {
        uint32_t reader = reader_at(p, v, u);
        bool inside = reader != NO_VERTEX && computes_in_f32(entry_of(p, u->user));
        if (reader != NO_VERTEX) cut_reader(p->cut, reader);
        if (p->tainted[v->id] && (reader == NO_VERTEX || inside)) pin_as_decided(p, v);
        if (v->kind == IR_VALUE_RESULT && computes_in_f32(entry_of(p, v->def)) && is_read_by_loss(p, u))
            pin_as_decided(p, v);
    }
}

/* The operand of a widening cast of the model, or NULL. Narrowing the result again means narrowing or using the
 * operand. */
static const ir_value *widened(const placement *p, const ir_value *v)
{
    if (v->kind != IR_VALUE_RESULT || !ir_op_has(v->def->op, IR_CONVERTS) || v->type.dtype != IR_f32) return NULL;
    if (entry_of(p, v->def)->colour != IR_KEEP) return NULL;
    const ir_value *from = ir_in(v->def, 0);
    return p->produced[from->id] != NO_VERTEX ? from : NULL;
}

/* At level O2 the low copy of a parameter is not counted as a cast (pass_count_casts). */
static bool counts_as_param(const placement *p, const ir_value *v)
{
    return p->options->level == PASS_O2 && p->cost.device->measure == DEVICE_CAST_BYTES &&
           v->kind == IR_VALUE_STORAGE && v->storage->kind == IR_PARAM;
}

/* Whether the low copy is made at compile time: of constants, and of weights in a file for another runtime. */
static bool is_written_low(const placement *p, const ir_value *v)
{
    bool weight = v->kind == IR_VALUE_STORAGE && v->storage->kind == IR_PARAM && p->options->plain_runtime;
    if (weight && p->cost.device->measure == DEVICE_TIME) return true;
    return p->list->rule.constants == CONSTANTS_CONVERT && amp_converts(v);
}

static void add_value(placement *p, const ir_value *v)
{
    if (p->produced[v->id] == NO_VERTEX || !v->first_use) return;
    bool twice = p->trains && p->carries[v->id] && v->kind == IR_VALUE_RESULT && p->cost.device->measure == DEVICE_TIME;
    ir_dtype low = p->options->low;
    int64_t runs = twice ? 2 : 1, down = runs * cost_of_cast(&p->cost, &v->type, IR_f32, low);
    if (counts_as_param(p, v)) down = 0;
    const ir_value *from = widened(p, v);
    if (is_written_low(p, v)) cut_constant(p->cut, cost_of_copy(&p->cost, &v->type, low));
    else if (from) cut_value(p->cut, p->produced[from->id], down, 0);
    else
        cut_value(p->cut, p->produced[v->id], down,
                  p->tainted[v->id] ? CUT_FORBIDDEN : runs * cost_of_cast(&p->cost, &v->type, low, IR_f32));
    add_readers(p, v);
}

static void add_values(placement *p)
{
    bool *seen = arena_array(p->arena, p->graph->value_ids + 1, sizeof *seen);
    for (size_t i = 0; i < p->graph->inputs.count; i++) add_value(p, p->graph->inputs.items[i]);
    for (const ir_node *n = p->graph->first; n && n->phase == IR_FORWARD; n = n->next) {
        for (int i = 0; i < n->n_in; i++) {
            const ir_value *v = ir_in(n, i);
            if (!v || v->kind != IR_VALUE_STORAGE || seen[v->id]) continue;
            seen[v->id] = true;
            add_value(p, v);
        }
        for (int i = 0; i < n->n_out; i++) add_value(p, n->out[i]);
    }
}

/* ---- the profile's own plan ------------------------------------------------------------------ */

static void fold_casts(placement *p, const ir_node *n, cut_label *labels)
{
    uint32_t writes = p->writes[n->id];
    cut_label other = !labels[writes];
    int readers = 0;
    if (cut_is_pinned(p->cut, writes, !other)) return;
    for (int i = 0; i < n->n_out; i++)
        for (const ir_use *u = n->out[i]->first_use; u && p->produced[n->out[i]->id] == writes;
             u = u->next, readers++) {
            uint32_t reader = reader_at(p, n->out[i], u);
            if (reader == NO_VERTEX || cut_label_of(p->cut, labels, reader) != other) return;
        }
    if (readers) labels[writes] = other;
}

void placement_fold(placement *p, cut_label *labels)
{
    for (const ir_node *n = p->graph->first; n && n->phase == IR_FORWARD; n = n->next)
        if (p->computes[n->id] != NO_VERTEX && p->writes[n->id] != p->computes[n->id]) fold_casts(p, n, labels);
}

int64_t placement_greedy_cost(placement *p)
{
    placement_fold(p, p->greedy.items);
    return cut_cost(p->cut, p->greedy.items);
}

int64_t placement_f32_cost(const placement *p)
{
    cut_label *labels = arena_array(p->arena, p->greedy.count, sizeof *labels);
    labels[p->low] = CUT_LOW;
    return cut_cost(p->cut, labels);
}

/* ---- the solution ---------------------------------------------------------------------------- */

static ir_dtype type_of_label(const placement *p, cut_label label)
{
    return label == CUT_LOW ? p->options->low : IR_f32;
}

void placement_apply(placement *p, const cut_label *labels)
{
    for (const ir_node *n = p->graph->first; n && n->phase == IR_FORWARD; n = n->next) {
        amp_entry *e = &p->entries[n->id];
        if (p->computes[n->id] == NO_VERTEX) continue;
        e->compute_dtype = type_of_label(p, labels[p->computes[n->id]]);
        e->result = type_of_label(p, labels[p->writes[n->id]]);
        if (!is_free(p, n) || (computes_in_f32(e) && !placement_is_priced(p, n)) ||
            (e->rule == AMP_ATTENTION && ir_dtype_is_low(e->compute_dtype)))
            continue;
        e->rule = AMP_CUT;
        e->cause = NULL;
    }
}

/* ---- the problem ----------------------------------------------------------------------------- */

placement placement_problem(ir_graph *g, const amp_scope *s, bool costs, double price)
{
    const compile *c = s->compile;
    arena *a = s->arena;
    size_t items = 16 * ((size_t)g->node_ids + g->value_ids + 4);
    placement p = {.graph = g, .entries = s->entries, .scope = s, .arena = a, .cut = cut_new(a), .price = price};
    p.list = c->list;
    p.options = c->options;
    p.cost = cost_model_new(c->device, g->module, items, a);
    p.most = p.cost.max_cost;
    if (!costs) p.cost.max_cost = 0;
    p.by_name = strmap_new_borrowing(a);
    p.computes = arena_array(a, g->node_ids + 1, sizeof *p.computes);
    p.writes = arena_array(a, g->node_ids + 1, sizeof *p.writes);
    p.produced = arena_array(a, g->value_ids + 1, sizeof *p.produced);
    p.tainted = arena_array(a, g->value_ids + 1, sizeof *p.tainted);
    p.carries = arena_array(a, g->value_ids + 1, sizeof *p.carries);
    for (uint32_t i = 0; i < g->node_ids; i++) p.computes[i] = p.writes[i] = NO_VERTEX;
    for (uint32_t i = 0; i < g->value_ids; i++) p.produced[i] = NO_VERTEX;
    p.trains = g->role == IR_GRAPH_train && ir_output_by_role(g, IR_OUTPUT_loss);
    add_vertices(&p);
    add_values(&p);
    return p;
}
