/* cost.c - the cost model, a roofline.
 *
 *   node   launch + max(bytes / bandwidth, 2 * products / flops[type of the operands]), where every operand and result
 *          contributes to bytes once. A view (reshape) costs nothing.
 *   cast   launch + (bytes read + bytes written) / bandwidth
 * If the measure is cast bytes, the only cost is the number of bytes that casts write. The device sets the size of
 * symbols. */
#include "passes/amp/cost.h"
#include "passes/amp/entry.h"

#include <math.h>

static const double PICOSECONDS = 1e12;

const int64_t *pass_symbol_sizes(const ir_module *m, int64_t size, arena *a)
{
    size_t count = ir_dim_symbol_count(m->dims);
    int64_t *sizes = arena_array(a, count + 1, sizeof *sizes);
    for (size_t i = 0; i < count; i++) sizes[i] = size;
    return sizes;
}

double pass_elements(const ir_module *m, const ir_type *type, const int64_t *sizes)
{
    double count = 1;
    for (int i = 0; i < type->rank; i++) {
        int64_t size = type->dims[i];
        if (ir_dim_is_symbolic(size) && !ir_dim_eval(m->dims, type->dims[i], sizes, &size, NULL)) size = 1;
        count *= size > 0 ? (double)size : 0;
    }
    return count;
}

cost_model cost_model_new(const ir_device *device, const ir_module *m, size_t items, arena *a)
{
    return (cost_model){.device = device,
                        .module = m,
                        .sizes = pass_symbol_sizes(m, device->symbol, a),
                        .max_cost = ((int64_t)1 << 60) / (int64_t)(items + 1)};
}

static double elements(const cost_model *c, const ir_type *type) { return pass_elements(c->module, type, c->sizes); }

static int64_t to_units(const cost_model *c, double cost)
{
    return cost < (double)c->max_cost ? (int64_t)llround(cost) : c->max_cost;
}

/* ---- products -------------------------------------------------------------------------------- */

/* Multiplications of a node: elements of result 0 times the number of products summed for each. */
typedef double products_fn(const cost_model *c, const ir_node *n);

static double matmul_products(const cost_model *c, const ir_node *n)
{
    const ir_type *a = &ir_in(n, IR_IN(matmul, a))->type;
    bool trans = n->attr[IR_ATTR(matmul, trans_a)].i;
    ir_type inner = ir_type_make(a->dtype, 1, &a->dims[a->rank - (trans ? 2 : 1)]);
    return elements(c, &ir_out(n, 0)->type) * elements(c, &inner);
}

static double conv_products(const cost_model *c, const ir_node *n)
{
    ir_type filter = ir_in(n, IR_IN(conv, w))->type;
    filter.dims[0] = 1;
    return elements(c, &ir_out(n, 0)->type) * elements(c, &filter);
}

static double conv_grad_input_products(const cost_model *c, const ir_node *n)
{
    ir_type filter = ir_in(n, IR_IN(conv_grad_input, w))->type;
    filter.dims[0] = 1;
    return elements(c, &ir_in(n, IR_IN(conv_grad_input, dy))->type) * elements(c, &filter);
}

static double conv_grad_weight_products(const cost_model *c, const ir_node *n)
{
    ir_type filter = ir_out(n, 0)->type;
    filter.dims[0] = 1;
    return elements(c, &ir_in(n, IR_IN(conv_grad_weight, dy))->type) * elements(c, &filter);
}

static const struct {
    ir_op op;
    products_fn *products;
} contractions[] = {
    {IR_OP_matmul, matmul_products},
    {IR_OP_conv, conv_products},
    {IR_OP_conv_grad_input, conv_grad_input_products},
    {IR_OP_conv_grad_weight, conv_grad_weight_products},
};

static double products(const cost_model *c, const ir_node *n)
{
    for (size_t i = 0; i < sizeof contractions / sizeof *contractions; i++)
        if (contractions[i].op == n->op) return contractions[i].products(c, n);
    return 0;
}

/* ---- costs ----------------------------------------------------------------------------------- */

static double bytes_of(const cost_model *c, const ir_value *v, ir_dtype t)
{
    return v->type.dtype == IR_NO_DTYPE ? 0 : elements(c, &v->type) * (double)ir_dtype_size(t);
}

static bool follows(const ir_node *n, int i)
{
    return ir_dtype_is_float(n->out[i]->type.dtype) && amp_follows_result(n, i);
}

static double moved_bytes(const cost_model *c, const ir_node *n, ir_dtype t)
{
    double bytes = 0;
    for (int i = 0; i < n->n_in; i++)
        if (ir_in(n, i)) bytes += bytes_of(c, ir_in(n, i), amp_is_cast_operand(n, i) ? t : ir_in(n, i)->type.dtype);
    for (int i = 0; i < n->n_out; i++) bytes += bytes_of(c, n->out[i], follows(n, i) ? t : n->out[i]->type.dtype);
    return bytes;
}

int64_t cost_of_node(const cost_model *c, const ir_node *n, ir_dtype t)
{
    const ir_device *device = c->device;
    if (device->measure == DEVICE_CAST_BYTES || (ir_op_get(n->op)->traits & (IR_VIEW | IR_EFFECT))) return 0;
    double move = moved_bytes(c, n, t) / device->bandwidth, compute = 2 * products(c, n) / device->flops[t];
    return to_units(c, ((move > compute ? move : compute) + device->launch) * PICOSECONDS);
}

int64_t cost_of_results(const cost_model *c, const ir_node *n, ir_dtype from, ir_dtype to)
{
    const ir_device *device = c->device;
    if (device->measure == DEVICE_CAST_BYTES || ir_dtype_size(to) < ir_dtype_size(from)) return 0;
    double bytes = 0;
    for (int i = 0; i < n->n_out; i++)
        if (follows(n, i)) bytes += bytes_of(c, n->out[i], to) - bytes_of(c, n->out[i], from);
    return to_units(c, bytes / device->bandwidth * PICOSECONDS);
}

int64_t cost_of_cast(const cost_model *c, const ir_type *type, ir_dtype from, ir_dtype to)
{
    const ir_device *device = c->device;
    double count = elements(c, type), written = count * (double)ir_dtype_size(to);
    if (device->measure == DEVICE_CAST_BYTES) return to_units(c, written);
    double moved = count * (double)ir_dtype_size(from) + written;
    return to_units(c, (moved / device->bandwidth + device->launch) * PICOSECONDS);
}

int64_t cost_of_copy(const cost_model *c, const ir_type *type, ir_dtype t)
{
    const ir_device *device = c->device;
    double bytes = elements(c, type) * (double)ir_dtype_size(t);
    if (device->measure == DEVICE_CAST_BYTES) return 0;
    return to_units(c, bytes / device->bandwidth * device->storage * PICOSECONDS);
}

const char *cost_print(const ir_device *device, int64_t cost, arena *a)
{
    double seconds = (double)cost / PICOSECONDS;
    if (device->measure == DEVICE_CAST_BYTES) return arena_printf(a, "%lld bytes", (long long)cost);
    if (fabs(seconds) >= 1e-3) return arena_printf(a, "%.3f ms", seconds * 1e3);
    return arena_printf(a, "%.3f us", seconds * 1e6);
}
