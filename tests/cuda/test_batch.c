/* test_batch.c - batched launches: their number, and that values do not change.
 *
 * A module with more parameters than fit into one launch is trained on the double and on the CPU, with walked, captured and
 * replayed runs. In synchronous mode, in which steps run one by one, it yields the same bits. Calls with the additional operands
 * and results of kernels/update.h also yield the same bits, and write nothing after a fault. Gradients that fit into a cache are
 * checked right after they are computed. */
#include "ir/graph/ir.h"
#include "ir/base/philox.h"
#include "kernels/cuda/cuda.h"
#include "kernels/update.h"
#include "runtime/backend/backend.h"
#include "runtime/plan/plan.h"
#include "runtime/session/session.h"
#include "tests/cuda/double/double.h"
#include "tests/test.h"
#include "tests/tier.h"

#include <math.h>

enum {
    PARAMETERS = 300,
    MAX_BATCH = 256,     /* parameters per launch */
    OPTIMIZER_PARTS = 3, /* below the full tier */
    STEPS = RT_SLOTS + 2 /* walked, captured for each set of inputs, replayed */
};

typedef struct writer {
    char *text;
    size_t size;
    FILE *file;
} writer;

typedef struct fixture {
    diag *d;
    ir_module *module;
    rt_session *cuda, *cpu;
} fixture;

/* Number of elements of parameter i; includes a single one, a tile, and, for some parameters of each launch, a block's
 * unit and more. */
static int64_t size_of(int i)
{
    static const int64_t sizes[] = {1, 7, 8, 33, 2047, 2048, 2049, 5003};
    return sizes[i % 64 < 8 ? i % 8 : i % 4];
}

static const k_update_slots *slots_of(const char *op)
{
    ir_op code = IR_OP_COUNT;
    assert_true(ir_op_find(op, &code));
    return k_update_slots_of(code);
}

static const char *states_of(const char *op)
{
    static const char *const names[] = {"", "w", "wm", "wmv", "wvmu"};
    return names[slots_of(op)->states];
}

static void declare(writer *w, const char *op)
{
    fprintf(w->file, "ampc-ir 3\nstate @lr : f32[] = 0.05\nstate @step : i64[] = 3\n");
    for (int i = 0; i < PARAMETERS; i++) {
        for (const char *s = states_of(op); *s; s++)
            fprintf(w->file, "state @%c%d : f32[%lld] = zero\n", *s, i, (long long)size_of(i));
        fprintf(w->file, "state @d%d : f32[%lld] = zero\n", i, (long long)size_of(i));
        if (slots_of(op)->ratio >= 0) fprintf(w->file, "state @r%d : f32[1] = [1]\n", i);
    }
}

/* `gradient`: the gradient of parameter i, as text. */
static void update(writer *w, const char *op, int i, const char *gradient, const char *attributes)
{
    const char *states = states_of(op), *between = "  ";
    for (const char *s = states; *s; s++, between = ", ") fprintf(w->file, "%s%%%c%dn", between, *s, i);
    fprintf(w->file, " = %s ", op);
    for (const char *s = states; *s; s++) fprintf(w->file, "@%c%d, ", *s, i);
    fprintf(w->file, "%s%s", gradient, slots_of(op)->step < 0 ? "" : ", @step");
    if (slots_of(op)->ratio >= 0) fprintf(w->file, ", @r%d", i);
    fprintf(w->file, "%s, @skip%s : ", slots_of(op)->lr < 0 ? "" : ", @lr", attributes);
    for (const char *s = states; *s; s++)
        fprintf(w->file, "%sf32[%lld]", s == states ? "" : ", ", (long long)size_of(i));
    fputc('\n', w->file);
    for (const char *s = states; *s; s++) fprintf(w->file, "  store @%c%d, %%%c%dn\n", *s, i, *s, i);
}

/* Parameter 0 has a different attribute, and the gradient of the last one is the old value of a parameter that is updated
 * earlier. */
