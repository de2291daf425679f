/* grad_loop.c - the gradient of `loop`.
 *
 * The loop is replaced by one that also returns, for every iteration, the iteration number and the carried values
 * before it, and the number of iterations. A second loop runs over these stacks from the end. Its body is that of the
 * first, which computes the values of the iteration again, followed by its backward. It carries the gradients of the
 * carried values and, summed in f32 or f64, those of the captures, and stacks those of the scanned values.
 *
 * The stacks have as many places as the scanned values or stacked results. Without either, that is the trip count if it
 * is known, else a symbol, NODE.iterations, which the user binds to a bound. */
#include "passes/train/grad.h"

#include <string.h>

/* ---- a loop under construction --------------------------------------------------------------------- */

typedef VEC(ir_value *) value_list;

/* A scanned operand or stacked result: the outer value, if it is an operand, and its attributes. */
typedef struct stacked {
    ir_value *all, *one;
    int64_t axis, reversed;
} stacked;
typedef VEC(stacked) stacked_list;

/* An input of the body that captures an operand of the original loop. */
typedef struct captured {
    ir_value *input;
    int operand;
} captured;

/* The parts of a loop. `inner` are inputs of the body, `next` and `stacks[].one` values of the body. */
typedef struct loop_parts {
    arena *arena;
    ir_graph *body;
    ir_value *trip_count, *condition; /* operands, or NULL */
    ir_value *iteration, *go;         /* inputs of the body; NULL: not counted */
    ir_value *again;                  /* of the body: whether to go on; NULL: not counted */
    value_list first, inner, next;    /* by carried value */
    stacked_list slices, stacks;
    VEC(captured) captures;
    ir_dim length; /* of the stacks */
} loop_parts;

static ir_type stack_type(const loop_parts *l, const stacked *s)
{
    ir_type t = s->one->type;
    const int axis = (int)(s->axis < 0 ? s->axis + t.rank + 1 : s->axis);
    for (int i = t.rank++; i > axis; i--) t.dims[i] = t.dims[i - 1];
    t.dims[axis] = l->length;
    return t;
}

/* Puts the inputs that the op passes first. `shift`: from operands of the original to those of n. */
static void order_inputs(const loop_parts *l, ir_node *n, int shift)
{
    value_list order = {0};
    if (l->iteration) vec_push(l->arena, &order, l->iteration);
    if (l->go) vec_push(l->arena, &order, l->go);
    for (size_t i = 0; i < l->inner.count; i++) vec_push(l->arena, &order, l->inner.items[i]);
    for (size_t i = 0; i < l->slices.count; i++) vec_push(l->arena, &order, l->slices.items[i].one);
    for (size_t i = 0; i < l->captures.count; i++) {
        ir_capture_set(&n->regions[0], order.count, l->captures.items[i].operand + shift);
        vec_push(l->arena, &order, l->captures.items[i].input);
    }
    for (size_t i = 0; i < order.count; i++) l->body->inputs.items[i] = order.items[i];
}

static void set_stack_lists(const loop_parts *l, ir_node *n)
{
    const stacked_list *lists[] = {&l->slices, &l->stacks};
    const int axes[] = {IR_ATTR(loop, slice_axes), IR_ATTR(loop, stack_axes)};
    const int reversed[] = {IR_ATTR(loop, slice_reversed), IR_ATTR(loop, stack_reversed)};
    for (int k = 0; k < 2; k++) {
        int64_t *numbers = arena_array(l->arena, 2 * lists[k]->count + 2, sizeof *numbers);
        for (size_t i = 0; i < lists[k]->count; i++) {
            numbers[i] = lists[k]->items[i].axis;
            numbers[lists[k]->count + i] = lists[k]->items[i].reversed;
        }
        ir_set_list(n, axes[k], numbers, (int)lists[k]->count);
        ir_set_list(n, reversed[k], numbers + lists[k]->count, (int)lists[k]->count);
    }
}

