/* test_packs.c - packed weights: results are those of weights that are not packed, whatever happens between two runs,
 * and one copy serves all plans and sessions. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/own_pack.h"
#include "runtime/api/export.h"
#include "runtime/plan/plan_edit.h"
#include "runtime/session/session_state.h"
#include "runtime/train/checkpoint.h"
#include "tests/tier.h"
#include "tests/unit/session_fixture.h"

#include <inttypes.h>
#include <math.h>

/* Every form of a weight that is packed: plain, grouped and transposed convolutions, few channels, low types from f32
 * storage, transposed, batched and shared matrices, one that two graphs read, and the result of a hoisted transpose. @m,
 * @w and @e are trained, by graphs that also read weights that they do not train. */
static const char some_forms[] =
    "param @w : f32[20,3,3,3] = zero\nparam @g : f32[20,5,3,3] = zero\nparam @d : f32[20,1,3,3] = zero\n"
    "param @p : f32[6,20,1,1] = zero\nparam @m : f32[24,40] = zero\nparam @t : f32[7,40] = zero\n"
    "param @b : f32[40] = zero\nparam @s : f32[3,8,5] = zero\nparam @h : f32[24,33] = zero\n"
    "param @e : f16[24,18] = zero\nparam @u : f32[33,24] = zero\nparam @o : f32[96,400,1,1] = zero\nstate @lr : f32[] "
    "= 0.5\n"
    "graph @images(@x : f32[N,3,9,9]) {\nforward:\n"
    "  %c = conv @x, @w, _ {strides=[1,1], pads=[1,1,1,1], dilations=[1,1]} : f32[N,20,9,9]\n"
    "  %r = relu %c : f32[N,20,9,9]\n"
    "  %g = conv %r, @g, _ {strides=[2,2], pads=[1,1,1,1], dilations=[1,1], group=4} : f32[N,20,5,5]\n"
    "  %d = conv %g, @d, _ {strides=[1,1], pads=[1,1,1,1], dilations=[1,1], group=20} : f32[N,20,5,5]\n"
    "  %y = conv %d, @p, _ {strides=[1,1], pads=[0,0,0,0], dilations=[1,1]} : f32[N,6,5,5]\n"
    "  output \"y\" = %y\n}\n"
    "graph @images_back(@x : f32[N,20,9,9]) {\nforward:\n"
    "  %i = cast @x {to=bf16} : bf16[N,20,9,9]\n  %w = cast @w {to=bf16} : bf16[20,3,3,3]\n"
    "  %y = conv_grad_input %i, %w {strides=[1,1], pads=[1,1,1,1], dilations=[1,1], shape=[N,3,9,9]} : bf16[N,3,9,9]\n"
    "  %z = conv_grad_input @x, @w {strides=[2,2], pads=[1,1,1,1], dilations=[1,1], shape=[N,3,17,17]} : "
    "f32[N,3,17,17]\n"
    "  %k = conv_grad_input @x, @g {strides=[2,2], pads=[1,1,1,1], dilations=[1,1], shape=[N,20,18,18], group=4} : "
    "f32[N,20,18,18]\n"
    "  output \"y\" = %y\n  output \"z\" = %z\n  output \"k\" = %k\n}\n"
    "graph @images_low(@x : f32[N,3,9,9]) {\nforward:\n"
    "  %i = cast @x {to=bf16} : bf16[N,3,9,9]\n  %w = cast @w {to=bf16} : bf16[20,3,3,3]\n"
    "  %y = conv %i, %w, _ {strides=[1,1], pads=[0,0,0,0], dilations=[1,1]} : bf16[N,20,7,7]\n"
    "  output \"y\" = %y\n}\n"
    "graph @images_half(@x : f32[N,3,9,9]) {\nforward:\n" /* in f32, like @images, but with rounded weights */
    "  %i = cast @x {to=f16} : f16[N,3,9,9]\n  %w = cast @w {to=f16} : f16[20,3,3,3]\n"
    "  %y = conv %i, %w, _ {strides=[1,1], pads=[1,1,1,1], dilations=[1,1]} : f16[N,20,9,9]\n"
    "  output \"y\" = %y\n}\n"
    "graph @train_images(@x : f32[N,3,9,9]) {\nforward:\n"
    "  %c = conv @x, @w, _ {strides=[1,1], pads=[1,1,1,1], dilations=[1,1]} : f32[N,20,9,9]\n"
    "  %y = conv %c, @p, _ {strides=[1,1], pads=[0,0,0,0], dilations=[1,1]} : f32[N,6,9,9]\n  output \"y\" = %y\n"
    "backward:\n"
    "  %dc = conv_grad_input %y, @p {strides=[1,1], pads=[0,0,0,0], dilations=[1,1], shape=[N,20,9,9]} : "
    "f32[N,20,9,9]\n"
    "  %dw, %db = conv_grad_weight %dc, @x {strides=[1,1], pads=[1,1,1,1], dilations=[1,1], shape=[20,3,3,3]} : "
    "f32[20,3,3,3], f32[20]\n"
    "update:\n  %w1 = sgd @w, %dw, @lr : f32[20,3,3,3]\n  store @w, %w1\n}\n";
