/* shard.c - each rank updates its slices of the parameters (--shard=optimizer), and keeps only these slices of the
 * masters and of the slots of the optimizers. All ranks then gather the new parameters.
 *
 * Slices go from the updates up to the gradients, through ops that work element by element; an all_reduce of which
 * only slices are read becomes a reduce_scatter. What a graph computes of whole gradients, flags and norms, is
 * computed of the slices, and ranks agree on all of these in one small all_reduce: a flag is set if one is, and squares
 * of norms are added.
 *
 *   before  %g = all_reduce %d.w                     after  %g.part = reduce_scatter %d.w {ranks=2}
 *           %u, %inf = check_finite %g, @scale              %u.part, .. = check_finite %g.part, @scale
 *           %w.new, %v.new = momentum @w, @v, %u            %w.new.part, .. = momentum %w.part, @v, %u.part
 *           store @w, %w.new                                %w.new.1 = all_gather %w.new.part {ranks=2}
 *
 * A parameter that all graphs read through a cast to one low type has no memory then: each rank updates its slice of
 * the master, and what is gathered, in the low type, is the copy that the graphs read.
 *
 *   %w.h = cast @w {to=f16}                           %y = matmul %x, @low_copy.w
 *   %y = matmul %x, %w.h                              %w.new.part, .. = momentum @master.w, @v, %u.part
 *
 * A slot is a vector then: it is the shard of a tensor like its parameter (ir_storage.shard). Optimizers whose updates
 * mix the elements of a parameter, except by norms, are refused. */
#include "passes/train/shard.h"
#include "passes/train/optimizer_options.h"

#include <string.h>

typedef VEC(ir_value *) value_list;

typedef struct sharding {
    ir_graph *graph;
    diag *diag;
    arena *scratch;
    int64_t ranks, bucket;
    uint32_t values;   /* of the graph before the pass; later ones are slices, or the same on all ranks */
    ir_value **slice;  /* by id of these values; NULL: none yet */
    value_list agreed; /* flags and norms before the pass, in pairs with those of this rank */
} sharding;

static ir_value *slice_of(sharding *s, ir_value *v);

/* ---- slices ---------------------------------------------------------------------------------------------------- */

static void name_slice(ir_value *slice, const ir_value *v)
{
    if (slice) ir_value_rename(slice, arena_printf(v->graph->module->arena, "%s.part", v->name));
}

/* The slice of a value that each rank has as a whole. */
static ir_value *cut(sharding *s, ir_builder *b, ir_value *v)
{
    ir_node *n = ir_new_array(b, IR_OP_rank_part, 1, &v, 1);
    if (n) ir_set_int(n, IR_ATTR(rank_part, ranks), s->ranks);
    ir_value *part = ir_done(b, n);
    name_slice(part, v);
    return part;
}

static ir_builder builder_for(sharding *s, const ir_value *v)
{
    if (v->kind == IR_VALUE_RESULT) return ir_builder_after(v->def, s->diag);
    return pass_builder(s->graph, IR_UPDATE, s->diag);
}

static bool is_scalar(const ir_value *v) { return v->type.rank == 0; }

/* Whether the op computes each element from the elements in the same place and from scalars. */
static bool is_elementwise(const ir_node *n)
{
    if (!ir_op_has(n->op, IR_ELEMENTWISE) || n->n_out != 1) return false;
    for (int i = 0; i < n->n_in; i++) {
        const ir_value *v = ir_in(n, i);
        if (v && !is_scalar(v) && !ir_type_same_shape(&v->type, &n->out[0]->type)) return false;
    }
    return true;
}

/* A node of the update, or one that changes the type of gradients after they have been reduced. */
static bool is_sliced(const ir_value *v)
{
    const ir_node *n = ir_def(v), *before;
    if (!n || is_scalar(v)) return false;
    if (n->phase == IR_UPDATE) return is_elementwise(n) || ir_op_has(n->op, IR_CHECKS);
    before = n->n_in == 1 && is_elementwise(n) ? ir_def(ir_in(n, 0)) : NULL;
    return before && ir_op_has(before->op, IR_COLLECTIVE);
}

