/* test_ops_tails.c - convolutions and matmuls with programs as epilogues (kernels/cpu/tails.c).
 *
 * A case is a shape, types and a program. Expected are the bits of the op and the program as two steps, where the
 * first has f32 results if they are of a low type. Operands contain NaN and infinities. */
#include "kernels/epilogue.h"
#include "tests/ops/products.h"
#include "tests/rows.h"

#include <math.h>

/* ---- calls ----------------------------------------------------------------------------------- */

typedef struct shape {
    int spatial; /* 0: a matmul of x [n,c], if `h` [n,h,c], if `group` is 2 [c,n] transposed, and w [c,m] */
    int64_t n, c, m, group, h, w, k, stride;
} shape;

static const shape shapes[] = {
    {2, 2, 5, 7, 1, 6, 5, 3, 1},      {2, 3, 16, 32, 1, 8, 8, 3, 2}, {2, 2, 8, 8, 8, 9, 7, 3, 1}, /* depthwise */
    {2, 2, 6, 4, 2, 5, 5, 1, 1},      {1, 2, 4, 9, 1, 1, 33, 3, 1},  {2, 1, 3, 1, 1, 4, 4, 3, 1}, /* one channel */
    {2, 2, 4, 6, 1, 1, 1, 1, 1},                                                                  /* one position */
    {2, 1, 1, 1, 1, 1, 1, 1, 1},      {2, 0, 3, 4, 1, 5, 5, 3, 1},   {2, 2, 0, 3, 1, 5, 4, 3, 1}, /* nothing to sum */
    {2, 4, 2, 40, 1, 70, 66, 1, 1}, /* two parts in a low type */
    {0, 5, 7, 9, 1, 0, 0, 1, 1},      {0, 2, 16, 33, 1, 3, 0, 1, 1}, {0, 1, 1, 1, 1, 0, 0, 1, 1},
    {0, 0, 3, 4, 1, 0, 0, 1, 1},      {0, 3, 0, 4, 1, 0, 0, 1, 1},   {0, 4096, 3, 200, 1, 0, 0, 1, 1}, /* two parts */
    {0, 200, 3, 4096, 2, 0, 0, 1, 1}, /* not divided: x is transposed */
};

enum { IN_R = 3, IN_LO, IN_HI, IN_BIAS, N_IN }; /* operands after those of the op: a tensor, bounds, one per channel */

typedef struct call {
    ir_op op;
    k_view in[N_IN + 1], out[2]; /* the last operand is the result of the op alone */
    int n_out;
    ir_attr attr[16];
    int64_t lists[3][6];
    k_fused program;
} call;

static void put(k_view *v, int64_t i, double value)
{
    if (i < k_count(v)) ir_store_f64(v->dtype, (char *)v->data + (size_t)i * ir_dtype_size(v->dtype), value);
}

static k_view draw(ir_dtype t, int rank, const int64_t *dims, unsigned *seed)
{
    k_view v = view_make(t, rank, dims);
    for (int64_t i = 0; i < k_count(&v); i++) {
        *seed = *seed * 1103515245u + 12345u;
        put(&v, i, (double)(*seed >> 16 & 255) / 64 - 2);
    }
    return v;
}

static void set_list(call *c, int list, int slot, int count, int64_t item)
{
    for (int i = 0; i < count; i++) c->lists[list][i] = item;
    c->attr[slot].list.items = c->lists[list];
    c->attr[slot].list.count = count;
}

static void make_conv(call *c, const shape *s, type_pair t, unsigned *seed)
{
    const int64_t pad = s->k / 2, h = s->spatial == 1 ? s->w : s->h;
    const int64_t out[2] = {(h + 2 * pad - s->k) / s->stride + 1, (s->w + 2 * pad - s->k) / s->stride + 1};
    const int rank = s->spatial + 2;
    c->op = IR_OP_conv;
    for (int i = 0; i < ir_op_get(c->op)->n_attr; i++) c->attr[i] = ir_op_get(c->op)->attr[i].initial;
    set_list(c, 0, IR_ATTR(conv, strides), s->spatial, s->stride);
    set_list(c, 1, IR_ATTR(conv, pads), 2 * s->spatial, pad);
    set_list(c, 2, IR_ATTR(conv, dilations), s->spatial, 1);
    c->attr[IR_ATTR(conv, group)].i = s->group;
    c->in[0] = draw(t.in, rank, (int64_t[]){s->n, s->c, h, s->w}, seed);
    c->in[1] = draw(t.in, rank, (int64_t[]){s->m, s->c / s->group, s->k, s->k}, seed);
    c->in[2] = draw(t.out, 1, (int64_t[]){s->m}, seed);
    c->in[IN_R] = draw(t.out, rank, (int64_t[]){s->n, s->m, out[0], out[1]}, seed);
}

