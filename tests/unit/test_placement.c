/* test_placement.c - minimum-cut placement compared with brute force.
 *
 * A random graph is coloured; every legal plan is enumerated and priced by counting casts as defined below,
 * independently of flow networks. The best price must equal the cost that amp_place predicts and that of its entries.
 * If the measure is cast bytes, the casts inserted by amp_cast must have exactly that many bytes. */
#include "ir/base/philox.h"
#include "passes/amp/cast.h"
#include "passes/amp/cost.h"
#include "passes/amp/placement.h"
#include "tests/compile.h"
#include "tests/test.h"

#include <math.h>

enum { GRAPHS = 10000, MAX_FREE = 14, MAX_NODES = 128, MAX_VALUES = 160 };

typedef struct trial {
    uint64_t seed, drawn;
    arena *arena;
    diag *diag;
    ir_module *module;
    ir_graph *graph;
    compile_options options;
    compile compile;
    amp_scope scope;
    amp_list *list;
    ir_device device;
    cost_model cost;
    amp_entry *greedy; /* by node id */
    ir_node *nodes[MAX_NODES];
    int count;
    /* a plan: by node id */
    bool want[MAX_NODES], result[MAX_NODES]; /* true: low */
    int64_t best;
    bool low_in_all[2 * MAX_NODES]; /* in all minimum-cost plans: want at 2*id, result at 2*id+1 */
} trial;

static uint32_t draw(trial *t, uint32_t below) { return philox_word(t->seed, 2, t->drawn++) % below; }

/* ---- random graphs --------------------------------------------------------------------------- */

/* Picks one of the values so far, preferring recent ones. */
static ir_value *pick(trial *t, ir_value **values, int count, bool full)
{
    for (;;) {
        int back = (int)draw(t, 4) ? (int)draw(t, count < 5 ? (uint32_t)count : 5) : (int)draw(t, (uint32_t)count);
        ir_value *v = values[count - 1 - back];
        if (!full || v->type.dims[1] == v->type.dims[0]) return v;
    }
}

/* Adds casts that belong to the model. */
static ir_value *round_trip(ir_builder *b, ir_value *x)
{
    ir_builder model = *b;
    model.loc = (ir_loc){.op = "Cast", .node = "cast"};
    return ir_cast(&model, ir_cast(&model, x, IR_f16), IR_f32);
}

static ir_value *random_node(trial *t, ir_builder *b, ir_value **values, int count)
{
    static const ir_op unary[] = {IR_OP_relu, IR_OP_neg,  IR_OP_tanh,   IR_OP_sigmoid,
                                  IR_OP_exp,  IR_OP_sqrt, IR_OP_softmax};
    static const ir_op binary[] = {IR_OP_add, IR_OP_mul, IR_OP_max, IR_OP_pow};
    ir_value *x = pick(t, values, count, false);
    switch (draw(t, 12)) {
    case 0:
    case 1:
    case 2: return ir_matmul(b, pick(t, values, count, true), x, NULL, false, false);
    case 3: return ir_reduce_sum(b, x, (int64_t[]){1}, 1, true);
    case 4: return round_trip(b, x);
    case 5:
    case 6:
    case 7: return ir_binary(b, binary[draw(t, 4)], x, pick(t, values, count, false));
    default: return ir_unary(b, unary[draw(t, 7)], x);
    }
}

static void make_graph(trial *t, int nodes)
{
    bool trains = draw(t, 4) == 0;
    t->module = ir_module_new();
    t->graph = ir_graph_new(t->module, "g");
    ir_graph_set_role(t->graph, trains ? IR_GRAPH_train : IR_GRAPH_infer);
    ir_builder b = ir_builder_at_end(t->graph, t->diag);
    int64_t n = 1 + (int64_t)draw(t, 40);
    ir_type full = ir_type_make(IR_f32, 2, (int64_t[]){n, n}), thin = ir_type_make(IR_f32, 2, (int64_t[]){n, 1});
    ir_value *values[MAX_VALUES];
    int count = 0;
    values[count++] = ir_graph_input(t->graph, "x", &full);
    values[count++] = ir_graph_input(t->graph, "y", &thin);
    values[count++] = ir_graph_storage(t->graph, ir_storage_new(t->module, IR_PARAM, "w", &full));
    values[count++] = ir_graph_storage(t->graph, ir_storage_new(t->module, IR_CONST, "c", &full));
    values[count++] = ir_graph_storage(t->graph, ir_storage_new(t->module, IR_PARAM, "b", &thin));
    for (int i = 0; i < nodes; i++) {
        ir_value *v = random_node(t, &b, values, count);
        if (v) values[count++] = v;
    }
    for (int i = 5, outputs = 0; i < count; i++)
        if (!values[i]->first_use || draw(t, 10) == 0)
            ir_output(&b, arena_printf(t->arena, "out%d", outputs++), values[i]);
    if (trains || draw(t, 8) == 0)
        ir_output_as(&b, IR_OUTPUT_loss, NULL, ir_reduce_sum(&b, values[count - 1], (int64_t[]){0, 1}, 2, false));
    assert_int_equal(diag_status(t->diag), AMPC_OK);
}

