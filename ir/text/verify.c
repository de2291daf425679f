/* verify.c - checks the rules of the IR (listed in docs/ir.md); runs after every pass.
 *
 * One walk over each graph in list order checks ids, names, phases, arity, attributes and operands, and infers the
 * types again, which includes the dtypes that slots allow. The uses counted on this walk are compared with the use
 * lists. Stores are checked last because the skip rule needs all `skip` operands of the graph. Every violation is
 * reported under its line of the dump. */
#include "ir/graph/parts.h"
#include "ir/text/text.h"

#include <stdarg.h>

typedef struct verifier {
    const ir_module *module;
    arena *scratch;
    diag *diag;
    diag *inner;  /* turns messages of ir_infer into violations of `current` */
    ir_dump dump; /* created at the first violation */
    size_t violations;
    const ir_graph *graph;
    const ir_node *current;
    const ir_value **values; /* by id: values seen so far; results are added at their definition */
    uint32_t *reads;         /* by id: number of operands that read the value */
    bool *skips;             /* by id: whether the value is a `skip` operand */
    const ir_node **nodes;   /* by id */
    strmap *names, *outputs, *stored;
    strmap *roles; /* of the graph's outputs, with what they belong to */
    bool has_skip;
} verifier;

/* ---- reporting ------------------------------------------------------------------------------------------- */

static diag_loc place(verifier *v, const void *what)
{
    if (!v->dump.text) v->dump = ir_dump_make(v->module, v->scratch);
    for (size_t i = 0; what && i < v->dump.lines.count; i++) {
        const ir_line *l = &v->dump.lines.items[i];
        if (l->what != what) continue;
        const char *text = arena_strndup(v->scratch, v->dump.text + l->start, l->length);
        return (diag_loc){.file = "dump", .line = l->number, .text = text};
    }
    return DIAG_FILE("dump");
}

/* Reports a violation of a node, storage or graph. Returns false. */
__attribute__((format(printf, 3, 4))) static bool bad(verifier *v, const void *what, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    diag_verror(v->diag, AMPC_REJECTED, place(v, what), format, args);
    va_end(args);
    v->violations++;
    return false;
}

static void inner_message(void *user, diag_level level, const char *message)
{
    verifier *v = user;
    if (level == DIAG_ERROR) bad(v, v->current, "%s", diag_message_text(message));
}

/* ---- names and ids --------------------------------------------------------------------------------------- */

static const char *spell(const char *name) { return name ? name : ""; }

/* Adds a name to a set; reports a duplicate. */
static bool enter_name(verifier *v, strmap *names, const char *name, const void *what, const char *kind)
{
    if (!name || !*name) return bad(v, what, "%s without a name", kind);
    return strmap_enter(names, name, v) || bad(v, what, "%s '%s' is not unique", kind, name);
}

/* Adds a value under its id. */
static bool enter_value(verifier *v, const ir_value *value, const void *what)
{
    if (value->graph != v->graph) return bad(v, what, "'%s' belongs to another graph", spell(value->name));
    if (value->id >= v->graph->value_ids) return bad(v, what, "id of '%s' is out of range", spell(value->name));
    if (v->values[value->id]) return bad(v, what, "id of '%s' is not unique", spell(value->name));
    v->values[value->id] = value;
    return true;
}

static bool was_met(const verifier *v, const ir_value *value)
{
    return value->id < v->graph->value_ids && v->values[value->id] == value;
}

/* ---- types ----------------------------------------------------------------------------------------------- */

static bool type_is_valid(const ir_type *t, bool symbols)
{
    if (t->dtype <= IR_NO_DTYPE || t->dtype >= IR_DTYPE_COUNT || t->rank < 0 || t->rank > IR_MAX_RANK) return false;
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] < 0 && !(symbols && ir_dim_is_symbolic(t->dims[i]))) return false;
    return true;
}