static const char more_forms[] =
    "graph @rows(@x : f32[N,24]) {\nforward:\n"
    "  %h = matmul @x, @m, @b : f32[N,40]\n  %y = matmul %h, @t {trans_b=true} : f32[N,7]\n"
    "  %u = transpose @u {perm=[1,0]} : f32[24,33]\n  %v = matmul @x, %u : f32[N,33]\n"
    "  output \"y\" = %y\n  output \"v\" = %v\n}\n"
    "graph @types(@x : f32[N,24]) {\nforward:\n"
    "  %i = cast @x {to=bf16} : bf16[N,24]\n  %h = cast @h {to=bf16} : bf16[24,33]\n"
    "  %m = cast @m {to=bf16} : bf16[24,40]\n  %y = matmul %i, %h : bf16[N,33]\n  %z = matmul %i, %m : bf16[N,40]\n"
    "  %f = cast @x {to=f16} : f16[N,24]\n  %e = matmul %f, @e : f16[N,18]\n"
    "  output \"y\" = %y\n  output \"z\" = %z\n  output \"e\" = %e\n}\n"
    "graph @batches(@x : f32[3,N,8]) {\nforward:\n"
    "  %y = matmul @x, @s : f32[3,N,5]\n  %k = cast @s {to=f16} : f16[3,8,5]\n  %i = cast @x {to=f16} : f16[3,N,8]\n"
    "  %z = matmul %i, %k : f16[3,N,5]\n  output \"y\" = %y\n  output \"z\" = %z\n}\n"
    "graph @few(@x : f32[N,400,2,2]) {\nforward:\n"
    "  %y = conv @x, @o, _ {strides=[1,1], pads=[0,0,0,0], dilations=[1,1]} : f32[N,96,2,2]\n  output \"y\" = %y\n}\n"
    "graph @parts(@x : f32[N,24]) {\nforward:\n"
    "  %h = matmul @x, @m : f32[N,40]\n  %q = reduce_sum %h {axes=[1], keepdims=false} : f32[N]\n"
    "  %o = mul %q, %q : f32[N]\n  %c = greater %o, %q : bool[N]\n  %p, %n = nonzero %c : i64[N,1], i64[]\n"
    "  %t = trim %p, %n {size=[K]} : i64[K,1]\n  %i = reshape %t {shape=[K]} : i64[K]\n"
    "  %k = gather %h, %i : f32[K,40]\n  %y = matmul %k, @t {trans_b=true} : f32[K,7]\n"
    "  %j = gather @x, %i : f32[K,24]\n  %z = matmul %j, @m : f32[K,40]\n  output \"y\" = %y\n  output \"z\" = %z\n}\n"
    "graph @train_rows(@x : f32[N,24]) {\nforward:\n"
    "  %h = matmul @x, @m, @b : f32[N,40]\n  %y = matmul %h, @t {trans_b=true} : f32[N,7]\n"
    "  %l = cast @x {to=f16} : f16[N,24]\n  %e = matmul %l, @e : f16[N,18]\n  output \"y\" = %y\n"
    "backward:\n  %dh = matmul %y, @t : f32[N,40]\n  %dm = matmul @x, %dh {trans_a=true} : f32[24,40]\n"
    "  %de = matmul %l, %e {trans_a=true} : f16[24,18]\n"
    "update:\n  %m1 = sgd @m, %dm, @lr : f32[24,40]\n  store @m, %m1\n  store @e, %de\n}\n";

