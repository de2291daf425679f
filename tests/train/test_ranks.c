/* test_ranks.c - training steps of several ranks, as threads, compared with those of one process with the whole batch. */
#include "tests/train/training_net.h"
#include "tests/ranks_threads.h"
#include "tests/test.h"

#ifdef ON_CUDA
enum { STEPS = 4, MOST = 4, EACH = 2, TEXTS = 2 };
#else
enum { STEPS = 6, MOST = 4, EACH = 1, TEXTS = 3 }; /* EACH: of the partitions */
#endif

static const char conv[] =
    "ampc-ir 3\n"
    "param @w1 : f32[4,1,2,2] = zero\n"
    "param @w2 : f32[4,3] = zero\n"
    "graph @forward(@x : f32[N,4]) as forward {\n"
    "  %i = reshape @x {shape=[N,1,2,2]} : f32[N,1,2,2] !Reshape \"image\"\n"
    "  %c = conv %i, @w1 {strides=[1,1], pads=[1,1,0,0], dilations=[1,1]} : f32[N,4,2,2] !Conv \"conv\"\n"
    "  %r = relu %c : f32[N,4,2,2] !Relu \"relu\"\n"
    "  %m = reduce_mean %r {axes=[2,3], keepdims=false} : f32[N,4] !ReduceMean \"pool\"\n"
    "  %y = matmul %m, @w2 : f32[N,3] !MatMul \"fc\"\n"
    "  output \"y\" = %y\n"
    "}\n";

/* Softmax over positions that the network makes of its input, as attention does. */
static const char attention[] = "ampc-ir 3\n"
                                "param @q : f32[2,4] = zero\n"
                                "param @k : f32[2,4] = zero\n"
                                "param @v : f32[2,4] = zero\n"
                                "param @o : f32[8,3] = zero\n"
                                "graph @forward(@x : f32[N,4]) as forward {\n"
                                "  %t = reshape @x {shape=[N,2,2]} : f32[N,2,2] !Reshape \"tokens\"\n"
                                "  %a = matmul %t, @q : f32[N,2,4] !MatMul \"query\"\n"
                                "  %b = matmul %t, @k : f32[N,2,4] !MatMul \"key\"\n"
                                "  %c = matmul %t, @v : f32[N,2,4] !MatMul \"value\"\n"
                                "  %s = matmul %a, %b {trans_b=true} : f32[N,2,2] !MatMul \"scores\"\n"
                                "  %p = softmax %s {axis=2} : f32[N,2,2] !Softmax \"weights\"\n"
                                "  %h = matmul %p, %c : f32[N,2,4] !MatMul \"heads\"\n"
                                "  %f = reshape %h {shape=[N,8]} : f32[N,8] !Reshape \"flat\"\n"
                                "  %y = matmul %f, @o : f32[N,3] !MatMul \"out\"\n"
                                "  output \"y\" = %y\n"
                                "}\n";

typedef struct run_of {
    ranks_threads *ranks;
    net nets[MOST];
    int64_t first[MOST + 1]; /* rows of each rank */
    int steps, window;       /* window: micro-batches of a step; 0: @train_step */
    int infinite;            /* the step with an infinite sample in the last row; -1: none */
    double losses[STEPS];    /* of rank 0 */
    bool skipped[MOST][STEPS];
    ampc_status status[MOST];
} run_of;

static ampc_status run_part(run_of *r, int rank, const char *graph, int batch)
{
    net *n = &r->nets[rank];
    const int64_t from = r->first[rank], rows = r->first[rank + 1] - from;
    set_batch(n, (uint64_t)batch);
    if (batch == r->infinite) n->x[ROWS - 1][0] = INFINITY;
    const rt_tensor in[] = {{.name = "x", .dtype = IR_f32, .rank = 2, .dims = {rows, IN}, .data = n->x[from]},
                            {.name = "label", .dtype = IR_f32, .rank = 2, .dims = {rows, OUT}, .data = n->label[from]}};
    return rt_session_run(n->s, graph, in, 2, n->t->d);
}

static ampc_status run_step(run_of *r, int rank, int i)
{
    net *n = &r->nets[rank];
    for (int k = 0; k < r->window; k++) TRY(run_part(r, rank, "accumulate", i * r->window + k));
    TRY(r->window ? rt_session_run(n->s, "apply", NULL, 0, n->t->d) : run_part(r, rank, "train_step", i));
    const rt_tensor *loss = rt_session_output(n->s, "loss"), *found = rt_session_output(n->s, "found_inf");
    if (rank == 0) r->losses[i] = ir_load_f64(loss->dtype, loss->data);
    r->skipped[rank][i] = found && ir_load_f64(found->dtype, found->data) != 0;
    return AMPC_OK;
}