static char *module_text(const char *op)
{
    writer w = {NULL, 0, NULL};
    w.file = open_memstream(&w.text, &w.size);
    assert_non_null(w.file);
    char attribute[32];
    snprintf(attribute, sizeof attribute, " {%s=0.25}", ir_op_get(slots_of(op)->op)->attr[0].name);
    declare(&w, op);
    fprintf(w.file, "graph @g(@skip : bool[]) {\nupdate:\n");
    for (int i = 0; i < PARAMETERS; i++) {
        char gradient[16];
        int last = PARAMETERS - 1;
        snprintf(gradient, sizeof gradient, "@%c%d", i == last ? 'w' : 'd', i == last ? last - 8 : i);
        update(&w, op, i, gradient, i == 0 ? attribute : "");
    }
    fprintf(w.file, "}\n");
    fclose(w.file);
    return w.text;
}

static void fill(rt_session *s, diag *d)
{
    for (int i = 0; i < rt_session_storage_count(s); i++) {
        rt_tensor t;
        ir_storage_kind kind;
        float values[5003];
        rt_session_storage_at(s, i, &t, &kind);
        if (t.rank == 0) continue;
        for (int64_t k = 0; k < t.dims[0]; k++)
            values[k] = philox_unit(philox_word(5, (uint64_t)i, (uint64_t)k)) - (strchr("vm", t.name[0]) ? 0 : 0.5f);
        assert_int_equal(rt_session_write(s, i, values, d), AMPC_OK);
    }
}

/* Frees the text. */
static void open_text(fixture *f, char *text)
{
    f->d = diag_new(NULL, NULL);
    if (ir_parse(text, strlen(text), "batch.ir", f->d, &f->module) != AMPC_OK) fail_msg("%s", diag_first_error(f->d));
    free(text);
    assert_int_equal(rt_session_open(f->module, &(rt_session_options){.device = "cuda"}, f->d, &f->cuda), AMPC_OK);
    assert_int_equal(rt_session_open(f->module, &(rt_session_options){.device = "cpu"}, f->d, &f->cpu), AMPC_OK);
    fill(f->cuda, f->d);
    fill(f->cpu, f->d);
}

static void open_both(fixture *f, const char *op) { open_text(f, module_text(op)); }

static void close_both(fixture *f)
{
    rt_session_close(f->cuda);
    rt_session_close(f->cpu);
    ir_module_free(f->module);
    diag_free(f->d);
}

static void run(fixture *f, rt_session *s, bool skip)
{
    const rt_tensor in = {.name = "skip", .dtype = IR_bool, .data = &skip};
    if (rt_session_run(s, "g", &in, 1, f->d) != AMPC_OK) fail_msg("%s", diag_first_error(f->d));
}

/* tolerance 0: the same bits. */
static void compare(fixture *f, rt_session *a, rt_session *b, double tolerance)
{
    for (int i = 0; i < rt_session_storage_count(a); i++) {
        rt_tensor x, y;
        assert_int_equal(rt_session_read(a, i, f->d, &x), AMPC_OK);
        assert_int_equal(rt_session_read(b, i, f->d, &y), AMPC_OK);
        for (int64_t k = 0; x.rank && k < x.dims[0]; k++) {
            double p = ((const float *)x.data)[k], q = ((const float *)y.data)[k];
            if (!(fabs(p - q) <= tolerance * fmax(1, fabs(q))))
                fail_msg("@%s[%lld]: %.9g instead of %.9g", x.name, (long long)k, p, q);
        }
    }
}

static void check(const char *op)
{
    fixture f = {.d = NULL};
    char launch[64];
    open_both(&f, op);
    snprintf(launch, sizeof launch, "cudaLaunchKernel %s", op);
    for (int i = 0; i < STEPS; i++) {
        double_mark();
        run(&f, f.cuda, i == STEPS - 2);
        run(&f, f.cpu, i == STEPS - 2);
        /* parameter 0 is launched alone; the others need two launches */
        assert_int_equal(double_count(launch), i <= RT_SLOTS ? 1 + (PARAMETERS - 1 + MAX_BATCH - 1) / MAX_BATCH : 0);
        compare(&f, f.cuda, f.cpu, 1e-5);
    }
    close_both(&f);
}