static void make_device(trial *t)
{
    double flops = 1e9 * (1 + draw(t, 20));
    t->device = (ir_device){.name = "test", .measure = draw(t, 3) ? DEVICE_TIME : DEVICE_CAST_BYTES, .symbol = 1};
    t->device.bandwidth = 1e9 * (1 + draw(t, 5));
    t->device.launch = 1e-8 * draw(t, 4) * draw(t, 40);
    t->device.storage = 0.3 * draw(t, 3);
    for (int i = 0; i < IR_DTYPE_COUNT; i++)
        t->device.flops[i] = flops * (ir_dtype_is_low((ir_dtype)i) ? 1 + draw(t, 8) : 1);
}

/* ---- an independent version of the rules ----------------------------------------------------- */

static bool computes_in_f32(const amp_entry *e)
{
    return e->rule == AMP_F32_COMPUTE || e->rule == AMP_F32_COMPUTE_MIXED;
}

static bool is_choice(const trial *t, const amp_entry *e)
{
    bool gray = e->rule == AMP_GRAY_LOW || e->rule == AMP_GRAY_KEEP, white = e->rule == AMP_LISTED_WHITE;
    return gray || e->colour == IR_CLEAR ? e->rule != AMP_LOSS : white && t->options.white_soft;
}

static bool has_out(const ir_node *n) { return ir_op_out_attr(n->op) >= 0; }

/* Returns whether the value is low in the plan. */
static bool is_low(const trial *t, const ir_value *v)
{
    return v->kind == IR_VALUE_RESULT && v->def->op != IR_OP_cast ? t->result[v->def->id]
                                                                  : ir_dtype_is_low(v->type.dtype);
}

/* Returns whether the value derives from a black or loss node through gray and clear nodes that the profile keeps in
 * f32. */
static bool is_dangerous(const trial *t, const ir_value *v)
{
    if (v->kind != IR_VALUE_RESULT || v->def->op == IR_OP_cast) return false;
    const amp_entry *e = &t->greedy[v->def->id];
    if (computes_in_f32(e) || e->compute_dtype != IR_f32 || e->colour == IR_WHITE) return e->rule == AMP_LOSS;
    if (e->rule == AMP_GRAY_F32 || e->rule == AMP_LOSS || e->colour == IR_BLACK) return true;
    bool any = false;
    for (int i = 0; i < v->def->n_in && e->colour == IR_CLEAR; i++)
        any |= ir_in(v->def, i) && is_dangerous(t, ir_in(v->def, i));
    return any;
}

/* The type that a use requires: any, low or f32. */
typedef enum demand { ANY, LOW, HIGH } demand;

static demand demand_of(const trial *t, const ir_use *u)
{
    const ir_node *n = u->user;
    if (n->op == IR_OP_cast) return ANY;
    if (n->op == IR_OP_output) return t->options.keep_io_types || n->role == IR_OUTPUT_loss ? HIGH : ANY;
    return t->want[n->id] ? LOW : HIGH;
}

static bool is_legal_value(const trial *t, const ir_value *v)
{
    bool low = is_low(t, v), dangerous = is_dangerous(t, v);
    for (const ir_use *u = v->first_use; u && low && v->kind == IR_VALUE_RESULT; u = u->next) {
        bool loss = u->user->role == IR_OUTPUT_loss || t->greedy[u->user->id].rule == AMP_LOSS;
        if (dangerous && (demand_of(t, u) != LOW || computes_in_f32(&t->greedy[u->user->id]))) return false;
        if (loss && computes_in_f32(&t->greedy[v->def->id]) && t->greedy[v->def->id].result == IR_f32) return false;
    }
    return true;
}

