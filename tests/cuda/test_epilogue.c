/* test_epilogue.c - matmul epilogues on CUDA: plans as text, values compared with the CPU, with and without fusion; how often the
 * library is queried; what happens if memory is short. */
#include "tests/unit/plan_text.h"

#include "ir/base/philox.h"
#include "runtime/backend/alloc.h"
#include "runtime/session/session.h"
#include "tests/cuda/double/double.h"
#include "tests/messages.h"

#include <math.h>

/* Two layers with gelu in between, and their gradients. */
#define TYPE(t) \
    "param @w : " t "[8,16] = zero\nparam @b : " t "[16] = zero\nparam @v : " t "[16,8] = zero\n" \
    "graph @g(@x : " t "[N,3,8], @dy : " t "[N,3,8]) {\nforward:\n" \
    "  %h = matmul @x, @w, @b : " t "[N,3,16]\n  %g = gelu %h {tanh=true} : " t "[N,3,16]\n" \
    "  %y = matmul %g, @v : " t "[N,3,8]\n  output \"y\" = %y\nbackward:\n" \
    "  %dg = matmul @dy, @v {trans_b=true} : " t "[N,3,16]\n" \
    "  %dh = slope %dg, %h {of=\"gelu_tanh\"} : " t "[N,3,16]\n" \
    "  %x2 = reshape @x {shape=[3*N,8]} : " t "[3*N,8]\n  %d2 = reshape %dh {shape=[3*N,16]} : " t "[3*N,16]\n" \
    "  %dw = matmul %x2, %d2 {trans_a=true} : " t "[8,16]\n" \
    "  %db = reduce_sum %dh {axes=[0,1], keepdims=false} : " t "[16]\n" \
    "  %y2 = reshape @dy {shape=[3*N,8]} : " t "[3*N,8]\n  %g2 = reshape %g {shape=[3*N,16]} : " t "[3*N,16]\n" \
    "  %dc = reduce_sum @dy {axes=[0,1], keepdims=false} : " t "[8]\n" \
    "  %dv = matmul %y2, %g2 {trans_a=true} : " t "[8,16]\n" \
    "  output \"dw\" = %dw\n  output \"db\" = %db\n  output \"dv\" = %dv\n  output \"dc\" = %dc\n}\n"

TEST(a_block_is_five_steps)
{
    plan_text_expect("cuda", TYPE("f16"),
                     "plan @g N=2: 5 steps\n"
                     "   0  matmul               @x, @w, @b\n"
                     "        .0 = gelu matmul : f16\n"
                     "        %g of .0 : f16[2,3,16]\n"
                     "        %h : f16[2,3,16]\n"
                     "   1  matmul               %g, @v, _\n"
                     "        %y : f16[2,3,8]\n"
                     "   2  matmul               @dy, @v, _, %h\n"
                     "        .0 = gelu_tanh_slope matmul, %h : f16\n"
                     "        %dh of .0 : f16[2,3,16]\n"
                     "   3  matmul               %x2, %d2, _\n"
                     "        %dw : f16[8,16]\n"
                     "        %db : f16[16]\n"
                     "   4  matmul               %y2, %g2, _\n"
                     "        %dv : f16[8,16]\n"
                     "        %dc : f16[8]\n"
                     "output \"y\"\noutput \"dw\"\noutput \"db\"\noutput \"dv\"\noutput \"dc\"\n");
}

/* Products that are added to other values, and to each other. */
#define SUMS(t) \
    "param @w : " t "[8,8] = zero\nparam @b : " t "[8] = zero\nparam @v : " t "[8,8] = zero\n" \
    "graph @g(@x : " t "[N,3,8], @dy : " t "[N,3,8]) {\nforward:\n" \
    "  %a = matmul @x, @w : " t "[N,3,8]\n  %s = add @dy, %a : " t "[N,3,8]\n" \
    "  %c = matmul %s, @v, @b : " t "[N,3,8]\n  %r = add %c, %s : " t "[N,3,8]\n" \
    "  %d = matmul %r, @w : " t "[N,3,8]\n  %e = matmul %r, @v : " t "[N,3,8]\n  %u = add %d, %e : " t "[N,3,8]\n" \
    "  %z = add %s, %u : " t "[N,3,8]\n  output \"z\" = %z\n}\n"