/* A copy of the node with slices as operands, which is inserted after it. cuts: also of scalars, which count once. */
static ir_node *copy_of_slices(sharding *s, ir_node *n, bool cuts)
{
    ir_value **in = arena_array(s->scratch, (size_t)n->n_in + 1, sizeof *in);
    ir_builder b = ir_builder_before(n, s->diag);
    for (int i = 0; i < n->n_in; i++) {
        in[i] = ir_in(n, i) ? slice_of(s, ir_in(n, i)) : NULL;
        if (cuts && in[i] && is_scalar(in[i])) in[i] = cut(s, &b, in[i]);
    }
    b = ir_builder_after(n, s->diag);
    ir_node *copy = ir_new_array(&b, n->op, n->n_in, in, n->n_out);
    if (!copy) return NULL;
    memcpy(copy->attr, n->attr, (size_t)ir_op_get(n->op)->n_attr * sizeof *n->attr);
    copy->note = n->note;
    if (!ir_done_all(&b, copy)) return NULL;
    for (int i = 0; i < n->n_out; i++) name_slice(copy->out[i], n->out[i]);
    return copy;
}

/* Sets the slices of the results of a node, and notes its flag. */
static void slice_node(sharding *s, ir_node *n)
{
    ir_node *copy = copy_of_slices(s, n, false);
    if (!copy) return;
    for (int i = 0; i < n->n_out; i++) s->slice[n->out[i]->id] = copy->out[i];
    if (!ir_op_has(n->op, IR_CHECKS)) return;
    for (int i = 0; i < n->n_out - 1; i++)
        if (is_scalar(n->out[i])) ir_value_replace(n->out[i], copy->out[i]);
    vec_push(s->scratch, &s->agreed, n->out[n->n_out - 1]);
    vec_push(s->scratch, &s->agreed, copy->out[n->n_out - 1]);
}

/* The slice of this rank of v; v itself if it is a scalar. */
static ir_value *slice_of(sharding *s, ir_value *v)
{
    if (is_scalar(v) || v->id >= s->values) return v;
    if (s->slice[v->id]) return s->slice[v->id];
    if (is_sliced(v)) slice_node(s, v->def);
    if (!s->slice[v->id]) {
        ir_builder b = builder_for(s, v);
        s->slice[v->id] = cut(s, &b, v);
    }
    return s->slice[v->id];
}

/* ---- agreement ------------------------------------------------------------------------------------------------- */

/* What a rank contributes: 1 for a flag, the squares of norms. */
static ir_value *contribution(ir_builder *b, ir_value *v)
{
    const bool flag = v->type.dtype == IR_bool;
    ir_value *x = ir_cast(b, v, IR_f64);
    return flag ? x : ir_binary(b, IR_OP_mul, x, x);
}

static ir_value *agreed_value(ir_builder *b, ir_value *sum, ir_dtype type)
{
    if (type == IR_bool) return ir_cast(b, sum, type);
    return ir_cast(b, ir_unary(b, IR_OP_sqrt, sum), type);
}

/* Replaces each first value of a pair by what the ranks make of the second ones. */
static void agree(sharding *s, const value_list *pairs)
{
    const int n = (int)pairs->count / 2;
    ir_builder b = pass_builder(s->graph, IR_UPDATE, s->diag);
    ir_value **in = arena_array(s->scratch, (size_t)n + 1, sizeof *in);
    if (!n) return;
    for (int i = 0; i < n; i++) in[i] = contribution(&b, pairs->items[2 * i + 1]);
    ir_node *sum = ir_new_array(&b, IR_OP_all_reduce, n, in, n);
    if (!sum) return;
    ir_set_int(sum, IR_ATTR(all_reduce, by), IR_WORD_reduced_sum);
    ir_set_dtype(sum, IR_ATTR(all_reduce, wire), IR_f64);
    if (!ir_done_all(&b, sum)) return;
    for (int i = 0; i < n; i++) {
        ir_value *old = pairs->items[2 * i], *fresh = agreed_value(&b, sum->out[i], old->type.dtype);
        if (fresh) ir_value_replace(old, fresh);
    }
}

/* Lets norms of whole values be computed of their slices. scalars: also those of scalars. */
static void slice_norms(sharding *s, ir_op op, bool scalars, value_list *pairs)
{
    for (ir_node *n = s->graph->first, *next; n; n = next) {
        next = n->next;
        if (n->op != op || n->phase != IR_UPDATE || n->out[0]->id >= s->values) continue;
        if (!scalars && is_scalar(ir_in(n, 0))) continue;
        ir_node *copy = copy_of_slices(s, n, scalars);
        if (!copy) return;
        vec_push(s->scratch, pairs, n->out[0]);
        vec_push(s->scratch, pairs, copy->out[0]);
    }
}