/* Infers the node again, which also checks the dtypes of its operands by slot, and restores its types. */
static bool check_types(verifier *v, const ir_node *n)
{
    ir_type *types = arena_array(v->scratch, (size_t)n->n_out + 1, sizeof *types);
    for (int i = 0; i < n->n_out; i++) types[i] = n->out[i]->type;
    bool inferred = ir_infer((ir_node *)n, v->inner) == AMPC_OK, good = inferred;
    for (int i = 0; i < n->n_out; i++) {
        ir_type again = n->out[i]->type;
        n->out[i]->type = types[i];
        if (!inferred || ir_type_equal(&again, &types[i])) continue;
        good = bad(v, n, "the type of '%%%s' is %s, not %s", n->out[i]->name,
                   ir_type_print(v->module, &again, v->scratch), ir_type_print(v->module, &types[i], v->scratch));
    }
    return good;
}

/* ---- nodes ----------------------------------------------------------------------------------------------- */

static bool check_field(const ir_field *f)
{
    if (!f->name) return false;
    switch (f->kind) {
    case 'i': return true;
    case 'f': return !((double)(float)f->f < f->f || (double)(float)f->f > f->f);
    case 's': return f->s != NULL;
    case 'I': return f->count >= 0 && (f->ints || !f->count);
    case 'F': return f->count >= 0 && (f->floats || !f->count);
    default: return false;
    }
}

static bool check_attr(verifier *v, const ir_slot *slot, const ir_attr *attr)
{
    bool good = true;
    switch (slot->kind) {
    case IR_SLOT_FLOAT: good = (double)(float)attr->f == attr->f; break;
    case IR_SLOT_BOOL: good = attr->i == 0 || attr->i == 1; break;
    case IR_SLOT_DTYPE: good = (int)attr->dtype >= 0 && attr->dtype < IR_DTYPE_COUNT; break;
    case IR_SLOT_STR: good = attr->s != NULL; break;
    case IR_SLOT_ONE_OF:
        good = attr->i >= 0;
        for (int64_t i = 0; good && i <= attr->i; i++) good = slot->words[i] != NULL;
        break;
    case IR_SLOT_INTS:
    case IR_SLOT_DIMS:
        good = attr->list.count >= 0 && (attr->list.items || !attr->list.count);
        for (int i = 0; good && slot->kind == IR_SLOT_DIMS && i < attr->list.count; i++)
            good = attr->list.items[i] != IR_DIM_NONE;
        break;
    case IR_SLOT_FIELDS:
        for (int i = 0; good && i < attr->fields.count; i++) good = check_field(&attr->fields.items[i]);
        break;
    default: break;
    }
    return good || bad(v, v->current, "attribute '%s' has an invalid value", slot->name);
}

/* Checks that every operand and result has a slot and that no mandatory one is absent. */
static bool check_arity(verifier *v, const ir_node *n)
{
    const ir_op_info *info = ir_op_get(n->op);
    int min_in = info->n_in - (info->variadic_in >= 0), min_out = info->n_out - (info->variadic_out >= 0);
    if (n->n_in < min_in || (info->variadic_in < 0 && n->n_in > info->n_in))
        return bad(v, n, "%s expects %d operands, not %d", info->name, info->n_in, n->n_in);
    if (n->n_out < min_out || (info->variadic_out < 0 && n->n_out > info->n_out))
        return bad(v, n, "%s has %d results, not %d", info->name, info->n_out, n->n_out);
    bool good = true;
    for (int i = 0; i < n->n_in; i++) {
        const ir_slot *slot = ir_op_in_slot(n->op, i, n->n_in);
        if (!n->in[i].value && slot->kind != IR_SLOT_OPT)
            good = bad(v, n, "operand '%s' of %s is missing", slot->name, info->name);
    }
    for (int i = 0; i < info->n_attr; i++) good &= check_attr(v, &info->attr[i], &n->attr[i]);
    return good;
}

static bool check_storage_value(verifier *v, const ir_value *value)
{
    const ir_storage *s = value->storage;
    if (!s || s->id >= v->module->storage.count || v->module->storage.items[s->id] != s)
        return bad(v, v->current, "'@%s' is not a storage of the module", spell(value->name));
    if (!ir_type_equal(&s->type, &value->type))
        return bad(v, v->current, "'@%s' is read as %s, but is %s", s->name,
                   ir_type_print(v->module, &value->type, v->scratch), ir_type_print(v->module, &s->type, v->scratch));
    return was_met(v, value) || enter_value(v, value, v->current);
}