/* Opening a device involves all ranks. */
static void open_rank(k_ranks *ranks, void *user)
{
    run_of *r = user;
    net *n = &r->nets[ranks->index];
    const rt_session_options session = {ON_DEVICE, .threads = 1, .deterministic = 1, .ranks = ranks};
    r->status[ranks->index] = rt_session_open(n->m, &session, n->t->d, &n->s);
}

static void run_rank(k_ranks *ranks, void *user)
{
    run_of *r = user;
    const int rank = ranks->index;
    for (int i = 0; i < r->steps && r->status[rank] == AMPC_OK; i++) r->status[rank] = run_step(r, rank, i);
}

/* Void between windows. */
static const char *const pending[] = {"grad_sum.w1", "grad_sum.b1", "grad_sum.w2", "grad_sum.g", "grad_sum.b",
                                      "grad_sum.q",  "grad_sum.k",  "grad_sum.v",  "grad_sum.o", "next.mean",
                                      "next.var",    "loss_sum",    NULL};

static run_of *train(scratch *t, const char *text, const compile_options *o, const int64_t *rows, int count,
                     int infinite, int64_t fails)
{
    run_of *r = calloc(1, sizeof *r);
    double shares[MOST] = {0};
    for (int i = 0; i < count; i++) {
        r->first[i + 1] = r->first[i] + rows[i];
        shares[i] = (double)rows[i] / ROWS;
    }
    ranks_threads *ranks = r->ranks = ranks_threads_new(count, shares);
    r->steps = STEPS;
    r->window = (int)o->accumulate;
    r->infinite = infinite;
    for (int i = 0; i < count; i++) {
        net *n = &r->nets[i];
        n->t = &t[i];
        must(n->t, ir_parse(text, strlen(text), "net.ir", n->t->d, &n->m));
        must(n->t, test_compile(n->m, o, n->t->d));
        must(n->t, compile_distribute(n->m, o, n->t->d));
    }
    ranks_threads_run(ranks, open_rank, r);
    for (int i = 0; i < count; i++) {
        must(r->nets[i].t, r->status[i]);
        set_parameters(&r->nets[i]);
    }
    if (fails >= 0) ranks_threads_fail(ranks, count - 1, fails);
    ranks_threads_run(ranks, run_rank, r);
    for (int i = 0; i < count; i++) {
        if (fails < 0) must(r->nets[i].t, r->status[i]);
        const picture first = picture_of(&r->nets[0], pending), other = picture_of(&r->nets[i], pending);
        if (fails < 0) assert_same(&first, &other);
    }
    return r;
}

static void close_rank(k_ranks *ranks, void *user)
{
    run_of *r = user;
    close_net(&r->nets[ranks->index]);
}

static void end(run_of *r)
{
    ranks_threads_run(r->ranks, close_rank, r);
    ranks_threads_free(r->ranks);
    free(r);
}

/* The largest difference of a parameter of the two, relative to the largest value. */
static double difference(const net *a, const net *b)
{
    double largest = 0, most = 0;
    for (int i = 0; i < rt_session_storage_count(a->s); i++) {
        rt_tensor x, y;
        ir_storage_kind kind;
        rt_session_storage_at(a->s, i, &x, &kind);
        if (kind != IR_PARAM) continue;
        must(a->t, rt_session_read(a->s, i, a->t->d, &x));
        y = storage(b, x.name);
        for (size_t k = 0; k < count(&x); k++) {
            const double value = ((float *)x.data)[k];
            largest = fmax(largest, fabs(value));
            most = fmax(most, fabs(value - ((float *)y.data)[k]));
        }
    }
    return most / largest;
}

static const int64_t partitions[][MOST] = {{16, 16}, {11, 11, 10}, {8, 8, 8, 8}, {1, 20, 11}, {31, 1}};
static const int counts[] = {2, 3, 4, 3, 2};

/* Messages of each rank; the threads must not share them. */
static int setup(void **state)
{
    scratch *t = calloc(MOST, sizeof *t);
    for (int i = 0; i < MOST; i++) t[i].d = diag_new(NULL, NULL);
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    scratch *t = *state;
    for (int i = 0; i < MOST; i++) diag_free(t[i].d);
    free(t);
    return 0;
}

#define TEST_RANKS(name) TEST_WITH(setup, teardown, scratch *t, name)

