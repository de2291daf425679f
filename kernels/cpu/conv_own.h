/* conv_own.h - convolutions by own code, for conv.c: types f32, bf16 and f16, any geometry and layout.
 *
 * All work is done on images whose channels are contiguous, in f32 or, where the processor multiplies it, in the low
 * type of the operands; others are copied to the workspace. A convolution
 * and its gradient with respect to x have the same form: a position of the result is a sum over taps, each of which
 * reads a position of the source. If x is read with strides, the gradient has a sum of this form, with some of the
 * taps, for each remainder of a position divided by the strides. So no sum is ever scattered. */
#ifndef AMPC_CONV_OWN_H
#define AMPC_CONV_OWN_H

#include "kernels/convolution.h"
#include "kernels/cpu/gemm.h"

/* The operands are not empty. The workspace size is in bytes. */
size_t conv_own_workspace(const conv *c, const k_context *ctx);
void conv_own_run(const conv *c, void *workspace, const k_context *ctx);

/* The size of the packed weights of a forward convolution in bytes, and the weights in this format, which depends on
 * the type of x, but on no other operand. conv_own_run_packed is conv_own_run with such weights instead of c->w, whose
 * data it does not read. */
int64_t conv_own_packed_size(const conv *c);
void conv_own_pack(const conv *c, void *packed, const k_context *ctx);
size_t conv_own_packed_workspace(const conv *c, const k_context *ctx);
void conv_own_run_packed(const conv *c, const void *packed, void *workspace, const k_context *ctx);

/* The same for convolutions of few positions with one group and weights that are read or written in place
 * (conv_in_place.c). */
size_t conv_in_place_workspace(const conv *c, const k_context *ctx);
void conv_in_place_run(const conv *c, void *workspace, const k_context *ctx);
/* Like conv_in_place_run for a gradient of w without dbias, of which nothing is stored; c->w->data is not NULL. */
size_t conv_visit_workspace(const conv *c, gemm_visit *visit, const k_context *ctx);
void conv_visit_gradient(const conv *c, void *workspace, gemm_visit *visit, void *user, const k_context *ctx);

/* ---- shared with conv_depthwise.c, conv_in_place.c and conv_store.c ---- */

/* Which sums a pass computes. Position p of the pass along an axis is position first + p * stride of the result; tap t
 * is tap from + t * every of the kernel and reads position p * step + offset + t * apart of the source. */
typedef struct conv_window {
    int64_t count[3], first[3], stride[3];
    int64_t taps[3], from[3], every[3];
    int64_t step[3], offset[3], apart[3];
} conv_window;

/* Images [n, points, channels]; a group has `inner` of the channels. */
typedef struct conv_images {
    void *data;
    int64_t n, channels, inner, size[3];
} conv_images;

/* A pass: result = the sums over window w of source times weights. For a gradient of w, `result` is y. */
typedef struct conv_pass {
    const conv *c;
    ir_dtype type; /* of the images that are read: f32, or a low type (conv_type) */
    conv_window w;
    conv_images source, result;
    const k_view *view, *bias; /* of the result; bias may be NULL */
    bool is_direct;            /* result.data is the view */
} conv_pass;

static inline int64_t conv_volume(const int64_t *v) { return v[0] * v[1] * v[2]; }

/* A row of a pass: a position of an image. */
typedef struct conv_row {
    int64_t image, at[3];
} conv_row;

/* Splits an index of a grid of `size` points. */
static inline void conv_split(int64_t at, const int64_t *size, int64_t *to)
{
    to[2] = at % size[2];
    to[1] = at / size[2] % size[1];
    to[0] = at / size[2] / size[1];
}

static inline conv_row conv_row_at(const conv_pass *p, int64_t row)
{
    const int64_t points = conv_volume(p->w.count);
    conv_row r = {.image = row / points};
    conv_split(row % points, p->w.count, r.at);
    return r;
}

static inline void conv_next(const conv_pass *p, conv_row *r)
{
    const int64_t *count = p->w.count;
    if (++r->at[2] < count[2]) return;
    r->at[2] = 0;
    if (++r->at[1] < count[1]) return;
    r->at[1] = 0;
    if (++r->at[0] < count[0]) return;
    r->at[0] = 0;
    r->image++;
}

