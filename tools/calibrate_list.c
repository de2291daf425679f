/* calibrate_list.c - chooses the lines of a list file.
 *
 * An operator overflows if a tensor that it writes in fp16, or reads in fp16, has a larger number than fp16. So
 * operators that write or read such a tensor have to be fp32, apart from those that only view it. A line of [tensors]
 * names all operators of one tensor, one of [nodes] a single operator: the lines are a small cover of these operators.
 * Tensors with an operator in common are one place. What the lists and rules of the profile imply, such as a gray
 * operator that follows an fp32 one, is found by compiling the model: a line is left out if its place has another and
 * no such tensor becomes fp16 without it.
 *
 * Masks that reach a softmax saturate where they are converted (passes/amp/range.h), which does not change the result.
 * Neither they nor their sums with scores that fp16 can represent are overflows. */
#include "tools/calibrate_list.h"

#include "passes/amp/list.h"
#include "passes/amp/range.h"
#include "passes/pass.h"
#include "runtime/backend/memory.h"

#include <math.h>
#include <string.h>

enum { MAX_TRIED = 40 }; /* lines of which each is tried to be left out, which compiles the model twice */

typedef struct variant {
    run_variant compiled;
    strmap *values; /* by name: of the infer graph and its subgraphs */
    strmap *nodes;  /* by name of the model: the node that computes it, or that it was fused into */
} variant;

/* A value that overflows. */
typedef struct large_value {
    const ir_value *value;
    const rt_calibrated *numbers;
    bool has_line;     /* [tensors] may name it */
    VEC(size_t) nodes; /* that touch it: positions in those of the decision */
} large_value;

typedef struct deciding {
    const tool *tool;
    const rt_calibrator *calibrator;
    const ir_graph *graph;
    arena *arena;
    double limit;
    VEC(large_value) large;
    VEC(const ir_node *) nodes; /* that have to be fp32 */
    size_t *place;              /* by position in `large` */
    const variant *kept;        /* the model for other runtimes, which keeps its loops; NULL: there is none */
    calibrated_list *out;
} deciding;

static const ir_graph *next_within(const deciding *k, const ir_graph *g) { return ir_next_graph_in(k->graph, g); }

/* ---- compiling ---------------------------------------------------------------------------------- */

static void add_names(variant *v, const ir_graph *g)
{
    for (const ir_node *n = g->first; n; n = n->next) {
        for (int i = 0; i < n->n_in; i++)
            if (ir_in(n, i)) strmap_put(v->values, ir_in(n, i)->name, (void *)(uintptr_t)ir_in(n, i));
        for (int i = 0; i < n->n_out; i++) strmap_put(v->values, n->out[i]->name, n->out[i]);
        if (n->loc.node && n->loc.op) strmap_put(v->nodes, n->loc.node, (void *)(uintptr_t)n);
        for (const ir_origin *p = n->loc.fused_from; p && p->op; p++)
            strmap_put(v->nodes, p->node, (void *)(uintptr_t)n);
    }
}

static void append(pass_strings *to, const char *text, arena *a)
{
    const char **items = arena_array(a, (size_t)to->count + 1, sizeof *items);
    for (int i = 0; i < to->count; i++) items[i] = to->items[i];
    items[to->count++] = text;
    to->items = items;
}

/* Compiles the model to fp16 with the lines but for `without`; -1: with all. The caller closes the variant. */
static ampc_status compile_with(const deciding *k, int without, bool plain_runtime, variant *v)
{
    command *plain = arena_alloc(k->arena, sizeof *plain);
    *v = (variant){run_variant_of(k->tool, NULL), strmap_new(k->arena), strmap_new(k->arena)};
    tool *t = &v->compiled.tool;
    *plain = *k->tool->command;
    plain->as_spelled = false;
    t->command = plain;
    t->o.pass.low = IR_f16;
    t->o.pass.plain_runtime = plain_runtime;
    for (int i = 0; i < (int)k->out->lines.count; i++) {
        const calibrated_line *l = &k->out->lines.items[i];
        if (i == without) continue;
        if (l->is_node) append(&t->o.pass.fp32_nodes, amp_list_glob(l->name, k->arena), k->arena);
        else append(&t->o.pass.black_vars, l->name, k->arena);
    }
    TRY(run_variant_compile(&v->compiled, k->tool->diag, true));
    const ir_graph *g = ir_graph_by_role(t->module, IR_GRAPH_infer);
    for (const ir_graph *in = g; in; in = ir_next_graph_in(g, in)) add_names(v, in);
    return AMPC_OK;
}

static bool is_cast_to_low(const ir_node *n)
{
    return ir_op_has(n->op, IR_CONVERTS) && ir_dtype_is_low(n->out[0]->type.dtype);
}