static void make_matmul(call *c, const shape *s, type_pair t, unsigned *seed)
{
    const int rank = s->h ? 3 : 2;
    const int64_t *x = s->h ? (int64_t[]){s->n, s->h, s->c} : (int64_t[]){s->n, s->c};
    const int64_t *y = s->h ? (int64_t[]){s->n, s->h, s->m} : (int64_t[]){s->n, s->m};
    c->op = IR_OP_matmul;
    for (int i = 0; i < ir_op_get(c->op)->n_attr; i++) c->attr[i] = ir_op_get(c->op)->attr[i].initial;
    c->attr[IR_ATTR(matmul, trans_a)].i = s->group == 2;
    c->in[0] = draw(t.in, rank, s->group == 2 ? (int64_t[]){s->c, s->n} : x, seed);
    c->in[1] = draw(t.in, 2, (int64_t[]){s->c, s->m}, seed);
    c->in[2] = draw(t.out, 1, (int64_t[]){s->m}, seed);
    c->in[IN_R] = draw(t.out, rank, y, seed);
}

/* ---- programs -------------------------------------------------------------------------------- */

enum { R = ~0, BIAS = ~1, LO = ~2, HI = ~3, ACC = K_ACCUMULATOR, NONE = K_NO_ARG };

/* Up to two instructions; the last one is result 0. */
typedef struct program {
    struct {
        ir_op op;
        int n, arg[3];
    } code[2];
    int n_code;
    ir_dtype type; /* of the last one; IR_NO_DTYPE: that of the op */
    bool both;     /* the first one is result 1 */
} program;

static const program programs[] = {
    {{{IR_OP_relu, 1, {ACC}}}, 1, IR_NO_DTYPE, false},
    {{{IR_OP_clip, 3, {ACC, LO, HI}}}, 1, IR_NO_DTYPE, false},
    {{{IR_OP_clip, 3, {ACC, LO, NONE}}}, 1, IR_NO_DTYPE, false},
    {{{IR_OP_hard_swish, 1, {ACC}}}, 1, IR_NO_DTYPE, false},
    {{{IR_OP_sigmoid, 1, {ACC}}, {IR_OP_mul, 2, {ACC, 0}}}, 2, IR_NO_DTYPE, false},
    {{{IR_OP_add, 2, {R, ACC}}, {IR_OP_relu, 1, {0}}}, 2, IR_NO_DTYPE, false},
    {{{IR_OP_add, 2, {ACC, BIAS}}, {IR_OP_relu, 1, {0}}}, 2, IR_NO_DTYPE, false},
    {{{IR_OP_add, 2, {ACC, R}}, {IR_OP_relu, 1, {0}}}, 2, IR_NO_DTYPE, true},
    {{{IR_OP_relu, 1, {ACC}}, {IR_OP_cast, 1, {0}}}, 2, IR_bf16, false},
    {{{IR_OP_is_nan, 1, {ACC}}}, 1, IR_bool, false},
};

static ir_dtype wide(ir_dtype t) { return ir_dtype_is_low(t) ? IR_f32 : t; }