static int64_t value_cost(const trial *t, const ir_value *v, bool carries)
{
    bool widens = v->kind == IR_VALUE_RESULT && v->def->op == IR_OP_cast && v->type.dtype == IR_f32;
    bool low = is_low(t, widens ? ir_in(v->def, 0) : v), reads_low = false, reads_high = false;
    int64_t runs = t->device.measure == DEVICE_TIME && carries && v->kind == IR_VALUE_RESULT ? 2 : 1;
    for (const ir_use *u = v->first_use; u; u = u->next) {
        demand d = demand_of(t, u);
        reads_low |= d == LOW;
        reads_high |= d == HIGH;
    }
    if (v->kind == IR_VALUE_STORAGE && v->storage->kind == IR_CONST)
        return reads_low && reads_high ? cost_of_copy(&t->cost, &v->type, IR_f16) : 0;
    if (!low && reads_low) return runs * cost_of_cast(&t->cost, &v->type, IR_f32, IR_f16);
    return low && reads_high && !widens ? runs * cost_of_cast(&t->cost, &v->type, IR_f16, IR_f32) : 0;
}

/* Lists all values in definition order, inputs and storage at their first use. */
static int all_values(const trial *t, const ir_value **values, bool *carries)
{
    int count = 0;
    bool trains = t->graph->role == IR_GRAPH_train, carried[MAX_VALUES] = {false};
    for (size_t i = 0; i < t->graph->inputs.count; i++) values[count++] = t->graph->inputs.items[i];
    for (int k = 0; k < t->count; k++) {
        const ir_node *n = t->nodes[k];
        bool flows = false;
        for (int i = 0; i < n->n_in; i++) {
            const ir_value *v = ir_in(n, i);
            bool known = false;
            if (!v) continue;
            for (int j = 0; j < count; j++) known |= values[j] == v;
            if (!known && v->kind == IR_VALUE_STORAGE) {
                carried[v->id] = trains && v->storage->kind == IR_PARAM;
                values[count++] = v;
            }
            flows |= carried[v->id];
        }
        for (int i = 0; i < n->n_out; i++) {
            carried[n->out[i]->id] = flows;
            values[count++] = n->out[i];
        }
    }
    for (int j = 0; j < count; j++) carries[j] = carried[values[j]->id];
    return count;
}

/* Returns the cut cost of the plan in t->want and t->result, or INT64_MAX if it is illegal. */
static int64_t plan_cost(const trial *t)
{
    const ir_value *values[MAX_VALUES];
    bool carries[MAX_VALUES], flows[MAX_NODES] = {false};
    int64_t cost = 0;
    int count = all_values(t, values, carries);
    for (int j = 0; j < count; j++) {
        if (!is_legal_value(t, values[j])) return INT64_MAX;
        cost += value_cost(t, values[j], carries[j]);
        for (const ir_use *u = values[j]->first_use; u; u = u->next) flows[u->user->id] |= carries[j];
    }
    for (int k = 0; k < t->count; k++) {
        const ir_node *n = t->nodes[k];
        if (n->op == IR_OP_output || n->op == IR_OP_cast) continue;
        int64_t once = cost_of_node(&t->cost, n, t->want[n->id] ? IR_f16 : IR_f32);
        if (t->want[n->id] && !t->result[n->id]) once += cost_of_results(&t->cost, n, IR_f16, IR_f32);
        cost += flows[n->id] ? 3 * once : once;
    }
    return cost;
}

/* ---- brute force ----------------------------------------------------------------------------- */

/* Counts the free decisions of the graph. */
static int count_free(const trial *t)
{
    int count = 0;
    for (int k = 0; k < t->count; k++) {
        const ir_node *n = t->nodes[k];
        if (n->op == IR_OP_output || n->op == IR_OP_cast) continue;
        count += is_choice(t, &t->greedy[n->id]) + has_out(n);
    }
    return count;
}

static void note_plan(trial *t)
{
    int64_t cost = plan_cost(t);
    if (cost > t->best) return;
    for (int k = 0; k < t->count; k++) {
        uint32_t id = t->nodes[k]->id;
        bool fresh = cost < t->best;
        t->low_in_all[2 * id] = t->want[id] && (fresh || t->low_in_all[2 * id]);
        t->low_in_all[2 * id + 1] = t->result[id] && (fresh || t->low_in_all[2 * id + 1]);
    }
    t->best = cost;
}

