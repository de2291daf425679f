/* test_plan_random.c - random networks of convolutions, normalisations and concatenations give with all plan stages the
 * values that they give without, also after parameters have changed, and the same statistics of calibration. In the
 * environment, PLAN_SEED is the seed of a single network, PLAN_NETWORKS their number. */
#include "runtime/inspect/calibrate.h"
#include "tests/unit/session_fixture.h"

#include <inttypes.h>
#include <math.h>

enum { MAX_VALUES = 120, MAX_TEXT = 1 << 16, MAX_PARAMS = 200, NETWORKS = 750, COUNTED = 10 };

/* ---- random numbers ------------------------------------------------------------------------------------ */

static uint64_t state;

static int below(int n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}

static float real(float low, float high) { return low + (high - low) * (float)below(1 << 20) / (1 << 20); }

/* ---- networks ------------------------------------------------------------------------------------------ */

/* Images [n,c,h,h]; a matrix has h 0. */
typedef struct image {
    int n, c, h;
    bool low;
} image;

/* Parameters are declared before the graph that uses them. */
static struct network {
    char params[MAX_TEXT], body[MAX_TEXT];
    image values[MAX_VALUES];
    bool is_output[MAX_VALUES];
    int n_values, n_params;
} net;

#define ADD(to, ...) (void)snprintf((to) + strlen(to), sizeof(to) - strlen(to), __VA_ARGS__)

static const char *type_of(image v)
{
    static char text[8][64];
    static int at;
    char *to = text[at++ % 8];
    if (v.h) (void)snprintf(to, sizeof text[0], "%s[%d,%d,%d,%d]", v.low ? "bf16" : "f32", v.n, v.c, v.h, v.h);
    else (void)snprintf(to, sizeof text[0], "%s[%d,%d]", v.low ? "bf16" : "f32", v.n, v.c);
    return to;
}

static int add_value(image v)
{
    net.values[net.n_values] = v;
    net.is_output[net.n_values] = false;
    return net.n_values++;
}

/* Declares a parameter of that shape, as %pI in a low type; its name begins with the kind of its values. */
static const char *param(char kind, const char *dims, bool low)
{
    static char names[8][16];
    static int at;
    char *name = names[at++ % 8];
    const int i = net.n_params++;
    ADD(net.params, "param @%c%d : f32[%s] = zero\n", kind, i, dims);
    if (low) ADD(net.body, "  %%p%d = cast @%c%d {to=bf16} : bf16[%s]\n", i, kind, i, dims);
    (void)snprintf(name, sizeof names[0], low ? "%%p%d" : "@%c%d", low ? i : kind, i);
    return name;
}

static const char *dims_of(int a, int b, int c, int d)
{
    static char text[8][48];
    static int at;
    char *to = text[at++ % 8];
    if (d) (void)snprintf(to, sizeof text[0], "%d,%d,%d,%d", a, b, c, d);
    else if (b) (void)snprintf(to, sizeof text[0], "%d,%d", a, b);
    else (void)snprintf(to, sizeof text[0], "%d", a);
    return to;
}

static int conv(int x)
{
    static const int channels[] = {1, 3, 8, 16, 24};
    const image from = net.values[x];
    const int k = below(2) ? 1 : 3, depthwise = !below(4),
              group = depthwise                      ? from.c
                      : from.c % 2 == 0 && !below(3) ? 2
                                                     : 1;
    const bool back = !below(4);
    image to = from;
    to.c = depthwise ? from.c : channels[below(5)];
    if (to.c % group) to.c *= group;
    const char *w = param('w', back ? dims_of(from.c, to.c / group, k, k) : dims_of(to.c, from.c / group, k, k),
                          from.low);
    char bias[16] = "_";
    if (!back && below(2)) (void)snprintf(bias, sizeof bias, "%s", param('b', dims_of(to.c, 0, 0, 0), from.low));
    const int y = add_value(to), pad = k / 2;
    ADD(net.body, "  %%v%d = %s %%v%d, %s", y, back ? "conv_grad_input" : "conv", x, w);
    if (!back) ADD(net.body, ", %s", bias);
    ADD(net.body, " {");
    if (back) ADD(net.body, "shape=[%s], ", dims_of(to.n, to.c, to.h, to.h));
    ADD(net.body, "strides=[1,1], pads=[%d,%d,%d,%d], dilations=[1,1], group=%d} : %s\n", pad, pad, pad, pad, group,
        type_of(to));
    return y;
}

