/* pipeline.c - implements pipeline.h. */
#include "tests/compile.h"
#include "tests/fuzz/pipeline.h"

#include "passes/passes.h"
#include "runtime/plan/plan.h"
#include "runtime/session/session.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_BYTES = 1 << 18, /* per storage, plan arena or input */
    MAX_WORK = 1 << 22,  /* bytes and operations per run */
    MAX_SYMBOLS = 32,
    MAX_INPUTS = 32
};

void pipeline_show(const char *format, ...)
{
    static int is_wanted = -1;
    va_list args;
    if (is_wanted < 0) is_wanted = getenv("FUZZ_SHOW") != NULL;
    if (!is_wanted) return;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
}

static void fail(const char *what, const diag *d)
{
    fprintf(stderr, "%s: %s\n", what, diag_first_error(d));
    abort();
}

bool pipeline_accepts(ampc_status status, const diag *d)
{
    const size_t errors = diag_count(d, DIAG_ERROR);
    if (status == AMPC_OK && errors) fail("an error, but success", d);
    if (status != AMPC_OK && !errors) fail("no success, but no error", d);
    if (strstr(diag_first_error(d), "internal error")) fail("broken", d);
    return status == AMPC_OK;
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

/* Returns whether the error is one that the verifier or the parser reports about the output of a pass. */
static bool is_about_pass(const char *error)
{
    if (strncmp(error, "dump:", 5) == 0 || strstr(error, "does not round-trip")) return true;
    for (const pass_info *p = pass_table; p->name; p++) {
        const size_t n = strlen(p->name);
        if (strncmp(error, p->name, n) == 0 && error[n] == ':' && error[n + 1] >= '0' && error[n + 1] <= '9')
            return true;
    }
    return false;
}

static int64_t storage_bytes(const ir_module *m)
{
    int64_t sum = 0;
    for (size_t i = 0; i < m->storage.count; i++)
        if (!checked_add(sum, ir_storage_bytes(m->storage.items[i]), &sum)) return INT64_MAX;
    return sum;
}

/* One of all optimizers, or settings for which other ops are used. */
static const char *draw_optimizer(choices *c)
{
    static const char *const others[] = {NULL, "sgd,lr=0.1,weight_decay=0.01", "rmsprop,momentum=0.9",
                                         "rmsprop,centered=1"};
    const int n = sizeof others / sizeof *others;
    int kinds = 0;
    while (pass_optimizer_name(kinds)) kinds++;
    const int k = choose(c, kinds + n);
    return k < n ? others[k] : pass_optimizer_name(k - n);
}

static compile_options draw_options(choices *c)
{
    static const char *const losses[] = {NULL, "ce", "mse", "l1", "bce_logits", "nll", "mse"};
    static const char *const profiles[] = {NULL, "paddle-3", "paddle-2.4", "paddle-1.8", "empty", "ampc"};
    static const pass_level levels[] = {PASS_O0, PASS_O1, PASS_O2, PASS_OD};
    compile_options o = compile_options_default();
    o.level = CHOOSE(c, levels);
    o.low = choose(c, 2) ? IR_bf16 : IR_f16;
    o.loss = CHOOSE(c, losses);
    o.optimizer = o.loss ? draw_optimizer(c) : NULL;
    o.profile = rarely(c, 3) ? CHOOSE(c, profiles) : NULL;
    o.mode = (pass_mode)choose(c, 4);
    o.scaling = rarely(c, 3) ? (pass_scaling)choose(c, 4) : PASS_SCALE_DEFAULT;
    o.placement = rarely(c, 3) ? PASS_MINCUT : PASS_GREEDY;
    o.white_soft = o.placement == PASS_MINCUT && choose(c, 2);
    o.keep_io_types = choose(c, 2);
    o.fuse = !rarely(c, 4);
    o.init = rarely(c, 6) ? "kaiming" : "file";
    o.pipeline.verify_each = true;
    o.pipeline.roundtrip_each = rarely(c, 8);
    pipeline_show(
        "# level %d, %s, profile %s, loss %s, optimizer %s, mode %d, scaling %d, placement %d, keep_io %d, fuse %d, "
        "init %s\n",
        (int)o.level, ir_dtype_name(o.low), o.profile ? o.profile : "-", o.loss ? o.loss : "-",
        o.optimizer ? o.optimizer : "-", (int)o.mode, (int)o.scaling, (int)o.placement, o.keep_io_types, o.fuse,
        o.init);
    return o;
}

static bool has_parameter(const ir_module *m)
{
    for (size_t i = 0; i < m->storage.count; i++)
        if (m->storage.items[i]->kind == IR_PARAM) return true;
    return false;
}

bool pipeline_compile(ir_module *m, choices *c, diag *d)
{
    compile_options o = draw_options(c);
    if (storage_bytes(m) > MAX_BYTES) return false;
    if (!has_parameter(m)) o.optimizer = NULL; /* which would be refused */
    const bool accepted = pipeline_accepts(test_compile(m, &o, d), d);
    if (is_about_pass(diag_first_error(d))) fail("a pass made what is refused", d);
    return accepted;
}

void pipeline_round_trip(const ir_module *m, diag *d)
{
    arena *a = arena_new(0);
    ir_module *again = NULL;
    jmp_buf guard;
    if (a && !setjmp(guard)) {
        arena_set_guard(a, &guard);
        const char *first = ir_print(m, a);
        if (ir_parse(first, strlen(first), "again.ir", d, &again) != AMPC_OK) fail("does not parse", d);
        if (strcmp(first, ir_print(again, a)) != 0) fail("does not round-trip", d);
    }
    ir_module_free(again);
    arena_free(a);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static void fill_element(choices *c, ir_dtype t, void *to)
{
    static const int64_t wide[] = {INT64_MIN, INT64_MAX, INT32_MIN, -1, 127, 255, 65536};
    const uint32_t word = choices_word(c);
    if (t == IR_bool) *(uint8_t *)to = word & 1;
    else if (ir_dtype_is_int(t))
        ir_store_i64(t, to, word % 61 ? (int64_t)(word >> 8 & 3) - ((word & 0xf00000) == 0) : wide[word % 7]);
    else ir_store_f64(t, to, word % 101 ? (double)(int32_t)word * 0x1p-30 : 1e30 * (double)(word % 3));
}

static void fill(choices *c, ir_dtype t, void *data, int64_t count)
{
    const size_t size = ir_dtype_size(t);
    for (int64_t i = 0; i < count; i++) fill_element(c, t, (char *)data + (size_t)i * size);
}

/* Returns false if the input has no size, or one that is too large for this test. */
static bool make_input(const ir_module *m, const ir_value *v, const int64_t *sizes, choices *c, rt_tensor *out)
{
    int64_t count = 1;
    *out = (rt_tensor){.name = v->name, .dtype = v->type.dtype, .rank = v->type.rank};
    for (int i = 0; i < out->rank; i++) {
        if (!ir_dim_eval(m->dims, v->type.dims[i], sizes, &out->dims[i], NULL)) return false;
        if (out->dims[i] < 0 || !checked_mul(count, out->dims[i], &count) || count > MAX_BYTES / 8) return false;
    }
    const size_t bytes = (size_t)count * ir_dtype_size(out->dtype);
    out->data = malloc(bytes ? bytes : 1);
    if (out->data) fill(c, out->dtype, out->data, count);
    return out->data;
}

static bool is_small(rt_session *s, const ir_graph *g, const rt_tensor *inputs, int n, diag *d)
{
    const rt_plan *p = NULL;
    if (!pipeline_accepts(rt_session_plan(s, g->name, inputs, n, NULL, d, &p), d)) return false;
    const rt_plan_totals t = rt_plan_sum(p);
    return p->arena_bytes + p->persistent_bytes + rt_plan_pack_bytes(&p, 0) <= MAX_BYTES &&
           t.bytes + t.copy_bytes <= MAX_WORK && t.flops <= MAX_WORK;
}

/* Reads all results, which lets memory checkers detect uninitialized memory. */
static void read_results(rt_session *s)
{
    volatile char sum = 0;
    for (int i = 0; i < rt_session_output_count(s); i++) {
        const rt_tensor *t = rt_session_output_at(s, i);
        size_t bytes = ir_dtype_size(t->dtype);
        for (int k = 0; k < t->rank; k++) bytes *= (size_t)t->dims[k];
        for (size_t k = 0; k < bytes; k++) sum = (char)(sum ^ ((const char *)t->data)[k]);
    }
}

static void run_graph(rt_session *s, const ir_graph *g, const rt_tensor *inputs, int n)
{
    diag *d = diag_new(NULL, NULL);
    bool good = d && is_small(s, g, inputs, n, d);
    for (int run = 0; run < 2 && good; run++) {
        good = pipeline_accepts(rt_session_run(s, g->name, inputs, n, d), d);
        if (good) read_results(s);
    }
    diag_free(d);
}

static void run_sized(rt_session *s, const ir_module *m, const ir_graph *g, const int64_t *sizes, choices *c)
{
    rt_tensor inputs[MAX_INPUTS] = {{0}};
    int n = 0;
    bool good = g->inputs.count <= MAX_INPUTS;
    for (size_t i = 0; i < g->inputs.count && good; i++)
        good = make_input(m, g->inputs.items[i], sizes, c, &inputs[n++]);
    if (good) run_graph(s, g, inputs, n);
    for (int i = 0; i < n; i++) free(inputs[i].data);
}

void pipeline_run(const ir_module *m, choices *c)
{
    diag *d = diag_new(NULL, NULL);
    rt_session *s = NULL;
    const rt_session_options o = {
        .device = "cpu", .threads = 1, .deterministic = choose(c, 3), .no_fuse = rarely(c, 4)};
    const bool has_room = storage_bytes(m) <= MAX_BYTES && ir_dim_symbol_count(m->dims) <= MAX_SYMBOLS;
    if (d && has_room && pipeline_accepts(rt_session_open(m, &o, d, &s), d))
        for (size_t i = 0; i < m->graphs.count; i++) {
            int64_t sizes[MAX_SYMBOLS];
            for (int k = 0; k < MAX_SYMBOLS; k++) sizes[k] = choose(c, 5);
            run_sized(s, m, m->graphs.items[i], sizes, c);
        }
    rt_session_close(s);
    diag_free(d);
}