static bool check_operand(verifier *v, const ir_node *n, int i)
{
    const ir_value *value = n->in[i].value;
    if (n->in[i].user != n || n->in[i].index != i) return bad(v, n, "use %d refers to another operand", i);
    if (!value) return true;
    if (value->kind == IR_VALUE_STORAGE) {
        if (!check_storage_value(v, value)) return false;
    } else if (!was_met(v, value)) {
        const char *sigil = value->kind == IR_VALUE_RESULT ? "%" : "@";
        return bad(v, n, "'%s%s' is not defined here", sigil, spell(value->name));
    }
    v->reads[value->id]++;
    if (value->kind == IR_VALUE_RESULT && value->def->phase > n->phase)
        return bad(v, n, "a node of phase %s reads '%%%s' of phase %s", ir_phase_names[n->phase], spell(value->name),
                   ir_phase_names[value->def->phase]);
    return true;
}

static void check_result(verifier *v, const ir_node *n, int i)
{
    const ir_value *value = n->out[i];
    if (value->kind != IR_VALUE_RESULT || value->def != n || value->def_index != i)
        bad(v, n, "result %d is defined elsewhere", i);
    enter_name(v, v->names, value->name, n, "result");
    enter_value(v, value, n);
}

static void check_place(verifier *v, const ir_node *n)
{
    if (n->graph != v->graph) bad(v, n, "the node belongs to another graph");
    if (n->id >= v->graph->node_ids) bad(v, n, "id of the node is out of range");
    else if (v->nodes[n->id]) bad(v, n, "id of the node is not unique");
    else v->nodes[n->id] = n;
    if (n->prev && n->prev->phase > n->phase)
        bad(v, n, "a node of phase %s after one of phase %s", ir_phase_names[n->phase], ir_phase_names[n->prev->phase]);
}

/* The value that makes the node keep its state if true, or NULL. */
static const ir_value *skip_of(const ir_node *n) { return ir_in_named(n, "skip"); }

/* Whether `of` is the kind of value that an output of a role belongs to. */
static bool is_of(const ir_value *of, ir_owner kind)
{
    const bool alone = kind == IR_OF_ALONE || kind == IR_OF_SEVERAL;
    if (!of || alone) return !of && alone;
    if (kind == IR_OF_INPUT) return of->kind == IR_VALUE_INPUT;
    return of->kind == IR_VALUE_STORAGE && of->storage->kind == (kind == IR_OF_PARAM ? IR_PARAM : IR_STATE);
}

static void check_output(verifier *v, const ir_node *n)
{
    static const char *const kinds[] = {[IR_OF_ALONE] = "no owner",
                                        [IR_OF_PARAM] = "a parameter",
                                        [IR_OF_STATE] = "a state",
                                        [IR_OF_INPUT] = "an input",
                                        [IR_OF_SEVERAL] = "no owner"};
    const char *word = ir_output_words[n->role];
    const ir_owner kind = ir_output_roles[n->role].of;
    enter_name(v, v->outputs, ir_output_name(n), n, "output");
    if (!is_of(n->of, kind)) bad(v, n, "output role %s requires %s", word, kinds[kind]);
    else if (n->of && n->of->graph != v->graph) bad(v, n, "'@%s' belongs to another graph", spell(n->of->name));
    else if (n->role != IR_OUTPUT_result && kind != IR_OF_SEVERAL)
        enter_name(v, v->roles, n->of ? arena_printf(v->scratch, "%s @%s", word, spell(n->of->name)) : word, n,
                   "output role");
}

static void check_node(verifier *v, const ir_node *n)
{
    v->current = n;
    check_place(v, n);
    bool good = check_arity(v, n);
    for (int i = 0; i < n->n_in; i++) good &= check_operand(v, n, i);
    good = good && check_types(v, n);
    for (int i = 0; i < n->n_out; i++) check_result(v, n, i);
    if (good && ir_op_has(n->op, IR_NAMED)) check_output(v, n);
    const ir_value *skip = skip_of(n);
    if (!skip || !was_met(v, skip)) return;
    v->skips[skip->id] = true;
    v->has_skip = true;
}