static int norm(int x)
{
    const image v = net.values[x];
    const char *c = dims_of(v.c, 0, 0, 0);
    const char *s = param('s', c, false), *b = param('b', c, false), *m = param('b', c, false),
               *r = param('s', c, false);
    const int y = add_value(v);
    ADD(net.body,
        "  %%v%d, %%v%da, %%v%db, %%v%dm, %%v%dr = batch_norm %%v%d, %s, %s, %s, %s : %s, f32[%s], f32[%s], f32[%s], "
        "f32[%s]\n",
        y, y, y, y, y, x, s, b, m, r, type_of(v), c, c, c, c);
    if (!below(12)) ADD(net.body, "  output \"m%d\" = %%v%dm\n", y, y);
    return y;
}

static int relu(int x)
{
    const int y = add_value(net.values[x]);
    ADD(net.body, "  %%v%d = relu %%v%d : %s\n", y, x, type_of(net.values[y]));
    return y;
}

/* Adds or multiplies a parameter with one element per channel. */
static int shift(int x)
{
    const image v = net.values[x];
    const char *p = param('b', v.h ? dims_of(1, v.c, 1, 1) : dims_of(v.c, 0, 0, 0), v.low);
    const int y = add_value(v);
    ADD(net.body, "  %%v%d = %s %%v%d, %s : %s\n", y, below(3) ? "add" : "mul", x, p, type_of(v));
    return y;
}

static bool is_like(int a, int b, int axis)
{
    const image *x = &net.values[a], *y = &net.values[b];
    return x->h == y->h && (axis == 0 || x->n == y->n) && (axis == 1 || x->c == y->c);
}

static int any_like(int x, int axis)
{
    int y;
    do y = below(net.n_values);
    while (!is_like(x, y, axis));
    return y;
}

static int sum(int x)
{
    const int a = any_like(x, -1), y = add_value(net.values[x]);
    ADD(net.body, "  %%v%d = add %%v%d, %%v%d : %s\n", y, x, a, type_of(net.values[y]));
    return y;
}

static int concat(int x)
{
    const int n = 1 + below(4), axis = below(3) ? 1 : 0;
    image to = net.values[x];
    char operands[128] = "";
    for (int i = 0; i < n; i++) {
        const int v = i ? any_like(x, axis) : x;
        if (i) *(axis ? &to.c : &to.n) += *(axis ? &net.values[v].c : &net.values[v].n);
        ADD(operands, "%s%%v%d", i ? ", " : "", v);
    }
    if (to.c > 150 || to.n > 8) return x;
    const int y = add_value(to);
    ADD(net.body, "  %%v%d = concat %s {axis=%d} : %s\n", y, operands, axis, type_of(to));
    return y;
}

/* A dense block: each layer reads those before it. Other concats may join some of the same images. */
static int join(const int *parts, int n)
{
    image to = net.values[parts[0]];
    char operands[128] = "";
    for (int i = 0; i < n; i++) ADD(operands, "%s%%v%d", i ? ", " : "", parts[i]);
    for (int i = 1; i < n; i++) to.c += net.values[parts[i]].c;
    const int y = add_value(to);
    ADD(net.body, "  %%v%d = concat %s {axis=1} : %s\n", y, operands, type_of(to));
    return y;
}

static int dense(int x)
{
    int parts[8] = {x}, n = 1, y = x;
    for (int layers = 1 + below(4); n <= layers && net.values[x].h; n++) {
        parts[n] = conv(relu(below(4) ? norm(y) : shift(y)));
        y = below(3) ? join(parts, n + 1) : join((int[]){y, parts[n]}, 2);
    }
    if (n > 2 && below(2)) { /* one that is, or is not, the beginning of those */
        const int other = join((int[]){x, below(2) ? parts[1] : relu(parts[1])}, 2);
        ADD(net.body, "  output \"y%d\" = %%v%d\n", other, other);
        net.is_output[other] = true;
    }
    return y;
}