static void declare(const loop_parts *l, ir_node *n)
{
    const size_t own = l->first.count + l->slices.count, results = (size_t)n->n_out;
    char *marks = arena_alloc(l->arena, own + 3), *end = marks;
    if (l->again) {
        *end++ = l->trip_count ? 'x' : '_';
        *end++ = l->condition ? 'x' : '_';
    }
    memset(end, 'x', own);
    ir_layout_set(n, marks, arena_strndup(l->arena, memset(arena_alloc(l->arena, results + 1), 'x', results), results));
    for (size_t i = 0; i < results; i++)
        n->out[i]->type = i < l->first.count ? l->first.items[i]->type
                                             : stack_type(l, &l->stacks.items[i - l->first.count]);
}

static void put_outputs(const loop_parts *l, ir_phase phase, diag *d)
{
    ir_builder end = ir_builder_at_end(l->body, d);
    int number = 0;
    end.phase = phase;
    if (l->again) ir_output(&end, "again", l->again);
    for (size_t i = 0; i < l->next.count; i++)
        ir_output(&end, arena_printf(l->arena, "%d", number++), l->next.items[i]);
    for (size_t i = 0; i < l->stacks.count; i++)
        ir_output(&end, arena_printf(l->arena, "%d", number++), l->stacks.items[i].one);
}

/* The node, inserted, with the captures of `like`; its body has no output statements yet. */
static ir_node *new_loop(loop_parts *l, ir_builder *b, const ir_node *like)
{
    value_list in = {0};
    if (l->trip_count) vec_push(l->arena, &in, l->trip_count);
    if (l->condition) vec_push(l->arena, &in, l->condition);
    for (size_t i = 0; i < l->first.count; i++) vec_push(l->arena, &in, l->first.items[i]);
    for (size_t i = 0; i < l->slices.count; i++) vec_push(l->arena, &in, l->slices.items[i].all);
    const int declared = ir_declared_operands(like), shift = (int)in.count - declared;
    for (int i = declared; i < like->n_in; i++) vec_push(l->arena, &in, ir_in(like, i));
    ir_node *n = ir_new_array(b, IR_OP_loop, (int)in.count, in.items, (int)(l->first.count + l->stacks.count));
    ir_set_bool(n, IR_ATTR(loop, counted), l->again != NULL);
    ir_set_int(n, IR_ATTR(loop, scanned), (int64_t)l->slices.count);
    set_stack_lists(l, n);
    declare(l, n);
    ir_node_insert(b, n);
    ir_region_add(n, "body", l->body);
    order_inputs(l, n, shift);
    return n;
}

/* ---- the parts of the forward loop ----------------------------------------------------------------- */

static int64_t item(const ir_node *n, int attr, size_t i)
{
    const ir_attr *list = &n->attr[attr];
    return (int)i < list->list.count ? list->list.items[i] : 0;
}

/* The parts of a copy of the loop's body, whose output statements are removed. */
static loop_parts take_apart(const ir_node *n)
{
    const ir_loop_form f = ir_loop_form_of(n);
    loop_parts l = {.arena = n->graph->module->arena, .body = ir_body_clone(n->regions[0].graph)};
    value_list own = {0};
    for (size_t i = 0; i < l.body->inputs.count; i++) {
        const captured c = {l.body->inputs.items[i], ir_capture_of(&n->regions[0], i)};
        if (c.operand < 0) vec_push(l.arena, &own, c.input);
        else vec_push(l.arena, &l.captures, c);
    }
    l.trip_count = f.trip_count < 0 ? NULL : ir_in(n, f.trip_count);
    l.condition = f.condition < 0 ? NULL : ir_in(n, f.condition);
    if (f.fixed) l.iteration = own.items[0], l.go = own.items[1];
    for (int i = 0; i < f.states; i++) {
        vec_push(l.arena, &l.first, ir_in(n, f.first + i));
        vec_push(l.arena, &l.inner, own.items[f.fixed + i]);
    }
    for (int i = 0; i < f.slices; i++)
        vec_push(l.arena, &l.slices,
                 ((stacked){ir_in(n, f.first + f.states + i), own.items[f.fixed + f.states + i],
                            item(n, IR_ATTR(loop, slice_axes), (size_t)i),
                            item(n, IR_ATTR(loop, slice_reversed), (size_t)i)}));
    int i = 0;
    for (ir_node *o = ir_first_output(l.body), *next; o; o = next, i++) {
        next = ir_next_output(o);
        ir_value *v = ir_in(o, 0);
        const int stack = i - f.fixed_out - f.states;
        if (i < f.fixed_out) l.again = v;
        else if (stack < 0) vec_push(l.arena, &l.next, v);
        else
            vec_push(l.arena, &l.stacks,
                     ((stacked){NULL, v, item(n, IR_ATTR(loop, stack_axes), (size_t)stack),
                                item(n, IR_ATTR(loop, stack_reversed), (size_t)stack)}));
        ir_node_remove(o);
    }
    return l;
}