/* ---- updates --------------------------------------------------------------------------------------------------- */

static bool updates_parameter(const ir_node *n)
{
    const ir_storage *owner = ir_op_has(n->op, IR_UPDATES) ? ir_in(n, 0)->storage : NULL;
    return owner && owner->kind == IR_PARAM && !is_scalar(ir_in(n, 0));
}

static bool is_slot_of(const ir_storage *slot, const ir_storage *param)
{
    return slot && slot->kind == IR_STATE && slot->role == IR_STATE_slot && slot->of == param &&
           slot->data.kind == IR_DATA_ZERO;
}

static int count_states(const ir_node *n)
{
    int count = 1;
    while (ir_in(n, count) && ir_in(n, count)->storage && ir_in(n, count)->storage->role == IR_STATE_slot) count++;
    return count;
}

static ampc_status refuse(const sharding *s, const ir_node *n, const ir_storage *param)
{
    const char *name = optimizer_mixing(s->graph);
    return diag_error(s->diag, AMPC_UNSUPPORTED, diag_about(DIAG_NOWHERE, OPTION_shard),
                      "%s updates the whole of a parameter at once, such as '%s', which has no slices",
                      name ? name : ir_op_get(n->op)->name, param->name);
}

/* Whether the gradient is computed from reduced gradients element by element, or is the direction of another update. */
static bool has_slices(const sharding *s, const ir_value *v)
{
    const ir_node *n = ir_def(v);
    if (!n || n->phase != IR_UPDATE || ir_op_has(n->op, IR_COLLECTIVE) || s->slice[v->id]) return true;
    if (ir_op_has(n->op, IR_CHECKS)) return true;
    if (!is_elementwise(n)) return false;
    for (int i = 0; i < n->n_in; i++)
        if (ir_in(n, i) && !is_scalar(ir_in(n, i)) && !has_slices(s, ir_in(n, i))) return false;
    return true;
}

static ampc_status shard_slots(sharding *s, ir_node *n, const ir_storage *param, int states)
{
    for (int i = 1; i < states; i++) {
        ir_storage *slot = ir_in(n, i)->storage;
        const ir_type whole = ir_storage_whole(slot), slice = ir_type_shard(&whole, s->ranks);
        if (slot->shard == s->ranks) continue;
        if (!is_slot_of(slot, param) || !ir_type_same_shape(&slot->type, &param->type)) return refuse(s, n, param);
        slot->shard = s->ranks;
        slot->type = slice;
        for (ir_graph *g = ir_first_graph(s->graph->module); g; g = ir_next_graph(g))
            ir_graph_storage(g, slot)->type = slice;
    }
    return AMPC_OK;
}

/* Lets the node update slices. */
static ampc_status shard_update(sharding *s, ir_node *n)
{
    const ir_storage *param = ir_in(n, 0)->storage;
    const int states = count_states(n); /* the gradient follows them */
    if (n->n_out != states || !has_slices(s, ir_in(n, states))) return refuse(s, n, param);
    TRY(shard_slots(s, n, param, states));
    ir_value *grad = slice_of(s, ir_in(n, states));
    ir_builder b = ir_builder_before(n, s->diag);
    ir_value *whole = ir_in(n, 0);
    if (!s->slice[whole->id]) s->slice[whole->id] = cut(s, &b, whole);
    if (!grad || !s->slice[whole->id]) return diag_status(s->diag);
    ir_node_set_input(n, 0, s->slice[whole->id]);
    ir_node_set_input(n, states, grad);
    for (int i = 0; i < n->n_out; i++) n->out[i]->type.dtype = IR_NO_DTYPE;
    TRY(ir_infer(n, s->diag));
    s->slice[n->out[0]->id] = n->out[0];
    return AMPC_OK;
}

/* An update whose operand 0 is a slot changes one that has no slices (Adafactor). */
static ampc_status shard_updates(sharding *s, bool *any)
{
    for (ir_node *n = s->graph->first, *next; n; n = next) {
        next = n->next;
        if (!ir_op_has(n->op, IR_UPDATES)) continue;
        const ir_storage *state = ir_in(n, 0)->storage;
        if (state && state->role == IR_STATE_average) continue;
        if (state && state->kind == IR_STATE) return refuse(s, n, state->of);
        if (!updates_parameter(n)) continue;
        TRY(shard_update(s, n));
        *any = true;
    }
    return AMPC_OK;
}