static void compare(scratch *t, const char *text, const compile_options *o, double tolerance)
{
    run_of *whole = train(t, text, o, (int64_t[]){ROWS}, 1, -1, -1);
    for (size_t p = 0; p < sizeof counts / sizeof *counts; p += EACH) {
        run_of *parts = train(t, text, o, partitions[p], counts[p], -1, -1);
        const double d = difference(&whole->nets[0], &parts->nets[0]);
        if (!(d <= tolerance)) fail_msg("partition %zu: parameters differ by %g", p, d);
        for (int i = 0; i < STEPS; i++)
            if (!(fabs(whole->losses[i] - parts->losses[i]) <= tolerance * (1 + fabs(whole->losses[i]))))
                fail_msg("partition %zu: loss %d is %g, not %g", p, i, parts->losses[i], whole->losses[i]);
        end(parts);
    }
    end(whole);
}

static compile_options at(const char *optimizer, pass_level level, ir_dtype low)
{
    compile_options o = options("mse", optimizer);
    o.level = level;
    o.low = low;
    return o;
}

static const char *const texts[] = {mlp, conv, attention};

TEST_RANKS(test_f32_is_the_whole_batch)
{
    for (int i = 0; i < TEXTS; i++) {
        compile_options o = at("momentum,lr=0.1", PASS_O0, IR_f16);
        compare(t, texts[i], &o, 1e-5);
        o.clip_norm = 0.05;
        o.bucket = 1e-5;
        compare(t, texts[i], &o, 1e-5);
        o.accumulate = 2;
        compare(t, texts[i], &o, 1e-5);
    }
}

/* The parts of low-precision gradients are rounded, so they differ by a few units in the last place. */
TEST_RANKS(test_low_types_are_the_whole_batch)
{
    for (int i = 0; i < TEXTS; i++) {
        compile_options half = at("sgd,lr=0.1", PASS_O1, IR_f16), brain = at("sgd,lr=0.1", PASS_O1, IR_bf16);
        compare(t, texts[i], &half, 2e-3);
        compare(t, texts[i], &brain, 2e-2);
        half.reduce_dtype = IR_f32;
        compare(t, texts[i], &half, 1e-3);
    }
}

TEST_RANKS(test_an_infinity_skips_the_step_on_all)
{
    static const char *const optimizers[] = {"adamw", "lamb", "adafactor", "muon"};
    for (int i = 0; i < 4; i++) {
        const compile_options o = at(optimizers[i], PASS_O1, IR_f16);
        run_of *r = train(t, mlp, &o, partitions[1], 3, 2, -1);
        for (int k = 0; k < STEPS; k++)
            for (int rank = 0; rank < 3; rank++) assert_int_equal(r->skipped[rank][k], k == 2);
        assert_true(state_of(&r->nets[0], "loss_scale") == 32768);
        assert_true(state_of(&r->nets[2], "step") == STEPS - 1);
        end(r);
    }
}

TEST_RANKS(test_one_rank_has_the_bits_of_a_module_that_is_not_distributed)
{
    compile_options o = at("adamw", PASS_O1, IR_f16);
    run_of *r = train(t, stateful, &o, (int64_t[]){ROWS}, 1, -1, -1);
    net n = open_net(t, stateful, &o);
    for (uint64_t i = 0; i < STEPS; i++) {
        set_batch(&n, i);
        run(&n, "train_step");
    }
    const picture a = picture_of(&n, NULL), b = picture_of(&r->nets[0], NULL);
    assert_same(&a, &b);
    close_net(&n);
    end(r);
}

/* With statistics and random numbers, which the ranks do not share. train checks that the states are equal. */
TEST_RANKS(test_states_are_equal_on_all_ranks)
{
    compile_options o = at("adamw", PASS_O1, IR_bf16);
    o.ema = 0.9;
    for (o.accumulate = 0; o.accumulate <= 2; o.accumulate += 2) {
        run_of *r = train(t, stateful, &o, partitions[1], 3, -1, -1);
        rt_tensor rng = storage(&r->nets[1], "rng");
        assert_int_equal(((int64_t *)rng.data)[1], 3 * STEPS * (o.accumulate ? 2 : 1));
        end(r);
    }
}

#ifndef ON_CUDA /* whose ranks meet in NCCL (tests/cuda/test_ranks.c) */
TEST_RANKS(test_a_rank_that_ends_fails_the_step_of_all)
{
    const compile_options o = at("sgd", PASS_O0, IR_f16);
    run_of *r = train(t, mlp, &o, partitions[2], 4, -1, 5);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(r->status[i], AMPC_DEVICE);
        assert_non_null(strstr(diag_first_error(t[i].d), "rank 3 has ended"));
    }
    end(r);
}
#endif
