/* recurrent.cu - recurrent networks: a launch per step, or two for a GRU whose last products need the reset gates of
 * all units. A thread computes one hidden unit of one row of the batch: its products with R, from tiles in shared
 * memory, then the rest of the cell. */
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/operand.cuh"
#include "kernels/cuda/recurrent.h"

#define REAL_IS_FLOAT
#define REAL float
#include "ir/ops/formulas_body.h"
#include "kernels/recurrent_body.h"

enum : int { MAX_GATES = 4 };

static __device__ __forceinline__ float rounded(float v, int dtype)
{
    with_stored(v, dtype, [&](auto s) {
        typename decltype(s)::type narrow;
        from_carrier(&narrow, v);
        to_carrier(&v, narrow);
    });
    return v;
}

/* Element `at` of an array that may be absent. */
static __device__ __forceinline__ float load_or_zero(const void *array, int dtype, long long at)
{
    return array ? element_load<float>(array, dtype, at) : 0;
}
static __device__ __forceinline__ void store_if(void *array, int dtype, long long at, float v)
{
    if (array) element_store(array, dtype, at, v);
}

/* Whether step t is within the length of row b. */
static __device__ __forceinline__ bool is_active(const recurrent_args &a, long long b, long long t)
{
    return !a.lengths || t < element_load<long long>(a.lengths, a.lengths_dtype, b);
}

/* The unit of a thread: column j of row b; blocks are tiles of rows and columns. */
struct unit {
    long long b, j, at; /* at: in an array [B,H] */
    bool exists;
};

static __device__ __forceinline__ long long tiles_of(const recurrent_shape &s, long long *columns)
{
    *columns = (s.hidden + RECURRENT_TILE - 1) / RECURRENT_TILE;
    return (s.batch + RECURRENT_TILE - 1) / RECURRENT_TILE * *columns;
}

static __device__ __forceinline__ unit unit_of(const recurrent_shape &s, long long tile, long long columns)
{
    unit u;
    u.b = tile / columns * RECURRENT_TILE + threadIdx.x / RECURRENT_TILE;
    u.j = tile % columns * RECURRENT_TILE + threadIdx.x % RECURRENT_TILE;
    u.at = u.b * s.hidden + u.j;
    u.exists = u.b < s.batch && u.j < s.hidden;
    return u;
}

/* ---- products -------------------------------------------------------------------------------- */

/* Tiles in shared memory. */
template <int gates> struct tiles_forward {
    float rows[RECURRENT_TILE][RECURRENT_DEPTH + 1], weights[gates][RECURRENT_TILE][RECURRENT_DEPTH + 1];
};
struct tiles_back {
    float rows[RECURRENT_TILE][RECURRENT_DEPTH + 1], weights[RECURRENT_DEPTH][RECURRENT_TILE + 1];
};

/* sums[g] = the product of row b of `left` [B,H] with row j of gate first + g of R. */
template <int gates>
static __device__ __forceinline__ void multiply(tiles_forward<gates> &tiles, const recurrent_args &a, const unit &u,
                                                const float *left, int first, float (&sums)[gates])
{
    const long long n = a.shape.hidden;
    const int y = threadIdx.x / RECURRENT_TILE, x = threadIdx.x % RECURRENT_TILE;
#pragma unroll
    for (int g = 0; g < gates; g++) sums[g] = 0;
    for (long long k = 0; k < n; k += RECURRENT_DEPTH) {
        for (int i = threadIdx.x; i < RECURRENT_TILE * RECURRENT_DEPTH; i += RECURRENT_BLOCK) {
            const int line = i / RECURRENT_DEPTH, depth = i % RECURRENT_DEPTH;
            const long long b = u.b - y + line, j = u.j - x + line;
            const bool inside = k + depth < n;
            tiles.rows[line][depth] = inside && b < a.shape.batch ? left[b * n + k + depth] : 0;
#pragma unroll
            for (int g = 0; g < gates; g++)
                tiles.weights[g][line][depth] =
                    inside && j < n ? element_load<float>(a.r, a.dtype, ((first + g) * n + j) * n + k + depth) : 0;
        }
        __syncthreads();
        for (int depth = 0; depth < RECURRENT_DEPTH; depth++) {
#pragma unroll
            for (int g = 0; g < gates; g++) sums[g] += tiles.rows[y][depth] * tiles.weights[g][x][depth];
        }
        __syncthreads();
    }
}