/* `alone`: the program is a step of its own, and the accumulator its last operand. */
static void make_program(call *c, const program *p, ir_dtype t, bool alone)
{
    const bool last = ops_channels_last && c->in[IN_R].rank > 2 && c->op == IR_OP_conv;
    k_view y = c->in[IN_R], bias = {.rank = y.rank};
    const int axis = c->op == IR_OP_matmul || last ? y.rank - 1 : 1;
    for (int i = 1; last && i < y.rank; i++) y.dims[i] = c->in[IN_R].dims[i == y.rank - 1 ? 1 : i + 1];
    for (int i = 0; i < y.rank; i++) bias.dims[i] = i == axis ? y.dims[i] : 1;
    k_fused *f = &c->program;
    *f = (k_fused){.count = k_count(&y), .of = t, .n_operands = 4 + alone, .n_code = p->n_code, .n_results = 1};
    f->operands[0] = (k_operand){.in = IN_R, .dense = true};
    f->operands[1] = (k_operand){.in = IN_BIAS, .walk = k_walk_broadcast(&bias, &y)};
    f->operands[2] = (k_operand){.in = IN_LO, .walk = {1, {1}, {1}, {1}}};
    f->operands[3] = (k_operand){.in = IN_HI, .walk = {1, {1}, {1}, {1}}};
    f->operands[4] = (k_operand){.in = N_IN, .dense = true};
    for (int i = 0; i < p->n_code; i++) {
        const bool ends = i == p->n_code - 1;
        k_instruction *to = &f->code[i];
        *to = (k_instruction){.op = p->code[i].op,
                              .type = !ends && !p->both                ? wide(t)
                                      : ends && p->type != IR_NO_DTYPE ? p->type
                                                                       : t,
                              .attr = c->attr + 12,
                              .n_arg = p->code[i].n};
        for (int k = 0; k < to->n_arg; k++) to->arg[k] = alone && p->code[i].arg[k] == ACC ? ~4 : p->code[i].arg[k];
    }
    f->results[0].from = p->n_code - 1;
    if (p->both) f->results[f->n_results++].from = 0;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static k_args args_of(call *c, int n_in, bool fused, const k_context *ctx)
{
    return (k_args){.op = c->op,
                    .in = c->in,
                    .out = c->out,
                    .n_in = n_in,
                    .n_out = c->n_out,
                    .attr = c->attr,
                    .fused = fused ? &c->program : NULL,
                    .ctx = ctx};
}

static void make_results(call *c)
{
    c->n_out = c->program.n_results;
    for (int i = 0; i < c->n_out; i++)
        c->out[i] = view_make(c->program.code[c->program.results[i].from].type, c->in[IN_R].rank, c->in[IN_R].dims);
}

/* Computes the results of the op and the program as two steps. */
static void run_apart(call *c, const program *p, ir_dtype t, const k_context *ctx)
{
    c->n_out = 1;
    c->out[0] = view_make(wide(t), c->in[IN_R].rank, c->in[IN_R].dims);
    k_args args = args_of(c, 3, false, ctx);
    if (k_count(&c->out[0])) assert_int_equal(ops_run(&args, false, 1), AMPC_OK);
    c->in[N_IN] = c->out[0];
    make_program(c, p, t, true);
    make_results(c);
    args = args_of(c, N_IN + 1, true, ctx);
    if (k_count(&c->out[0])) assert_int_equal(ops_run_kernel(ops_on->fused, &args, false, 1), AMPC_OK);
    free(c->in[N_IN].data);
}

static void expect_same(const call *c, const k_view *expected, const shape *s, size_t which, type_pair t, int threads)
{
    for (int i = 0; i < c->n_out; i++) {
        if (memcmp(c->out[i].data, expected[i].data, k_bytes(&c->out[i])) != 0)
            fail_msg("shape %d, program %zu, %s -> %s, %d threads: result %d differs", (int)(s - shapes), which,
                     ir_dtype_name(t.in), ir_dtype_name(t.out), threads, i);
        free(c->out[i].data);
    }
}

static void check_program(call *c, const shape *s, size_t which, type_pair t, int threads)
{
    char error[256] = "";
    const k_context ctx = {.threads = threads, .error = error, .error_size = sizeof error};
    k_view expected[2];
    run_apart(c, &programs[which], t.out, &ctx);
    memcpy(expected, c->out, sizeof expected);
    const int n = c->n_out;
    make_program(c, &programs[which], t.out, false);
    make_results(c);
    const k_args args = args_of(c, N_IN, true, &ctx);
    if (k_count(&c->out[0])) assert_int_equal(ops_run_kernel(ops_on->tails, &args, false, 2), AMPC_OK);
    expect_same(c, expected, s, which, t, threads);
    for (int i = 0; i < n; i++) free(expected[i].data);
}

static bool is_large(const shape *s) { return s->n * s->m * (s->spatial ? s->h * s->w : 1) > 100000; }

static void check_shape(const shape *s, type_pair t)
{
    call c = {.n_out = 1};
    unsigned seed = 7;
    (s->spatial ? make_conv : make_matmul)(&c, s, t, &seed);
    c.in[IN_LO] = draw(t.out, 0, NULL, &seed);
    c.in[IN_HI] = draw(t.out, 0, NULL, &seed);
    c.in[IN_BIAS] = draw(t.out, 1, (int64_t[]){s->m}, &seed);
    put(&c.in[IN_LO], 0, -1);
    put(&c.in[IN_HI], 0, 2);
    put(&c.in[0], 0, NAN);
    put(&c.in[0], s->c > 1 && s->n > 1 ? k_count(&c.in[0]) - 1 : 0, s->n > 1 ? -INFINITY : NAN);
    put(&c.in[IN_R], 1, INFINITY);
    const size_t at = (size_t)(s - shapes), n = sizeof programs / sizeof *programs;
    for (size_t i = 0; i < n; i++)
        if (is_large(s) ? i == 0 || i == 6 : at < 2 || (at + i) % 3 == 0)
            check_program(&c, s, i, t, 1 + (int)((at + i / 3) % 2));
    for (int i = 0; i < N_IN; i++) free(c.in[i].data);
}

static void check_all(bool convolutions)
{
    if (!ops_on->tails) skip();
    for (int t = next_types(-1); t < N_TYPES; t = next_types(t))
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            if ((!convolutions || shapes[i].spatial > 0) && (!is_large(&shapes[i]) || ir_dtype_is_low(types[t].out)))
                check_shape(&shapes[i], types[t]);
}

static void programs_run_over_results(void **state)
{
    (void)state;
    check_all(false);
}

static void programs_run_over_images_in_nhwc(void **state)
{
    (void)state;
    check_all(true);
}

/* relu, clip and hard_swish of NaN are NaN. */
static void programs_propagate_nan(void **state)
{
    static const shape s = {2, 1, 16, 16, 1, 4, 4, 1, 1};
    char error[256] = "";
    const k_context ctx = {.threads = 1, .error = error, .error_size = sizeof error};
    (void)state;
    if (!ops_on->tails) skip();
    for (int t = next_types(-1); t < N_TYPES; t = next_types(t))
        for (size_t i = 0; i < 5; i++) {
            call c = {.n_out = 1};
            unsigned seed = 1;
            make_conv(&c, &s, types[t], &seed);
            c.in[IN_LO] = draw(types[t].out, 0, NULL, &seed);
            c.in[IN_HI] = draw(types[t].out, 0, NULL, &seed);
            c.in[IN_BIAS] = draw(types[t].out, 1, (int64_t[]){s.m}, &seed);
            for (int64_t k = 0; k < k_count(&c.in[0]); k++) put(&c.in[0], k, NAN);
            make_program(&c, &programs[i], types[t].out, false);
            make_results(&c);
            const k_args args = args_of(&c, N_IN, true, &ctx);
            assert_int_equal(ops_run_kernel(ops_on->tails, &args, false, 1), AMPC_OK);
            double *y = view_values(&c.out[0]);
            for (int64_t k = 0; k < k_count(&c.out[0]); k++) assert_true(isnan(y[k]));
            free(y);
            free(c.out[0].data);
            for (int k = 0; k < N_IN; k++) free(c.in[k].data);
        }
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_run_over_results),
        cmocka_unit_test_setup_teardown(programs_run_over_images_in_nhwc, ops_begin_channels_last,
                                        ops_end_channels_last),
        cmocka_unit_test(programs_propagate_nan),
    };
    return rows_run("tails", tests, sizeof tests / sizeof *tests);
}

int main(int argc, char **argv) { return ops_main(argc, argv, run); }