/* ---- stores ---------------------------------------------------------------------------------------------- */

/* Whether the storage keeps its value in a skipped step if `value` is stored to it. */
static bool selects_old(const verifier *v, const ir_storage *s, const ir_value *value)
{
    if (value->kind == IR_VALUE_STORAGE) return value->storage == s;
    if (value->kind != IR_VALUE_RESULT) return false;
    const ir_node *def = value->def;
    if (skip_of(def)) return true;
    if (ir_op_has(def->op, IR_COLLECTIVE)) return selects_old(v, s, ir_in(def, value->def_index)); /* by all ranks */
    if (def->op != IR_OP_select) return false;
    const ir_value *cond = ir_in(def, IR_IN(select, cond)), *old = ir_in(def, IR_IN(select, a));
    return cond && was_met(v, cond) && v->skips[cond->id] && old && old->kind == IR_VALUE_STORAGE && old->storage == s;
}

static void check_store(verifier *v, const ir_node *n)
{
    const ir_value *state = ir_in(n, IR_IN(store, state)), *value = ir_in(n, IR_IN(store, value));
    if (!state || !value || state->kind != IR_VALUE_STORAGE) return; /* inference reports it */
    const ir_storage *s = state->storage;
    if (s->frozen) bad(v, n, "'@%s' is frozen", s->name);
    enter_name(v, v->stored, s->name, n, "store to");
    if (v->has_skip && !ir_state_roles[s->role].moves && !selects_old(v, s, value))
        bad(v, n, "a skipped step would change '@%s': store a select between its old value and the new one", s->name);
}

/* ---- use lists ------------------------------------------------------------------------------------------- */

static void check_uses(verifier *v, const ir_value *value)
{
    const void *what = value->kind == IR_VALUE_RESULT ? (const void *)value->def : v->graph;
    uint32_t uses = 0;
    const ir_use *before = NULL;
    for (const ir_use *u = value->first_use; u; before = u, u = u->next) {
        bool good = u->value == value && u->prev == before && u->user && u->index < u->user->n_in &&
                    u == &u->user->in[u->index];
        if (!good || ++uses > v->reads[value->id]) {
            bad(v, what, "the use list of '%s' is wrong", spell(value->name));
            return;
        }
    }
    if (uses < v->reads[value->id])
        bad(v, what, "%u operands read '%s', its use list has %u", v->reads[value->id], spell(value->name), uses);
}

/* ---- graphs and storage ---------------------------------------------------------------------------------- */

static bool list_is_linked(const ir_graph *g)
{
    const ir_node *before = NULL;
    for (const ir_node *n = g->first; n; before = n, n = n->next)
        if (n->prev != before) return false;
    return g->last == before;
}

static void check_input(verifier *v, const ir_value *value)
{
    const ir_graph *g = v->graph;
    if (value->kind != IR_VALUE_INPUT) bad(v, g, "'%s' is not an input", spell(value->name));
    if (!type_is_valid(&value->type, true)) bad(v, g, "input '%s' has an invalid type", spell(value->name));
    if (enter_name(v, v->names, value->name, g, "input") && !g->owner && ir_storage_find(v->module, value->name))
        bad(v, g, "input '%s' has the name of a storage", value->name);
    enter_value(v, value, g);
    if (value->role == IR_INPUT_label) enter_name(v, v->roles, ir_input_words[value->role], g, "input role");
}

/* Inputs and storage are both printed as @NAME. An input of a region may share its name with storage that only other
 * graphs read. */
static void check_shadows(verifier *v, const ir_graph *g)
{
    for (uint32_t i = 0; g->owner && i < g->value_ids; i++) {
        const ir_value *value = v->values[i];
        if (value && value->kind == IR_VALUE_STORAGE && ir_graph_find_input(g, value->name))
            bad(v, g, "input '%s' has the name of a storage", value->name);
    }
}