/* ---- gathering ------------------------------------------------------------------------------------------------- */

typedef struct gathering {
    value_list slices;
    VEC(ir_storage *) params;
    VEC(int64_t) shapes;
    int64_t bytes;
} gathering;

/* NULL if there are no slices, or after an error. */
static ir_node *gather_node(const sharding *s, ir_builder *b, const gathering *x, ir_dtype wire)
{
    const int n = (int)x->slices.count;
    ir_node *node = n ? ir_new_array(b, IR_OP_all_gather, n, x->slices.items, n) : NULL;
    if (!node) return NULL;
    ir_set_list(node, IR_ATTR(all_gather, shapes), x->shapes.items, (int)x->shapes.count);
    ir_set_dtype(node, IR_ATTR(all_gather, wire), wire);
    ir_set_int(node, IR_ATTR(all_gather, ranks), s->ranks);
    return ir_done_all(b, node) ? node : NULL;
}

/* Appends one all_gather and lets all but itself read the whole parameters. */
static void gather(sharding *s, gathering *x)
{
    const int n = (int)x->slices.count;
    if (!n) return;
    ir_builder b = pass_builder(s->graph, IR_UPDATE, s->diag);
    ir_node *node = gather_node(s, &b, x, x->params.items[0]->type.dtype);
    if (!node) return;
    for (int i = 0; i < n; i++) {
        ir_value *slice = x->slices.items[i];
        const char *name = slice->name;
        ir_value_replace(slice, node->out[i]);
        ir_node_set_input(node, i, slice);
        name_slice(slice, slice);
        ir_value_rename(node->out[i], name);
    }
    *x = (gathering){0};
}

static void gather_later(sharding *s, gathering *x, ir_value *slice, ir_storage *param)
{
    const ir_type *t = &param->type;
    const int64_t bytes = ir_storage_bytes(param);
    if (x->slices.count && (x->bytes + bytes > s->bucket || x->params.items[0]->type.dtype != t->dtype)) gather(s, x);
    vec_push(s->scratch, &x->slices, slice);
    vec_push(s->scratch, &x->params, param);
    vec_push(s->scratch, &x->shapes, t->rank);
    for (int i = 0; i < t->rank; i++) vec_push(s->scratch, &x->shapes, t->dims[i]);
    x->bytes += bytes;
}

static void gather_parameters(sharding *s)
{
    gathering x = {0};
    for (ir_node *n = ir_first_store(s->graph); n; n = ir_next_store(n)) {
        ir_value *v = ir_in(n, 1);
        ir_storage *param = ir_in(n, 0)->storage;
        if (param->kind == IR_PARAM && v->id < s->values && s->slice[v->id] == v) gather_later(s, &x, v, param);
    }
    gather(s, &x);
}

/* ---- reduce_scatter ---------------------------------------------------------------------------------------------- */

/* The node that cuts v, if no other node reads it; else NULL. */
static ir_node *only_part(const sharding *s, const ir_value *v)
{
    const ir_use *use = v->first_use;
    if (!use || use->next || v->id >= s->values || !s->slice[v->id]) return NULL;
    return use->user == s->slice[v->id]->def ? use->user : NULL;
}

static void copy_reduction(ir_node *to, const ir_node *from)
{
    for (int i = 0; i < ir_op_get(from->op)->n_attr; i++)
        to->attr[ir_op_find_attr(to->op, ir_op_get(from->op)->attr[i].name)] = from->attr[i];
}

/* Replaces an all_reduce by a reduce_scatter of those operands of which only slices are read, and an all_reduce of the
 * others. */