static int split(int x)
{
    const image v = net.values[x];
    if (v.c < 2) return x;
    image one = v, two = v;
    one.c = 1 + below(v.c - 1);
    two.c -= one.c;
    const int a = add_value(one), b = add_value(two);
    ADD(net.body, "  %%v%d, %%v%d = split %%v%d {axis=1, sizes=[%d,%d]} : %s, %s\n", a, b, x, one.c, two.c,
        type_of(one), type_of(two));
    return below(2) ? a : b;
}

/* The mean of each channel: a matrix. */
static int flatten(int x)
{
    const image v = net.values[x];
    if (!v.h) return x;
    const int y = add_value((image){v.n, v.c, 0, v.low});
    ADD(net.body, "  %%v%d = reduce_mean %%v%d {axes=[2,3], keepdims=false} : %s\n", y, x, type_of(net.values[y]));
    return y;
}

static int product(int x)
{
    image to = net.values[x];
    if (to.h) return conv(x);
    to.c = 1 + below(20);
    const bool trans = below(2);
    const int from = net.values[x].c;
    const char *w = param('w', trans ? dims_of(to.c, from, 0, 0) : dims_of(from, to.c, 0, 0), to.low);
    char bias[16] = "_";
    if (below(2)) (void)snprintf(bias, sizeof bias, "%s", param('b', dims_of(to.c, 0, 0, 0), to.low));
    const int y = add_value(to);
    ADD(net.body, "  %%v%d = matmul %%v%d, %s, %s {trans_b=%s} : %s\n", y, x, w, bias, trans ? "true" : "false",
        type_of(to));
    return y;
}

/* Draws a network whose last values are outputs. */
static void make_network(uint64_t seed)
{
    state = seed * 0x9e3779b97f4a7c15u + 12345;
    net.params[0] = net.body[0] = '\0';
    net.n_values = net.n_params = 0;
    const image first = {1 + below(2), below(2) ? 16 : 3, 1 + below(9), !below(3)};
    int x = add_value(first);
    ADD(net.body, "  %%v0 = %s : %s\n", first.low ? "cast @x {to=bf16}" : "neg @x", type_of(first));
    bool is_product = false; /* x is one, which is likely to be normalised */
    for (int i = 0; i < 12 && net.n_values < MAX_VALUES / 2; i++) {
        const bool next = is_product && below(3);
        const int kind = next ? 4 + 6 * !below(4) : below(16), from = next || below(5) ? x : below(net.n_values);
        is_product = kind < 4 || kind == 10 || kind == 15;
        x = kind < 4     ? product(from)
            : kind < 8   ? norm(from)
            : kind < 10  ? relu(from)
            : kind == 10 ? shift(from)
            : kind == 11 ? sum(from)
            : kind == 12 ? concat(from)
            : kind == 13 ? dense(from)
            : kind == 14 ? split(from)
                         : flatten(from);
    }
    for (int i = 0; i < net.n_values; i++)
        if ((i == x || !below(8)) && !net.is_output[i]) ADD(net.body, "  output \"y%d\" = %%v%d\n", i, i);
}

/* ---- runs ---------------------------------------------------------------------------------------------- */

static float value_for(char kind)
{
    return kind == 's' ? real(0.5F, 2) : kind == 'w' ? real(-0.3F, 0.3F) : real(-1, 1);
}

static void write_params(scratch *t, rt_session *s, uint64_t seed)
{
    state = seed;
    for (int i = 0; i < rt_session_storage_count(s); i++) {
        rt_tensor v;
        int64_t n = 1;
        rt_session_storage_at(s, i, &v, NULL);
        for (int j = 0; j < v.rank; j++) n *= v.dims[j];
        float *values = malloc((size_t)n * sizeof *values);
        for (int64_t j = 0; j < n; j++) values[j] = value_for(v.name[0]);
        assert_int_equal(rt_session_write(s, i, values, t->d), AMPC_OK);
        free(values);
    }
}

static double number_at(const rt_tensor *v, int64_t i)
{
    return ir_load_f64(v->dtype, (char *)v->data + (size_t)i * ir_dtype_size(v->dtype));
}

/* Largest difference, in terms of the largest number. */
static double distance(const rt_tensor *a, const rt_tensor *b)
{
    double largest = a->dtype == IR_f32 ? 1e-3 : 0.1, off = 0; /* sums may cancel */
    int64_t n = 1;
    for (int i = 0; i < a->rank; i++) n *= a->dims[i];
    for (int64_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs(number_at(b, i)));
        off = fmax(off, fabs(number_at(a, i) - number_at(b, i)));
    }
    return off / largest;
}