/* The name in the body of a loop: "value" of "loop/2/value"; the name itself if it has no such prefix. */
static const char *name_in_body(const char *name)
{
    const char *found = name;
    for (const char *at = strchr(name, '/'); at; at = strchr(at + 1, '/')) {
        const size_t digits = strspn(at + 1, "0123456789");
        if (digits && at[1 + digits] == '/') found = at + digits + 2;
    }
    return found;
}

/* What the variant has of the name, or of the body if the loop is kept. */
static void *find_name(const strmap *names, const char *name)
{
    void *found = strmap_get(names, name);
    return found ? found : strmap_get(names, name_in_body(name));
}

/* Whether the value is fp32 there, and no reader converts it. */
static bool is_healed_in(const large_value *l, const variant *v)
{
    const ir_node *def = ir_def(l->value);
    const ir_value *x = find_name(v->values, l->value->name);
    if (!x) {
        const ir_node *n = def && def->loc.node ? find_name(v->nodes, def->loc.node) : NULL;
        return !n || !n->n_out || !ir_dtype_is_low(n->out[0]->type.dtype);
    }
    if (ir_dtype_is_low(x->type.dtype)) return false;
    for (const ir_use *u = x->first_use; u; u = u->next)
        if (is_cast_to_low(u->user)) return false;
    return true;
}

/* Whether all values are healed without line `without`, for this program and for other runtimes. */
static ampc_status try_lines(const deciding *k, int without, bool *heals)
{
    *heals = true;
    for (int plain = 0; plain <= 1 && *heals; plain++) {
        variant v;
        ampc_status status = compile_with(k, without, plain, &v);
        for (size_t i = 0; i < k->large.count && status == AMPC_OK; i++) *heals &= is_healed_in(&k->large.items[i], &v);
        /* What cannot be converted for other runtimes is not healed there. */
        if (status != AMPC_OK && plain) status = AMPC_OK;
        run_variant_close(&v.compiled);
        TRY(status);
    }
    return AMPC_OK;
}

/* ---- values that overflow ----------------------------------------------------------------------- */

static bool is_large(const deciding *k, const ir_value *v)
{
    const rt_calibrated *r = rt_calibrator_value(k->calibrator, v);
    return r && ir_exponents_largest(&r->numbers) > k->limit;
}

/* Whether the value is a mask, or the sum of a mask and of values that are not large. */
static bool is_masked(const deciding *k, const variant *v, const bool *masked, const ir_value *x)
{
    const ir_node *n = ir_def(x);
    const double *limit = strmap_get(v->compiled.tool.compile->report.limits, x->name),
                 bound = range_mask_bound(IR_f16);
    bool mask = limit && *limit <= bound;
    if (!n) return mask;
    const bool adds = n->op == IR_OP_add || n->op == IR_OP_sub || n->op == IR_OP_mul || ir_op_has(n->op, IR_VIEW);
    for (int i = 0; i < n->n_in; i++) {
        const ir_value *o = ir_in(n, i);
        const double *l = o ? strmap_get(v->compiled.tool.compile->report.limits, o->name) : NULL;
        const bool operand_masks = o && ((o->graph == x->graph && masked[o->id]) || (l && *l <= bound));
        if (o && !operand_masks && is_large(k, o)) return false;
        mask |= operand_masks && adds;
    }
    return mask || (limit != NULL);
}

/* Whether all readers belong to the operator that writes the value. */
static bool is_within_operator(const ir_value *v)
{
    const ir_node *n = ir_def(v);
    if (!n || !n->loc.node || !v->first_use) return false;
    for (const ir_use *u = v->first_use; u; u = u->next)
        if (!u->user->loc.node || strcmp(u->user->loc.node, n->loc.node) != 0) return false;
    return true;
}

static void add_large(deciding *k, const variant *v, bool *masked, const ir_value *x)
{
    if (!ir_dtype_is_float(x->type.dtype) || x->kind == IR_VALUE_STORAGE || !is_large(k, x)) return;
    masked[x->id] = is_masked(k, v, masked, x);
    if (masked[x->id]) return;
    const large_value l = {.value = x,
                           .numbers = rt_calibrator_value(k->calibrator, x),
                           .has_line = strmap_get(v->values, x->name) && !is_within_operator(x)};
    vec_push(k->arena, &k->large, l);
}

static void find_large(deciding *k, const variant *v)
{
    for (const ir_graph *g = k->graph; g; g = next_within(k, g)) {
        bool *masked = arena_array(k->arena, g->value_ids + 1, sizeof *masked);
        for (ir_value *const *x = g->inputs.items; x < g->inputs.items + g->inputs.count; x++)
            add_large(k, v, masked, *x);
        for (const ir_node *n = g->first; n; n = n->next)
            for (int i = 0; i < n->n_out; i++) add_large(k, v, masked, n->out[i]);
    }
}

