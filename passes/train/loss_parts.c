/* loss_parts.c - what an evaluation adds up, batch after batch.
 *
 * The mean of means of batches is not the mean of the data set if they are divided by different numbers: of labels that
 * are not ignored, or of their class weights. So a loss has parts, which @eval outputs: sums with the weights that
 * divide them, sums alone and means over the samples. The meta entry "parts.OUTPUT" says how an output is made of them:
 *
 *     ENTRY = PART {" + " PART}     PART = FACTOR " " (SUM " / " WEIGHT | "sum " SUM | MEAN)     of outputs of @eval
 *
 * Built-in losses report their parts. Those of a scalar that the model computes are found here. An output without such
 * an entry is a mean over the samples. */
#include "passes/train/loss.h"

#include "ir/ops/number.h"
#include "passes/amp/samples.h"

#include <math.h>

void loss_add_part(const ir_graph *g, loss_parts *parts, ir_value *value, ir_value *weight)
{
    const loss_part part = {.value = value, .weight = weight, .factor = 1};
    vec_push(g->module->arena, parts, part);
}

typedef struct finder {
    ir_graph *graph;
    diag *diag;
    ir_const_map *constants;
    samples samples;
    loss_parts *parts;
    bool ratios; /* of loss_find_ratios */
} finder;

/* ---- what ops do with parts ------------------------------------------------------------------------ */

typedef enum part_rule { OTHER, ADDS, SUBTRACTS, NEGATES, MULTIPLIES, DIVIDES, BOUNDS } part_rule;

static part_rule rule_of(const ir_node *n)
{
    static const struct {
        ir_op op;
        part_rule rule;
    } rules[] = {
#define PART(op, how) {IR_OP_##op, how},
#include "passes/train/loss_parts.def"
#undef PART
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].op == n->op) return rules[i].rule;
    return OTHER;
}

/* ---- the scalar ---------------------------------------------------------------------------------- */

/* Whether v is a number known at compile time. */
static bool is_number(const finder *f, const ir_value *v, double *number)
{
    const ir_const_value *c = ir_const_get(f->constants, v);
    if (!c || c->count != 1 || !c->floats) return false;
    *number = c->floats[0];
    return true;
}

static bool is_scalar(const finder *f, const ir_value *v)
{
    return ir_type_count(f->graph->module->dims, &v->type) == 1;
}

/* v before conversions and changes of its shape. */
static ir_value *bare(ir_value *v)
{
    while (v->kind == IR_VALUE_RESULT && ir_op_has(v->def->op, IR_CONVERTS | IR_VIEW)) v = ir_in(v->def, 0);
    return v;
}

/* The reduction of a node that is a loss with labels, or -1. */
static int reduction_of(const ir_node *n)
{
    return ir_label(n) && n->n_out ? (int)n->attr[ir_op_find_attr(n->op, "reduction")].i : -1;
}

/* Whether v is a sum over the samples, or differences and multiples of such sums. */
static bool is_sum(const finder *f, ir_value *v)
{
    double number;
    for (v = bare(v); v->kind == IR_VALUE_RESULT && ir_op_has(v->def->op, IR_SUMS); v = bare(ir_in(v->def, 0)))
        if (samples_mark(&f->samples, ir_in(v->def, 0)) & SAMPLES_AXIS) return true;
    if (v->kind != IR_VALUE_RESULT || v != ir_out(v->def, 0)) return false;
    const ir_node *n = v->def;
    switch (rule_of(n)) {
    case ADDS:
    case SUBTRACTS: return is_sum(f, ir_in(n, 0)) && is_sum(f, ir_in(n, 1));
    case NEGATES: return is_sum(f, ir_in(n, 0));
    case MULTIPLIES:
        return (is_number(f, ir_in(n, 0), &number) && is_sum(f, ir_in(n, 1))) ||
               (is_number(f, ir_in(n, 1), &number) && is_sum(f, ir_in(n, 0)));
    default: return reduction_of(n) == IR_WORD(loss, sum);
    }
}

/* The operand of a node that only keeps it from being 0, by a bound or a small number; else NULL. */
static ir_value *bounded(const finder *f, const ir_node *n)
{
    double number;
    const part_rule rule = rule_of(n);
    if (rule != BOUNDS && rule != ADDS) return NULL;
    return ir_in(n, 1) && is_number(f, ir_in(n, 1), &number) ? ir_in(n, 0) : NULL;
}