/* The number of inputs and outputs of the body matches the operands. */
static bool is_consistent(const ir_node *n)
{
    const ir_loop_form f = ir_loop_form_of(n);
    const ir_graph *body = n->n_regions == 1 ? n->regions[0].graph : NULL;
    int own = 0, outputs = 0;
    if (!body) return false;
    for (size_t i = 0; i < body->inputs.count; i++) own += ir_capture_of(&n->regions[0], i) < 0;
    for (const ir_node *o = ir_first_output(body); o; o = ir_next_output(o)) outputs++;
    return own == f.fixed + f.states + f.slices && outputs >= f.fixed_out + f.states &&
           outputs >= f.fixed_out + n->layout.n_out;
}

/* ---- the loop that saves ----------------------------------------------------------------------------- */

/* The number of places of the stacks; *exact: no iteration leaves one unused. */
static ir_dim find_length(const ir_node *n, const loop_parts *l, bool *exact)
{
    *exact = true;
    for (size_t i = 0; i < l->slices.count; i++) {
        const ir_type *t = &l->slices.items[i].all->type;
        const int64_t axis = l->slices.items[i].axis;
        return t->dims[axis < 0 ? axis + t->rank : axis];
    }
    for (size_t i = 0; i < l->stacks.count; i++) {
        const int k = ir_opaque_result_at(n, (int)(l->next.count + i));
        const ir_type *t = k < 0 ? NULL : &n->out[k]->type;
        const int64_t axis = l->stacks.items[i].axis;
        if (t) return t->dims[axis < 0 ? axis + t->rank : axis];
    }
    *exact = false;
    ir_module *m = n->graph->module;
    const ir_const_value *trips = NULL;
    if (l->trip_count) trips = ir_const_get(ir_const_map_new(m->arena, n->graph), l->trip_count);
    if (trips && trips->ints && !ir_dim_is_symbolic(trips->ints[0])) return trips->ints[0] < 0 ? 0 : trips->ints[0];
    return ir_dim_symbol(m->dims, arena_printf(m->arena, "%s.iterations", n->loc.node ? n->loc.node : "loop"));
}

/* Indices of what the saving loop returns beyond the results of the original. */
typedef struct saved {
    ir_node *node;
    int count, iteration, states; /* result indices; -1: none. One stack per carried value follows `states` */
} saved;

static void count_iterations(loop_parts *l, grad *g, ir_builder *b)
{
    ir_builder end = ir_builder_at_end(l->body, g->b->diag);
    const ir_type t = l->iteration->type;
    ir_value *zero = ir_scalar(b, IR_i64, 0), *one = ir_scalar(&end, IR_i64, 1);
    if (t.rank) zero = ir_reshape(b, zero, t.dims, t.rank);
    vec_push(l->arena, &l->first, zero);
    vec_push(l->arena, &l->inner, ir_graph_input(l->body, "count", &t));
    vec_push(l->arena, &l->next, ir_binary(&end, IR_OP_add, l->iteration, one));
}

/* Lets all users of the old loop read the results of the new one. */
static void replace_results(const ir_node *old, const saved *s, size_t states, bool counted)
{
    for (int i = 0; i < old->layout.n_out; i++) {
        const int k = ir_opaque_result_at(old, i);
        if (k < 0) continue;
        ir_value *now = s->node->out[i + (counted && i >= (int)states)];
        ir_value_replace(old->out[k], now);
    }
}