/* Tries all decisions for node k and the nodes after it. */
static void try_all(trial *t, int k)
{
    while (k < t->count && (t->nodes[k]->op == IR_OP_output || t->nodes[k]->op == IR_OP_cast)) k++;
    if (k == t->count) {
        note_plan(t);
        return;
    }
    const ir_node *n = t->nodes[k];
    const amp_entry *e = &t->greedy[n->id];
    bool choice = is_choice(t, e), out = has_out(n) && e->rule != AMP_LOSS;
    for (int want = 0; want <= choice; want++)
        for (int result = 0; result <= out; result++) {
            t->want[n->id] = choice               ? want
                             : computes_in_f32(e) ? is_low(t, ir_in(n, 0))
                                                  : ir_dtype_is_low(e->compute_dtype);
            t->result[n->id] = out ? result : t->want[n->id];
            try_all(t, k + 1);
        }
}

static void copy_entries(trial *t, const amp_entry *entries)
{
    for (int k = 0; k < t->count; k++) {
        uint32_t id = t->nodes[k]->id;
        t->want[id] = ir_dtype_is_low(entries[id].compute_dtype);
        t->result[id] = ir_dtype_is_low(entries[id].result);
    }
}

static bool setup_trial(trial *t, uint64_t seed, amp_list *list)
{
    *t = (trial){.seed = seed, .arena = arena_new(0), .diag = diag_new(NULL, NULL), .list = list, .best = INT64_MAX};
    t->options = compile_options_default();
    t->options.placement = PASS_MINCUT;
    t->options.white_soft = draw(t, 3) == 0;
    t->options.keep_io_types = draw(t, 5) > 0;
    make_graph(t, (int)(draw(t, 10) ? 2 + draw(t, 9) : 8 + draw(t, 14)));
    make_device(t);
    t->compile = (compile){
        .options = &t->options, .list = list, .device = &t->device, .arena = t->arena, .diag = t->diag};
    t->scope = (amp_scope){.compile = &t->compile, .arena = t->arena, .casts = casts_new(t->arena)};
    amp_colour(t->graph, &t->scope);
    t->greedy = arena_array(t->arena, t->graph->node_ids + 1, sizeof *t->greedy);
    memcpy(t->greedy, t->scope.entries, t->graph->node_ids * sizeof *t->greedy);
    assert_true(t->graph->node_ids < MAX_NODES && t->graph->value_ids < MAX_VALUES);
    for (ir_node *n = t->graph->first; n; n = n->next) t->nodes[t->count++] = n;
    t->cost = cost_model_new(&t->device, t->module, 16 * ((size_t)t->graph->node_ids + t->graph->value_ids + 4),
                             t->arena);
    return count_free(t) <= MAX_FREE;
}

static void close_trial(trial *t)
{
    ir_module_free(t->module);
    diag_free(t->diag);
    arena_free(t->arena);
}

static void check_trial(trial *t)
{
    amp_entry *entries = t->scope.entries;
    copy_entries(t, t->greedy);
    int64_t greedy = plan_cost(t);
    try_all(t, 0);
    pass_costs costs = amp_place(t->graph, &t->scope, true);
    copy_entries(t, entries);
    int64_t actual = plan_cost(t);
    if (costs.cut != t->best || actual != t->best || costs.greedy > greedy)
        fail_msg("seed %llu: predicted %lld, plan %lld, best %lld, greedy %lld of %lld\n%s",
                 (unsigned long long)t->seed, (long long)costs.cut, (long long)actual, (long long)t->best,
                 (long long)costs.greedy, (long long)greedy, ir_print(t->module, t->arena));
    for (int k = 0; k < t->count; k++) {
        uint32_t id = t->nodes[k]->id;
        if (t->nodes[k]->op == IR_OP_output || t->nodes[k]->op == IR_OP_cast) continue;
        assert_int_equal(t->want[id], t->low_in_all[2 * id]);
        assert_int_equal(t->result[id], t->low_in_all[2 * id + 1]);
    }
    assert_int_equal(amp_cast(t->graph, &t->scope), AMPC_OK);
    t->options.keep_io_types = true; /* the cost model counts the casts of inputs that the pass removes otherwise */
    assert_int_equal(pass_fold_casts(t->module, &t->compile), AMPC_OK);
    assert_int_equal(ir_verify(t->module, t->diag), AMPC_OK);
    int64_t bytes = pass_count_casts(t->graph).bytes;
    if (t->device.measure == DEVICE_CAST_BYTES && bytes != t->best)
        fail_msg("seed %llu: %lld bytes, predicted %lld\n%s", (unsigned long long)t->seed, (long long)bytes,
                 (long long)t->best, ir_print(t->module, t->arena));
}