/* ---- operators that have to be fp32 -------------------------------------------------------------- */

static bool has_to_be_f32(const ir_node *n)
{
    return n->loc.op && n->loc.node && !n->n_regions && !ir_op_has(n->op, IR_VIEW) && !ir_op_has(n->op, IR_EFFECT);
}

static bool touches(const ir_node *n, const ir_value *v)
{
    for (int i = 0; i < n->n_out; i++)
        if (strcmp(n->out[i]->name, v->name) == 0) return true;
    for (int i = 0; i < n->n_in; i++)
        if (ir_in(n, i) && strcmp(ir_in(n, i)->name, v->name) == 0) return true;
    return false;
}

static bool is_same(const ir_node *a, const ir_node *b) { return strcmp(a->loc.node, b->loc.node) == 0; }

static void need(deciding *k, const ir_node *n)
{
    if (!n || !has_to_be_f32(n)) return;
    for (size_t i = 0; i < k->nodes.count; i++)
        if (k->nodes.items[i] == n) return;
    vec_push(k->arena, &k->nodes, n);
}

static void find_nodes(deciding *k)
{
    for (size_t i = 0; i < k->large.count; i++) {
        need(k, ir_def(k->large.items[i].value));
        for (const ir_use *u = k->large.items[i].value->first_use; u; u = u->next) need(k, u->user);
    }
    for (size_t i = 0; i < k->large.count; i++)
        for (size_t n = 0; n < k->nodes.count; n++)
            if (touches(k->nodes.items[n], k->large.items[i].value)) vec_push(k->arena, &k->large.items[i].nodes, n);
}

/* ---- the cover ---------------------------------------------------------------------------------- */

/* The large value that a node of the cover touches. */
static const large_value *large_of(const deciding *k, const ir_node *n)
{
    for (size_t i = 0; i < k->large.count; i++)
        if (touches(n, k->large.items[i].value)) return &k->large.items[i];
    return NULL;
}

static int count_covered(const bool *covered, const large_value *l)
{
    int count = 0;
    for (size_t i = 0; i < l->nodes.count; i++) count += !covered[l->nodes.items[i]];
    return count;
}

static bool has_line(const deciding *k, bool is_node, const char *name)
{
    for (size_t i = 0; i < k->out->lines.count; i++)
        if (k->out->lines.items[i].is_node == is_node && strcmp(k->out->lines.items[i].name, name) == 0) return true;
    return false;
}

/* A loop whose iterations are computed one after another here, and that other runtimes keep, needs a line for its
 * body. */
static void add_line(deciding *k, bool is_node, const char *name, const rt_calibrated *why)
{
    const char *body = name_in_body(name);
    vec_push(k->arena, &k->out->lines, ((calibrated_line){is_node, name, why, NULL}));
    if (!k->kept || body == name || has_line(k, is_node, body)) return;
    const strmap *names = is_node ? k->kept->nodes : k->kept->values;
    if (!strmap_get(names, name) && strmap_get(names, body))
        vec_push(k->arena, &k->out->lines, ((calibrated_line){is_node, body, why, NULL}));
}

/* The tensor whose line covers most nodes; NULL: none covers any. */
static const large_value *best_tensor(const deciding *k, const bool *covered)
{
    const large_value *best = NULL;
    int most = 0;
    for (size_t i = 0; i < k->large.count; i++) {
        const large_value *l = &k->large.items[i];
        const int count = l->has_line ? count_covered(covered, l) : 0;
        if (count > most) {
            most = count;
            best = l;
        }
    }
    return best;
}

static void cover(deciding *k)
{
    bool *covered = arena_array(k->arena, k->nodes.count + 1, sizeof *covered);
    for (const large_value *l; (l = best_tensor(k, covered));) {
        add_line(k, false, l->value->name, l->numbers);
        for (size_t i = 0; i < l->nodes.count; i++) covered[l->nodes.items[i]] = true;
    }
    for (size_t i = 0; i < k->nodes.count; i++) {
        if (covered[i]) continue;
        add_line(k, true, k->nodes.items[i]->loc.node, large_of(k, k->nodes.items[i])->numbers);
        for (size_t j = i; j < k->nodes.count; j++) covered[j] |= is_same(k->nodes.items[i], k->nodes.items[j]);
    }
}