static const struct entry {
    const char *name;
    bool trains;
    int rank;
    int64_t dims[4]; /* 0: the batch */
} entries[] = {
    {"images_back", false, 4, {0, 20, 9, 9}},
    {"images_half", false, 4, {0, 3, 9, 9}},
    {"images", false, 4, {0, 3, 9, 9}},
    {"images_low", false, 4, {0, 3, 9, 9}},
    {"rows", false, 2, {0, 24}},
    {"types", false, 2, {0, 24}},
    {"batches", false, 3, {3, 0, 8}},
    {"few", false, 4, {0, 400, 2, 2}},
    {"parts", false, 2, {0, 24}},
    {"train_rows", true, 2, {0, 24}},
    {"train_images", true, 4, {0, 3, 9, 9}},
};
enum { ENTRIES = sizeof entries / sizeof *entries, INPUT_SIZE = 4 * 20 * 9 * 9, SESSIONS = 3 };

static const char *all_forms(void)
{
    static char text[sizeof some_forms + sizeof more_forms];
    return strcat(strcpy(text, some_forms), more_forms);
}

/* ---- random sequences ------------------------------------------------------------------------ */

typedef struct trial {
    scratch *t;
    uint64_t seed, state;
    rt_session *sessions[SESSIONS]; /* of one storage; NULL: closed */
    char *log;                      /* what has happened */
} trial;

/* splitmix64 */
static uint64_t draw(trial *r, uint64_t n)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % n;
}

static float draw_number(trial *r) { return (float)draw(r, 2001) / 4000 - 0.25f; }

static void note(trial *r, const char *what, const char *name, int number)
{
    char *log;
    assert_true(asprintf(&log, "%s %s%s%s/%d", r->log ? r->log : "", what, *name ? " @" : "", name, number) > 0);
    free(r->log);
    r->log = log;
}

static void ok(const trial *r, ampc_status status)
{
    if (status != AMPC_OK) fail_msg("seed %" PRIu64 ":%s: %s", r->seed, r->log, diag_first_error(r->t->d));
}

static rt_session *open_one(const trial *r, bool no_pack, rt_session *share)
{
    rt_session *s;
    ok(r,
       rt_session_open(module, &(rt_session_options){.threads = 2, .no_pack = no_pack, .share = share}, r->t->d, &s));
    return s;
}

/* Returns an open session, at random. */
static int draw_session(trial *r)
{
    int i;
    do i = (int)draw(r, SESSIONS);
    while (!r->sessions[i]);
    return i;
}

static int count_sessions(const trial *r)
{
    int n = 0;
    for (int i = 0; i < SESSIONS; i++) n += r->sessions[i] != NULL;
    return n;
}

static void copy_storage(const trial *r, rt_session *from, rt_session *to)
{
    rt_tensor v;
    for (int i = 0; i < rt_session_storage_count(from); i++) {
        ok(r, rt_session_read(from, i, r->t->d, &v));
        ok(r, rt_session_write(to, i, v.data, r->t->d));
    }
}

static void fill_storage(trial *r, rt_session *s, int i)
{
    rt_tensor v;
    ok(r, rt_session_read(s, i, r->t->d, &v));
    int64_t n = 1;
    for (int k = 0; k < v.rank; k++) n *= v.dims[k];
    for (int64_t k = 0; k < n; k++)
        ir_store_f64(v.dtype, (char *)v.data + k * (int64_t)ir_dtype_size(v.dtype), (double)draw_number(r));
    ok(r, rt_session_write(s, i, v.data, r->t->d));
}

static void fill_weight(trial *r, rt_session *s, int i)
{
    if (module->storage.items[i]->kind == IR_PARAM) fill_storage(r, s, i);
}

/* Compares the outputs of two sessions: bitwise, or up to the order of summation. */
static void compare_outputs(const trial *r, rt_session *s, rt_session *other, bool bitwise)
{
    assert_int_equal(rt_session_output_count(s), rt_session_output_count(other));
    for (int i = 0; i < rt_session_output_count(s); i++) {
        const rt_tensor *a = rt_session_output_at(s, i), *b = rt_session_output_at(other, i);
        const double tolerance = bitwise ? 0 : a->dtype == IR_f32 ? 1e-4 : 4e-2;
        int64_t n = 1;
        for (int k = 0; k < a->rank; k++) n *= a->dims[k];
        for (int64_t k = 0; k < n; k++) {
            const size_t at = (size_t)k * ir_dtype_size(a->dtype);
            const double x = ir_load_f64(a->dtype, (const char *)a->data + at);
            const double y = ir_load_f64(b->dtype, (const char *)b->data + at);
            if (!(fabs(x - y) <= tolerance * (1 + fabs(y))))
                fail_msg("seed %" PRIu64 ":%s: output %s: element %" PRId64 " is %g instead of %g", r->seed, r->log,
                         a->name, k, x, y);
        }
    }
}