TEST(equals_brute_force)
{
    arena *a = arena_new(0);
    diag *d = diag_new(NULL, NULL);
    compile_options o = compile_options_default();
    amp_list *list;
    int largest = 0;
    assert_int_equal(amp_list_load(&o, a, d, &list), AMPC_OK);
    for (uint64_t seed = 0, done = 0; done < GRAPHS; seed++) {
        trial t;
        if (setup_trial(&t, seed, list)) {
            if (count_free(&t) > largest) largest = count_free(&t);
            check_trial(&t);
            done++;
        }
        close_trial(&t);
    }
    assert_int_equal(largest, MAX_FREE);
    diag_free(d);
    arena_free(a);
}

/* ---- within a budget of errors --------------------------------------------------------------- */

/* Makes every node an operator of the model; some operators have two nodes. Each has a random price. */
static strmap *name_and_price(trial *t)
{
    strmap *prices = strmap_new(t->arena);
    int k = 0;
    for (ir_node *n = t->graph->first; n; n = n->next) {
        if (!n->n_out || n->op == IR_OP_cast) continue;
        n->loc = (ir_loc){.op = "Tanh", .node = arena_printf(t->arena, "n%d", k)};
        k += draw(t, 4) > 0;
        pass_price *price = arena_alloc(t->arena, sizeof *price);
        *price = (pass_price){draw(t, 10) ? (double)draw(t, 100) : (double)INFINITY, draw(t, 100)};
        strmap_put(prices, n->out[0]->name, price);
    }
    return prices;
}

/* The cost of the plan as a list, and in *low the operators that are low in it. */
static int64_t list_cost(trial *t, const pass_choice *choices, size_t count, size_t *low)
{
    const char *text = "[nodes]\n";
    *low = 0;
    for (size_t i = 0; i < count; i++) {
        text = arena_printf(t->arena, "%s%s = %s\n", text, choices[i].node, choices[i].low ? "fp16" : "fp32");
        *low += choices[i].low;
    }
    amp_list *list;
    t->options.list_text = text;
    t->options.budget = NULL;
    assert_int_equal(amp_list_load(&t->options, t->arena, t->diag, &list), AMPC_OK);
    t->compile.list = list;
    amp_colour(t->graph, &t->scope);
    for (size_t i = 0; i < count; i++)
        for (const ir_node *n = t->graph->first; n; n = n->next)
            if (n->loc.op && strcmp(n->loc.node, choices[i].node) == 0)
                assert_int_equal(ir_dtype_is_low(t->scope.entries[n->id].compute_dtype), choices[i].low);
    return amp_place(t->graph, &t->scope, false).greedy;
}

/* A list of the choices is the plan that was priced, and a larger budget never costs more. */
TEST(budget_is_held_by_the_list_of_its_choices)
{
    arena *a = arena_new(0);
    diag *d = diag_new(NULL, NULL);
    compile_options o = compile_options_default();
    amp_list *list;
    assert_int_equal(amp_list_load(&o, a, d, &list), AMPC_OK);
    size_t all = 0, between = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        trial t;
        setup_trial(&t, seed, list);
        if (t.graph->role == IR_GRAPH_infer) {
            pass_budget budget = {.prices = name_and_price(&t)};
            int64_t before = INT64_MAX;
            for (budget.limit = 1; budget.limit < 4096; budget.limit *= 4) {
                t.options.budget = &budget;
                t.options.list_text = NULL;
                t.compile.list = list;
                amp_colour(t.graph, &t.scope);
                const pass_costs costs = amp_place(t.graph, &t.scope, false);
                assert_true(t.compile.report.error <= 1 && costs.cut <= costs.f32 && costs.cut <= before);
                before = costs.cut;
                size_t low, count = t.compile.report.choices.count;
                assert_int_equal(list_cost(&t, t.compile.report.choices.items, count, &low), costs.cut);
                all += low;
                between += low && low < count;
            }
        }
        close_trial(&t);
    }
    if (all < 200 || between < 20) fail_msg("%zu operators low, %zu plans with both types", all, between);
    diag_free(d);
    arena_free(a);
}