/* A product has one addend, which must be computed before it. */
TEST(sums_are_computed_by_products)
{
    plan_text_expect("cuda", SUMS("f16"),
                     "plan @g N=2: 5 steps\n"
                     "   0  matmul               @x, @w, _, _, @dy\n"
                     "        %s : f16[2,3,8]\n"
                     "   1  matmul               %s, @v, @b, _, %s\n"
                     "        %r : f16[2,3,8]\n"
                     "   2  matmul               %r, @w, _\n"
                     "        %d : f16[2,3,8]\n"
                     "   3  matmul               %r, @v, _, _, %d\n"
                     "        %u : f16[2,3,8]\n"
                     "   4  add                  %s, %u\n"
                     "        %z : f16[2,3,8]\n"
                     "output \"z\"\n");
}

static int steps_of(const char *text, bool fuse)
{
    plan_text t;
    plan_text_open(&t, "cuda", text);
    if (plan_text_make(&t, fuse) != AMPC_OK) fail_msg("%s", diag_first_error(t.d));
    int steps = t.plan->n_steps;
    for (int i = 0; i < steps && !fuse; i++) assert_null(t.plan->steps[i]->fused);
    plan_text_close(&t);
    return steps;
}

TEST(no_fuse_keeps_every_op) { assert_int_equal(steps_of(TYPE("f16"), false), 9); }

#define PRODUCT \
    "param @p : f16[8,16] = zero\n" \
    "graph @g(@x : f16[N,8], @w : f16[8,16], @z : f16[N,16], @u : f16[N,12], @q : f16[16,16], @r : f16[16,16]) {\n" \
    "forward:\n"