/* The product of columns [first, first + count) H of row b of `left` [B,G*H] with column j of these rows of R. */
static __device__ __forceinline__ float multiply_back(tiles_back &tiles, const recurrent_args &a, const unit &u,
                                                      const float *left, int first, int count)
{
    const long long n = a.shape.hidden, width = a.shape.gates * n, end = (first + count) * n;
    const int y = threadIdx.x / RECURRENT_TILE, x = threadIdx.x % RECURRENT_TILE;
    float sum = 0;
    for (long long k = first * n; k < end; k += RECURRENT_DEPTH) {
        for (int i = threadIdx.x; i < RECURRENT_TILE * RECURRENT_DEPTH; i += RECURRENT_BLOCK) {
            const int line = i / RECURRENT_DEPTH, depth = i % RECURRENT_DEPTH;
            const long long b = u.b - y + line;
            tiles.rows[line][depth] = k + depth < end && b < a.shape.batch ? left[b * width + k + depth] : 0;
            const int row = i / RECURRENT_TILE, column = i % RECURRENT_TILE;
            const long long j = u.j - x + column;
            const bool inside = k + row < end && j < n;
            tiles.weights[row][column] = inside ? element_load<float>(a.r, a.dtype, (k + row) * n + j) : 0;
        }
        __syncthreads();
        for (int depth = 0; depth < RECURRENT_DEPTH; depth++) sum += tiles.rows[y][depth] * tiles.weights[depth][x];
        __syncthreads();
    }
    return sum;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Checks the lengths and sets the states before the first step. */
extern "C" __global__ void __launch_bounds__(RECURRENT_BLOCK) recurrent_start(recurrent_args a)
{
    const long long states = a.shape.batch * a.shape.hidden;
    for (long long i = grid_first(); i < states; i += grid_step()) {
        a.h[i] = load_or_zero(a.h0, a.dtype, i);
        a.c[i] = a.c0 ? a.c0[i] : 0;
    }
    for (long long b = grid_first(); a.lengths && b < a.shape.batch; b += grid_step()) {
        const long long length = element_load<long long>(a.lengths, a.lengths_dtype, b);
        if (length < 0 || length > a.shape.steps) fault_set(a.fault, a.step, K_FAULT_LENGTH);
    }
}
AMPC_KERNEL(recurrent_start)

/* Operand g of the activations of a unit, but for its products. */
static __device__ __forceinline__ float input_of(const recurrent_args &a, const unit &u, int g)
{
    const recurrent_shape &s = a.shape;
    return element_load<float>(a.x, a.dtype, ((a.t * s.batch + u.b) * s.gates + g) * s.hidden + u.j);
}
static __device__ __forceinline__ void keep_gate(const recurrent_args &a, const unit &u, int g, bool active, float v)
{
    const recurrent_shape &s = a.shape;
    store_if(a.gates, a.dtype, ((a.t * s.batch + u.b) * s.saved + g) * s.hidden + u.j, active ? v : 0);
}

/* Stores the state h after the step, or, beyond the length of its row, keeps the one before and yields 0. */
static __device__ __forceinline__ void finish_unit(const recurrent_args &a, const unit &u, float h, bool active)
{
    const long long states = a.shape.batch * a.shape.hidden;
    element_store(a.y, a.dtype, a.t * states + u.at, active ? h : 0);
    a.next_h[u.at] = active ? rounded(h, a.dtype) : a.h[u.at];
    if (a.cells) a.cells[a.t * states + u.at] = a.c[u.at];
}

static __device__ __forceinline__ lstm_weights_float peepholes_of(const recurrent_args &a, long long j)
{
    const long long n = a.shape.hidden;
    if (!a.peephole) return {0, 0, 0};
    return {a.peephole[j], a.peephole[n + j], a.peephole[2 * n + j]};
}

extern "C" __global__ void __launch_bounds__(RECURRENT_BLOCK) recurrent_lstm(recurrent_args a)
{
    __shared__ tiles_forward<MAX_GATES> shared;
    const recurrent_shape &s = a.shape;
    long long columns;
    const long long count = tiles_of(s, &columns);
    for (long long tile = blockIdx.x; tile < count; tile += gridDim.x) {
        const unit u = unit_of(s, tile, columns);
        float sums[MAX_GATES];
        multiply(shared, a, u, a.h, 0, sums);
        if (!u.exists) continue;
        const bool active = is_active(a, u.b, a.t);
        const lstm_weights_float p = peepholes_of(a, u.j);
        lstm_gates_float x = {input_of(a, u, 0) + sums[0], input_of(a, u, 1) + sums[1], input_of(a, u, 2) + sums[2],
                              input_of(a, u, 3) + sums[3]};
        const lstm_state_float to = lstm_step_float(&s, s.f.word, s.g.word, s.h.word, &p, &x, a.c[u.at]);
        keep_gate(a, u, 0, active, x.i);
        keep_gate(a, u, 1, active, x.o);
        keep_gate(a, u, 2, active, x.f);
        keep_gate(a, u, 3, active, x.c);
        if (active) a.c[u.at] = to.c;
        finish_unit(a, u, to.h, active);
    }
}
AMPC_KERNEL(recurrent_lstm)

extern "C" __global__ void __launch_bounds__(RECURRENT_BLOCK) recurrent_rnn(recurrent_args a)
{
    __shared__ tiles_forward<1> shared;
    const recurrent_shape &s = a.shape;
    long long columns;
    const long long count = tiles_of(s, &columns);
    for (long long tile = blockIdx.x; tile < count; tile += gridDim.x) {
        const unit u = unit_of(s, tile, columns);
        float sums[1];
        multiply(shared, a, u, a.h, 0, sums);
        if (!u.exists) continue;
        const bool active = is_active(a, u.b, a.t);
        const float x = input_of(a, u, 0) + sums[0];
        keep_gate(a, u, 0, active, x);
        finish_unit(a, u, rnn_step_float(&s, s.f.word, x), active);
    }
}
AMPC_KERNEL(recurrent_rnn)

/* With linear_before_reset. */
extern "C" __global__ void __launch_bounds__(RECURRENT_BLOCK) recurrent_gru(recurrent_args a)
{
    __shared__ tiles_forward<3> shared;
    const recurrent_shape &s = a.shape;
    long long columns;
    const long long count = tiles_of(s, &columns);
    for (long long tile = blockIdx.x; tile < count; tile += gridDim.x) {
        const unit u = unit_of(s, tile, columns);
        float sums[3];
        multiply(shared, a, u, a.h, 0, sums);
        if (!u.exists) continue;
        const bool active = is_active(a, u.b, a.t);
        gru_gates_float x = {input_of(a, u, 0) + sums[0], input_of(a, u, 1) + sums[1], input_of(a, u, 2),
                             sums[2] + load_or_zero(a.bias, a.dtype, u.j)};
        x.n += gate_float(&s, s.f, s.f.word, x.r) * x.inner;
        keep_gate(a, u, 0, active, x.z);
        keep_gate(a, u, 1, active, x.r);
        keep_gate(a, u, 2, active, x.n);
        keep_gate(a, u, 3, active, x.inner);
        finish_unit(a, u, gru_step_float(&s, s.f.word, s.g.word, &x, a.h[u.at]), active);
    }
}
AMPC_KERNEL(recurrent_gru)

/* Without it: the gates z and r. */
extern "C" __global__ void __launch_bounds__(RECURRENT_BLOCK) recurrent_gru_reset(recurrent_args a)
{
    __shared__ tiles_forward<2> shared;
    const recurrent_shape &s = a.shape;
    long long columns;
    const long long count = tiles_of(s, &columns);
    for (long long tile = blockIdx.x; tile < count; tile += gridDim.x) {
        const unit u = unit_of(s, tile, columns);
        float sums[2];
        multiply(shared, a, u, a.h, 0, sums);
        if (!u.exists) continue;
        const bool active = is_active(a, u.b, a.t);
        const float z = input_of(a, u, 0) + sums[0], r = input_of(a, u, 1) + sums[1];
        keep_gate(a, u, 0, active, z);
        keep_gate(a, u, 1, active, r);
        a.z[u.at] = z;
        a.factor[u.at] = gate_float(&s, s.f, s.f.word, r) * a.h[u.at];
    }
}
AMPC_KERNEL(recurrent_gru_reset)

/* ... and the rest. */
extern "C" __global__ void __launch_bounds__(RECURRENT_BLOCK) recurrent_gru_rest(recurrent_args a)
{
    __shared__ tiles_forward<1> shared;
    const recurrent_shape &s = a.shape;
    long long columns;
    const long long count = tiles_of(s, &columns);
    for (long long tile = blockIdx.x; tile < count; tile += gridDim.x) {
        const unit u = unit_of(s, tile, columns);
        float sums[1];
        multiply(shared, a, u, a.factor, 2, sums);
        if (!u.exists) continue;
        const bool active = is_active(a, u.b, a.t);
        const gru_gates_float x = {a.z[u.at], 0, input_of(a, u, 2) + sums[0], 0};
        keep_gate(a, u, 2, active, x.n);
        finish_unit(a, u, gru_step_float(&s, s.f.word, s.g.word, &x, a.h[u.at]), active);
    }
}
AMPC_KERNEL(recurrent_gru_rest)

/* The states after the last step; zeros for rows without steps. */
extern "C" __global__ void __launch_bounds__(RECURRENT_BLOCK) recurrent_last(recurrent_args a)
{
    const long long n = a.shape.hidden;
    for (long long i = grid_first(); i < a.shape.batch * n; i += grid_step()) {
        const bool any = a.shape.steps > 0 && is_active(a, i / n, 0);
        store_if(a.last_h, a.dtype, i, any ? a.h[i] : 0);
        if (a.last_c) a.last_c[i] = any ? a.c[i] : 0;
    }
}
AMPC_KERNEL(recurrent_last)

/* ---- backward -------------------------------------------------------------------------------- */

/* The gradients of the last states; rows without steps have none. */
extern "C" __global__ void __launch_bounds__(RECURRENT_BLOCK) recurrent_back_start(recurrent_args a)
{
    const long long n = a.shape.hidden;
    for (long long i = grid_first(); i < a.shape.batch * n; i += grid_step()) {
        const bool any = a.shape.steps > 0 && is_active(a, i / n, 0);
        a.direct[i] = any ? load_or_zero(a.dlast_h, a.dtype, i) : 0;
        a.dc[i] = any && a.dlast_c ? a.dlast_c[i] : 0;
    }
}
AMPC_KERNEL(recurrent_back_start)

/* The position, in an array [T,B,H], of the state of unit u before step t; -1: the initial state. */
static __device__ __forceinline__ long long position_before(const recurrent_args &a, long long b, long long j,
                                                            long long t)
{
    const recurrent_shape &s = a.shape;
    const long long from = s.reverse ? t + 1 : t - 1;
    return from >= 0 && from < s.steps && is_active(a, b, from) ? (from * s.batch + b) * s.hidden + j : -1;
}
static __device__ __forceinline__ float h_before(const recurrent_args &a, const unit &u)
{
    const long long at = position_before(a, u.b, u.j, a.t);
    return at < 0 ? load_or_zero(a.h0, a.dtype, u.at) : element_load<float>(a.y, a.dtype, at);
}
static __device__ __forceinline__ float c_before(const recurrent_args &a, long long b, long long j, long long t)
{
    const long long at = position_before(a, b, j, t);
    return at >= 0 ? a.cells[at] : a.c0 ? a.c0[b * a.shape.hidden + j] : 0;
}

/* The gradient of h after the step: what the step after it passes on, and dy. At the end, the initial states' are
 * stored and *active is false. */
static __device__ __forceinline__ float arriving(tiles_back &tiles, const recurrent_args &a, const unit &u, int gates,
                                                 bool *active)
{
    const long long states = a.shape.batch * a.shape.hidden;
    float d = a.is_first ? 0 : multiply_back(tiles, a, u, a.later, 0, gates);
    *active = false;
    if (!u.exists) return 0;
    d += a.direct[u.at];
    if (a.t < 0) {
        store_if(a.dh0, a.dtype, u.at, d);
        if (a.dc0) a.dc0[u.at] = a.dc[u.at];
        return 0;
    }
    *active = is_active(a, u.b, a.t);
    a.direct[u.at] = *active ? 0 : d;
    return *active ? d + load_or_zero(a.dy, a.dtype, a.t * states + u.at) : 0;
}

/* The gradient of gate g, and that of its product. */
static __device__ __forceinline__ void store_gate(const recurrent_args &a, const unit &u, int g, float dx,
                                                  float product)
{
    const recurrent_shape &s = a.shape;
    const long long at = (u.b * s.gates + g) * s.hidden + u.j, step = a.t * s.batch * s.gates * s.hidden;
    a.products[at] = product;
    element_store(a.dx, a.dtype, step + at, dx);
    store_if(a.dproduct, a.dtype, step + at, product);
}
static __device__ __forceinline__ float kept_gate(const recurrent_args &a, const unit &u, int g)
{
    const recurrent_shape &s = a.shape;
    return element_load<float>(a.gates, a.dtype, ((a.t * s.batch + u.b) * s.saved + g) * s.hidden + u.j);
}

/* The factors of the gradient of R: the state before the step, and what the last gate's rows were multiplied with. */
static __device__ __forceinline__ void store_factors(const recurrent_args &a, const unit &u, bool active, float before,
                                                     float reset)
{
    const long long at = a.t * a.shape.batch * a.shape.hidden + u.at;
    store_if(a.previous, a.dtype, at, active ? before : 0);
    store_if(a.reset, a.dtype, at, active ? reset : 0);
}

extern "C" __global__ void __launch_bounds__(RECURRENT_BLOCK) recurrent_lstm_back(recurrent_args a)
{
    __shared__ tiles_back shared;
    const recurrent_shape &s = a.shape;
    long long columns;
    const long long count = tiles_of(s, &columns);
    for (long long tile = blockIdx.x; tile < count; tile += gridDim.x) {
        const unit u = unit_of(s, tile, columns);
        bool active;
        lstm_state_float d = {arriving(shared, a, u, 4, &active), 0};
        lstm_gates_float dx = {0, 0, 0, 0};
        if (!u.exists || a.t < 0) continue;
        const float before = h_before(a, u);
        if (active) {
            const lstm_weights_float p = peepholes_of(a, u.j);
            const lstm_gates_float x = {kept_gate(a, u, 0), kept_gate(a, u, 1), kept_gate(a, u, 2), kept_gate(a, u, 3)};
            d.c = a.dc[u.at];
            dx = lstm_back_float(&s, s.f.word, s.g.word, s.h.word, &p, &x, c_before(a, u.b, u.j, a.t),
                                 a.cells[a.t * s.batch * s.hidden + u.at], &d);
            a.dc[u.at] = d.c;
        }
        store_gate(a, u, 0, dx.i, dx.i);
        store_gate(a, u, 1, dx.o, dx.o);
        store_gate(a, u, 2, dx.f, dx.f);
        store_gate(a, u, 3, dx.c, dx.c);
        store_factors(a, u, active, before, before);
    }
}
AMPC_KERNEL(recurrent_lstm_back)

extern "C" __global__ void __launch_bounds__(RECURRENT_BLOCK) recurrent_rnn_back(recurrent_args a)
{
    __shared__ tiles_back shared;
    const recurrent_shape &s = a.shape;
    long long columns;
    const long long count = tiles_of(s, &columns);
    for (long long tile = blockIdx.x; tile < count; tile += gridDim.x) {
        const unit u = unit_of(s, tile, columns);
        bool active;
        const float d = arriving(shared, a, u, 1, &active);
        if (!u.exists || a.t < 0) continue;
        const float dx = active ? rnn_back_float(&s, s.f.word, kept_gate(a, u, 0), d) : 0, before = h_before(a, u);
        store_gate(a, u, 0, dx, dx);
        store_factors(a, u, active, before, before);
    }
}
AMPC_KERNEL(recurrent_rnn_back)

/* With linear_before_reset; without it, all but the reset gate. */
extern "C" __global__ void __launch_bounds__(RECURRENT_BLOCK) recurrent_gru_back(recurrent_args a)
{
    __shared__ tiles_back shared;
    const recurrent_shape &s = a.shape;
    const bool late = s.linear_before_reset;
    long long columns;
    const long long count = tiles_of(s, &columns);
    for (long long tile = blockIdx.x; tile < count; tile += gridDim.x) {
        const unit u = unit_of(s, tile, columns);
        bool active;
        const float d = arriving(shared, a, u, late ? 3 : 2, &active);
        gru_gates_float dx = {0, 0, 0, 0};
        float dr = 0, product = 0;
        if (!u.exists || a.t < 0) continue;
        const float before = h_before(a, u);
        if (active) {
            const gru_gates_float x = {kept_gate(a, u, 0), kept_gate(a, u, 1), kept_gate(a, u, 2), 0};
            float direct;
            dx = gru_back_float(&s, s.f.word, s.g.word, &x, before, d, &direct);
            a.direct[u.at] = direct;
            product = dx.n;
            if (late) dr = gru_reset_back_float(&s, s.f.word, x.r, kept_gate(a, u, 3), &product);
        }
        store_gate(a, u, 0, dx.z, dx.z);
        store_gate(a, u, 1, dr, dr);
        store_gate(a, u, 2, dx.n, product);
        store_factors(a, u, active, before, before);
    }
}
AMPC_KERNEL(recurrent_gru_back)

extern "C" __global__ void __launch_bounds__(RECURRENT_BLOCK) recurrent_reset_back(recurrent_args a)
{
    __shared__ tiles_back shared;
    const recurrent_shape &s = a.shape;
    long long columns;
    const long long count = tiles_of(s, &columns);
    for (long long tile = blockIdx.x; tile < count; tile += gridDim.x) {
        const unit u = unit_of(s, tile, columns);
        float d = multiply_back(shared, a, u, a.products, 2, 1);
        if (!u.exists || !is_active(a, u.b, a.t)) continue;
        const float r = kept_gate(a, u, 1), before = h_before(a, u);
        const float dr = gru_reset_back_float(&s, s.f.word, r, before, &d);
        a.direct[u.at] += d;
        store_gate(a, u, 1, dr, dr);
        store_factors(a, u, true, before, gate_float(&s, s.f, s.f.word, r) * before);
    }
}
AMPC_KERNEL(recurrent_reset_back)

/* The gradients of the peepholes, one per thread, summed over the steps in order; 0 for cells without. */
extern "C" __global__ void __launch_bounds__(RECURRENT_BLOCK) recurrent_peepholes(recurrent_args a)
{
    const recurrent_shape &s = a.shape;
    for (long long i = grid_first(); i < 3 * s.hidden; i += grid_step()) {
        long long j;
        const int g = (int)divide(i, s.hidden, &j);
        float sum = 0;
#pragma unroll 1
        for (long long row = 0; row < s.steps * s.batch && s.gates == MAX_GATES; row++) {
            long long b;
            const long long t = divide(row, s.batch, &b);
            if (!is_active(a, b, t)) continue;
            const float c = g == 1 ? a.cells[row * s.hidden + j] : c_before(a, b, j, t);
            sum += c * element_load<float>(a.dx, a.dtype, (row * MAX_GATES + g) * s.hidden + j);
        }
        a.dpeephole[i] = sum;
    }
}
AMPC_KERNEL(recurrent_peepholes)