TEST(test_optimizers)
{
    size_t i = 0;
    tier_print_part("optimizers", OPTIMIZER_PARTS);
    for (ir_op op = 0; op < IR_OP_COUNT; op++)
        if (ir_op_has(op, IR_UPDATES) && tier_is_due(i++, OPTIMIZER_PARTS)) check(ir_op_get(op)->name);
}

/* ---- ratios of norms ---- */

/* Two tensors and the ratio of their norms, for each parameter. */
static char *ratios_text(const char *op, int parameters)
{
    writer w = {NULL, 0, NULL};
    w.file = open_memstream(&w.text, &w.size);
    assert_non_null(w.file);
    fprintf(w.file, "ampc-ir 3\n");
    for (int i = 0; i < parameters; i++)
        fprintf(w.file, "state @w%d : f32[%lld] = zero\nstate @d%d : f32[%lld] = zero\nstate @r%d : f32[1] = zero\n", i,
                (long long)size_of(i), i, (long long)size_of(i), i);
    fprintf(w.file, "graph @g(@skip : bool[]) {\nupdate:\n");
    for (int i = 0; i < parameters; i++) fprintf(w.file, "  %%p%d = norm_parts @w%d, @d%d : f32[2,64]\n", i, i, i);
    for (int i = 0; i < parameters; i++)
        fprintf(w.file, "  %%q%d = %s %%p%d : f32[1]\n  store @r%d, %%q%d\n", i, op, i, i, i);
    fprintf(w.file, "}\n");
    fclose(w.file);
    return w.text;
}

TEST(test_ratios)
{
    static const char *const ops[] = {"trust_ratio", "clipped_ratio"};
    const int parameters = tier_is_reduced() ? PARAMETERS / 3 : PARAMETERS;
    const int launches = parameters > MAX_BATCH ? 2 : 1; /* at least */
    tier_print_part("ratios", 2);
    for (int i = 0; i < 2; i++) {
        if (!tier_is_due((size_t)i, 2)) continue;
        fixture f = {.d = NULL};
        char launch[64];
        open_text(&f, ratios_text(ops[i], parameters));
        double_mark();
        run(&f, f.cuda, false);
        run(&f, f.cpu, false);
        snprintf(launch, sizeof launch, "cudaLaunchKernel %s", ops[i]);
        /* steps that reuse memory of each other are in different batches */
        assert_in_range(double_count("cudaLaunchKernel norm_parts"), launches, PARAMETERS / 16);
        assert_in_range(double_count(launch), launches, PARAMETERS / 16);
        compare(&f, f.cuda, f.cpu, 1e-5);
        close_both(&f);
    }
}

/* ---- more gradients than fit into a table ---- */

enum { GRADIENTS = 600, GRADIENT_ROOM = 512 };

/* `outs`: the unscaled gradients are wanted; `norm`: their norm is wanted. */
static char *unscale_text(bool outs, bool norm)
{
    writer w = {NULL, 0, NULL};
    w.file = open_memstream(&w.text, &w.size);
    assert_non_null(w.file);
    fprintf(w.file, "ampc-ir 3\nstate @scale : f32[] = 4\ngraph @g(@d : f16[11], @last : f16[11]) {\nupdate:\n  ");
    for (int i = 0; i < GRADIENTS; i++) fprintf(w.file, "%%u%d, ", i);
    fprintf(w.file, "%%inf = check_finite_and_unscale ");
    for (int i = 0; i < GRADIENTS; i++) fprintf(w.file, "%s, ", i == GRADIENTS - 1 ? "@last" : "@d");
    fprintf(w.file, "@scale : ");
    for (int i = 0; i < GRADIENTS; i++) fprintf(w.file, "f32[11], ");
    fprintf(w.file, "bool[]\n  output \"inf\" = %%inf\n");
    for (int i = 0; outs && i < GRADIENTS; i++) fprintf(w.file, "  output \"u%d\" = %%u%d\n", i, i);
    for (int i = 0; norm && i < GRADIENTS; i++) fprintf(w.file, "%s%%u%d", i ? ", " : "  %n = global_norm ", i);
    if (norm) fprintf(w.file, " : f32[]\n  output \"norm\" = %%n\n");
    fprintf(w.file, "}\n");
    fclose(w.file);
    return w.text;
}

