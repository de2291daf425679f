/* lower_signal.c - DFT, STFT, HannWindow, HammingWindow, BlackmanWindow, MelWeightMatrix.
 *
 * The windows and the weights are constants. A transform is the product with a matrix that maps (re, im) of each sample
 * to (re, im) of each frequency. */
#include "frontend/lower/lower.h"

#include <math.h>

enum { MAX_CELLS = 1 << 26, MAX_SAMPLES = 1 << 22 };

/* Reads output_datatype and makes a constant of that type. */
static void constant_result(onnx_node *n, const char *name, int rank, const int64_t *dims, const double *values)
{
    const int64_t type = onnx_int(n, "output_datatype", ONNX_float32);
    const ir_dtype dtype = onnx_type_dtype(type);
    if (dtype == IR_NO_DTYPE) onnx_refuse(n, "output_datatype %s is not supported", onnx_type_name(type));
    if (n->failed) return;
    const ir_type t = ir_type_make(dtype, rank, dims);
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= dims[i];
    char *bytes = arena_array(n->importer->scratch, (size_t)count + 1, ir_dtype_size(dtype));
    ir_convert(dtype, bytes, IR_f64, values, (size_t)count);
    n->out[0] = ir_constant(n->b, name, &t, bytes);
}

/* ---- windows ----------------------------------------------------------------------------------- */

/* The coefficients of cos(0), cos(a), cos(2a), with a = 2 pi i / period. */
static void window(onnx_node *n, const char *name, const double coefficients[3])
{
    const int64_t size = onnx_const_int(n, 0, 0), periodic = onnx_bool(n, "periodic", true);
    if (size < 0 || size > MAX_SAMPLES) onnx_reject(n, "size %lld is out of range", (long long)size);
    if (n->failed) return;
    const int64_t period = periodic ? size : size - 1;
    double *values = arena_array(n->importer->scratch, (size_t)size + 1, sizeof *values);
    for (int64_t i = 0; i < size; i++) {
        const double a = period > 0 ? 2 * M_PI * (double)i / (double)period : 0;
        values[i] = coefficients[0] + coefficients[1] * cos(a) + coefficients[2] * cos(2 * a);
    }
    constant_result(n, name, 1, &size, values);
}

void onnx_lower_hann_window(onnx_node *n) { window(n, "hann_window", (const double[]){0.5, -0.5, 0}); }
void onnx_lower_hamming_window(onnx_node *n)
{
    window(n, "hamming_window", (const double[]){25.0 / 46, 25.0 / 46 - 1, 0});
}
void onnx_lower_blackman_window(onnx_node *n) { window(n, "blackman_window", (const double[]){0.42, -0.5, 0.08}); }

/* ---- MelWeightMatrix ---------------------------------------------------------------------------- */

typedef struct mel {
    int64_t bins, length, rate, rows;
    double low, high;
} mel;

static double mel_of(double hertz) { return 2595 * log1p(hertz / 700) / log(10); }

/* The frequency bin at edge i of the triangles. */
static int64_t mel_edge(const mel *m, int64_t i)
{
    const double low = mel_of(m->low), step = (mel_of(m->high) - low) / (double)(m->bins + 2);
    const double hertz = 700 * expm1(((double)i * step + low) / 2595 * log(10));
    return (int64_t)floor((double)(m->length + 1) * hertz / (double)m->rate);
}

static void fill_triangle(const mel *m, int64_t bin, double *weights)
{
    const int64_t low = mel_edge(m, bin), centre = mel_edge(m, bin + 1), high = mel_edge(m, bin + 2);
    if (low == centre) weights[centre * m->bins + bin] = 1;
    for (int64_t i = low; i <= centre && low != centre; i++)
        weights[i * m->bins + bin] = (double)(i - low) / (double)(centre - low);
    for (int64_t i = centre; i < high; i++) weights[i * m->bins + bin] = (double)(high - i) / (double)(high - centre);
}