/* Joins the large values that touch a node in common: they are one place. */
static void find_places(deciding *k)
{
    size_t *place = k->place = arena_array(k->arena, k->large.count + 1, sizeof *place);
    size_t *first = arena_array(k->arena, k->nodes.count + 1, sizeof *first); /* the first that touches it, plus 1 */
    for (size_t i = 0; i < k->large.count; i++) {
        const large_value *l = &k->large.items[i];
        place[i] = i;
        for (size_t n = 0; n < l->nodes.count; n++) {
            size_t *seen = &first[l->nodes.items[n]];
            const size_t old = place[i];
            if (!*seen) *seen = i + 1;
            const size_t joined = place[*seen - 1];
            for (size_t j = 0; j <= i && joined != old; j++)
                if (place[j] == old) place[j] = joined;
        }
    }
}

static size_t place_of(const deciding *k, const calibrated_line *l)
{
    size_t i = 0;
    while (k->large.items[i].numbers != l->tensor) i++;
    return k->place[i];
}

static int count_lines(const deciding *k, size_t place)
{
    int count = 0;
    for (size_t i = 0; i < k->out->lines.count; i++) count += place_of(k, &k->out->lines.items[i]) == place;
    return count;
}

/* Leaves out lines, the last first. Each place keeps one, because it overflows where a list or runtime has it in
 * fp16. */
static ampc_status shorten(deciding *k)
{
    TRY(try_lines(k, -1, &k->out->heals));
    if (!k->out->heals || k->out->lines.count > MAX_TRIED) return AMPC_OK;
    for (int i = (int)k->out->lines.count - 1; i >= 0; i--) {
        bool heals;
        if (count_lines(k, place_of(k, &k->out->lines.items[i])) == 1) continue;
        TRY(try_lines(k, i, &heals));
        if (!heals) continue;
        for (int j = i; j + 1 < (int)k->out->lines.count; j++) k->out->lines.items[j] = k->out->lines.items[j + 1];
        k->out->lines.count--;
    }
    return AMPC_OK;
}

/* ---- the result --------------------------------------------------------------------------------- */

static const char *reason_of(const deciding *k, const calibrated_line *l)
{
    const rt_calibrated *r = l->tensor;
    const ir_exponents *e = &r->numbers;
    text_buffer t = {.arena = k->arena};
    if (l->is_node) text_add(&t, "'%s': ", r->name);
    text_add(&t, "%.6g .. %.6g exceeds %g", e->min, e->max, k->limit);
    if (e->large)
        text_add(&t, ", %lld of %lld values overflow", (long long)e->large, (long long)ir_exponents_finite(e));
    if (r->place) text_add(&t, ", the largest in %s", r->place);
    if (*r->node) text_add(&t, "; result of %s '%s'", r->op, r->node);
    return text_finish(&t);
}

static int count_places(const deciding *k)
{
    int places = 0;
    for (size_t g = 0; g < k->large.count; g++) places += count_lines(k, g) > 0;
    return places;
}

static bool is_listed(const calibrated_list *list, const rt_calibrated *r)
{
    for (size_t i = 0; i < list->lines.count; i++)
        if (list->lines.items[i].tensor == r) return true;
    return false;
}

static void finish(deciding *k)
{
    calibrated_list *out = k->out;
    for (size_t i = 0; i < out->lines.count; i++) out->lines.items[i].reason = reason_of(k, &out->lines.items[i]);
    for (size_t i = 0; i < k->large.count; i++)
        if (!is_listed(out, k->large.items[i].numbers)) vec_push(k->arena, &out->safe, k->large.items[i].numbers);
    out->nodes = (int)k->nodes.count;
    for (size_t i = 0; i < k->nodes.count; i++) out->white += ir_op_get(k->nodes.items[i]->op)->colour == IR_WHITE;
    out->places = count_places(k);
}

ampc_status calibrate_lines(const tool *t, const rt_calibrator *c, const ir_graph *g, double limit,
                            calibrated_list *out)
{
    deciding k = {.tool = t, .calibrator = c, .graph = g, .arena = t->arena, .limit = limit, .out = out};
    variant plain, kept;
    bool any = false;
    *out = (calibrated_list){.heals = true};
    for (const ir_graph *in = g; in; in = next_within(&k, in))
        for (const ir_node *n = in->first; n; n = n->next)
            for (int i = 0; i < n->n_in; i++) any |= ir_in(n, i) && is_large(&k, ir_in(n, i));
    if (!any) return AMPC_OK;
    ampc_status status = compile_with(&k, -1, false, &plain);
    if (status == AMPC_OK) find_large(&k, &plain);
    run_variant_close(&plain.compiled);
    TRY(status);
    find_nodes(&k);
    find_places(&k);
    k.kept = compile_with(&k, -1, true, &kept) == AMPC_OK ? &kept : NULL;
    cover(&k);
    run_variant_close(&kept.compiled);
    TRY(shorten(&k));
    finish(&k);
    return AMPC_OK;
}