/* Sizes that depend on data. A store would be made although a later part of the run may fail. */
static void check_parts(verifier *v, const ir_graph *g)
{
    const size_t symbols = ir_dim_symbol_count(v->module->dims) + 1;
    if (!ir_has_parts(g)) return;
    ir_parts parts = {.of_node = arena_array(v->scratch, (size_t)g->node_ids + 1, sizeof *parts.of_node),
                      .of_symbol = arena_array(v->scratch, symbols, sizeof *parts.of_symbol),
                      .trim_of = arena_array(v->scratch, symbols, sizeof *parts.trim_of)};
    const ir_node *where;
    const char *wrong = ir_parts_find(g, &parts, &where);
    if (wrong) bad(v, where, "%s", wrong);
    if (g->owner) bad(v, g, "a size that depends on data is not possible in a region");
    if (ir_first_store(g)) bad(v, ir_first_store(g), "a graph with a size that depends on data cannot store");
}

static void check_graph(verifier *v, const ir_graph *g)
{
    const size_t before = v->violations;
    v->graph = g;
    v->values = arena_array(v->scratch, (size_t)g->value_ids + 1, sizeof *v->values);
    v->reads = arena_array(v->scratch, (size_t)g->value_ids + 1, sizeof *v->reads);
    v->skips = arena_array(v->scratch, (size_t)g->value_ids + 1, sizeof *v->skips);
    v->nodes = arena_array(v->scratch, (size_t)g->node_ids + 1, sizeof *v->nodes);
    v->names = strmap_new_borrowing(v->scratch);
    v->outputs = strmap_new_borrowing(v->scratch);
    v->stored = strmap_new_borrowing(v->scratch);
    v->roles = strmap_new_borrowing(v->scratch);
    strmap_reserve(v->names, g->value_ids);
    v->has_skip = false;
    for (size_t i = 0; i < g->inputs.count; i++) check_input(v, g->inputs.items[i]);
    for (const ir_node *n = g->first; n; n = n->next) check_node(v, n);
    for (const ir_node *n = g->first; n; n = n->next)
        if (ir_op_has(n->op, IR_STORES)) check_store(v, n);
    for (uint32_t i = 0; i < g->value_ids; i++)
        if (v->values[i]) check_uses(v, v->values[i]);
    check_shadows(v, g);
    if (v->violations == before) check_parts(v, g);
}

/* ---- regions --------------------------------------------------------------------------------------------- */

static bool check_capture(verifier *v, const ir_node *n, const ir_region *r, size_t i)
{
    const ir_value *input = r->graph->inputs.items[i];
    const int operand = ir_capture_of(r, i);
    if (operand < 0)
        return i == 0 || ir_capture_of(r, i - 1) < 0 ||
               bad(v, n, "'@%s' of region '%s' follows a capture", spell(input->name), r->name);
    if (operand < ir_declared_operands(n) || operand >= n->n_in || !ir_in(n, operand))
        return bad(v, n, "'@%s' of region '%s' captures operand %d, which is none that regions may capture",
                   spell(input->name), r->name, operand);
    return ir_type_equal(&ir_in(n, operand)->type, &input->type) ||
           bad(v, n, "region '%s' reads '@%s' as %s, but it is %s", r->name, spell(input->name),
               ir_type_print(v->module, &input->type, v->scratch),
               ir_type_print(v->module, &ir_in(n, operand)->type, v->scratch));
}

/* Whether a value of a region has the element type and the rank that the operator passes or expects. Sizes are checked
 * when they are known, by the plan. */
static bool check_kind(verifier *v, const ir_node *n, const ir_region *r, const char *name, const ir_type *is,
                       ir_dtype dtype, int rank)
{
    if (is->dtype == dtype && (rank < 0 || is->rank == rank)) return true;
    return bad(v, n, "'%s' of region '%s' is %s, expected %s of rank %d", spell(name), r->name,
               ir_type_print(v->module, is, v->scratch), ir_dtype_name(dtype), rank < 0 ? 0 : rank);
}

