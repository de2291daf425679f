/* infer.c - infers the result types of a node and checks that it is safe to run.
 *
 * Checks driven by the op table come first: arity, mandatory operands, dtype groups, ranges of attributes by name. Then
 * the rule of the op's `infer` column (infer_*.c) checks shapes and sets the results. Nothing from a model or an IR
 * file is used before it has been checked here. */
#include "ir/infer/infer.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef ampc_status infer_rule(const inference *x);

static infer_rule *const rules[IR_OP_COUNT] = {
#define OP(name, amp, traits, word, fold, grad, kernel) [IR_OP_##name] = infer_##word,
#include "ir/ops/ops.def"
};

/* ---- dtypes ---------------------------------------------------------------------------------- */

static bool is_number(ir_dtype t) { return ir_dtype_is_float(t) || ir_dtype_is_int(t); }
static bool is_bool(ir_dtype t) { return t == IR_bool; }
static bool is_any(ir_dtype t) { return t != IR_NO_DTYPE; }
static bool is_wide(ir_dtype t) { return t == IR_f32 || t == IR_f64; }

static const struct {
    bool (*legal)(ir_dtype t);
    const char *what;
    bool agree; /* whether all operands of the group must have one dtype */
} groups[] = {
    [IR_GROUP_F] = {ir_dtype_is_float, "a float type", true},
    [IR_GROUP_G] = {ir_dtype_is_float, "a float type", true},
    [IR_GROUP_F32] = {is_wide, "f32 or f64", true},
    [IR_GROUP_N] = {is_number, "a number type", true},
    [IR_GROUP_I] = {ir_dtype_is_int, "an integer type", false},
    [IR_GROUP_W] = {ir_dtype_is_int, "an integer type", true},
    [IR_GROUP_B] = {is_bool, "bool", false},
    [IR_GROUP_T] = {is_any, "typed", true},
    [IR_GROUP_U] = {is_any, "typed", false},
};

static const char *first_of_group(const inference *x, ir_group group)
{
    int i = 0;
    while (infer_slot(x, i)->group != group || !infer_in(x, i)) i++;
    return infer_slot(x, i)->name;
}

static ampc_status check_operand_dtype(inference *x, int i)
{
    const ir_slot *slot = infer_slot(x, i);
    ir_dtype is = infer_in(x, i)->dtype, *common = &x->group[slot->group];
    if (is == IR_NO_DTYPE) return infer_reject(x, "%s has no type", slot->name);
    if (!groups[slot->group].legal(is))
        return infer_reject(x, "%s must be %s, is %s", slot->name, groups[slot->group].what, ir_dtype_name(is));
    if (groups[slot->group].agree && *common != IR_NO_DTYPE && *common != is)
        return infer_reject(x, "element types differ: %s is %s and %s is %s", first_of_group(x, slot->group),
                            ir_dtype_name(*common), slot->name, ir_dtype_name(is));
    *common = is;
    return AMPC_OK;
}

/* F32 is f64 if and only if F is; in an op without F, its own operands decide. */
static ampc_status check_wide_group(inference *x)
{
    ir_dtype *wide = &x->group[IR_GROUP_F32], f = x->group[IR_GROUP_F];
    ir_dtype expected = f == IR_f64 || (f == IR_NO_DTYPE && *wide == IR_f64) ? IR_f64 : IR_f32;
    if (*wide != IR_NO_DTYPE && *wide != expected)
        return infer_reject(x, "%s must be %s, is %s", first_of_group(x, IR_GROUP_F32), ir_dtype_name(expected),
                            ir_dtype_name(*wide));
    *wide = expected;
    return AMPC_OK;
}

static ampc_status check_operands(inference *x)
{
    const ir_node *n = x->node;
    const ir_op_info *info = ir_op_get(n->op);
    int fixed = info->variadic_in < 0 ? info->n_in : info->n_in - 1;
    if (n->n_in < fixed || (info->variadic_in < 0 && n->n_in > fixed))
        return infer_reject(x, "has %d operands, expected %d", n->n_in, fixed);
    fixed = info->variadic_out < 0 ? info->n_out : info->n_out - 1;
    if (n->n_out < fixed || (info->variadic_out < 0 && n->n_out > fixed))
        return infer_reject(x, "has %d results, expected %d", n->n_out, fixed);
    for (int i = 0; i < n->n_in; i++) {
        if (infer_in(x, i)) TRY(check_operand_dtype(x, i));
        else if (infer_slot(x, i)->kind != IR_SLOT_OPT)
            return infer_reject(x, "operand %s is missing", infer_slot(x, i)->name);
    }
    return check_wide_group(x);
}

/* ---- attributes ------------------------------------------------------------------------------ */