static void compare_storage(const trial *r, rt_session *s, rt_session *other, bool bitwise)
{
    rt_tensor a, b;
    for (int i = 0; i < rt_session_storage_count(s); i++) {
        ok(r, rt_session_read(s, i, r->t->d, &a));
        ok(r, rt_session_read(other, i, r->t->d, &b));
        int64_t n = 1;
        for (int k = 0; k < a.rank; k++) n *= a.dims[k];
        for (int64_t k = 0; k < n; k++) {
            const size_t at = (size_t)k * ir_dtype_size(a.dtype);
            const double x = ir_load_f64(a.dtype, (const char *)a.data + at);
            const double y = ir_load_f64(b.dtype, (const char *)b.data + at);
            if (!(fabs(x - y) <= (bitwise ? 0 : a.dtype == IR_f32 ? 1e-4 : 2e-2) * (1 + fabs(y))))
                fail_msg("seed %" PRIu64 ":%s: @%s: element %" PRId64 " is %g instead of %g", r->seed, r->log, a.name,
                         k, x, y);
        }
    }
}

/* Runs the entry, and in two new sessions with the same storage: one packs its weights now, one does not pack. The
 * convolutions of the three are the same code. */
static void run_entry(trial *r, int i, const struct entry *e)
{
    float x[INPUT_SIZE];
    rt_session *s = r->sessions[i], *fresh = open_one(r, false, NULL), *plain = open_one(r, true, NULL);
    rt_tensor in = {.name = "x", .dtype = IR_f32, .rank = e->rank, .data = x};
    const int64_t batch = 1 + (int64_t)draw(r, 4);
    note(r, "run", e->name, i);
    for (int k = 0; k < e->rank; k++) in.dims[k] = e->dims[k] ? e->dims[k] : batch;
    for (int k = 0; k < INPUT_SIZE; k++) x[k] = draw_number(r);
    copy_storage(r, s, fresh);
    copy_storage(r, s, plain);
    ok(r, rt_session_run(s, e->name, &in, 1, r->t->d));
    ok(r, rt_session_run(fresh, e->name, &in, 1, r->t->d));
    ok(r, rt_session_run(plain, e->name, &in, 1, r->t->d));
    compare_outputs(r, s, fresh, true);
    compare_outputs(r, s, plain, strstr(e->name, "images") != NULL);
    compare_storage(r, s, fresh, true);
    compare_storage(r, s, plain, strstr(e->name, "images") != NULL);
    rt_session_close(fresh);
    rt_session_close(plain);
}

static void save_or_load(trial *r, int i)
{
    static const rt_checkpoint_how weights = {.part = RT_CHECKPOINT_WEIGHTS};
    const char *path = scratch_path(r->t, "c.safetensors");
    if (access(path, R_OK) != 0 || draw(r, 2)) {
        note(r, "save", "", i);
        const rt_run_state run = {0};
        ok(r, rt_checkpoint_write(r->sessions[i], module, &run, path, r->t->d));
    } else if (count_sessions(r) == 1) {
        note(r, "load", "", i);
        ok(r, rt_checkpoint_read(r->sessions[i], module, path, &weights, r->t->d, NULL));
    }
}

/* The exported weights are those that a session without packs has. */
static void export_weights(trial *r, int i)
{
    static const rt_checkpoint_how weights = {.part = RT_CHECKPOINT_WEIGHTS};
    rt_session *plain = open_one(r, true, NULL), *read = open_one(r, true, NULL);
    const char *path = scratch_path(r->t, "e.safetensors");
    note(r, "export", "", i);
    copy_storage(r, r->sessions[i], plain);
    copy_storage(r, r->sessions[i], read); /* a file of weights has no states */
    for (int k = 0; k < rt_session_storage_count(read); k++) fill_weight(r, read, k);
    ok(r, rt_export_weights(r->sessions[i], module, NULL, path, r->t->d));
    ok(r, rt_checkpoint_read(read, module, path, &weights, r->t->d, NULL));
    compare_storage(r, read, plain, true);
    rt_session_close(plain);
    rt_session_close(read);
}