void onnx_lower_mel_weight_matrix(onnx_node *n)
{
    mel m = {.bins = onnx_const_int(n, 0, 0)};
    m.length = onnx_const_int(n, 1, 0);
    m.rate = onnx_const_int(n, 2, 0);
    m.low = onnx_const_float(n, 3, 0);
    m.high = onnx_const_float(n, 4, 0);
    m.rows = m.length / 2 + 1;
    if (n->failed) return;
    if (m.bins < 0 || m.bins > MAX_SAMPLES || m.length < 0 || m.length > MAX_SAMPLES || m.rate < 1 ||
        m.bins * m.rows > MAX_CELLS || !(m.low >= 0 && m.low <= m.high && m.high < 1e12))
        onnx_reject(n, "an operand is out of range");
    else if (m.bins && mel_edge(&m, m.bins + 1) >= m.rows)
        onnx_reject(n, "the upper edge is above the frequencies of %lld samples", (long long)m.length);
    if (n->failed) return;
    double *weights = arena_array(n->importer->scratch, (size_t)(m.bins * m.rows) + 1, sizeof *weights);
    for (int64_t i = 0; i < m.bins * m.rows; i++) weights[i] = 0;
    for (int64_t i = 0; i < m.bins; i++) fill_triangle(&m, i, weights);
    constant_result(n, "mel_weights", 2, (const int64_t[]){m.rows, m.bins}, weights);
}

/* ---- transforms --------------------------------------------------------------------------------- */

/* in samples of `parts` numbers (re, im) become out frequencies; one-sided inverse transforms have real results. */
typedef struct transform {
    int64_t length, in, out;
    int parts, results;
    bool inverse, onesided;
} transform;

/* The factor between part `from` of sample j and part `to` of frequency k. */
static double factor(const transform *t, int64_t j, int64_t k, int from, int to)
{
    const int64_t turn = j * k % t->length; /* exact for large products */
    const double angle = 2 * M_PI * (double)turn / (double)t->length, sign = t->inverse ? 1 : -1;
    double scale = t->inverse ? 1 / (double)t->length : 1;
    if (t->inverse && t->onesided && j != 0 && 2 * j != t->length) scale *= 2; /* the other side */
    if (from == to) return scale * cos(angle);
    return scale * (from ? -sign : sign) * sin(angle);
}

/* The matrix [in * parts, out * results]. */
static ir_value *matrix_of(onnx_node *n, const transform *t, ir_dtype dtype)
{
    const int64_t rows = t->in * t->parts, columns = t->out * t->results;
    const size_t each = ir_dtype_size(dtype);
    char *bytes = arena_array(n->importer->scratch, (size_t)(rows * columns) + 1, each), *at = bytes;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++, at += each)
            ir_store_f64(dtype, at,
                         factor(t, i / t->parts, k / t->results, (int)(i % t->parts), (int)(k % t->results)));
    const ir_type type = ir_type_make(dtype, 2, (int64_t[]){rows, columns});
    return ir_constant(n->b, "transform", &type, bytes);
}

/* Completes a transform of `size` samples and checks that its matrix is not too large. */
static bool measure(onnx_node *n, transform *t, int64_t size)
{
    const bool real = t->inverse && t->onesided;
    if (t->length < 1 || t->length > MAX_SAMPLES) onnx_reject(n, "length %lld is out of range", (long long)t->length);
    if (n->failed) return false;
    const int64_t used = real ? t->length / 2 + 1 : t->length;
    t->in = size < used ? size : used;
    t->out = t->onesided && !t->inverse ? t->length / 2 + 1 : t->length;
    t->results = real ? 1 : 2;
    if (t->in * t->parts > MAX_CELLS / (t->out * t->results)) onnx_refuse(n, "a transform of that length");
    return !n->failed;
}

/* Transforms [outer, size, parts] to [outer, out, results]; `dims` are the `count` outer dimensions. */
static ir_value *transformed(onnx_node *n, const transform *t, ir_value *x, const ir_dim *outer, int count)
{
    ir_dim dims[IR_MAX_RANK];
    for (int i = 0; i < count; i++) dims[i] = outer[i];
    dims[count] = t->in * t->parts;
    ir_value *rows = x ? ir_reshape(n->b, x, dims, count + 1) : NULL;
    ir_value *y = rows ? ir_matmul(n->b, rows, matrix_of(n, t, x->type.dtype), NULL, false, false) : NULL;
    dims[count] = t->out;
    dims[count + 1] = t->results;
    return y ? ir_reshape(n->b, y, dims, count + 2) : NULL;
}

static ir_value *first_samples(onnx_node *n, ir_value *x, int axis, int64_t size)
{
    int64_t start[IR_MAX_RANK] = {0}, sizes[IR_MAX_RANK], step[IR_MAX_RANK];
    if (x->type.dims[axis] == size) return x;
    for (int i = 0; i < x->type.rank; i++) sizes[i] = i == axis ? size : x->type.dims[i], step[i] = 1;
    ir_node *node = ir_new(n->b, IR_OP_slice, 1, x);
    ir_set_list(node, IR_ATTR(slice, start), start, x->type.rank);
    ir_set_list(node, IR_ATTR(slice, size), sizes, x->type.rank);
    ir_set_list(node, IR_ATTR(slice, step), step, x->type.rank);
    return ir_done(n->b, node);
}

