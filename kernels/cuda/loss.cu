/* loss.cu - softmax cross entropy and negative log likelihood on class labels, and their gradients.
 *
 * x [N,C,...] has one row of C classes per item, and the item's label selects the class. Ignored items have weight 0.
 * Losses and weights are summed in f64, first by each block over its items, then over the blocks, in a fixed order. A
 * label out of range is a fault, and its item is treated as ignored. */
#include "kernels/cuda/exponentials.cuh"
#include "kernels/cuda/loss.h"

struct labelled {
    long long label; /* -1: ignored */
    float weight;
};

static __device__ __forceinline__ labelled item_of(const loss_labels &l, long long item, bool report)
{
    const long long label = element_load<long long>(l.label, l.label_dtype, item);
    const bool ignored = label == l.ignore && label != LOSS_IGNORES_NONE, valid = label >= 0 && label < l.classes;
    if (!ignored && !valid && report) fault_set(l.fault, l.step, K_FAULT_LABEL);
    if (ignored || !valid) return {-1, 0};
    return {label, l.weight ? element_load<float>(l.weight, l.weight_dtype, label) : 1};
}

/* The part of a row without its padding. */
static __device__ __forceinline__ row_part classes_of(const loss_labels &l, row_part p)
{
    if (p.length > l.classes) p.length = l.classes;
    return p;
}

/* Stores the block's sums. `slots`: 32 values in shared memory. */
static __device__ __forceinline__ void store_sums(loss_sums *to, loss_sums own, double *slots)
{
    const double loss = block_sum(own.loss, slots), weight = block_sum(own.weight, slots);
    if (threadIdx.x == 0) to[blockIdx.x] = {loss, weight};
}

/* ---- forward ---- */

/* `x`: at the label. `loss`: one per item, or NULL. */
static __device__ __forceinline__ void add_item(const labelled &item, long long at, double x, double max_value,
                                                double rest, float *loss, loss_sums *sums)
{
    const double own = item.label >= 0 ? -(x - max_value - rest) * item.weight : 0;
    if (loss) loss[at] = (float)own;
    sums->loss += own;
    sums->weight += item.weight;
}

static __device__ __forceinline__ void add_loss(const loss_forward &a, const row_part &p, double max_value, double rest,
                                                loss_sums *sums)
{
    const labelled item = item_of(a.labels, p.item, true);
    const float x = item.label >= 0 ? element_load<float>(a.x, a.dtype, p.first + item.label * p.step) : 0;
    add_item(item, p.item, x, max_value, rest, a.reduction == IR_WORD(loss, none) ? a.loss : nullptr, sums);
}

template <typename G>
static __device__ __forceinline__ loss_sums cross_entropy(const loss_forward &a, const G &g)
{
    loss_sums sums = {0, 0};
    rows_each<G>(a.rows, [&](const row_part &p) {
        exponentials e;
        float v[TILE];
        tiles_each(classes_of(a.labels, p), [&](long long i, int n) {
            part_load<G>(a.x, a.dtype, p, i, n, v);
            e.collect(v, n);
        });
        e.join(g);
        const float rest = e.log_sum();
        if (p.leads) {
            add_loss(a, p, e.max_value, rest, &sums);
            if (a.lse) a.lse[p.item] = e.max_value + rest;
        }
        if (!a.log_prob) return;
        tiles_each(p, [&](long long i, int n) {
            part_load<G>(a.x, a.dtype, p, i, n, v);
#pragma unroll
            for (int j = 0; j < TILE; j++) v[j] = i + j < a.labels.classes ? v[j] - e.max_value - rest : -INFINITY;
            part_store<G>(a.log_prob, a.dtype, p, i, n, v);
        });
    });
    return sums;
}

extern "C" __global__ void __launch_bounds__(ROW_BLOCK) cross_entropy_warp(loss_forward a)
{
    __shared__ double totals[WARP];
    store_sums(a.sums, cross_entropy(a, by_warp()), totals);
}
AMPC_KERNEL(cross_entropy_warp)

extern "C" __global__ void __launch_bounds__(ROW_BLOCK) cross_entropy_block(loss_forward a)
{
    __shared__ float slots[WARP];
    __shared__ double totals[WARP];
    store_sums(a.sums, cross_entropy(a, by_block{slots}), totals);
}
AMPC_KERNEL(cross_entropy_block)

extern "C" __global__ void __launch_bounds__(ROW_BLOCK) cross_entropy_lane(loss_forward a)
{
    __shared__ float slots[ROW_BLOCK];
    __shared__ double totals[WARP];
    store_sums(a.sums, cross_entropy(a, by_lane{slots}), totals);
}
AMPC_KERNEL(cross_entropy_lane)