static bool check_counts(verifier *v, const ir_node *n, const ir_region *r, int inputs, int outputs)
{
    int own = 0, found = 0;
    for (size_t i = 0; i < r->graph->inputs.count; i++) own += ir_capture_of(r, i) < 0;
    for (const ir_node *o = ir_first_output(r->graph); o; o = ir_next_output(o)) found++;
    if (own != inputs)
        return bad(v, n, "region '%s' has %d inputs that are not captures, expected %d", r->name, own, inputs);
    return found >= outputs || bad(v, n, "region '%s' has %d outputs, expected %d", r->name, found, outputs);
}

static void check_branch(verifier *v, const ir_node *n, const ir_region *r)
{
    if (!check_counts(v, n, r, 0, n->layout.n_out)) return;
    const ir_node *o = ir_first_output(r->graph);
    for (int i = 0; i < n->layout.n_out; i++, o = ir_next_output(o)) {
        const int k = ir_opaque_result_at(n, i);
        if (k < 0) continue;
        check_kind(v, n, r, ir_output_name(o), &ir_in(o, 0)->type, n->out[k]->type.dtype, n->out[k]->type.rank);
    }
}

static void check_iteration(verifier *v, const ir_node *n, const ir_region *r)
{
    const ir_loop_form f = ir_loop_form_of(n);
    const int stacks = n->layout.n_out - f.states;
    if (!check_counts(v, n, r, f.fixed + f.states + f.slices, f.fixed_out + f.states + (stacks > 0 ? stacks : 0)))
        return;
    ir_value *const *in = r->graph->inputs.items;
    const ir_node *o = ir_first_output(r->graph);
    for (int i = 0; i < f.fixed; i++) check_kind(v, n, r, in[i]->name, &in[i]->type, i ? IR_bool : IR_i64, -1);
    if (f.fixed_out) check_kind(v, n, r, ir_output_name(o), &ir_in(o, 0)->type, IR_bool, -1), o = ir_next_output(o);
    for (int i = 0; i < f.states + f.slices; i++) {
        const ir_type *t = &ir_in(n, f.first + i)->type;
        const ir_value *own = in[f.fixed + i];
        check_kind(v, n, r, own->name, &own->type, t->dtype, t->rank - (i >= f.states));
        if (i >= f.states) continue;
        check_kind(v, n, r, ir_output_name(o), &ir_in(o, 0)->type, t->dtype, t->rank);
        o = ir_next_output(o);
    }
    for (int i = 0; i < stacks; i++, o = ir_next_output(o)) {
        const int k = ir_opaque_result_at(n, f.states + i);
        if (k < 0) continue;
        const ir_type *t = &n->out[k]->type;
        check_kind(v, n, r, ir_output_name(o), &ir_in(o, 0)->type, t->dtype, t->rank - 1);
    }
}

/* The regions of ops that plans run. */
static const struct {
    ir_op op;
    const char *name;
    void (*check)(verifier *v, const ir_node *n, const ir_region *r);
} regions[] = {{IR_OP_if, "then_branch", check_branch},
               {IR_OP_if, "else_branch", check_branch},
               {IR_OP_loop, "body", check_iteration}};

static void check_regions(verifier *v, const ir_node *n)
{
    int expected = 0;
    bool good = true;
    for (int i = 0; i < n->n_regions; i++) {
        const ir_region *r = &n->regions[i];
        if (r->graph->owner != n) good = bad(v, n, "region '%s' belongs to another node", r->name);
        for (size_t k = 0; k < r->graph->inputs.count && good; k++) good = check_capture(v, n, r, k);
    }
    for (size_t i = 0; i < sizeof regions / sizeof *regions && good; i++) {
        const ir_region *r = ir_region_find(n, regions[i].name);
        if (regions[i].op != n->op) continue;
        expected++;
        if (r) regions[i].check(v, n, r);
        else good = bad(v, n, "it has no region '%s'", regions[i].name);
    }
    if (good && expected && n->n_regions > expected) bad(v, n, "it has more than %d regions", expected);
}