static void scatter(sharding *s, ir_node *n)
{
    value_list in[2] = {0}, out[2] = {0};
    ir_builder b = ir_builder_before(n, s->diag);
    for (int i = 0; i < n->n_in; i++) {
        const int whole = !only_part(s, n->out[i]);
        vec_push(s->scratch, &in[whole], ir_in(n, i));
        vec_push(s->scratch, &out[whole], whole ? n->out[i] : only_part(s, n->out[i])->out[0]);
    }
    if (!in[0].count) return;
    for (int k = 0; k < 2; k++) {
        const int count = (int)in[k].count;
        if (!count) continue;
        ir_node *node = ir_new_array(&b, k ? IR_OP_all_reduce : IR_OP_reduce_scatter, count, in[k].items, count);
        if (!node) return;
        copy_reduction(node, n);
        if (!k) ir_set_int(node, IR_ATTR(reduce_scatter, ranks), s->ranks);
        if (!ir_done_all(&b, node)) return;
        for (int i = 0; i < count; i++) {
            const char *name = out[k].items[i]->name;
            ir_value_replace(out[k].items[i], node->out[i]);
            ir_value_rename(node->out[i], name);
        }
    }
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

typedef struct ordering {
    arena *scratch;
    bool *done; /* by id */
    VEC(ir_node *) nodes;
} ordering;

static void add_in_order(ordering *o, ir_node *n)
{
    if (o->done[n->id]) return;
    o->done[n->id] = true;
    for (int i = 0; i < n->n_in; i++)
        if (ir_in(n, i) && ir_def(ir_in(n, i))) add_in_order(o, ir_def(ir_in(n, i)));
    vec_push(o->scratch, &o->nodes, n);
}

/* Moves the nodes of the update after the nodes that define their operands. */
static void order_update(sharding *s)
{
    ordering o = {.scratch = s->scratch, .done = arena_array(s->scratch, s->graph->node_ids, sizeof(bool))};
    for (const ir_node *n = s->graph->first; n; n = n->next) o.done[n->id] = n->phase != IR_UPDATE;
    for (ir_node *n = s->graph->first; n; n = n->next) add_in_order(&o, n);
    for (size_t i = o.nodes.count; i-- > 1;) ir_node_move_before(o.nodes.items[i - 1], o.nodes.items[i]);
}

/* ---- masters ----------------------------------------------------------------------------------------------------- */

/* Whether the value is only stored, after it has been gathered. */
static bool is_gathered(const ir_value *v)
{
    return ir_def(v) && ir_op_has(ir_def(v)->op, IR_COLLECTIVE) && !v->first_use->next;
}

/* The type of the cast through which all graphs read the parameter, which is otherwise only cut and stored;
 * IR_NO_DTYPE: there is none. */
static ir_dtype low_type(const ir_module *m, ir_storage *param)
{
    ir_dtype low = IR_NO_DTYPE;
    bool stored = false;
    for (ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g))
        for (const ir_use *use = ir_graph_storage(g, param)->first_use; use; use = use->next) {
            const ir_node *n = use->user;
            if (ir_op_has(n->op, IR_RANKED)) continue;
            if (ir_op_has(n->op, IR_STORES)) {
                stored = is_gathered(ir_in(n, 1));
                if (!stored) return IR_NO_DTYPE;
                continue;
            }
            const bool casts = ir_op_has(n->op, IR_CONVERTS) && ir_dtype_is_low(n->out[0]->type.dtype);
            if (!casts || (low != IR_NO_DTYPE && low != n->out[0]->type.dtype)) return IR_NO_DTYPE;
            low = n->out[0]->type.dtype;
        }
    return stored ? low : IR_NO_DTYPE;
}

/* Lets the graph read the low copy, and update the master. */
static void read_copies(ir_graph *g, ir_storage *param, ir_storage *master, ir_storage *low)
{
    const ir_value *v = ir_graph_storage(g, param);
    for (const ir_use *use = v->first_use, *next; use; use = next) {
        ir_node *n = use->user;
        next = use->next;
        if (ir_op_has(n->op, IR_STORES)) continue;
        ir_value_replace(n->out[0], ir_graph_storage(g, ir_op_has(n->op, IR_CONVERTS) ? low : master));
        ir_node_remove(n);
    }
}

static void add_master(ir_module *m, ir_storage *param, int64_t ranks)
{
    const ir_dtype type = low_type(m, param);
    if (type == IR_NO_DTYPE || param->type.dtype != IR_f32) return;
    ir_storage *master = pass_state_of(m, IR_STATE_master, param), *low = pass_state_of(m, IR_STATE_low_copy, param);
    master->type = ir_type_shard(&param->type, ranks);
    master->shard = param->shard = ranks;
    low->type.dtype = type;
    for (ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g)) read_copies(g, param, master, low);
}

/* The low copy that the store of a gathered parameter becomes; NULL: the parameter has none. */
static ir_storage *low_copy(const ir_value *gathered)
{
    const ir_node *store = gathered->first_use ? gathered->first_use->user : NULL;
    const ir_storage *s = store && ir_op_has(store->op, IR_STORES) ? ir_in(store, 0)->storage : NULL;
    return s && s->shard ? ir_storage_owned(store->graph->module, IR_STATE_low_copy, s) : NULL;
}

