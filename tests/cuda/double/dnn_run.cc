/* dnn_run.cc - reads the JSON of a cuDNN plan and executes it with plain loops in f32.
 *
 * Supports convolutions, their gradients, matmuls, pointwise operations and statistics in any layout; rejects everything else by
 * name. */
#include "tests/cuda/double/dnn.h"
#include "tests/cuda/double/double.h"

extern "C" {
#include "ir/ops/dtype.h"
}

#include <cmath>
#include <cstring>
#include <jansson.h>

namespace dnn {

size_t Tensor::count() const
{
    size_t n = 1;
    for (int64_t d : dims) n *= static_cast<size_t>(d);
    return n;
}

static size_t size_of(Type t) { return t == Type::f32 ? 4 : 2; }

size_t Tensor::bytes() const
{
    int64_t last = 0;
    for (size_t i = 0; i < dims.size(); i++) last += (dims[i] - 1) * strides[i];
    return static_cast<size_t>(last + 1) * size_of(type);
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool unknown(const char *what, const char *value)
{
    double_refuse("the double of cuDNN does not know %s %s", what, value ? value : "(none)");
    return false;
}

static const char *text_of(const json_t *object, const char *key) { return json_string_value(json_object_get(object, key)); }

static std::vector<int64_t> list_of(const json_t *object, const char *key)
{
    std::vector<int64_t> list;
    const json_t *array = json_object_get(object, key);
    for (size_t i = 0; i < json_array_size(array); i++) list.push_back(json_integer_value(json_array_get(array, i)));
    return list;
}

/* Integers and conditions are only intermediate values and small. */
static bool read_type(const char *name, Type &type)
{
    if (!name) return unknown("the type", name);
    if (!strcmp(name, "CUDNN_DATA_FLOAT")) type = Type::f32;
    else if (!strcmp(name, "CUDNN_DATA_HALF")) type = Type::f16;
    else if (!strcmp(name, "CUDNN_DATA_BFLOAT16")) type = Type::bf16;
    else if (!strcmp(name, "CUDNN_DATA_INT32") || !strcmp(name, "CUDNN_DATA_BOOLEAN")) type = Type::f32;
    else return unknown("the type", name);
    return true;
}

static bool read_tensor(const json_t *from, Program &program)
{
    const char *name = text_of(from, "name"), *reordering = text_of(from, "reordering");
    Tensor t;
    if (!name || !read_type(text_of(from, "dataType"), t.type)) return false;
    t.dims = list_of(from, "dim");
    t.strides = list_of(from, "stride");
    t.is_virtual = json_is_true(json_object_get(from, "isVirtual"));
    t.by_value = json_is_true(json_object_get(from, "isByValue"));
    if (t.by_value && (t.type != Type::f32 || t.count() != 1)) return unknown("a tensor by value", name);
    if (json_integer_value(json_object_get(from, "vectCount")) != 1) return unknown("a vectorised tensor", name);
    if (!reordering || strcmp(reordering, "CUDNN_TENSOR_REORDERING_NONE")) return unknown("the order", reordering);
    if (t.dims.empty() || t.dims.size() != t.strides.size()) return unknown("the shape of tensor", name);
    program.tensors[name] = t;
    return true;
}

/* Reads the tensors of a node; each of `roles` must be named, and every named tensor must exist. */
static bool read_roles(const json_t *from, Program &program, Node &node, std::vector<const char *> roles)
{
    for (const char *role : roles) {
        const char *name = text_of(from, role);
        auto found = program.tensors.find(name ? name : "");
        if (found == program.tensors.end()) return unknown("the tensor of an operation,", role);
        node.tensors[role] = &found->second;
    }
    return true;
}

static bool is_one(const json_t *from, const char *key, double value)
{
    const json_t *number = json_object_get(from, key);
    return number && json_number_value(number) == value;
}

static bool read_convolution(const json_t *from, Program &program, Node &node)
{
    const char *mode = text_of(from, "mode");
    const bool dx = node.operation.find("BACKWARD_DATA") != std::string::npos,
               dw = node.operation.find("BACKWARD_FILTER") != std::string::npos;
    if (!mode || strcmp(mode, "CUDNN_CROSS_CORRELATION")) return unknown("the convolution mode", mode);
    if (!is_one(from, "alpha", 1) || !is_one(from, "beta", 0)) return unknown("a scaled convolution", "");
    const bool even = json_object_get(from, "pad") != nullptr;
    node.before = list_of(from, even ? "pad" : "pad_lower");
    node.after = list_of(from, even ? "pad" : "pad_upper");
    node.stride = list_of(from, "stride");
    node.dilation = list_of(from, "dilation");
    if (!read_roles(from, program, node, {dx ? "dX" : "X", dw ? "dW" : "W", dx || dw ? "dY" : "Y"})) return false;
    const size_t axes = node.stride.size();
    if (node.before.size() != axes || node.after.size() != axes || node.dilation.size() != axes || axes > 3)
        return unknown("a convolution of so many axes", "");
    for (const auto &t : node.tensors)
        if (t.second->dims.size() != axes + 2) return unknown("the rank of tensor", t.first.c_str());
    return true;
}

static bool broadcasts(const Tensor &from, const Tensor &to)
{
    if (from.dims.size() != to.dims.size()) return false;
    for (size_t i = 0; i < to.dims.size(); i++)
        if (from.dims[i] != to.dims[i] && from.dims[i] != 1) return false;
    return true;
}

static bool read_pointwise(const json_t *from, Program &program, Node &node)
{
    static const char *const binary[] = {"CUDNN_POINTWISE_ADD", "CUDNN_POINTWISE_MUL", "CUDNN_POINTWISE_SUB",
                                         "CUDNN_POINTWISE_DIV", "CUDNN_POINTWISE_CMP_GE"};
    static const char *const unary[] = {"CUDNN_POINTWISE_IDENTITY", "CUDNN_POINTWISE_RELU_FWD", "CUDNN_POINTWISE_GELU_FWD",
                                        "CUDNN_POINTWISE_EXP", "CUDNN_POINTWISE_LOG", "CUDNN_POINTWISE_GEN_INDEX"};
    static const std::vector<const char *> one_operand = {"X", "Y"}, two_operands = {"X", "B", "Y"}, gradient = {"dY", "X", "dX"},
                                          select = {"X", "B", "T", "Y"};
    const char *mode = text_of(from, "pointwiseMode");
    const std::vector<const char *> *roles = nullptr;
    node.mode = mode ? mode : "";
    for (const char *name : binary)
        if (node.mode == name) roles = &two_operands;
    for (const char *name : unary)
        if (node.mode == name) roles = &one_operand;
    if (node.mode == "CUDNN_POINTWISE_GELU_BWD") roles = &gradient;
    if (node.mode == "CUDNN_POINTWISE_BINARY_SELECT") roles = &select;
    node.axis = static_cast<size_t>(json_integer_value(json_object_get(from, "axis")));
    if (!roles) return unknown("the pointwise mode", mode);
    node.alpha[0] = static_cast<float>(json_number_value(json_object_get(from, "alpha1")));
    node.alpha[1] = static_cast<float>(json_number_value(json_object_get(from, "alpha2")));
    if (!read_roles(from, program, node, *roles)) return false;
    for (const auto &t : node.tensors)
        if (!broadcasts(*t.second, *node.tensors[roles->back()])) return unknown("the shape of operand", t.first.c_str());
    return true;
}

/* The operands of a batch item of y are those of the same item, or of fewer items that consecutive ones share. */
static bool read_product(const json_t *from, Program &program, Node &node)
{
    if (!read_roles(from, program, node, {"matA", "matB", "matC"})) return false;
    const Tensor &a = *node.tensors["matA"], &b = *node.tensors["matB"], &c = *node.tensors["matC"];
    const size_t rank = c.dims.size();
    if (rank < 3 || a.dims.size() != rank || b.dims.size() != rank) return unknown("the rank of a product", "");
    for (size_t i = 0; i + 2 < rank; i++)
        if (c.dims[i] % a.dims[i] || c.dims[i] % b.dims[i]) return unknown("the batch of a product", "");
    if (a.dims[rank - 2] != c.dims[rank - 2] || b.dims[rank - 1] != c.dims[rank - 1] || a.dims[rank - 1] != b.dims[rank - 2])
        return unknown("the shape of a product", "");
    return true;
}

static bool read_statistics(const json_t *from, Program &program, Node &node)
{
    if (!read_roles(from, program, node, {"X", "Sum", "SqSum"})) return false;
    const Tensor &x = *node.tensors["X"];
    for (const char *role : {"Sum", "SqSum"}) {
        const Tensor &t = *node.tensors[role];
        if (t.type != Type::f32 || x.dims.size() < 2 || !broadcasts(t, x) ||
            t.count() != static_cast<size_t>(x.dims[1]) || t.dims[1] != x.dims[1])
            return unknown("the shape of a result,", role);
    }
    return true;
}

static bool read_reduction(const json_t *from, Program &program, Node &node)
{
    const char *mode = text_of(from, "reductionOp");
    node.mode = mode ? mode : "";
    if (node.mode != "CUDNN_REDUCE_TENSOR_MAX" && node.mode != "CUDNN_REDUCE_TENSOR_ADD") return unknown("the reduction", mode);
    if (!read_roles(from, program, node, {"X", "Y"})) return false;
    return broadcasts(*node.tensors["Y"], *node.tensors["X"]) || unknown("the shape of a reduction", "");
}

static bool is_math(const char *precision)
{
    for (const char *known : {"CUDNN_DATA_FLOAT", "CUDNN_DATA_INT32", "CUDNN_DATA_BOOLEAN"})
        if (precision && !strcmp(precision, known)) return true;
    return false;
}

static bool read_node(const json_t *from, Program &program)
{
    const char *operation = text_of(from, "operation"), *precision = text_of(from, "mathPrec");
    Node node;
    node.operation = operation ? operation : "";
    if (!is_math(precision)) return unknown("the precision", precision);
    bool ok;
    if (node.operation.find("_CONVOLUTION_") != std::string::npos) ok = read_convolution(from, program, node);
    else if (node.operation.find("_POINTWISE_") != std::string::npos) ok = read_pointwise(from, program, node);
    else if (node.operation.find("_MATMUL_") != std::string::npos) ok = read_product(from, program, node);
    else if (node.operation.find("_GEN_STATS_") != std::string::npos) ok = read_statistics(from, program, node);
    else if (node.operation.find("_REDUCTION_") != std::string::npos) ok = read_reduction(from, program, node);
    else return unknown("the operation", operation);
    if (ok) program.nodes.push_back(node);
    return ok;
}

static bool read_all(const json_t *array, Program &program, bool (*read)(const json_t *, Program &))
{
    for (size_t i = 0; i < json_array_size(array); i++)
        if (!read(json_array_get(array, i), program)) return false;
    return json_array_size(array) > 0;
}

bool Program::parse(const char *text)
{
    json_error_t error;
    json_t *plan = json_loads(text, 0, &error);
    if (!plan) return unknown("the plan:", error.text);
    const json_t *graph = json_object_get(plan, "operationGraph");
    bool ok = read_all(json_object_get(graph, "tensors"), *this, read_tensor) &&
              read_all(json_object_get(graph, "nodes"), *this, read_node);
    json_decref(plan);
    return ok;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Calls visit(position in dims order, offset in elements) for each element. */
template <class F> static void each_element(const Tensor &t, F visit)
{
    std::vector<int64_t> at(t.dims.size(), 0);
    for (size_t i = 0; i < t.count(); i++) {
        int64_t offset = 0;
        for (size_t k = 0; k < at.size(); k++) offset += at[k] * t.strides[k];
        visit(i, offset);
        for (size_t k = at.size(); k-- > 0 && ++at[k] == t.dims[k];) at[k] = 0;
    }
}

static float load(const Tensor &t, int64_t at)
{
    if (t.type == Type::f32) return static_cast<const float *>(t.data)[at];
    const uint16_t bits = static_cast<const uint16_t *>(t.data)[at];
    return t.type == Type::f16 ? ir_f16_to_f32(bits) : ir_bf16_to_f32(bits);
}

static void store(const Tensor &t, int64_t at, float value)
{
    if (t.type == Type::f32) static_cast<float *>(t.data)[at] = value;
    else static_cast<uint16_t *>(t.data)[at] = t.type == Type::f16 ? ir_f32_to_f16(value) : ir_f32_to_bf16(value);
}

/* Returns an operand's values; those of an intermediate already exist. */
static const std::vector<float> &read(Tensor &t)
{
    if (!t.is_virtual && t.values.empty()) {
        t.values.resize(t.count());
        each_element(t, [&](size_t i, int64_t at) { t.values[i] = load(t, at); });
    }
    return t.values;
}

/* Stores a result; intermediates are rounded to their type, too. */
static void write(Tensor &t, std::vector<float> &&values)
{
    t.values = std::move(values);
    if (t.is_virtual && t.type == Type::f32) return;
    std::vector<float> spare(t.is_virtual ? t.count() : 0);
    if (t.is_virtual) t.data = spare.data();
    each_element(t, [&](size_t i, int64_t at) {
        const int64_t where = t.is_virtual ? 0 : at;
        store(t, where, t.values[i]);
        t.values[i] = load(t, where);
    });
    if (t.is_virtual) t.data = nullptr;
}

/* ---- convolution ----------------------------------------------------------------------------- */

/* Three spatial axes; missing ones have size 1. */
struct Geometry {
    int64_t n, channels, filters, per_group, x[3], w[3], y[3], before[3], stride[3], dilation[3];
};

static void extents(const Tensor &t, int64_t *out)
{
    const size_t axes = t.dims.size() - 2;
    for (size_t i = 0; i < 3; i++) out[i] = i < axes ? t.dims[2 + i] : 1;
}

static Geometry geometry_of(const Node &node, const Tensor &x, const Tensor &w, const Tensor &y)
{
    Geometry g = {};
    g.n = x.dims[0];
    g.channels = x.dims[1];
    g.filters = y.dims[1];
    g.per_group = w.dims[1];
    extents(x, g.x);
    extents(w, g.w);
    extents(y, g.y);
    for (size_t i = 0; i < 3; i++) {
        const bool there = i < node.stride.size();
        g.before[i] = there ? node.before[i] : 0;
        g.stride[i] = there ? node.stride[i] : 1;
        g.dilation[i] = there ? node.dilation[i] : 1;
    }
    return g;
}

/* Computes the position along an axis of x for output `out` and tap `tap`; false: in the padding. */
static bool under(const Geometry &g, int axis, int64_t out, int64_t tap, int64_t &at)
{
    at = out * g.stride[axis] + tap * g.dilation[axis] - g.before[axis];
    return at >= 0 && at < g.x[axis];
}

/* Calls product(x, w) with all pairs of positions that contribute to the output at (image, filter, p). */
template <class F> static void meet(const Geometry &g, int64_t image, int64_t filter, const int64_t *p, F product)
{
    const int64_t groups = g.channels / g.per_group, first = filter / (g.filters / groups) * g.per_group;
    for (int64_t c = 0; c < g.per_group; c++)
        for (int64_t a = 0; a < g.w[0]; a++)
            for (int64_t b = 0; b < g.w[1]; b++)
                for (int64_t k = 0; k < g.w[2]; k++) {
                    int64_t i, j, l;
                    if (!under(g, 0, p[0], a, i) || !under(g, 1, p[1], b, j) || !under(g, 2, p[2], k, l)) continue;
                    product((((image * g.channels + first + c) * g.x[0] + i) * g.x[1] + j) * g.x[2] + l,
                            (((filter * g.per_group + c) * g.w[0] + a) * g.w[1] + b) * g.w[2] + k);
                }
}

template <class F> static void each_product(const Geometry &g, F visit)
{
    int64_t y = 0;
    for (int64_t image = 0; image < g.n; image++)
        for (int64_t filter = 0; filter < g.filters; filter++)
            for (int64_t p[3] = {0, 0, 0}; p[0] < g.y[0]; p[0]++)
                for (p[1] = 0; p[1] < g.y[1]; p[1]++)
                    for (p[2] = 0; p[2] < g.y[2]; p[2]++, y++)
                        meet(g, image, filter, p, [&](int64_t x, int64_t w) { visit(x, w, y); });
}

/* Sums are in double: a device adds tiles of products, and a single running f32 sum would be less accurate than any engine. */
static std::vector<float> rounded(const std::vector<double> &sum)
{
    std::vector<float> out(sum.size());
    for (size_t i = 0; i < sum.size(); i++) out[i] = static_cast<float>(sum[i]);
    return out;
}

static void convolve(Node &node)
{
    auto tensor = [&](const char *role, const char *gradient) -> Tensor & {
        auto found = node.tensors.find(role);
        return *(found == node.tensors.end() ? node.tensors[gradient] : found->second);
    };
    Tensor &x = tensor("X", "dX"), &w = tensor("W", "dW"), &y = tensor("Y", "dY");
    const Geometry g = geometry_of(node, x, w, y);
    if (node.tensors.count("dX")) {
        std::vector<double> sum(x.count());
        const float *wv = read(w).data(), *yv = read(y).data();
        each_product(g, [&](int64_t xi, int64_t wi, int64_t yi) { sum[(size_t)xi] += (double)wv[wi] * yv[yi]; });
        write(x, rounded(sum));
    } else if (node.tensors.count("dW")) {
        std::vector<double> sum(w.count());
        const float *xv = read(x).data(), *yv = read(y).data();
        each_product(g, [&](int64_t xi, int64_t wi, int64_t yi) { sum[(size_t)wi] += (double)xv[xi] * yv[yi]; });
        write(w, rounded(sum));
    } else {
        std::vector<double> sum(y.count());
        const float *xv = read(x).data(), *wv = read(w).data();
        each_product(g, [&](int64_t xi, int64_t wi, int64_t yi) { sum[(size_t)yi] += (double)xv[xi] * wv[wi]; });
        write(y, rounded(sum));
    }
}

/* ---- pointwise ------------------------------------------------------------------------------- */

/* Broadcasts an operand's values to the shape of `to`. */
static std::vector<float> spread(Tensor &from, const Tensor &to)
{
    const std::vector<float> &values = read(from);
    Tensor seen = to; /* its strides address the operand's values in their own dims order */
    int64_t stride = 1;
    for (size_t i = to.dims.size(); i-- > 0; stride *= from.dims[i]) seen.strides[i] = from.dims[i] == 1 ? 0 : stride;
    std::vector<float> out(to.count());
    each_element(seen, [&](size_t i, int64_t at) { out[i] = values[static_cast<size_t>(at)]; });
    return out;
}

static float gelu(float x) { return static_cast<float>(x * 0.5 * (1 + std::erf(x * M_SQRT1_2))); }

static float gelu_slope(float x)
{
    return static_cast<float>(0.5 * (1 + std::erf(x * M_SQRT1_2)) + x * std::exp(-0.5 * x * x) * 0.5 * M_2_SQRTPI * M_SQRT1_2);
}

static void point_grad(Node &node)
{
    Tensor &dx = *node.tensors["dX"];
    std::vector<float> dy = spread(*node.tensors["dY"], dx);
    const std::vector<float> x = spread(*node.tensors["X"], dx);
    for (size_t i = 0; i < dy.size(); i++) dy[i] *= gelu_slope(x[i]);
    write(dx, std::move(dy));
}

static void index(Node &node)
{
    Tensor &y = *node.tensors["Y"];
    std::vector<float> at(y.count());
    size_t inner = 1;
    for (size_t i = y.dims.size() - 1; i > node.axis; i--) inner *= static_cast<size_t>(y.dims[i]);
    for (size_t i = 0; i < at.size(); i++) at[i] = static_cast<float>(i / inner % static_cast<size_t>(y.dims[node.axis]));
    write(y, std::move(at));
}

static void point(Node &node)
{
    if (node.tensors.count("dX")) return point_grad(node);
    if (node.mode == "CUDNN_POINTWISE_GEN_INDEX") return index(node);
    Tensor &y = *node.tensors["Y"];
    std::vector<float> x = spread(*node.tensors["X"], y), b, condition;
    if (node.tensors.count("T")) condition = spread(*node.tensors["T"], y);
    if (node.tensors.count("B")) b = spread(*node.tensors["B"], y);
    for (size_t i = 0; i < x.size(); i++) {
        x[i] *= node.alpha[0];
        if (node.mode == "CUDNN_POINTWISE_ADD") x[i] += b[i] * node.alpha[1];
        else if (node.mode == "CUDNN_POINTWISE_MUL") x[i] *= b[i] * node.alpha[1];
        else if (node.mode == "CUDNN_POINTWISE_SUB") x[i] -= b[i] * node.alpha[1];
        else if (node.mode == "CUDNN_POINTWISE_DIV") x[i] /= b[i] * node.alpha[1];
        else if (node.mode == "CUDNN_POINTWISE_CMP_GE") x[i] = x[i] >= b[i];
        else if (node.mode == "CUDNN_POINTWISE_BINARY_SELECT") x[i] = condition[i] != 0 ? x[i] : b[i];
        else if (node.mode == "CUDNN_POINTWISE_EXP") x[i] = std::exp(x[i]);
        else if (node.mode == "CUDNN_POINTWISE_LOG") x[i] = std::log(x[i]);
        else if (node.mode == "CUDNN_POINTWISE_RELU_FWD") x[i] = x[i] > 0 ? x[i] : 0;
        else if (node.mode == "CUDNN_POINTWISE_GELU_FWD") x[i] = gelu(x[i]);
    }
    write(y, std::move(x));
}

/* ---- products -------------------------------------------------------------------------------- */

/* Offset in an operand's values, in dims order, of its matrix for batch item `item` of c. */
static size_t matrix_at(const Tensor &from, const Tensor &c, size_t item)
{
    const size_t rank = c.dims.size();
    size_t at = 0, size = static_cast<size_t>(from.dims[rank - 2] * from.dims[rank - 1]);
    for (size_t i = rank - 2; i-- > 0;) {
        const auto n = static_cast<size_t>(c.dims[i]), own = static_cast<size_t>(from.dims[i]);
        at += item % n / (n / own) * size;
        item /= n;
        size *= own;
    }
    return at;
}

static void multiply(Node &node)
{
    Tensor &a = *node.tensors["matA"], &b = *node.tensors["matB"], &c = *node.tensors["matC"];
    const size_t rank = c.dims.size(), m = static_cast<size_t>(c.dims[rank - 2]), n = static_cast<size_t>(c.dims[rank - 1]),
                 k = static_cast<size_t>(a.dims[rank - 1]);
    const std::vector<float> &av = read(a), &bv = read(b);
    std::vector<double> sum(c.count());
    for (size_t item = 0; item < sum.size() / (m * n); item++) {
        const float *x = &av[matrix_at(a, c, item)], *y = &bv[matrix_at(b, c, item)];
        for (size_t i = 0; i < m; i++)
            for (size_t l = 0; l < k; l++)
                for (size_t j = 0; j < n; j++) sum[(item * m + i) * n + j] += static_cast<double>(x[i * k + l]) * y[l * n + j];
    }
    write(c, rounded(sum));
}

/* ---- statistics ------------------------------------------------------------------------------ */

static void sum_channels(Node &node)
{
    Tensor &x = *node.tensors["X"];
    const std::vector<float> &values = read(x);
    const size_t channels = static_cast<size_t>(x.dims[1]), plane = x.count() / static_cast<size_t>(x.dims[0]) / channels;
    std::vector<double> sum(channels), squares(channels);
    for (size_t i = 0; i < values.size(); i++) {
        const size_t channel = i / plane % channels;
        sum[channel] += values[i];
        squares[channel] += static_cast<double>(values[i]) * values[i];
    }
    write(*node.tensors["Sum"], rounded(sum));
    write(*node.tensors["SqSum"], rounded(squares));
}

/* ---- reductions ------------------------------------------------------------------------------ */

static void fold(Node &node)
{
    Tensor &x = *node.tensors["X"], &y = *node.tensors["Y"];
    const bool most = node.mode == "CUDNN_REDUCE_TENSOR_MAX";
    const std::vector<float> &values = read(x);
    std::vector<double> out(y.count(), most ? -INFINITY : 0);
    Tensor seen = x; /* its strides address the result */
    int64_t stride = 1;
    for (size_t i = x.dims.size(); i-- > 0; stride *= y.dims[i]) seen.strides[i] = y.dims[i] == 1 ? 0 : stride;
    each_element(seen, [&](size_t i, int64_t at) {
        double &o = out[static_cast<size_t>(at)];
        o = most ? (values[i] > o || std::isnan(values[i]) ? values[i] : o) : o + values[i];
    });
    write(y, rounded(out));
}

void Program::run()
{
    for (Node &node : nodes)
        if (node.operation.find("_CONVOLUTION_") != std::string::npos) convolve(node);
        else if (node.operation.find("_MATMUL_") != std::string::npos) multiply(node);
        else if (node.operation.find("_GEN_STATS_") != std::string::npos) sum_channels(node);
        else if (node.operation.find("_REDUCTION_") != std::string::npos) fold(node);
        else point(node);
    for (auto &t : tensors)
        if (!t.second.by_value) t.second.values.clear();
}

} // namespace dnn