/* The sum over the samples that v is, up to a bound; or NULL. */
static ir_value *find_divisor(const finder *f, ir_value *v)
{
    v = bare(v);
    while (v && !is_sum(f, v)) {
        v = v->kind == IR_VALUE_RESULT ? bounded(f, v->def) : NULL;
        if (v) v = bare(v);
    }
    return v;
}

static loss_part *add_part(const finder *f, ir_value *v, ir_value *weight, bool sum, double factor)
{
    const loss_part part = {.value = v, .weight = weight, .factor = factor, .sum = sum};
    vec_push(f->graph->module->arena, f->parts, part);
    return &f->parts->items[f->parts->count - 1];
}

/* The number of labels that a loss of the model divides by, or the sum of their weights; NULL: all labels count. */
static ir_value *weight_of_labels(const finder *f, ir_node *n)
{
    ir_builder b = f->ratios ? ir_builder_before(n, f->diag) : pass_builder(f->graph, IR_FORWARD, f->diag);
    ir_value *label = ir_label(n), *weights = ir_in_named(n, "weight");
    const int64_t ignored = n->attr[ir_op_find_attr(n->op, "ignore_index")].i;
    if (ignored == INT64_MIN && !weights) return NULL;
    ir_value *share = ir_scalar(&b, IR_f32, 1), *left_out = NULL;
    if (ignored != INT64_MIN) {
        left_out = ir_binary(&b, IR_OP_equal, label, ir_scalar_like(&b, label, (double)ignored));
        label = ir_done(&b, ir_new(&b, IR_OP_where, 3, left_out, ir_scalar_like(&b, label, 0), label));
    }
    if (weights) share = ir_done(&b, ir_new(&b, IR_OP_gather, 2, weights, label));
    if (left_out) share = ir_done(&b, ir_new(&b, IR_OP_where, 3, left_out, ir_scalar_like(&b, share, 0), share));
    if (!share) return NULL;
    int64_t axes[IR_MAX_RANK];
    for (int i = 0; i < share->type.rank; i++) axes[i] = i;
    return ir_reduce_sum(&b, share, axes, share->type.rank, false);
}

/* A mean over labels, of which none may count: then it is 0/0. */
static void find_mean_of_labels(const finder *f, ir_node *n, double factor)
{
    ir_builder b = pass_builder(f->graph, IR_FORWARD, f->diag);
    ir_value *mean = ir_out(n, 0), *weight = weight_of_labels(f, n), *sum = mean;
    if (weight && !f->ratios) {
        sum = ir_binary(&b, IR_OP_mul, mean, ir_cast(&b, weight, mean->type.dtype));
        ir_value *none = ir_binary(&b, IR_OP_equal, weight, ir_scalar_like(&b, weight, 0));
        sum = ir_done(&b, ir_new(&b, IR_OP_where, 3, none, ir_scalar_like(&b, mean, 0), sum));
    }
    if (sum) add_part(f, sum, weight, false, factor)->ratio = n;
}

static void find(const finder *f, ir_value *v, double factor);

/* Anything else: nothing is known about it but its values. */
static void find_other(const finder *f, ir_value *v, double factor)
{
    const ir_node *n = ir_def(v);
    const bool alone = f->samples.batch == ir_dim_number(1); /* each batch is one sample */
    const bool linear = !n || alone || ir_op_has(n->op, IR_SUMS | IR_MEANS) ||
                        !(samples_mark(&f->samples, v) & SAMPLES_DATA);
    if (!linear && !f->ratios)
        diag_note(
            f->diag, ir_diag_loc(n),
            "is part of the loss, but neither a mean nor a sum over samples: an evaluation reports the mean of its "
            "values in the batches, which depends on their size");
    add_part(f, v, NULL, false, factor)->coupled = !linear;
}

static void find_product(const finder *f, const ir_node *n, double factor)
{
    double number;
    for (int i = 0; i < 2; i++)
        if (is_number(f, ir_in(n, i), &number) && is_scalar(f, ir_in(n, 1 - i))) {
            find(f, ir_in(n, 1 - i), factor * number);
            return;
        }
    find_other(f, ir_out(n, 0), factor);
}