static void open_or_close(trial *r, int i)
{
    const int at = (int)draw(r, SESSIONS);
    if (at == i) return;
    note(r, r->sessions[at] ? "close" : "open", "", at);
    if (r->sessions[at]) rt_session_close(r->sessions[at]);
    r->sessions[at] = r->sessions[at] ? NULL : open_one(r, false, r->sessions[i]);
}

static void step(trial *r)
{
    const int i = draw_session(r), action = (int)draw(r, 9);
    const struct entry *e = &entries[draw(r, ENTRIES)];
    const bool sole = count_sessions(r) == 1;
    if (action == 0 && sole) {
        const int storage = (int)draw(r, (uint64_t)rt_session_storage_count(r->sessions[i]));
        rt_tensor v;
        rt_session_storage_at(r->sessions[i], storage, &v, NULL);
        note(r, "set", v.name, i);
        if (v.rank > 0) fill_storage(r, r->sessions[i], storage);
    } else if (action == 1) {
        open_or_close(r, i);
    } else if (action == 2) {
        save_or_load(r, i);
    } else if (action == 3) {
        export_weights(r, i);
    } else if (sole || !e->trains) {
        run_entry(r, i, e);
    }
}

/* Sets of weights, trainings, checkpoints, exports, other sessions and plans of other sizes in any order: no run reads
 * a pack that is out of date. */
TEST_SESSION(no_pack_is_stale)
{
    enum { SEQUENCES = 12, STEPS = 30 };
    load(t, all_forms());
    const size_t first = tier_first(SEQUENCES);
    for (size_t i = first; i < first + SEQUENCES; i++) {
        trial r = {.t = t, .seed = i, .state = i};
        unlink(scratch_path(t, "c.safetensors"));
        r.sessions[0] = open_one(&r, false, NULL);
        for (int k = 0; k < rt_session_storage_count(r.sessions[0]); k++) fill_weight(&r, r.sessions[0], k);
        for (int k = 0; k < STEPS; k++) step(&r);
        for (int k = 0; k < SESSIONS; k++) rt_session_close(r.sessions[k]);
        free(r.log);
    }
}

/* ---- sharing --------------------------------------------------------------------------------- */

static int count_packs(const rt_session *s, const char *name, int *filled)
{
    int n = 0;
    *filled = 0;
    const int i = test_storage_find(s, name);
    for (const rt_packed *k = s->shared->packs[i]; k; k = k->next) {
        n++;
        *filled += k->memory != NULL;
    }
    return n;
}