static saved save_iterations(grad *g)
{
    ir_builder b = ir_builder_after(g->n, g->b->diag);
    loop_parts l = take_apart(g->n);
    bool exact;
    const size_t states = l.first.count;
    const bool counted = l.iteration != NULL;
    l.length = find_length(g->n, &l, &exact);
    const value_list inner = l.inner;
    if (counted) count_iterations(&l, g, &b);
    saved s = {.count = counted ? (int)states : -1, .iteration = -1};
    if (counted) {
        s.iteration = (int)(l.first.count + l.stacks.count);
        vec_push(l.arena, &l.stacks, ((stacked){.one = l.iteration}));
    }
    s.states = (int)(l.first.count + l.stacks.count);
    for (size_t i = 0; i < states; i++) vec_push(l.arena, &l.stacks, ((stacked){.one = inner.items[i]}));
    s.node = new_loop(&l, &b, g->n);
    ir_set_bool(s.node, IR_ATTR(loop, partial), !exact);
    put_outputs(&l, IR_FORWARD, g->b->diag);
    if (ir_infer(s.node, g->b->diag) != AMPC_OK) return (saved){.node = NULL};
    ir_name_results(s.node);
    replace_results(g->n, &s, states, counted);
    return s;
}

/* ---- the loop that goes back ------------------------------------------------------------------------- */

/* The second loop under construction. */
typedef struct reverse {
    grad *g;
    const saved *saved;
    loop_parts of;    /* the original loop, with a copy of its body */
    loop_parts parts; /* the second loop; its body is the same graph */
    int *state_at;    /* by carried value of the original: that of its gradient; -1: no float */
    int *capture_at;  /* by operand of the original, -1: no gradient needed */
    int *slice_at;    /* by scanned value: position among the stacks, -1 */
    ir_value **dy;    /* by output of the original after the condition: its gradient in the body, or NULL */
} reverse;

static bool is_float(const ir_value *v) { return ir_dtype_is_float(v->type.dtype); }

static ir_type sum_type(const ir_value *v)
{
    ir_type t = v->type;
    if (ir_dtype_is_low(t.dtype)) t.dtype = IR_f32;
    return t;
}

static ir_value *zeros_of(grad *g, ir_builder *b, const ir_type *t)
{
    return grad_zeros(&(grad){.b = b, .n = g->n}, &(ir_value){.type = *t});
}

static ir_value *new_input(const reverse *r, const char *name, const ir_type *type)
{
    return ir_graph_input(r->of.body, name, type);
}

/* The operand of the original that an input of the body captures, or -1. */
static int operand_of(const reverse *r, const ir_value *input)
{
    for (size_t i = 0; i < r->of.captures.count; i++)
        if (r->of.captures.items[i].input == input) return r->of.captures.items[i].operand;
    return -1;
}

/* Adds a carried value that begins with `first`; returns its position. `next` is set later. */
static int carry(reverse *r, ir_value *first, const char *name)
{
    vec_push(r->of.arena, &r->parts.first, first);
    vec_push(r->of.arena, &r->parts.inner, new_input(r, arena_printf(r->of.arena, "d.%s", name), &first->type));
    return (int)r->parts.first.count - 1;
}

static void carry_gradients(reverse *r)
{
    grad *g = r->g;
    const ir_node *n = g->n;
    for (size_t i = 0; i < r->of.first.count; i++) {
        const ir_value *v = r->of.first.items[i];
        const int k = ir_opaque_result_at(n, (int)i);
        r->state_at[i] = -1;
        if (!is_float(v)) continue;
        ir_value *dy = k >= 0 ? g->dy[k] : NULL;
        r->state_at[i] = carry(r, dy ? ir_cast(g->b, dy, v->type.dtype) : grad_zeros(g, v), v->name);
        r->dy[i] = r->parts.inner.items[r->state_at[i]];
    }
    for (int i = 0; i < n->n_in; i++) {
        r->capture_at[i] = -1;
        if (i < ir_declared_operands(n) || !g->required[i]) continue;
        const ir_type t = sum_type(ir_in(n, i));
        r->capture_at[i] = carry(r, zeros_of(g, g->b, &t), ir_in(n, i)->name);
    }
}

/* Lets the body read a value of the current iteration from a stack that the first loop has saved. */
static void read_saved(reverse *r, ir_value *all, ir_value *one)
{
    vec_push(r->of.arena, &r->parts.slices, ((stacked){.all = all, .one = one, .axis = 0, .reversed = 1}));
}