/* Graphs in which nothing may be fused, with the number of their ops. */
TEST(unsupported_epilogues_stay_steps)
{
    static const struct {
        const char *text;
        int steps;
    } rows[] = {
        /* erf form of gelu in a small product */
        {"  %h = matmul @x, @w : f16[N,16]\n  %y = gelu %h : f16[N,16]\n  output \"y\" = %y\n", 2},
        /* pre-activation whose columns are not a multiple of 8 */
        {"  %h = matmul @x, @x {trans_b=true} : f16[N,N]\n  %y = gelu %h {tanh=true} : f16[N,N]\n  output \"y\" = %y\n"
         "  output \"h\" = %h\n",
         2},
        /* the operand of the slope has another reader; its pre-activation is computed later; both operands are the same */
        {"  %d = matmul @x, @w : f16[N,16]\n  %y = slope %d, @z {of=\"gelu_tanh\"} : f16[N,16]\n  output \"y\" = %y\n"
         "  output \"d\" = %d\n",
         2},
        {"  %d = matmul @x, @w : f16[N,16]\n  %s = softmax @z : f16[N,16]\n"
         "  %y = slope %d, %s {of=\"gelu_tanh\"} : f16[N,16]\n  output \"y\" = %y\n",
         3},
        {"  %d = matmul @x, @w : f16[N,16]\n  %y = slope %d, %d {of=\"gelu_tanh\"} : f16[N,16]\n  output \"y\" = %y\n",
         2},
        /* erf form in a small product */
        {"  %d = matmul @x, @w : f16[N,16]\n  %y = slope %d, @z {of=\"gelu\"} : f16[N,16]\n  output \"y\" = %y\n", 2},
        /* sums along the wrong axis, of another type, over an axis that the matmul does not reduce, of a tensor that it does not
         * read */
        {"  %y = matmul @x, @z {trans_a=true} : f16[8,16]\n  %s = reduce_sum @z {axes=[1]} : f16[N,1]\n"
         "  output \"y\" = %y\n  output \"s\" = %s\n",
         2},
        {"  %y = matmul @x, @z {trans_a=true} : f16[8,16]\n  %s = reduce_sum @z {axes=[0], out=f32} : f32[1,16]\n"
         "  output \"y\" = %y\n  output \"s\" = %s\n",
         2},
        {"  %y = matmul @x, @w : f16[N,16]\n  %s = reduce_sum @x {axes=[0]} : f16[1,8]\n"
         "  output \"y\" = %y\n  output \"s\" = %s\n",
         2},
        {"  %y = matmul @x, @z {trans_a=true} : f16[8,16]\n  %s = reduce_sum @u {axes=[0]} : f16[1,12]\n"
         "  output \"y\" = %y\n  output \"s\" = %s\n",
         2},
        /* a sum that is read before the matmul runs, and by the matmul */
        {"  %s = reduce_sum @z {axes=[0], keepdims=false} : f16[16]\n  %t = softmax %s {axis=0} : f16[16]\n"
         "  %y = matmul @x, @z {trans_a=true} : f16[8,16]\n  output \"y\" = %y\n  output \"t\" = %t\n",
         3},
        {"  %s = reduce_sum @q {axes=[0]} : f16[1,16]\n  %y = matmul %s, @q : f16[1,16]\n  output \"y\" = %y\n", 2},
        /* sums of the right size along the other axis, or along an axis that the matmul does not reduce */
        {"  %y = matmul @r, @q : f16[16,16]\n  %s = reduce_sum @q {axes=[1], keepdims=false} : f16[16]\n"
         "  output \"y\" = %y\n  output \"s\" = %s\n",
         2},
        {"  %y = matmul @q, @r : f16[16,16]\n  %s = reduce_sum @q {axes=[0], keepdims=false} : f16[16]\n"
         "  output \"y\" = %y\n  output \"s\" = %s\n",
         2},
        {"  %y = matmul @r, @q {trans_b=true} : f16[16,16]\n  %s = reduce_sum @q {axes=[0], keepdims=false} : f16[16]\n"
         "  output \"y\" = %y\n  output \"s\" = %s\n",
         2},
        /* a hoisted sum of an operand of a matmul that is not hoisted */
        {"  %y = matmul @x, @p : f16[N,16]\n  %s = reduce_sum @p {axes=[0], keepdims=false} : f16[16]\n"
         "  output \"y\" = %y\n  output \"s\" = %s\n",
         2},
        /* a product with another reader is added; it is added to itself; the addend is of another size, or computed later */
        {"  %m = matmul @x, @w : f16[N,16]\n  %y = add %m, @z : f16[N,16]\n  output \"y\" = %y\n  output \"m\" = %m\n",
         2},
        {"  %m = matmul @x, @w : f16[N,16]\n  %y = add %m, %m : f16[N,16]\n  output \"y\" = %y\n", 2},
        {"  %m = matmul @q, @r : f16[16,16]\n  %s = reduce_sum @r {axes=[1]} : f16[16,1]\n"
         "  %y = add %m, %s : f16[16,16]\n  output \"y\" = %y\n",
         3},
        {"  %m = matmul @x, @w : f16[N,16]\n  %s = softmax @z : f16[N,16]\n  %y = add %m, %s : f16[N,16]\n"
         "  output \"y\" = %y\n",
         3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[1024];
        snprintf(text, sizeof text, PRODUCT "%s}\n", rows[i].text);
        int steps = steps_of(text, true);
        if (steps != rows[i].steps) fail_msg("%d steps instead of %d:\n%s", steps, rows[i].steps, text);
    }
}

/* A matmul sums only one operand, so the other sum remains. A sum is fused into a later matmul with the same operand. */
TEST(sums_go_where_there_is_room)
{
    plan_text_expect("cuda",
                     "graph @g(@x : f16[N,8], @z : f16[N,16]) {\nforward:\n"
                     "  %s = reduce_sum @z {axes=[0]} : f16[1,16]\n"
                     "  %r = reduce_sum @x {axes=[0]} : f16[1,8]\n"
                     "  %y = matmul @x, @z {trans_a=true} : f16[8,16]\n"
                     "  %q = matmul @x, @x {trans_a=true} : f16[8,8]\n"
                     "  output \"s\" = %s\n  output \"r\" = %r\n  output \"y\" = %y\n  output \"q\" = %q\n}\n",
                     "plan @g N=2: 2 steps\n"
                     "   0  matmul               @x, @z, _\n"
                     "        %y : f16[8,16]\n"
                     "        %s : f16[1,16]\n"
                     "   1  matmul               @x, @x, _\n"
                     "        %q : f16[8,8]\n"
                     "        %r : f16[1,8]\n"
                     "output \"s\"\noutput \"r\"\noutput \"y\"\noutput \"q\"\n");
}

/* Fusion depends on the form of gelu: of two matmuls of equal shape, only the one with tanh fuses its gelu. */
TEST(one_form_of_gelu_is_taken)
{
    assert_int_equal(steps_of(PRODUCT "  %a = matmul @x, @w : f16[N,16]\n  %e = gelu %a : f16[N,16]\n"
                                      "  %b = matmul @x, @w : f16[N,16]\n  %t = gelu %b {tanh=true} : f16[N,16]\n"
                                      "  output \"e\" = %e\n  output \"t\" = %t\n}\n",
                              true),
                     3);
}

/* Exact gelu is fused into large products, by cuDNN. */
TEST(exact_gelu_is_taken_if_it_pays)
{
    plan_text_expect("cuda",
                     "param @w : f16[16,1024] = zero\nparam @v : f16[1024,16] = zero\nparam @b : f16[1024] = zero\n"
                     "graph @g(@x : f16[512*N,16], @dy : f16[512*N,16]) {\nforward:\n"
                     "  %h = matmul @x, @w, @b : f16[512*N,1024]\n  %g = gelu %h : f16[512*N,1024]\n"
                     "  output \"g\" = %g\nbackward:\n"
                     "  %dg = matmul @dy, @v {trans_b=true} : f16[512*N,1024]\n"
                     "  %dh = slope %dg, %h {of=\"gelu\"} : f16[512*N,1024]\n  output \"dh\" = %dh\n}\n",
                     "plan @g N=2: 2 steps\n"
                     "   0  matmul               @x, @w, @b\n"
                     "        .0 = gelu matmul : f16\n"
                     "        %g of .0 : f16[1024,1024]\n"
                     "        %h : f16[1024,1024]\n"
                     "   1  matmul               @dy, @v, _, %h\n"
                     "        .0 = gelu_slope matmul, %h : f16\n"
                     "        %dh of .0 : f16[1024,1024]\n"
                     "output \"g\"\noutput \"dh\"\n");
}

/* ---- queries -------------------------------------------------------------------------------------------- */

/* Layers of equal shapes with gelu, whose pre-activation is an output. */
static char *layers(int n)
{
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    fputs("param @w : f16[16,16] = zero\ngraph @g(@g0 : f16[N,16]) {\nforward:\n", f);
    for (int i = 1; i <= n; i++)
        fprintf(f,
                "  %%h%d = matmul %cg%d, @w : f16[N,16]\n  %%g%d = gelu %%h%d {tanh=true} : f16[N,16]\n"
                "  output \"h%d\" = %%h%d\n",
                i, i == 1 ? '@' : '%', i - 1, i, i, i, i);
    fprintf(f, "  output \"y\" = %%g%d\n}\n", n);
    fclose(f);
    return text;
}

TEST(a_form_is_asked_for_once)
{
    enum { LAYERS = 40 };
    char *text = layers(LAYERS);
    double_mark();
    assert_int_equal(steps_of(text, true), LAYERS);
    assert_int_equal(double_count("cublasLtMatmulAlgoGetHeuristic"), LAYERS + 1);
    free(text);
}

/* ---- memory -------------------------------------------------------------------------------------------- */

TEST(each_allocation_may_fail)
{
    plan_text t;
    ampc_status status;
    uint64_t n = 0;
    plan_text_open(&t, "cuda", TYPE("f16"));
    do {
        diag_clear(t.d);
        rt_alloc_fail(++n);
        status = plan_text_make(&t, true);
        rt_alloc_fail(0);
        if (status != AMPC_OK && (status != AMPC_NO_MEMORY || !strstr(diag_first_error(t.d), "out of memory")))
            fail_msg("allocation %d: status %d, %s", (int)n, (int)status, diag_first_error(t.d));
    } while (status != AMPC_OK);
    assert_true(n > 30);
    assert_int_equal(t.plan->n_steps, 5);
    plan_text_close(&t);
}

/* A failing call is an error and does not lead to another plan. */
TEST(each_call_may_fail)
{
    long calls, failed = 0;
    plan_text t;
    plan_text_open(&t, "cuda", TYPE("f16"));
    assert_int_equal(plan_text_make(&t, true), AMPC_OK); /* loads the libraries */
    rt_plan_free(t.plan);
    double_mark();
    assert_int_equal(plan_text_make(&t, true), AMPC_OK);
    calls = double_count("*");
    assert_true(calls > 50);
    for (long n = 1; n <= calls; n++) {
        rt_plan_free(t.plan);
        t.plan = NULL;
        diag_clear(t.d);
        double_fail(n);
        ampc_status status = plan_text_make(&t, true);
        if (!double_failed()) fail_msg("call %ld of %ld was not made", n, calls);
        if (status == AMPC_OK && t.plan->n_steps != 5) fail_msg("call %ld, %s: another plan", n, double_failed());
        if (status != AMPC_OK && message_complaint(t.d))
            fail_msg("call %ld, %s: %s", n, double_failed(), message_complaint(t.d));
        failed += status != AMPC_OK;
    }
    assert_true(failed > calls / 4);
    plan_text_close(&t);
}

/* ---- values ---------------------------------------------------------------------------------------------- */

enum { ROWS = 7, RUNS = RT_SLOTS + 2 /* runs that are walked, captured for each set of inputs, and replayed */ };

typedef struct pair {
    diag *d;
    ir_module *module;
    rt_session *session[2]; /* cuda, cpu */
} pair;

static void fill(float *values, size_t n, uint64_t key)
{
    for (size_t i = 0; i < n; i++) values[i] = 2 * philox_unit(philox_word(5, key, i)) - 1;
}

static void open_pair(pair *t, const char *head, const char *body)
{
    static const char *const devices[] = {"cuda", "cpu"};
    char *text;
    *t = (pair){.d = diag_new(NULL, NULL)};
    assert_true(asprintf(&text, "ampc-ir 3\n%s%s", head, body) > 0);
    if (ir_parse(text, strlen(text), "values.ir", t->d, &t->module) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    free(text);
    for (int i = 0; i < 2; i++) {
        const rt_session_options o = {.device = devices[i], .threads = 1, .no_tune = true};
        if (rt_session_open(t->module, &o, t->d, &t->session[i]) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
        for (int k = 0; k < rt_session_storage_count(t->session[i]); k++) {
            float values[8 * 16];
            fill(values, sizeof values / sizeof *values, (uint64_t)k);
            assert_int_equal(rt_session_write(t->session[i], k, values, t->d), AMPC_OK);
        }
    }
}

static void close_pair(pair *t)
{
    for (int i = 0; i < 2; i++) rt_session_close(t->session[i]);
    ir_module_free(t->module);
    diag_free(t->d);
}

static void run_pair(pair *t, int run)
{
    float x[ROWS * 3 * 8], dy[ROWS * 3 * 8];
    const rt_tensor in[] = {{.name = "x", .dtype = IR_f32, .rank = 3, .dims = {ROWS, 3, 8}, .data = x},
                            {.name = "dy", .dtype = IR_f32, .rank = 3, .dims = {ROWS, 3, 8}, .data = dy}};
    fill(x, sizeof x / sizeof *x, 10 + (uint64_t)run);
    fill(dy, sizeof dy / sizeof *dy, 20 + (uint64_t)run);
    for (int i = 0; i < 2; i++)
        if (rt_session_run(t->session[i], "g", in, 2, t->d) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
}

static void compare_pair(const pair *t)
{
    for (int i = 0; i < rt_session_output_count(t->session[1]); i++) {
        const rt_tensor *x = rt_session_output_at(t->session[0], i), *y = rt_session_output_at(t->session[1], i);
        size_t n = 1;
        for (int k = 0; k < y->rank; k++) n *= (size_t)y->dims[k];
        for (size_t k = 0; k < n; k++) {
            const double a = ((const float *)x->data)[k], b = ((const float *)y->data)[k];
            if (!(fabs(a - b) <= 1e-5 * fmax(1, fabs(b)))) fail_msg("%s[%zu]: %.9g instead of %.9g", y->name, k, a, b);
        }
    }
}

/* Compares values; returns the number of our kernels that one run launches besides `products` calls of the library. */
static long check_values(const char *head, const char *body, long products)
{
    pair t;
    open_pair(&t, head, body);
    double_mark();
    run_pair(&t, 0);
    const long launches = double_count("cudaLaunchKernel");
    assert_int_equal(double_count("cublasLtMatmul"), products);
    compare_pair(&t);
    for (int i = 1; i < RUNS; i++) {
        run_pair(&t, i);
        compare_pair(&t);
    }
    close_pair(&t);
    return launches;
}

TEST(values_agree)
{
    assert_int_equal(check_values("", TYPE("f32"), 5), 0);
    assert_true(check_values("unfused\n", TYPE("f32"), 5) >= 4);
    assert_int_equal(check_values("", SUMS("f32"), 4), 1);
    assert_int_equal(check_values("unfused\n", SUMS("f32"), 4), 4);
}