/* A run of a graph with the given batch; the values do not matter. */
static void run_batch(scratch *t, rt_session *s, const char *graph, int64_t batch)
{
    static float x[INPUT_SIZE];
    for (size_t i = 0; i < ENTRIES; i++) {
        const struct entry *e = &entries[i];
        rt_tensor in = {.name = "x", .dtype = IR_f32, .rank = e->rank, .data = x};
        if (strcmp(e->name, graph) != 0) continue;
        for (int k = 0; k < e->rank; k++) in.dims[k] = e->dims[k] ? e->dims[k] : batch;
        if (rt_session_run(s, graph, &in, 1, t->d) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    }
}

/* Every convolution is packed, wherever oneDNN has code in blocked layouts, and for all batch sizes and sessions at
 * once; a pack lives as long as a plan that reads it, and its memory until the storage changes. */
TEST_SESSION(plans_share_packs)
{
    int filled;
    rt_session *other;
    start(t, all_forms());
    run_batch(t, session, "images", 1);
    const int packs = count_packs(session, "w", &filled);
    assert_int_equal(packs, 1);
    assert_int_equal(filled, 1);
    const rt_packed *first = session->shared->packs[test_storage_find(session, "w")];
    const void *memory = first->memory;
    const int64_t at = first->at;
    run_batch(t, session, "images", 3);
    assert_int_equal(rt_session_open(module, &(rt_session_options){.threads = 2, .share = session}, t->d, &other),
                     AMPC_OK);
    run_batch(t, other, "images", 1);
    run_batch(t, other, "images", 3);
    assert_int_equal(count_packs(session, "w", &filled), 1);
    assert_int_equal(first->plans, 2); /* which both sessions run */
    assert_ptr_equal(first->memory, memory);
    assert_int_equal(first->at, at); /* was not filled again */
    rt_session_close(session);
    session = other;
    assert_int_equal(first->plans, 2);
    run_batch(t, session, "train_images", 2);
    assert_int_equal(count_packs(session, "w", &filled), 1); /* the graph that trains @w does not pack it */
    assert_int_equal(filled, 0);
    /* forward and, by oneDNN only, backward; @p is not trained */
    assert_int_equal(count_packs(session, "p", &filled), cpu_has_onednn() ? 2 : 1);
    run_batch(t, session, "images", 1);
    count_packs(session, "w", &filled);
    assert_int_equal(filled, 1);
}

/* A format of own code is the same for all batch sizes. */
TEST_SESSION(own_formats_are_shared)
{
    int filled;
    bool is_own = !cpu_has_onednn();
    is_own |= cpu_isa() >= CPU_ISA_avx512;
    start(t, all_forms());
    run_batch(t, session, "few", 1);
    run_batch(t, session, "few", 4);
    run_batch(t, session, "rows", 1);
    run_batch(t, session, "rows", 33);
    static const char *const names[] = {"o", "m", "t"};
    for (size_t i = 0; i < 3 && is_own; i++) {
        assert_int_equal(count_packs(session, names[i], &filled), 1);
        const rt_packed *pack = session->shared->packs[test_storage_find(session, names[i])];
        assert_true(cpu_is_own_pack(&(k_view){.packed = pack->key.format}));
        assert_int_equal(pack->plans, 2);
    }
}

/* The plan counts the packs, and what only a pack reads is not kept. */
TEST_SESSION(packs_are_planned)
{
    const rt_plan *p;
    rt_memory memory, without;
    float x[4 * 24];
    start(t, all_forms());
    const rt_tensor in = {.name = "x", .dtype = IR_f32, .rank = 4, .dims = {2, 3, 9, 9}, .data = x};
    assert_int_equal(rt_session_plan(session, "images_low", &in, 1, NULL, t->d, &p), AMPC_OK);
    assert_int_equal(p->n_packs, 1);
    assert_int_equal(p->n_hoisted, 1);
    assert_int_equal(p->persistent_bytes, 0); /* no copy in bf16 */
    assert_int_equal(p->steps[0]->kind, RT_STEP_PACK);
    assert_int_equal(p->steps[0]->in[0].dtype, IR_f32);
    const int64_t bytes = rt_plan_pack_bytes(&p, 0);
    assert_true(bytes >= (int64_t)p->packs[0].format->bytes);
    assert_int_equal(rt_session_memory(session, "images_low", &in, 1, t->d, &memory), AMPC_OK);
    assert_int_equal(memory.arena, p->arena_bytes + bytes);
    rt_session_close(session);
    assert_int_equal(open_with(t, &(rt_session_options){.threads = 2, .no_pack = true}), AMPC_OK);
    assert_int_equal(rt_session_memory(session, "images_low", &in, 1, t->d, &without), AMPC_OK);
    assert_int_equal(rt_session_plan(session, "images_low", &in, 1, NULL, t->d, &p), AMPC_OK);
    assert_int_equal(p->n_packs, 0);
    assert_int_equal(without.arena, p->arena_bytes + p->persistent_bytes);
}

/* Two parts that read one pack count it once. */
TEST_SESSION(parts_count_packs_once)
{
    const rt_plan *p;
    rt_memory memory;
    float x[4 * 24] = {0};
    start(t, all_forms());
    const rt_tensor in = {.name = "x", .dtype = IR_f32, .rank = 2, .dims = {4, 24}, .data = x};
    assert_int_equal(rt_session_plan(session, "parts", &in, 1, NULL, t->d, &p), AMPC_OK);
    const rt_plan *next = rt_session_planned(session, 1);
    assert_non_null(next);
    assert_int_equal(rt_session_memory(session, "parts", &in, 1, t->d, &memory), AMPC_OK);
    int64_t sum = p->arena_bytes + next->arena_bytes + rt_plan_pack_bytes(&p, 0);
    for (int i = 0; i < next->n_packs; i++) {
        const rt_pack *k = &next->packs[i];
        const bool again = p->n_packs && k->storage == p->packs[0].storage && k->format == p->packs[0].format;
        if (!again) sum += (int64_t)(k->format->bytes + 63) / 64 * 64;
    }
    assert_int_equal(memory.arena, sum);
}