static void scan_saved(reverse *r)
{
    const ir_node *n = r->g->n;
    const saved *s = r->saved;
    if (s->iteration >= 0) read_saved(r, s->node->out[s->iteration], r->of.iteration);
    for (size_t i = 0; i < r->of.inner.count; i++)
        read_saved(r, s->node->out[s->states + (int)i], r->of.inner.items[i]);
    for (size_t i = 0; i < r->of.slices.count; i++) {
        stacked x = r->of.slices.items[i];
        x.reversed = !x.reversed;
        vec_push(r->of.arena, &r->parts.slices, x);
    }
    for (size_t i = 0; i < r->of.stacks.count; i++) {
        stacked z = r->of.stacks.items[i];
        const int k = ir_opaque_result_at(n, (int)(r->of.next.count + i));
        if (k < 0 || !r->g->dy[k]) continue;
        z.all = r->g->dy[k];
        z.reversed = !z.reversed;
        z.one = new_input(r, arena_printf(r->of.arena, "d.stack%d", (int)i), &z.one->type);
        vec_push(r->of.arena, &r->parts.slices, z);
        r->dy[r->of.next.count + i] = z.one;
    }
}

/* The second loop counts in its own inputs: iteration number and condition. */
static void count_down(reverse *r)
{
    const ir_type number = ir_type_scalar(IR_i64), truth = ir_type_scalar(IR_bool);
    r->parts.iteration = new_input(r, "iteration", &number);
    r->parts.go = r->of.go ? r->of.go : new_input(r, "go", &truth);
    r->parts.again = r->parts.go;
    r->parts.trip_count = r->saved->count < 0 ? NULL : r->saved->node->out[r->saved->count];
}

static bool *required_inputs(const reverse *r)
{
    const ir_graph *body = r->of.body;
    bool *required = arena_array(r->of.arena, body->inputs.count + 1, sizeof *required);
    for (size_t i = 0; i < body->inputs.count; i++) {
        const ir_value *v = body->inputs.items[i];
        const int operand = operand_of(r, v);
        required[i] = operand >= 0 && r->capture_at[operand] >= 0;
        for (size_t k = 0; k < r->of.inner.count; k++) required[i] |= v == r->of.inner.items[k] && is_float(v);
        for (size_t k = 0; k < r->of.slices.count; k++) required[i] |= v == r->of.slices.items[k].one && is_float(v);
    }
    return required;
}

static ir_value *gradient_of(const grad_subgraph *s, const ir_value *input)
{
    for (size_t i = 0; i < s->graph->inputs.count; i++)
        if (s->graph->inputs.items[i] == input) return s->dx[i];
    return NULL;
}

static ir_value *capture_in(const reverse *r, int operand)
{
    for (size_t i = 0; i < r->of.body->inputs.count; i++)
        if (operand_of(r, r->of.body->inputs.items[i]) == operand) return r->of.body->inputs.items[i];
    return NULL;
}

/* Sets what each carried gradient becomes, and stacks the gradients of scanned values. */
static void close_body(reverse *r, const grad_subgraph *s)
{
    ir_builder end = ir_builder_at_end(r->of.body, r->g->b->diag);
    end.phase = IR_BACKWARD;
    end.loc = r->g->n->loc;
    for (size_t i = 0; i < r->parts.inner.count; i++) vec_push(r->of.arena, &r->parts.next, NULL);
    for (size_t i = 0; i < r->of.inner.count; i++) {
        if (r->state_at[i] < 0) continue;
        ir_value *d = gradient_of(s, r->of.inner.items[i]);
        r->parts.next.items[r->state_at[i]] = d ? d : zeros_of(r->g, &end, &r->of.inner.items[i]->type);
    }
    for (int i = 0; i < r->g->n->n_in; i++) {
        if (r->capture_at[i] < 0) continue;
        ir_value *sum = r->parts.inner.items[r->capture_at[i]], *input = capture_in(r, i);
        ir_value *d = input ? gradient_of(s, input) : NULL;
        if (d) sum = ir_binary(&end, IR_OP_add, sum, ir_cast(&end, d, sum->type.dtype));
        r->parts.next.items[r->capture_at[i]] = sum;
    }
    for (size_t i = 0; i < r->of.slices.count; i++) {
        stacked x = r->of.slices.items[i];
        r->slice_at[i] = -1;
        if (!is_float(x.one)) continue;
        r->slice_at[i] = (int)r->parts.stacks.count;
        ir_value *d = gradient_of(s, x.one);
        x.one = d ? d : zeros_of(r->g, &end, &x.one->type);
        x.reversed = !x.reversed;
        vec_push(r->of.arena, &r->parts.stacks, x);
    }
}