/* Whether the last dimension is (re) or (re, im). */
static bool read_parts(onnx_node *n, const ir_type *x, int *parts)
{
    const ir_dim last = x->rank > 1 ? x->dims[x->rank - 1] : 0;
    if (last != 1 && last != 2) onnx_reject(n, "the last dimension of the input must be 1 or 2");
    else *parts = (int)last;
    return !n->failed;
}

void onnx_lower_dft(onnx_node *n)
{
    ir_value *x = n->in[0];
    const int rank = x->type.rank;
    transform t = {.inverse = onnx_bool(n, "inverse", false), .onesided = onnx_bool(n, "onesided", false)};
    const int64_t at = n->opset < 20 ? onnx_int(n, "axis", 1) : onnx_const_int(n, 2, -2);
    if (n->failed || !read_parts(n, &x->type, &t.parts)) return;
    const int axis = onnx_axis(n, at, rank);
    if (axis == rank - 1) onnx_reject(n, "axis %d holds the parts of the numbers", axis);
    if (n->failed) return;
    const int64_t size = onnx_size(n, x->type.dims[axis], "the length of the signal");
    t.length = onnx_const_int(n, 1, t.inverse && t.onesided ? 2 * (size - 1) : size);
    if (!measure(n, &t, size)) return;
    int64_t perm[IR_MAX_RANK], back[IR_MAX_RANK];
    ir_dim outer[IR_MAX_RANK];
    int count = 0;
    for (int i = 0; i < rank - 1; i++)
        if (i != axis) outer[count] = x->type.dims[i], perm[count++] = i;
    perm[count] = axis;
    perm[count + 1] = rank - 1;
    for (int i = 0; i < rank; i++) back[perm[i]] = i;
    ir_value *moved = ir_transpose(n->b, first_samples(n, x, axis, t.in), perm);
    ir_value *y = transformed(n, &t, moved, outer, count);
    n->out[0] = y ? ir_transpose(n->b, y, back) : NULL;
}

/* The samples of all frames, [N, frames, length, parts]. */
static ir_value *frames_of(onnx_node *n, int64_t frames, int64_t step, int64_t length)
{
    int64_t *indices = arena_array(n->importer->scratch, (size_t)(frames * length) + 1, sizeof *indices);
    for (int64_t i = 0; i < frames * length; i++) indices[i] = i / length * step + i % length;
    const ir_type type = ir_type_make(IR_i64, 2, (int64_t[]){frames, length});
    ir_node *node = ir_new(n->b, IR_OP_gather, 2, n->in[0], ir_constant(n->b, "frames", &type, indices));
    ir_set_int(node, IR_ATTR(gather, axis), 1);
    return ir_done(n->b, node);
}

void onnx_lower_stft(onnx_node *n)
{
    const ir_type *x = &n->in[0]->type;
    ir_value *window_ = onnx_in(n, 2);
    transform t = {.onesided = onnx_bool(n, "onesided", true)};
    if (x->rank != 3) onnx_reject(n, "the signal must have rank 3");
    if (n->failed || !read_parts(n, x, &t.parts)) return;
    if (window_ && window_->type.rank != 1) onnx_reject(n, "the window must have rank 1");
    if (!window_ && !onnx_in(n, 3)) onnx_reject(n, "needs a window or frame_length");
    if (n->failed) return;
    const int64_t size = onnx_size(n, x->dims[1], "the length of the signal"), step = onnx_const_int(n, 1, 1);
    const int64_t width = window_ ? onnx_size(n, window_->type.dims[0], "the length of the window") : 0;
    t.length = onnx_const_int(n, 3, width);
    if (window_ && width != t.length) onnx_reject(n, "the window does not have frame_length elements");
    if (step < 1 || t.length > size) onnx_reject(n, "frames of %lld samples do not fit", (long long)t.length);
    if (n->failed || !measure(n, &t, t.length)) return;
    const int64_t frames = (size - t.length) / step + 1;
    if (frames > MAX_CELLS / t.length) onnx_refuse(n, "that number of frames");
    if (n->failed) return;
    ir_value *parts = frames_of(n, frames, step, t.length);
    if (parts && window_) parts = ir_binary(n->b, IR_OP_mul, parts, ir_reshape(n->b, window_, (ir_dim[]){width, 1}, 2));
    n->out[0] = transformed(n, &t, parts, (ir_dim[]){x->dims[0], frames}, 2);
}