/* One item per thread. */
extern "C" __global__ void __launch_bounds__(ROW_BLOCK) nll(loss_forward a)
{
    __shared__ double totals[WARP];
    loss_sums sums = {0, 0};
    for (long long i = grid_first(); i < a.rows.outer * a.rows.inner; i += grid_step()) {
        const long long outer = i / a.rows.inner, inner = i % a.rows.inner;
        const row_part p = {i, outer * a.rows.length * a.rows.inner + inner, a.rows.inner, 0, 0, 0, true};
        add_loss(a, p, 0, 0, &sums);
    }
    store_sums(a.sums, sums, totals);
}
AMPC_KERNEL(nll)

/* Computes the sum or the mean over the items of all blocks. Runs as one block. */
extern "C" __global__ void __launch_bounds__(ROW_BLOCK) loss_finish(const loss_sums *sums, int blocks, int reduction,
                                                                    float *loss)
{
    __shared__ double slots[WARP];
    double sum = 0, weight = 0;
    for (int i = threadIdx.x; i < blocks; i += ROW_BLOCK) {
        sum += sums[i].loss;
        weight += sums[i].weight;
    }
    sum = block_sum(sum, slots);
    weight = block_sum(weight, slots);
    if (threadIdx.x == 0) *loss = (float)(reduction == IR_WORD(loss, mean) ? sum / weight : sum);
}
AMPC_KERNEL(loss_finish)

/* ---- backward ---- */

/* Sums the weights of all items, for a mean. */
extern "C" __global__ void __launch_bounds__(ROW_BLOCK) loss_weights(loss_labels labels, long long items,
                                                                     loss_sums *sums)
{
    __shared__ double slots[WARP];
    loss_sums own = {0, 0};
    for (long long i = grid_first(); i < items; i += grid_step())
        own.weight += item_of(labels, i, true).weight;
    store_sums(sums, own, slots);
}
AMPC_KERNEL(loss_weights)

/* Returns dloss, divided by the total weight for a mean; unused if each item has its own dloss. */
static __device__ __forceinline__ float common_slope(const loss_backward &a, double *slots)
{
    double weight = (double)(a.rows.outer * a.rows.inner);
    if (a.blocks > 0) weight = block_sum((int)threadIdx.x < a.blocks ? a.sums[threadIdx.x].weight : 0.0, slots);
    if (a.reduction == IR_WORD(loss, none)) return 0;
    return (float)(a.reduction == IR_WORD(loss, mean) ? *a.dloss / weight : *a.dloss);
}

/* Computes dx = (softmax(x) - [label]) slope; 0 if slope is 0, even for NaN x. The exponentials are divided by their
 * own sum, since lse was rounded: a large one has lost what all probabilities are multiplied by. At the label, the
 * difference is minus the sum of the other probabilities, which does not cancel. */
template <typename G>
static __device__ __forceinline__ void entropy_slope(const loss_backward &a, float common, const G &g)
{
    rows_each<G>(a.rows, [&](const row_part &p) {
        const bool exists = p.length > 0;
        const labelled item = exists ? item_of(a.labels, p.item, p.leads) : labelled{-1, 0};
        float v[TILE], slope = 0, others = 0, own = 0;
        if (item.weight != 0) slope = item.weight * (a.reduction == IR_WORD(loss, none) ? a.dloss[p.item] : common);
        const float lse = exists ? a.lse[p.item] : 0;
        if (item.label >= 0)
            own = m_exp_float(element_load<float>(a.x, a.dtype, p.first + item.label * p.step) - lse);
        tiles_each(classes_of(a.labels, p), [&](long long i, int n) {
            part_load<G>(a.x, a.dtype, p, i, n, v);
#pragma unroll
            for (int j = 0; j < TILE; j++)
                if (j < n && i + j != item.label) others += m_exp_float(v[j] - lse);
        });
        others = g.sum(others);
        const float factor = slope / (own + others);
        tiles_each(p, [&](long long i, int n) {
            part_load<G>(a.x, a.dtype, p, i, n, v);
#pragma unroll
            for (int j = 0; j < TILE; j++) {
                const float probability = i + j == item.label ? -others : m_exp_float(v[j] - lse);
                v[j] = slope == 0 || i + j >= a.labels.classes ? 0 : probability * factor;
            }
            part_store<G>(a.dx, a.dtype, p, i, n, v);
        });
    });
}

/* The loss and dx of the rows. At first the exponentials are those of the classes without the label, whose own is added
 * last, because their sum must not cancel. All threads of a row have read the score of the label before any of them
 * overwrites it. */