static void find_subgraph(const reverse *r)
{
    arena *a = r->of.arena;
    const int count = (int)(r->of.next.count + r->of.stacks.count);
    ir_value **outputs = arena_array(a, (size_t)count + 1, sizeof *outputs);
    for (int i = 0; i < count; i++)
        outputs[i] = i < (int)r->of.next.count ? r->of.next.items[i]
                                               : r->of.stacks.items[i - (int)r->of.next.count].one;
    r->g->subgraphs = arena_alloc(a, sizeof *r->g->subgraphs);
    r->g->n_subgraphs = 1;
    *r->g->subgraphs = (grad_subgraph){.graph = r->of.body,
                                       .count = count,
                                       .outputs = outputs,
                                       .dy = r->dy,
                                       .required = required_inputs(r),
                                       .dx = arena_array(a, r->of.body->inputs.count + 1, sizeof(ir_value *))};
}

static void collect(const reverse *r, const ir_node *back)
{
    const ir_loop_form f = ir_loop_form_of(r->g->n);
    for (int i = 0; i < f.states; i++)
        if (r->state_at[i] >= 0) r->g->dx[f.first + i] = back->out[r->state_at[i]];
    for (int i = 0; i < f.slices; i++)
        if (r->slice_at[i] >= 0)
            r->g->dx[f.first + f.states + i] = back->out[(int)r->parts.first.count + r->slice_at[i]];
    for (int i = 0; i < r->g->n->n_in; i++)
        if (r->capture_at[i] >= 0) r->g->dx[i] = back->out[r->capture_at[i]];
}

static bool begin_loop(grad *g)
{
    if (!is_consistent(g->n)) {
        diag_error(g->b->diag, AMPC_REJECTED, ir_diag_loc(g->n), "its body does not match its operands and results");
        return false;
    }
    arena *a = g->n->graph->module->arena;
    saved *s = arena_alloc(a, sizeof *s);
    *s = save_iterations(g);
    if (!s->node) return false;
    reverse *r = arena_alloc(a, sizeof *r);
    *r = (reverse){.g = g, .saved = s, .of = take_apart(g->n)};
    const size_t operands = (size_t)g->n->n_in + 1;
    r->parts.arena = r->of.arena;
    r->parts.body = r->of.body;
    r->parts.captures.items = r->of.captures.items;
    r->parts.captures.count = r->of.captures.count;
    r->state_at = arena_array(a, r->of.first.count + 1, sizeof *r->state_at);
    r->capture_at = arena_array(a, operands, sizeof *r->capture_at);
    r->slice_at = arena_array(a, r->of.slices.count + 1, sizeof *r->slice_at);
    r->dy = arena_array(a, r->of.next.count + r->of.stacks.count + 1, sizeof *r->dy);
    bool exact;
    r->parts.length = find_length(g->n, &r->of, &exact);
    carry_gradients(r);
    scan_saved(r);
    count_down(r);
    find_subgraph(r);
    g->begun = r;
    return true;
}

static bool finish_loop(grad *g)
{
    reverse *r = g->begun;
    close_body(r, g->subgraphs);
    ir_node *back = new_loop(&r->parts, g->b, g->n);
    ir_set_bool(back, IR_ATTR(loop, partial), true);
    put_outputs(&r->parts, IR_BACKWARD, g->b->diag);
    if (ir_infer(back, g->b->diag) != AMPC_OK) return false;
    collect(r, back);
    return true;
}

bool grad_loop(grad *g) { return g->begun ? finish_loop(g) : begin_loop(g); }