static void check_unscaled(rt_session *s, const float *values)
{
    for (int i = 0; i < GRADIENTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "u%d", i);
        const float *u = rt_session_output(s, name)->data;
        for (int k = 0; k < 10; k++) assert_true(u[k] == values[k] / 4);
    }
}

/* d: all gradients but the last. */
static void check_norm(rt_session *s, const float *d, const float *last)
{
    double squares = 0;
    for (int k = 0; k < 11; k++) squares += (GRADIENTS - 1) * (double)d[k] * d[k] / 16 + (double)last[k] * last[k] / 16;
    const float norm = *(const float *)rt_session_output(s, "norm")->data;
    if (!(fabs(norm - sqrt(squares)) <= 1e-6 * norm)) fail_msg("norm %.9g, not %.9g", norm, sqrt(squares));
}

static void check_unscale(bool outs, bool norm, const char *launch)
{
    static const double bad[] = {1, INFINITY, NAN, 1}; /* the very last element */
    char *text = unscale_text(outs, norm);
    uint16_t d[11], last[11];
    float values[11], ends[11];
    fixture f = {.d = diag_new(NULL, NULL)};
    if (ir_parse(text, strlen(text), "unscale.ir", f.d, &f.module) != AMPC_OK) fail_msg("%s", diag_first_error(f.d));
    free(text);
    assert_int_equal(rt_session_open(f.module, &(rt_session_options){.device = "cuda"}, f.d, &f.cuda), AMPC_OK);
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 11; k++) {
            values[k] = (float)(k - 5) * 0.375f;
            d[k] = last[k] = ir_f32_to_f16(values[k]);
        }
        last[10] = ir_f32_to_f16((float)bad[i]);
        memcpy(ends, values, sizeof ends);
        ends[10] = (float)bad[i];
        const rt_tensor in[] = {{.name = "d", .dtype = IR_f16, .rank = 1, .dims = {11}, .data = d},
                                {.name = "last", .dtype = IR_f16, .rank = 1, .dims = {11}, .data = last}};
        double_mark();
        if (rt_session_run(f.cuda, "g", in, 2, f.d) != AMPC_OK) fail_msg("%s", diag_first_error(f.d));
        if (i == 0) assert_int_equal(double_count(launch), GRADIENTS / GRADIENT_ROOM + 1);
        assert_int_equal(*(const bool *)rt_session_output(f.cuda, "inf")->data, !isfinite(bad[i]));
        if (outs) check_unscaled(f.cuda, values);
        if (norm && isfinite(bad[i])) check_norm(f.cuda, values, ends);
    }
    close_both(&f);
}

TEST(test_unscale)
{
    check_unscale(true, false, "cudaLaunchKernel unscale");
    check_unscale(false, false, "cudaLaunchKernel check_finite");
    check_unscale(false, true, "cudaLaunchKernel check_and_square");
}

/* ---- low gradients, the scale and low copies ---- */

enum { CALLS = 7, PLACE = 16 << 10 /* in bytes */, IMAGE = (CALLS * 5 + 3) * PLACE };

extern const rt_backend rt_backend_cuda;