static void check_all_regions(verifier *v, const ir_graph *g, int depth)
{
    for (const ir_node *n = g->first; n; n = n->next) {
        if (n->n_regions && depth == IR_MAX_NESTING) bad(v, n, "regions are nested more than %d deep", depth);
        else check_regions(v, n);
        for (int i = 0; i < n->n_regions && depth < IR_MAX_NESTING; i++)
            check_all_regions(v, n->regions[i].graph, depth + 1);
    }
}

/* ---- the module ------------------------------------------------------------------------------------------ */

static const char *data_problem(const verifier *v, const ir_storage *s)
{
    const ir_data *d = &s->data;
    if (d->kind == IR_DATA_INLINE && !d->bytes) return "has no bytes";
    if (d->kind == IR_DATA_SIDECAR && !v->module->weights_path) return "is in a weights file, but there is none";
    if (d->kind != IR_DATA_FILE) return NULL;
    if (!d->path || d->offset < 0) return "has no path or offset in a file";
    return d->length == ir_storage_bytes(s) ? NULL : "has another size than its bytes in the file";
}

static bool size_fits(const ir_type *t)
{
    int64_t bytes = (int64_t)ir_dtype_size(t->dtype);
    for (int i = 0; i < t->rank; i++)
        if (!checked_mul(bytes, t->dims[i] ? t->dims[i] : 1, &bytes)) return false;
    return true;
}

static bool can_own(const ir_storage *s, ir_owner of)
{
    if (of == IR_OF_STATE) return s->kind == IR_STATE;
    return s->kind == IR_PARAM || (of == IR_OF_WEIGHT && s->kind == IR_STATE && s->role == IR_STATE_buffer);
}

static void check_state_role(verifier *v, const ir_storage *s)
{
    const char *word = ir_state_words[s->role];
    if (s->role == IR_STATE_buffer) return;
    if (s->kind != IR_STATE) bad(v, s, "only a state can have role %s", word);
    if (!ir_state_role_allows(s->role, &s->type)) {
        const ir_type expected = ir_state_role_type(s->role);
        bad(v, s, "a state with role %s is %s, not %s", word, ir_type_print(v->module, &expected, v->scratch),
            ir_type_print(v->module, &s->type, v->scratch));
    }
    const ir_owner of = ir_state_roles[s->role].of;
    const char *slot = s->role == IR_STATE_slot ? s->slot : "";
    if (of == IR_OF_ALONE) enter_name(v, v->roles, word, s, "state role");
    else if (!slot || !s->of || !can_own(s->of, of) || s->of->id >= s->id)
        bad(v, s, "a state with role %s must belong to a %s declared before it", word,
            of == IR_OF_STATE    ? "state"
            : of == IR_OF_WEIGHT ? "parameter or buffer"
                                 : "parameter");
    else enter_name(v, v->roles, arena_printf(v->scratch, "%s %s @%s", word, slot, s->of->name), s, "state role");
}

static void check_shard(verifier *v, const ir_storage *s)
{
    if (s->kind == IR_PARAM && s->shard) {
        const ir_storage *master = ir_storage_owned(v->module, IR_STATE_master, s);
        if (!master || master->shard != s->shard || !ir_storage_owned(v->module, IR_STATE_low_copy, s))
            bad(v, s, "a parameter of which ranks have slices needs a master and a low copy");
        return;
    }
    if (ir_storage_is_derived(s) && s->data.kind != IR_DATA_ZERO) bad(v, s, "a %s is zero", ir_state_words[s->role]);
    if (!s->shard) return;
    if (s->kind != IR_STATE || !s->of || s->of->kind != IR_PARAM || s->shard < 2) {
        bad(v, s, "only a state that belongs to a parameter can be a shard, and of at least 2 ranks");
        return;
    }
    const ir_type whole = ir_storage_whole(s), slice = ir_type_shard(&whole, s->shard);
    if (!ir_type_equal(&s->type, &slice))
        bad(v, s, "a shard of %s is %s", ir_type_print(v->module, &whole, v->scratch),
            ir_type_print(v->module, &slice, v->scratch));
    if (s->data.kind != IR_DATA_ZERO) bad(v, s, "a shard is zero at first");
}