/* A sum divided by a sum is a mean, and so is one that is divided by something that the number of samples decides. */
static void find_quotient(const finder *f, ir_node *n, double factor)
{
    double number;
    ir_value *a = ir_in(n, 0), *b = ir_in(n, 1), *weight = find_divisor(f, b);
    const bool sum = is_sum(f, a);
    if (sum && weight) {
        add_part(f, a, weight, false, factor)->ratio = n;
    } else if (is_number(f, b, &number)) {
        const bool of_samples = sum && !f->samples.twice && f->samples.batch > 0 &&
                                fmod(number, (double)f->samples.batch) == 0;
        if (of_samples) add_part(f, ir_out(n, 0), NULL, false, factor);
        else find(f, a, factor / number);
    } else if (sum && !(samples_mark(&f->samples, b) & SAMPLES_DATA)) {
        add_part(f, ir_out(n, 0), NULL, false, factor);
    } else {
        find_other(f, ir_out(n, 0), factor);
    }
}

static void find_sum(const finder *f, const ir_node *n, double factor, double sign)
{
    if (is_scalar(f, ir_in(n, 0)) && is_scalar(f, ir_in(n, 1))) {
        find(f, ir_in(n, 0), factor);
        find(f, ir_in(n, 1), factor * sign);
    } else {
        find_other(f, ir_out(n, 0), factor);
    }
}

static void find_operands(const finder *f, ir_node *n, double factor)
{
    switch (rule_of(n)) {
    case ADDS: find_sum(f, n, factor, 1); break;
    case SUBTRACTS: find_sum(f, n, factor, -1); break;
    case NEGATES: find(f, ir_in(n, 0), -factor); break;
    case MULTIPLIES: find_product(f, n, factor); break;
    case DIVIDES: find_quotient(f, n, factor); break;
    default: find_other(f, ir_out(n, 0), factor);
    }
}

static void find(const finder *f, ir_value *v, double factor)
{
    v = bare(v);
    ir_node *n = ir_def(v);
    if (!n || !is_scalar(f, v) || v != ir_out(n, 0)) find_other(f, v, factor);
    else if (is_sum(f, v)) add_part(f, v, NULL, true, factor);
    else if (reduction_of(n) == IR_WORD(loss, mean)) find_mean_of_labels(f, n, factor);
    else find_operands(f, n, factor);
}

static void find_all(finder f, ir_value *v, double factor)
{
    ir_graph *g = f.graph;
    arena *scratch = pass_scratch_new(g->module);
    f.samples = samples_find(g, scratch);
    f.constants = ir_const_map_new(scratch, g);
    find(&f, v, factor);
    arena_free(scratch);
}

void loss_find_parts(ir_graph *g, ir_value *v, double factor, diag *d, loss_parts *parts)
{
    find_all((finder){.graph = g, .diag = d, .parts = parts}, v, factor);
}

void loss_find_ratios(ir_graph *g, ir_value *v, diag *d, loss_parts *parts)
{
    find_all((finder){.graph = g, .diag = d, .parts = parts, .ratios = true}, v, 1);
}

/* ---- outputs ------------------------------------------------------------------------------------- */

static bool is_mean_of_samples(const loss_parts *parts)
{
    for (size_t i = 0; i < parts->count; i++)
        if (parts->items[i].weight || parts->items[i].sum) return false;
    return true;
}

/* The name of the output of role `loss_part` with that value, made if there is none. */
static const char *output_of(ir_graph *g, ir_value *v, diag *d)
{
    ir_module *m = g->module;
    int count = 0;
    for (const ir_node *n = ir_first_output(g); n; n = ir_next_output(n)) {
        if (n->role != IR_OUTPUT_loss_part) continue;
        if (ir_in(n, 0) == v) return ir_output_name(n);
        count++;
    }
    ir_builder b = pass_builder(g, IR_FORWARD, d);
    if (v->type.rank) v = ir_reshape(&b, v, NULL, 0);
    const char *name = arena_printf(m->arena, "%s%d", ir_output_roles[IR_OUTPUT_loss_part].name, count);
    ir_node *n = ir_output(&b, ir_graph_name_output(g, name), v);
    n->role = IR_OUTPUT_loss_part;
    return ir_output_name(n);
}

void loss_output_parts(ir_graph *g, const char *name, const loss_parts *parts, diag *d)
{
    arena *a = g->module->arena;
    ir_addend *addends = arena_array(a, parts->count + 1, sizeof *addends);
    if (is_mean_of_samples(parts) || diag_status(d) != AMPC_OK) return;
    for (size_t i = 0; i < parts->count; i++) {
        const loss_part *part = &parts->items[i];
        addends[i] = (ir_addend){.factor = part->factor, .sum = part->sum, .value = output_of(g, part->value, d)};
        if (part->weight) addends[i].weight = output_of(g, part->weight, d);
    }
    const ir_mean mean = {name, addends, (int)parts->count};
    vec_push(a, &g->module->training.means, mean);
}