template <typename G>
static __device__ __forceinline__ loss_sums entropy_and_slope(const loss_backward &a, float common, const G &g)
{
    const bool each = a.reduction == IR_WORD(loss, none);
    loss_sums sums = {0, 0};
    rows_each<G>(a.rows, [&](const row_part &p) {
        const labelled item = p.length > 0 ? item_of(a.labels, p.item, p.leads) : labelled{-1, 0};
        float v[TILE], slope = 0, at_label = -INFINITY;
        if (item.weight != 0) slope = item.weight * (each ? a.dloss[p.item] : common);
        if (item.label >= 0) at_label = element_load<float>(a.x, a.dtype, p.first + item.label * p.step);
        exponentials e;
        tiles_each(classes_of(a.labels, p), [&](long long i, int n) {
            part_load<G>(a.x, a.dtype, p, i, n, v);
#pragma unroll
            for (int j = 0; j < TILE; j++)
                if (i + j == item.label) v[j] = -INFINITY;
            e.collect(v, n);
        });
        e.join(g);
        const float most = larger(e.max_value, at_label), others = rescale(e.sum, e.max_value, most);
        const float sum = item.label >= 0 ? others + m_exp_float(at_label - most) : others, factor = slope / sum;
        if (p.leads) add_item(item, p.item, at_label, most, m_log_float(sum), each ? a.loss : nullptr, &sums);
        tiles_each(p, [&](long long i, int n) {
            part_load<G>(a.x, a.dtype, p, i, n, v);
#pragma unroll
            for (int j = 0; j < TILE; j++) {
                const float probability = i + j == item.label ? -others : m_exp_float(v[j] - most);
                v[j] = slope == 0 || i + j >= a.labels.classes ? 0 : probability * factor;
            }
            part_store<G>(a.dx, a.dtype, p, i, n, v);
        });
    });
    return sums;
}

/* Computes dx = -[label] slope. */
template <typename G> static __device__ __forceinline__ void nll_slope(const loss_backward &a, float common)
{
    rows_each<G>(a.rows, [&](const row_part &p) {
        if (p.length == 0) return;
        const labelled item = item_of(a.labels, p.item, p.leads);
        float slope = 0;
        if (item.weight != 0) slope = item.weight * (a.reduction == IR_WORD(loss, none) ? a.dloss[p.item] : common);
        tiles_each(p, [&](long long i, int n) {
            float v[TILE];
#pragma unroll
            for (int j = 0; j < TILE; j++) v[j] = i + j == item.label ? -slope : 0;
            part_store<G>(a.dx, a.dtype, p, i, n, v);
        });
    });
}

/* `g`: the threads of a row; `shared`: memory for their sums. */
#define ENTROPY_SLOPE_KERNEL(name, g, shared)                                                                          \
    extern "C" __global__ void __launch_bounds__(ROW_BLOCK) name(loss_backward a)                                      \
    {                                                                                                                  \
        __shared__ double weights[WARP];                                                                               \
        shared;                                                                                                        \
        entropy_slope(a, common_slope(a, weights), g);                                                                 \
    }                                                                                                                  \
    AMPC_KERNEL(name)

ENTROPY_SLOPE_KERNEL(cross_entropy_grad_warp, by_warp(), )
ENTROPY_SLOPE_KERNEL(cross_entropy_grad_block, by_block{slots}, __shared__ float slots[WARP])
ENTROPY_SLOPE_KERNEL(cross_entropy_grad_lane, by_lane{slots}, __shared__ float slots[ROW_BLOCK])

/* A block of LOSS_WIDE_BLOCK threads per row. */
struct by_wide_block : by_block {
    __device__ static row_part part(const cuda_rows &r, long long row)
    {
        const int thread = threadIdx.x;
        return {row, row * r.length, 1, thread * TILE, LOSS_WIDE_BLOCK * TILE, r.length, thread == 0};
    }
};

#define ENTROPY_KERNEL(name, threads, g, shared)                                                                       \
    extern "C" __global__ void __launch_bounds__(threads, 2) name(loss_backward a)                                     \
    {                                                                                                                  \
        __shared__ double totals[WARP];                                                                                \
        shared;                                                                                                        \
        store_sums(a.items, entropy_and_slope(a, common_slope(a, totals), g), totals);                                 \
    }                                                                                                                  \
    AMPC_KERNEL(name)

ENTROPY_KERNEL(cross_entropy_both_warp, ROW_BLOCK, by_warp(), )
ENTROPY_KERNEL(cross_entropy_both_block, LOSS_WIDE_BLOCK, by_wide_block{{slots}}, __shared__ float slots[WARP])
ENTROPY_KERNEL(cross_entropy_both_lane, ROW_BLOCK, by_lane{slots}, __shared__ float slots[ROW_BLOCK])

#define NLL_SLOPE_KERNEL(name, threads)                                                                                \
    extern "C" __global__ void __launch_bounds__(ROW_BLOCK) name(loss_backward a)                                      \
    {                                                                                                                  \
        __shared__ double weights[WARP];                                                                               \
        nll_slope<threads>(a, common_slope(a, weights));                                                               \
    }                                                                                                                  \
    AMPC_KERNEL(name)

NLL_SLOPE_KERNEL(nll_grad_warp, by_warp)
NLL_SLOPE_KERNEL(nll_grad_block, by_block)
NLL_SLOPE_KERNEL(nll_grad_lane, by_lane)