static void store_copies(const sharding *s, ir_value *gathered, ir_value *slice, ir_value *fresh)
{
    ir_storage *low = low_copy(gathered);
    ir_node *store = gathered->first_use->user;
    ir_builder b = ir_builder_after(store, s->diag);
    if (low) {
        pass_store_new(&b, ir_storage_owned(s->graph->module, IR_STATE_master, low->of), slice);
        pass_store_new(&b, low, fresh);
        ir_node_remove(store);
    } else {
        const char *name = gathered->name;
        ir_value_replace(gathered, fresh);
        ir_value_rename(fresh, name);
    }
}

/* Splits an all_gather by the types in which what it gathers is stored. */
static void split_gather(sharding *s, ir_node *n)
{
    static const ir_dtype types[] = {IR_f16, IR_bf16, IR_f32, IR_f64};
    const ir_dtype wire = n->attr[ir_op_find_attr(n->op, "wire")].dtype;
    bool any = false;
    for (int i = 0; i < n->n_out; i++) any |= low_copy(n->out[i]) != NULL;
    for (size_t t = 0; any && t < sizeof types / sizeof *types; t++) {
        gathering x = {0};
        value_list old = {0};
        for (int i = 0; i < n->n_out; i++) {
            const ir_storage *low = low_copy(n->out[i]);
            const ir_type *type = &n->out[i]->type;
            if (!ir_value_used(n->out[i]) || (low ? low->type.dtype : wire) != types[t]) continue;
            vec_push(s->scratch, &x.slices, ir_in(n, i));
            vec_push(s->scratch, &old, n->out[i]);
            vec_push(s->scratch, &x.shapes, type->rank);
            for (int k = 0; k < type->rank; k++) vec_push(s->scratch, &x.shapes, type->dims[k]);
        }
        ir_builder b = ir_builder_before(n, s->diag);
        ir_node *fresh = gather_node(s, &b, &x, types[t]);
        for (size_t i = 0; fresh && i < old.count; i++) store_copies(s, old.items[i], x.slices.items[i], fresh->out[i]);
    }
}

static void shard_masters(sharding *s)
{
    for (ir_node *n = s->graph->first, *next; n; n = next) {
        next = n->next;
        if (ir_op_has(n->op, IR_COLLECTIVE)) split_gather(s, n);
    }
    pass_remove_dead(s->graph);
}

/* ---- the strategy ------------------------------------------------------------------------------------------------ */

static ampc_status shard_graph(sharding *s)
{
    bool any = false;
    value_list parts = {0};
    TRY(shard_updates(s, &any));
    if (!any) return AMPC_OK;
    slice_norms(s, IR_OP_global_norm, true, &s->agreed);
    slice_norms(s, IR_OP_norm_parts, false, &parts);
    agree(s, &s->agreed);
    agree(s, &parts);
    gather_parameters(s);
    if (diag_status(s->diag) != AMPC_OK) return diag_status(s->diag);
    pass_remove_dead(s->graph);
    for (ir_node *n = s->graph->first, *next; n; n = next) {
        next = n->next;
        if (ir_op_has(n->op, IR_COLLECTIVE)) scatter(s, n);
    }
    order_update(s);
    pass_remove_dead(s->graph);
    return diag_status(s->diag);
}

static ampc_status shard_module(ir_module *m, sharding *s)
{
    for (size_t i = 0; i < m->graphs.count; i++) {
        s->graph = m->graphs.items[i];
        s->agreed = (value_list){0};
        s->values = s->graph->value_ids;
        s->slice = arena_array(s->scratch, (size_t)s->values, sizeof *s->slice);
        TRY(shard_graph(s));
    }
    const size_t count = m->storage.count;
    for (size_t i = 0; i < count; i++)
        if (m->storage.items[i]->kind == IR_PARAM) add_master(m, m->storage.items[i], s->ranks);
    for (size_t i = 0; i < m->graphs.count; i++) {
        s->graph = m->graphs.items[i];
        shard_masters(s);
    }
    return diag_status(s->diag);
}

ampc_status shard_optimizer(ir_module *m, int64_t ranks, int64_t bucket, diag *d)
{
    if (ranks <= 1) return AMPC_OK;
    sharding s = {.diag = d, .scratch = pass_scratch_new(m), .ranks = ranks, .bucket = bucket};
    ampc_status status = shard_module(m, &s);
    arena_free(s.scratch);
    return status;
}