/* What a tap adds to the position of a row to read the source. */
static inline void conv_shift(const conv_pass *p, const int64_t *tap, int64_t *to)
{
    for (int i = 0; i < 3; i++) to[i] = p->w.offset[i] + tap[i] * p->w.apart[i];
}

/* The position of the source, in f32, at this shift from a row, or NULL if it is in the padding. */
static inline const float *conv_source(const conv_pass *p, const conv_row *r, const int64_t *shift)
{
    int64_t at = r->image;
    for (int i = 0; i < 3; i++) {
        const int64_t x = r->at[i] * p->w.step[i] + shift[i];
        if (x < 0 || x >= p->source.size[i]) return NULL;
        at = at * p->source.size[i] + x;
    }
    return (const float *)p->source.data + at * p->source.channels;
}

/* w as [G*M, taps, C] in memory: the distances of its dimensions in elements. */
typedef struct conv_weights {
    int64_t filter, tap, channel, taps;
} conv_weights;

static inline conv_weights conv_weights_of(const conv *c)
{
    const int64_t taps = conv_volume(c->g.k), inner = c->g.c;
    const bool last = c->w->channels_last;
    return (conv_weights){taps * inner, last ? inner : 1, last ? 1 : taps, taps};
}

/* The number in the kernel of tap `tap` of the pass. */
static inline int64_t conv_kernel_tap(const conv_pass *p, int64_t tap)
{
    int64_t at[3], number = 0;
    conv_split(tap, p->w.taps, at);
    for (int i = 0; i < 3; i++) number = number * p->c->g.k[i] + p->w.from[i] + at[i] * p->w.every[i];
    return number;
}

/* Finishes sums and stores them: rows [row, row + rows) of the pass, channels [column, column + columns), at most
 * GEMM_COLUMNS of them. */
void conv_store(const conv_pass *p, float *sums, int64_t ld, int64_t row, int64_t rows, int64_t column,
                int64_t columns);
/* Stores elements [first, first + count) of filter m of the gradient of w, in the order taps, channels. At most
 * GEMM_COLUMNS of them. */
void conv_store_filter(const conv *c, int64_t m, int64_t first, const float *sums, int64_t count);

/* Passes of a low type in conv_amx.c: whether one, which must have been given the sizes of all operands, can run there,
 * which needs this many channels. The panels have taps that are padded to multiples of AMX_TERMS channels. */
enum { CONV_AMX_CHANNELS = 16 };
bool conv_amx_fits(const conv_pass *p);
size_t conv_amx_workspace(const conv_pass *p, const k_context *ctx);
void conv_amx_run(const conv_pass *p, const void *packed, void *workspace, const k_context *ctx);

/* The type in which the operands are multiplied: a low type if the processor can. */
static inline ir_dtype conv_type(const conv *c)
{
    const ir_dtype type = (c->kind == CONV_GRAD_INPUT ? c->y : c->x)->dtype;
    return ir_dtype_is_low(type) && gemm_has(type) ? type : IR_f32;
}

/* A block of the workspace, or NULL if there is none; *at is advanced. */
void *conv_take(char *workspace, size_t *at, int64_t bytes);

/* The pass of the forward convolution, whatever the kind is; its view is the result of c. Images that are read are
 * copied to the workspace if they have another form than images of `type`. */
conv_pass conv_pass_of(const conv *c, ir_dtype type, char *workspace, size_t *at, const k_context *ctx);
/* dbias: the sum of dy over all positions, in f64. */
void conv_sum_positions(const conv_pass *p, const k_context *ctx);

bool conv_is_depthwise(const conv *c);
/* `weights`: [taps of the kernel, channels] in f32. */
void conv_depthwise_run(const conv_pass *p, const float *weights, const k_context *ctx);
/* The workspace of conv_depthwise_grad_weight, whose pass is that of the forward convolution, in floats. */
int64_t conv_depthwise_size(const conv *c);
void conv_depthwise_grad_weight(const conv_pass *p, float *workspace, const k_context *ctx);

#endif