/* Calls of adamw on one block of memory; each has its own operands and results. */
typedef struct calls {
    k_context ctx;
    char error[256];
    char *device, *host, *first; /* first: content of the block before a run */
    k_view in[CALLS][8], out[CALLS][4];
    k_args args[CALLS];
    ir_attr attr[5];
} calls;

static void must(const k_context *ctx, ampc_status status)
{
    if (status) fail_msg("%s", ctx->error);
}

/* Returns a view of a vector with random values at a place of the block. */
static k_view view_at(calls *c, int place, ir_dtype t, int64_t n)
{
    char *host = c->first + (size_t)place * PLACE;
    assert_true(n * 4 <= PLACE);
    for (int64_t k = 0; k < n; k++)
        ir_store_f64(t, host + k * (int64_t)ir_dtype_size(t),
                     philox_unit(philox_word(6, (uint64_t)place, (uint64_t)k)));
    return (k_view){.data = c->device + (size_t)place * PLACE, .dtype = t, .rank = n > 0, .dims = {n}};
}

static void make_calls(calls *c)
{
    const ir_op_info *info = ir_op_get(IR_OP_adamw);
    static const int64_t lengths[CALLS] = {1, 33, 4001, 2048, 7, 2049, 2047};
    for (int i = 0; i < info->n_attr; i++) c->attr[i] = info->attr[i].initial;
    for (int i = 0; i < CALLS; i++) {
        k_view *in = c->in[i], *out = c->out[i];
        int place = i * 5;
        for (int s = 0; s < 3; s++) in[s] = out[s] = view_at(c, place++, IR_f32, lengths[i]);
        in[IR_IN(adamw, grad)] = view_at(c, place++, IR_f16, lengths[i]);
        in[IR_IN(adamw, step)] = view_at(c, CALLS * 5, IR_i64, 1);
        in[IR_IN(adamw, lr)] = view_at(c, CALLS * 5 + 1, IR_f32, 1);
        in[IR_IN(adamw, skip)] = (k_view){.dtype = IR_NO_DTYPE};
        in[info->n_in + K_SLOT(update, scale)] = view_at(c, CALLS * 5 + 2, IR_f32, 1);
        out[info->n_out + K_SLOT(update, low)] = view_at(c, place++, IR_bf16, lengths[i]);
        c->args[i] = (k_args){
            .op = IR_OP_adamw, .in = in, .out = out, .n_in = 8, .n_out = 4, .attr = c->attr, .ctx = &c->ctx};
        must(&c->ctx, cuda_adamw.prepare(&c->args[i], &c->args[i].state, &(size_t){0}));
    }
}

static void open_calls(calls *c)
{
    *c = (calls){.ctx = {.threads = 1, .error = c->error, .error_size = sizeof c->error}};
    void *memory = NULL;
    must(&c->ctx, rt_backend_cuda.open(&c->ctx, 0));
    must(&c->ctx, rt_backend_cuda.alloc(&c->ctx, IMAGE, &memory));
    c->device = memory;
    must(&c->ctx, rt_backend_cuda.device_ops->alloc_host(&c->ctx, IMAGE, &memory));
    c->host = memory;
    c->first = calloc(1, IMAGE);
    assert_non_null(c->first);
    make_calls(c);
}

static void close_calls(calls *c)
{
    for (int i = 0; i < CALLS; i++) cuda_adamw.release(c->args[i].state);
    rt_backend_cuda.free(&c->ctx, c->device);
    rt_backend_cuda.device_ops->free_host(&c->ctx, c->host);
    free(c->first);
    rt_backend_cuda.close(&c->ctx);
}