static float data[2 * 16 * 9 * 9];

static rt_tensor make_input(uint64_t seed)
{
    const image *v = &net.values[0];
    state = seed;
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) data[i] = real(-1, 1);
    return (rt_tensor){.name = "x", .dtype = IR_f32, .rank = 4, .dims = {v->n, v->c, v->h, v->h}, .data = data};
}

static void compare(scratch *t, rt_session *fused, rt_session *plain, uint64_t seed, const char *text)
{
    const image *v = &net.values[0];
    const rt_tensor x = make_input(seed);
    rt_session *const both[] = {fused, plain};
    for (int i = 0; i < 2; i++)
        if (rt_session_run(both[i], "g", &x, 1, t->d) != AMPC_OK)
            fail_msg("PLAN_SEED=%" PRIu64 ": %s\n%s", seed, diag_first_error(t->d), text);
    for (int i = 0; i < net.n_values; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "y%d", i);
        const rt_tensor *a = rt_session_output(fused, name), *b = rt_session_output(plain, name);
        if (!a) continue;
        const double off = distance(a, b), most = v->low ? 0.3 : 1e-4;
        if (!(off <= most)) fail_msg("PLAN_SEED=%" PRIu64 ": %s differs by %g\n%s", seed, name, off, text);
    }
}

/* Every step of the plain session is counted apart. */
static void compare_counts(scratch *t, rt_session *fused, rt_session *plain, uint64_t seed, const char *text)
{
    const rt_calibrator_options o = {.limit = 1};
    const rt_tensor x = make_input(seed);
    rt_session *const both[] = {fused, plain};
    rt_calibrator *c[2];
    arena *memory = arena_new(0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rt_calibrator_open(both[i], module, &o, memory, t->d, &c[i]), AMPC_OK);
        for (int run = 0; run < 2; run++)
            assert_int_equal(rt_calibrator_run(c[i], ir_graph_find(module, "g"), &x, 1, NULL, t->d), AMPC_OK);
    }
    const rt_calibration *a = rt_calibrator_result(c[0]), *b = rt_calibrator_result(c[1]);
    bool same = a->tensors.count == b->tensors.count;
    for (size_t i = 0; i < a->tensors.count && same; i++) {
        const rt_calibrated *r = a->tensors.items[i], *q = b->tensors.items[i];
        same = !strcmp(r->name, q->name) && !memcmp(&r->numbers, &q->numbers, sizeof r->numbers);
    }
    if (!same) fail_msg("PLAN_SEED=%" PRIu64 ": other statistics\n%s", seed, text);
    for (int i = 0; i < 2; i++) rt_calibrator_close(c[i]);
    arena_free(memory);
}

static void check(scratch *t, uint64_t seed)
{
    static char text[2 * MAX_TEXT + 200];
    rt_session *fused, *plain;
    make_network(seed);
    image input = net.values[0];
    input.low = false;
    (void)snprintf(text, sizeof text, "%sgraph @g(@x : %s) {\nforward:\n%s}\n", net.params, type_of(input), net.body);
    if (getenv("PLAN_SEED")) (void)puts(text);
    load(t, text);
    if (rt_session_open(module, &(rt_session_options){.threads = 1}, t->d, &fused) ||
        rt_session_open(module, &(rt_session_options){.threads = 1, .no_fuse = true}, t->d, &plain))
        fail_msg("%s", diag_first_error(t->d));
    for (uint64_t i = 0; i < 2; i++) {
        write_params(t, fused, seed + i);
        write_params(t, plain, seed + i);
        compare(t, fused, plain, seed, text);
    }
    if (seed % COUNTED == 0) compare_counts(t, fused, plain, seed, text);
    rt_session_close(fused);
    rt_session_close(plain);
    ir_module_free(module);
    module = NULL;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

TEST_SCRATCH(random_networks_keep_their_values)
{
    const uint64_t only = number("PLAN_SEED", UINT64_MAX), n = number("PLAN_NETWORKS", NETWORKS);
    for (uint64_t seed = 0; seed < n && only == UINT64_MAX; seed++) check(t, seed);
    if (only != UINT64_MAX) check(t, only);
}