/* A rule says the kind of its tensor. */
static void check_rule(verifier *v, const ir_storage *s)
{
    const ir_outcome outcome = ir_rules[s->rule].outcome;
    const char *word = ir_rules[s->rule].word;
    if (outcome == IR_BUFFER || (s->rule && s->kind == IR_STATE)) bad(v, s, "a state has no rule");
    else if (outcome == IR_FROZEN && !s->frozen) bad(v, s, "rule %s is only for a frozen parameter", word);
    else if (outcome == IR_TRAINED && s->rule && (s->frozen || s->kind != IR_PARAM))
        bad(v, s, "rule %s is only for a trained parameter", word);
    else if ((outcome == IR_HELD || outcome == IR_CONSTANT) && s->kind != IR_CONST)
        bad(v, s, "rule %s is only for a constant", word);
}

static void check_storage(verifier *v, const ir_storage *s, size_t index)
{
    if (s->id != index) bad(v, s, "id of '@%s' is not its position", spell(s->name));
    enter_name(v, v->names, s->name, s, "storage");
    if (s->frozen && s->kind != IR_PARAM) bad(v, s, "only a parameter can be frozen");
    if (s->facts && (s->kind == IR_STATE || !ir_dtype_is_float(s->type.dtype)))
        bad(v, s, "only a float parameter or constant can have facts");
    check_rule(v, s);
    if (!type_is_valid(&s->type, false) || !size_fits(&s->type)) {
        bad(v, s, "storage has an invalid type");
        return;
    }
    check_state_role(v, s);
    check_shard(v, s);
    const char *problem = data_problem(v, s);
    if (problem) bad(v, s, "'@%s' %s", spell(s->name), problem);
}

static void check_module(verifier *v)
{
    const ir_module *m = v->module;
    v->names = strmap_new_borrowing(v->scratch);
    v->roles = strmap_new_borrowing(v->scratch);
    strmap *graphs = strmap_new_borrowing(v->scratch), *graph_roles = strmap_new_borrowing(v->scratch);
    strmap_reserve(v->names, m->storage.count);
    for (size_t i = 0; i < m->storage.count; i++) check_storage(v, m->storage.items[i], i);
    for (size_t i = 0; i < m->graphs.count; i++) {
        const ir_graph *g = m->graphs.items[i];
        enter_name(v, graphs, g->name, g, "graph");
        if (g->role != IR_GRAPH_other) enter_name(v, graph_roles, ir_graph_words[g->role], g, "graph role");
        if (!list_is_linked(g)) { /* it could not be dumped either */
            diag_error(v->diag, AMPC_REJECTED, DIAG_FILE("dump"), "the node list of '@%s' is broken", g->name);
            v->violations++;
            return;
        }
    }
    for (const ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g)) check_graph(v, g);
    for (size_t i = 0; i < m->graphs.count && !v->violations; i++) check_all_regions(v, m->graphs.items[i], 0);
}

/* ---- entry point ----------------------------------------------------------------------------------------- */

__attribute__((noinline)) static ampc_status run(verifier *v)
{
    check_module(v);
    return v->violations ? AMPC_REJECTED : AMPC_OK;
}

/* Inference allocates from the module's arena, so it gets our guard during the call. */
static ampc_status run_guarded(verifier *v)
{
    jmp_buf guard;
    jmp_buf *const before = arena_set_guard(v->module->arena, NULL);
    ampc_status status;
    if (setjmp(guard)) {
        status = diag_error(v->diag, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory while verifying");
    } else {
        arena_set_guard(v->scratch, &guard);
        arena_set_guard(v->module->arena, &guard);
        status = run(v);
    }
    arena_set_guard(v->module->arena, before);
    return status;
}

ampc_status ir_verify(const ir_module *m, diag *d)
{
    verifier v = {.module = m, .diag = d, .scratch = arena_new(0)};
    v.inner = diag_new(inner_message, &v);
    ampc_status status = v.scratch && v.inner
                             ? run_guarded(&v)
                             : diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory while verifying");
    arena_free(v.scratch);
    diag_free(v.inner);
    return status;
}