/* Runs the calls in batches of `n`, after a fault or without one; c->host then holds the resulting block. */
static void run_calls(calls *c, int n, bool fault)
{
    const rt_device_ops *device_ops = rt_backend_cuda.device_ops;
    int *word = (int *)(void *)c->host; /* the first number of the host block, which is copied again below */
    must(&c->ctx, device_ops->clear_fault(&c->ctx));
    *word = 0;
    if (fault) must(&c->ctx, device_ops->upload(&c->ctx, cuda_of(&c->ctx)->fault, word, sizeof *word));
    must(&c->ctx, device_ops->wait(&c->ctx, NULL));
    memcpy(c->host, c->first, IMAGE);
    must(&c->ctx, device_ops->upload(&c->ctx, c->device, c->host, IMAGE));
    for (int i = 0; i < CALLS; i += n) must(&c->ctx, cuda_adamw.run_batch(&c->args[i], n));
    must(&c->ctx, device_ops->wait(&c->ctx, NULL));
    must(&c->ctx, device_ops->download(&c->ctx, c->host, c->device, IMAGE));
    must(&c->ctx, device_ops->wait(&c->ctx, NULL));
}

TEST(test_low)
{
    calls c;
    char *single = malloc(IMAGE);
    assert_non_null(single);
    open_calls(&c);
    run_calls(&c, 1, false);
    memcpy(single, c.host, IMAGE);
    assert_memory_not_equal(single, c.first, IMAGE);
    double_mark();
    run_calls(&c, CALLS, false);
    assert_int_equal(double_count("cudaLaunchKernel adamw"), 1);
    assert_memory_equal(c.host, single, IMAGE);
    run_calls(&c, CALLS, true);
    assert_memory_equal(c.host, c.first, IMAGE);
    close_calls(&c);
    free(single);
}

/* ---- gradients that fit into a cache ---- */

enum { SIDE = 1024, TALL = 2 * SIDE, SHORT = 8 };

/* The gradient of @w has 4 MiB in f16, that of @v one row less; that of @b is f32. */
static const char cached_text[] =
    "ampc-ir 3\nparam @w : f32[2048,1024] = zero\nparam @v : f32[2047,1024] = zero\nparam @b : f32[8] = zero\n"
    "state @lr : f32[] = 0.5\nstate @scale : f32[] = 4\n"
    "graph @g(@x : f16[1,2048], @short : f16[1,2047], @dy : f16[1,1024], @db : f16[1,8]) {\n"
    "backward:\n  %dw = matmul @x, @dy {trans_a=true, out=f32} : f32[2048,1024]\n"
    "  %dv = matmul @short, @dy {trans_a=true, out=f32} : f32[2047,1024]\n"
    "  %gb = reduce_sum @db {axes=[0], keepdims=false, out=f32} : f32[8]\n"
    "update:\n  %uw, %uv, %ub, %inf = check_finite_and_unscale %dw, %dv, %gb, @scale :"
    " f32[2048,1024], f32[2047,1024], f32[8], bool[]\n  output \"inf\" = %inf\n"
    "  %n = global_norm %uw, %uv, %ub : f32[]\n  output \"norm\" = %n\n"
    "  %w1 = sgd @w, %uw, @lr, %inf : f32[2048,1024]\n  store @w, %w1\n"
    "  %v1 = sgd @v, %uv, @lr, %inf : f32[2047,1024]\n  store @v, %v1\n"
    "  %b1 = sgd @b, %ub, @lr, %inf : f32[8]\n  store @b, %b1\n}\n";

/* Lists the steps of a plan, such as "matmul sgd ". */
static void name_steps(const rt_plan *plan, char *names)
{
    for (int i = 0; i < plan->n_steps; i++) names += sprintf(names, "%s ", rt_step_name(plan->steps[i]));
}