/* Ranges by attribute name, for numbers and for each item of a list. Numbers without a row may have any finite value;
 * dimensions without a row must not be negative. */
static const struct {
    const char *name;
    double low, high;
} ranges[] = {
    {"strides", 1, INT32_MAX},
    {"dilations", 1, INT32_MAX},
    {"kernel", 1, INT32_MAX},
    {"pads", 0, INT32_MAX},
    {"before", INT32_MIN, INT32_MAX},
    {"after", INT32_MIN, INT32_MAX},
    {"group", 1, INT32_MAX},
    {"k", INT32_MIN, INT32_MAX},
    {"eps", 0, HUGE_VAL},
    {"ratio", 0, 1 - 0x1p-53},
    {"stream", 0, INT32_MAX},
    {"incr_every", 1, INT32_MAX},
    {"decr_every", 1, INT32_MAX},
    {"incr_ratio", 1, HUGE_VAL},
    {"decr_ratio", 0, 1},
    {"min", 0, HUGE_VAL},
    {"max", 0, HUGE_VAL},
    {"value", -HUGE_VAL, HUGE_VAL}, /* of `dims`, any integers */
    {"start", -HUGE_VAL, HUGE_VAL}, /* of slices: checked only if elements are read */
    {"sampling", 0, 1 << 14},
    {"clip", 0, HUGE_VAL},
};

static ampc_status check_range(const inference *x, const ir_slot *slot, double v)
{
    double low = slot->kind == IR_SLOT_DIMS ? 0 : -HUGE_VAL, high = HUGE_VAL;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (!strcmp(ranges[i].name, slot->name)) {
            low = ranges[i].low;
            high = ranges[i].high;
        }
    if (!isfinite(v)) return infer_reject(x, "%s must be finite", slot->name);
    if (v < low || v > high) return infer_reject(x, "%s is out of range: %.17g", slot->name, v);
    return AMPC_OK;
}

static ampc_status check_items(const inference *x, const ir_slot *slot, const ir_attr *a)
{
    for (int i = 0; i < a->list.count; i++) {
        int64_t item = a->list.items[i];
        bool dims = slot->kind == IR_SLOT_DIMS;
        if (dims && item == IR_DIM_NONE)
            return infer_reject(x, "entry %d of %s is too large or too complex", i, slot->name);
        if (dims && ir_dim_is_symbolic(item)) continue;
        TRY(check_range(x, slot, (double)item));
    }
    return AMPC_OK;
}

/* DTYPE(out) selects the float type of result 0 and its group; all other dtype attributes must name a type. */
static ampc_status check_dtype(const inference *x, const ir_slot *slot, ir_dtype t)
{
    if (strcmp(slot->name, "out"))
        return is_any(t) ? AMPC_OK : infer_reject(x, "%s must name an element type", slot->name);
    ir_dtype from = x->group[ir_op_get(x->node->op)->out[0].group];
    if (t == IR_NO_DTYPE || (ir_dtype_is_float(t) && ir_dtype_is_float(from))) return AMPC_OK;
    return infer_reject(x, "out %s of %s: both must be float types", ir_dtype_name(t), ir_dtype_name(from));
}

static ampc_status check_attributes(const inference *x)
{
    const ir_op_info *info = ir_op_get(x->node->op);
    for (int i = 0; i < info->n_attr; i++) {
        const ir_slot *slot = &info->attr[i];
        const ir_attr *a = &x->node->attr[i];
        switch (slot->kind) {
        case IR_SLOT_INT: TRY(check_range(x, slot, (double)a->i)); break;
        case IR_SLOT_FLOAT:
        case IR_SLOT_DOUBLE: TRY(check_range(x, slot, a->f)); break;
        case IR_SLOT_DTYPE: TRY(check_dtype(x, slot, a->dtype)); break;
        case IR_SLOT_STR:
        case IR_SLOT_FIELDS:
        case IR_SLOT_ONE_OF: break;
        case IR_SLOT_INTS:
        case IR_SLOT_DIMS: TRY(check_items(x, slot, a)); break;
        /* the parser accepts only true and false */
        default: assert(slot->kind == IR_SLOT_BOOL && (a->i == 0 || a->i == 1));
        }
    }
    return AMPC_OK;
}

/* ---- entry ----------------------------------------------------------------------------------- */

static ir_module *module_of(const ir_node *n)
{
    if (n->graph) return n->graph->module;
    if (n->n_out > 0) return n->out[0]->graph->module;
    return n->in[0].value->graph->module;
}

ampc_status ir_infer(ir_node *n, diag *d)
{
    inference x = {.node = n, .diag = d, .module = module_of(n)};
    x.dims = x.module->dims;
    TRY(check_operands(&x));
    TRY(check_attributes(&x));
    return rules[n->op](&x);
}