TEST(test_cached)
{
    fixture f = {.d = diag_new(NULL, NULL)};
    static uint16_t x[TALL], small[TALL - 1], dy[SIDE], db[SHORT];
    uint16_t *const all[] = {x, small, db};
    const rt_tensor in[] = {{.name = "x", .dtype = IR_f16, .rank = 2, .dims = {1, TALL}, .data = x},
                            {.name = "short", .dtype = IR_f16, .rank = 2, .dims = {1, TALL - 1}, .data = small},
                            {.name = "dy", .dtype = IR_f16, .rank = 2, .dims = {1, SIDE}, .data = dy},
                            {.name = "db", .dtype = IR_f16, .rank = 2, .dims = {1, SHORT}, .data = db}};
    static const char *const flag[] = {"inf"};
    char names[512] = "";
    const rt_plan *plan;
    if (ir_parse(cached_text, strlen(cached_text), "cached.ir", f.d, &f.module) != AMPC_OK)
        fail_msg("%s", diag_first_error(f.d));
    assert_int_equal(rt_session_open(f.module, &(rt_session_options){.device = "cuda"}, f.d, &f.cuda), AMPC_OK);
    assert_int_equal(rt_session_plan(f.cuda, "g", in, 4, NULL, f.d, &plan), AMPC_OK);
    name_steps(plan, names);
    assert_string_equal(names, "matmul check_finite_and_unscale matmul reduce_sum check_finite_and_unscale "
                               "check_finite_and_unscale global_norm sgd sgd sgd ");
    for (int i = 0; i < SIDE; i++) dy[i] = ir_f32_to_f16(1);
    x[7] = small[70] = ir_f32_to_f16(3); /* one row of a gradient each: 1024 elements of 3 / 4 */
    db[1] = ir_f32_to_f16(24);
    if (rt_session_run(f.cuda, "g", in, 4, f.d) != AMPC_OK) fail_msg("%s", diag_first_error(f.d));
    assert_true(*(const float *)rt_session_output(f.cuda, "norm")->data ==
                (float)sqrt(1188)); /* (2 * 1024 + 64) * 9 / 16 */
    assert_int_equal(rt_session_select(f.cuda, "g", flag, 1, f.d), AMPC_OK);
    for (int bad = -1; bad < 3; bad++) { /* which gradient has an infinity */
        if (bad >= 0) all[bad][SHORT - 1] = ir_f32_to_f16(INFINITY);
        if (rt_session_run(f.cuda, "g", in, 4, f.d) != AMPC_OK) fail_msg("%s", diag_first_error(f.d));
        assert_int_equal(*(const bool *)rt_session_output(f.cuda, "inf")->data, bad >= 0);
        if (bad >= 0) all[bad][SHORT - 1] = 0;
    }
    close_both(&f);
}

/* ---- one by one ---- */

typedef struct seen {
    int launches, steps;
} seen;

static void look(void *user, const rt_launch *launch)
{
    seen *s = user;
    s->launches += launch->steps > 0;
    s->steps += launch->steps;
}

static seen run_and_profile(fixture *f)
{
    seen s = {.launches = 0};
    run(f, f->cuda, false);
    if (rt_session_profile(f->cuda, 1, f->d, look, &s) != AMPC_OK) fail_msg("%s", diag_first_error(f->d));
    return s;
}

/* A profile shows batched steps as one launch; in synchronous mode nothing is batched. */
TEST(test_profile)
{
    fixture f = {.d = NULL}, g = f;
    open_both(&f, "adamw");
    open_both(&g, "adamw");
    rt_session_close(g.cuda);
    const rt_session_options waits = {.device = "cuda", .sync_launch = true};
    assert_int_equal(rt_session_open(g.module, &waits, g.d, &g.cuda), AMPC_OK);
    fill(g.cuda, g.d);
    const seen batched = run_and_profile(&f);
    double_mark();
    const seen alone = run_and_profile(&g);
    assert_int_equal(double_count("cudaLaunchKernel adamw"), 2 * PARAMETERS); /* one run and one profile */
    assert_int_equal(batched.steps, PARAMETERS);
    assert_int_equal(batched.launches, 1 + (PARAMETERS - 1 + MAX_BATCH - 1) / MAX_BATCH);
    assert_int_equal(alone.steps, PARAMETERS);
    assert_int_equal(alone.launches, PARAMETERS);
    compare(&f, f.cuda, g.cuda, 0);
    close_both(&f);
    close_both(&g);
}
