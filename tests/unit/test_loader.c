/* test_loader.c - mapping data set samples to the inputs of a graph: shapes, symbols, partial batches, errors. */
#include "ir/base/philox.h"
#include "kernels/ranks.h"
#include "runtime/data/loader.h"
#include "tests/module.h"
#include "tests/unit/scratch.h"

enum { MAX_INPUTS = 4, ROWS = 23 };

/* Loads a graph with these inputs: "@x : f32[N,T], @label : i64[N*T]". */
static ir_module *load_inputs(scratch *t, const char *inputs)
{
    char *text;
    assert_true(asprintf(&text, "graph @g(%s) {\nforward:\n  output \"y\" = @x\n}\n", inputs) > 0);
    ir_module *m = test_module(t->d, text);
    free(text);
    return m;
}

/* Parses "x 2x3, label" -> f32 x [2,3], i64 label []; names that start with f or x are floats, "x =2x3" is whole. */
static size_t read_fields(const char *text, char names[MAX_INPUTS][16], rt_field *fields)
{
    size_t n = 0;
    while (*text) {
        rt_field *f = &fields[n];
        size_t length = strcspn(text, " ,");
        snprintf(names[n], sizeof names[n], "%.*s", (int)length, text);
        *f = (rt_field){.name = names[n], .dtype = strchr("fx", *text) ? IR_f32 : IR_i64, .bound = 1000};
        text += length;
        if (*text == ' ' && text[1]) text++;
        if ((f->whole = *text == '=')) text++;
        while (*text >= '0' && *text <= '9') {
            f->dims[f->rank++] = strtoll(text, (char **)&text, 10);
            if (*text == 'x') text++;
        }
        text += strspn(text, ", ");
        n++;
    }
    return n;
}

static rt_dataset *make_data(scratch *t, const rt_field *fields, size_t n, int64_t rows)
{
    char spec[64];
    rt_dataset *data = NULL;
    const rt_dataset_options o = {.fields = fields, .n_fields = n, .seed = 7};
    snprintf(spec, sizeof spec, "synthetic,rows=%lld", (long long)rows);
    assert_int_equal(rt_dataset_open(spec, &o, t->d, &data), AMPC_OK);
    return data;
}

static const char *print_shapes(const rt_loader *f, char *text, size_t n)
{
    size_t at = 0;
    for (int i = 0; i < rt_loader_count(f); i++)
        for (int k = 0; k < rt_loader_inputs(f)[i].rank; k++)
            at += (size_t)snprintf(text + at, n - at, "%s%lld",
                                   k   ? "x"
                                   : i ? " "
                                       : "",
                                   (long long)rt_loader_inputs(f)[i].dims[k]);
    return text;
}

/* clang-format off */
static const struct {
    const char *inputs, *fields; /* fields NULL: those of synthetic data, which always fit the graph */
    int64_t batch, n;            /* n: the size of N from the options, 0: not set */
    const char *shapes, *error;
} rows[] = {
    {"@x : f32[N,4], @label : i64[N] as label", "x 4, label", 5, 0, "5x4 5", NULL},
    {"@x : f32[N,1,28,28], @label : i64[N] as label", "x 28x28, label", 3, 0, "3x1x28x28 3", NULL},
    {"@x : f32[N,4], @label : i64[128*N] as label", "x 4, label 128", 3, 0, "3x4 384", NULL},
    {"@x : f32[N,4], @label : i64[128*N] as label", "x 4, label 16x8", 3, 0, "3x4 384", NULL},
    {"@x : f32[N,T], @label : i64[N*T] as label", "x 6, label 6", 4, 0, "4x6 24", NULL},
    {"@label : i64[N*T] as label, @x : f32[N,T]", "x 6, label 6", 4, 0, NULL, "more than one symbol"},
    {"@x : f32[N,T,U], @label : i64[N*T,U+1] as label", "x 6x2, label 6x3", 4, 0, "4x6x2 24x3", NULL},
    {"@x : f32[N,T,8]", "x 40", 2, 0, "2x5x8", NULL},
    {"@x : f32[2*N,3]", "x 2x3", 4, 0, "8x3", NULL},
    {"@x : f32[2*N,T]", "x 2x3", 4, 0, "8x3", NULL},
    {"@x : f32[16,4], @label : i64[2048] as label", "x 4, label 128", 0, 0, "16x4 2048", NULL},
    {"@x : f32[16,4], @label : i64[M] as label", "x 4, label", 16, 0, "16x4 16", NULL},
    {"@x : f32[N,4], @label : i64[128*N] as label", "x 4, label 128", 0, 3, "3x4 384", NULL},
    {"@x : f32[N,4], @label : i64[128*N] as label", "x 4, label 128", 4, 3, NULL,
     "a batch of 4 does not fit input 'x', which has 3 samples"},
    {"@x : f32[N,4], @label : i64[128*N] as label", "x 4, label 100", 3, 0, NULL,
     "one sample of 'label' is i64[100], which does not fit input 'label' of type i64[128*N] in a batch of 3"},
    {"@x : f32[N,4], @label : i64[N+1] as label", "x 4, label", 3, 0, NULL, "of type i64[N+1] in a batch of 3"},
    {"@x : f32[N,4], @label : i64[M] as label", "x 4, label", 3, 0, "3x4 3", NULL}, /* M counts samples, too */
    {"@x : f32[N,T], @mask : f32[M,U], @label : i64[N] as label", "x 5, mask 5, label", 3, 0, "3x5 3x5 3", NULL},
    {"@x : f32[N,T], @h : f32[L,M,8], @label : i64[N] as label", "x 5, h =2x3x8, label", 3, 0, "3x5 2x3x8 3", NULL},
    {"@x : f32[N,4], @label : i64[M] as label", "x 4, label 7", 3, 0, NULL,
     "neither the batch (N, the first dimension of input 'x') nor the data determine M; add M=SIZE to dim"},
    {"@x : f32[N,4], @label : i64[N*M] as label", "x 4, label 7", 3, 0, "3x4 21", NULL},
    {"@x : f32[N,T,U]", "x 12", 3, 0, NULL, "determine T, U; add T=SIZE to dim and so on"},
    {"@x : f32[N,T,U], @y : f32[N,V,W]", "x 12, y 6", 3, 0, NULL,
     "determine T, U, V, W; add T=SIZE to dim and so on"},
    {"@x : f32[N,T], @label : i64[N] as label", "x 3x4, label", 2, 0, "2x12 2", NULL},
    {"@x : f32[N,4]", "x 4", 0, 0, NULL, "no fixed batch size: specify one"},
    {"@x : f32[N,4], @f : f32[]", "x 4, f =", 3, 0, "3x4", NULL},
    {"@x : f32[N,4], @f : f32[]", "x 4, f", 3, 0, NULL,
     "one sample of 'f' is f32[], which does not fit input 'f' of type f32[] in a batch of 3"},
    {"@x : f32[9,4], @f : f32[2,4,5]", "x 4, f =2x4x5", 0, 0, "9x4 2x4x5", NULL},
    {"@x : f32[9,4], @f : f32[2,4,5]", "x 4, f =40", 0, 0, "9x4 2x4x5", NULL},
    {"@x : f32[9,4], @f : f32[2,T,5]", "x 4, f =2x4x5", 0, 0, "9x4 2x4x5", NULL},
    {"@x : f32[9,4], @f : f32[2,4,5]", "x 4, f =2x4x6", 0, 0, NULL,
     "'f' is f32[2,4,6], which does not fit input 'f' of type f32[2,4,5], the same for every batch"},
    {"@x : f32[N,4], @f : f32[2,N,5]", "x 4, f 2x5", 3, 0, "3x4 2x3x5", NULL},
    {"@x : f32[N,4], @f : f32[2,N,H]", "x 4, f 2x5", 3, 0, "3x4 2x3x5", NULL},
    {"@x : f32[N,4], @ids : i64[N]", "x 4, label", 3, 0, NULL, "the data have no field for input 'ids', only: x, label"},
    {"@x : f32[N,4], @label : i64[N] as label", "x 4, y", 3, 0, "3x4 3", NULL}, /* "y" may be the labels */
    {"@ids : i64[N,4], @x : f32[N]", "label 4, x", 3, 0, NULL, "the data have no field for input 'ids'"},
    {"@x : f32[N,4], @label : i64[128*N] as label", NULL, 3, 0, "3x4 384", NULL},
    {"@x : f32[N,T], @label : i64[N*T] as label", NULL, 3, 0, "3x1 3", NULL},
    {"@x : f32[N,4], @label : i64[128*N] as label", NULL, 0, 2, "2x4 256", NULL},
    {"@x : f32[16,4], @label : i64[2048] as label", NULL, 0, 0, "16x4 2048", NULL},
    {"@x : f32[3*N,4], @label : i64[N,2] as label", NULL, 2, 0, "6x4 2x2", NULL},
    {"@x : f32[N,4], @f : f32[2,N,5], @scale : f32[]", NULL, 3, 0, "3x4 2x3x5", NULL},
    {"@x : i64[9,4], @f : f32[2,4,32], @label : i64[36] as label", NULL, 0, 0, "9x4 2x4x32 36", NULL},
    {"@x : i64[4,9], @f : f32[2,4,32], @label : i64[T] as label", NULL, 0, 0, "4x9 2x4x32 4", NULL},
};
/* clang-format on */

TEST_SCRATCH(test_rows)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char names[MAX_INPUTS][16], shapes[128];
        rt_field written[MAX_INPUTS], *fields = written, *synthetic = NULL;
        ir_module *m = load_inputs(t, rows[i].inputs);
        const ir_graph *g = ir_graph_find(m, "g");
        int64_t sizes[8] = {rows[i].n ? rows[i].n : -1, -1, -1, -1, -1, -1, -1, -1};
        size_t n;
        if (rows[i].fields) n = read_fields(rows[i].fields, names, fields);
        else assert_int_equal(rt_loader_fields(g, sizes, t->d, &synthetic, &n), AMPC_OK);
        if (synthetic) fields = synthetic;
        rt_dataset *data = make_data(t, fields, n, ROWS);
        rt_loader *feed = NULL;
        ampc_status s = rt_loader_open(g, data, sizes, rows[i].batch, t->d, &feed);
        if (s == AMPC_OK) s = rt_loader_next(feed, &(rt_position){0}, t->d);
        if (rows[i].error) {
            if (s == AMPC_OK) fail_msg("accepted: %s", rows[i].inputs);
            scratch_expect(t, rows[i].error);
        } else {
            if (s != AMPC_OK) fail_msg("%s: %s", rows[i].inputs, diag_first_error(t->d));
            assert_string_equal(print_shapes(feed, shapes, sizeof shapes), rows[i].shapes);
        }
        free(synthetic);
        rt_loader_close(feed);
        rt_dataset_close(data);
        ir_module_free(m);
    }
}

/* ---- random shapes ---- */

static uint64_t drawn;
static int64_t draw(int64_t below) { return (int64_t)philox_below(philox_bits(11, 0, drawn++), (uint64_t)below); }

typedef struct shape {
    char input[96]; /* "f32[3*N*T,2]" */
    rt_field field;
    int64_t lead, rest; /* rows per sample, elements per row */
    bool tokens;        /* the row count is a multiple of T */
} shape;

/* The first input is [N,T], so T is inferred from the data. The others are arbitrary. */
static void draw_shape(shape *s, int index, int64_t tokens)
{
    static const char *const names[] = {"x", "a", "b", "label"};
    bool first = index == 0, split = draw(2);
    int64_t scale = first ? 1 : 1 + draw(3), width = draw(3), in_width = draw(2);
    s->tokens = !first && draw(2);
    s->field = (rt_field){.name = names[index], .dtype = first ? IR_f32 : IR_i64, .bound = 50};
    s->lead = scale * (s->tokens ? tokens : 1);
    size_t at = (size_t)snprintf(s->input, sizeof s->input, "%s[%lld*N%s%s", first ? "f32" : "i64", (long long)scale,
                                 s->tokens ? "*T" : "", first ? ",T" : "");
    s->rest = first ? tokens : 1;
    if (width)
        at += (size_t)snprintf(s->input + at, sizeof s->input - at, ",%lld%s", (long long)width, in_width ? "*T" : "");
    if (width) s->rest *= width * (in_width ? tokens : 1);
    snprintf(s->input + at, sizeof s->input - at, "]");
    if (first) {
        s->field.dims[s->field.rank++] = tokens;
        if (width) s->field.dims[s->field.rank++] = s->rest / tokens;
    } else if (split) {
        s->field.dims[s->field.rank++] = s->lead;
        s->field.dims[s->field.rank++] = s->rest;
    } else {
        s->field.dims[s->field.rank++] = s->lead * s->rest;
    }
}

static void expect_slice(scratch *t, rt_loader *feed, const rt_dataset *data, const shape *shapes, int n, int64_t first,
                         int64_t count)
{
    static char wanted[1 << 20];
    if (rt_loader_slice(feed, first, count, t->d) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    for (int i = 0; i < n; i++) {
        const rt_tensor *got = &rt_loader_inputs(feed)[i];
        int64_t elements = 1;
        for (int k = 0; k < got->rank; k++) elements *= got->dims[k];
        assert_int_equal(got->dims[0], count * shapes[i].lead);
        assert_int_equal(elements, count * shapes[i].lead * shapes[i].rest);
        size_t bytes = (size_t)elements * ir_dtype_size(got->dtype);
        assert_true(bytes <= sizeof wanted);
        assert_int_equal(rt_dataset_slice(data, first, count, (size_t)i, wanted, got->dtype, t->d), AMPC_OK);
        assert_memory_equal(got->data, wanted, bytes);
    }
}

TEST_SCRATCH(test_random_shapes)
{
    for (int round = 0; round < 300; round++) {
        shape shapes[MAX_INPUTS];
        rt_field fields[MAX_INPUTS];
        char inputs[2048] = "";
        int n = 1 + (int)draw(MAX_INPUTS);
        int64_t tokens = 1 + draw(9), batch = 1 + draw(7);
        for (int i = 0; i < n; i++) {
            draw_shape(&shapes[i], i, tokens);
            fields[i] = shapes[i].field;
            size_t at = strlen(inputs);
            snprintf(inputs + at, sizeof inputs - at, "%s@%s : %s", i ? ", " : "", fields[i].name, shapes[i].input);
        }
        ir_module *m = load_inputs(t, inputs);
        rt_dataset *data = make_data(t, fields, (size_t)n, ROWS);
        rt_loader *feed = NULL;
        if (rt_loader_open(ir_graph_find(m, "g"), data, NULL, batch, t->d, &feed) != AMPC_OK)
            fail_msg("%s: %s", inputs, diag_first_error(t->d));
        for (int64_t first = 0; first < ROWS; first += batch)
            expect_slice(t, feed, data, shapes, n, first, ROWS - first < batch ? ROWS - first : batch);
        assert_int_equal(rt_loader_next(feed, &(rt_position){.seed = 3}, t->d), AMPC_OK);
        assert_int_equal(rt_loader_samples(feed), batch);
        rt_loader_close(feed);
        rt_dataset_close(data);
        ir_module_free(m);
    }
}

/* The shares of any number of ranks, one after the other, are the batches of one; an epoch drops the same samples. */
TEST_SCRATCH(test_shares)
{
    enum { WHOLE = 7, STEPS = 5, MOST = 5 };
    const rt_field field = {.name = "x", .dtype = IR_i64, .bound = 1000};
    ir_module *m = load_inputs(t, "@x : i64[N]");
    rt_dataset *data = make_data(t, &field, 1, ROWS);
    int64_t all[STEPS * WHOLE];
    for (int ranks = 1; ranks <= MOST; ranks++)
        for (int r = 0; r < ranks; r++) {
            int64_t first, n = k_rank_part(WHOLE, r, ranks, &first);
            rt_loader *feed = NULL;
            rt_position at = {.seed = 3};
            assert_int_equal(rt_loader_open(ir_graph_find(m, "g"), data, NULL, n, t->d, &feed), AMPC_OK);
            rt_loader_share(feed, WHOLE, first);
            for (int i = 0; i < STEPS; i++) {
                assert_int_equal(rt_loader_next(feed, &at, t->d), AMPC_OK);
                int64_t *to = all + i * WHOLE + first;
                if (ranks == 1) memcpy(to, rt_loader_inputs(feed)->data, (size_t)n * sizeof *to);
                else assert_memory_equal(to, rt_loader_inputs(feed)->data, (size_t)n * sizeof *to);
                rt_position_advance(&at, data, WHOLE);
            }
            rt_loader_close(feed);
        }
    rt_dataset_close(data);
    ir_module_free(m);
}

/* Samples along the second dimension, of a batch that is fixed or not; the last batch is smaller. An input without
 * samples is the same in every batch. */
TEST_SCRATCH(test_places_of_samples)
{
    static const char *const models[] = {"@x : i64[N,1], @f : f32[2,N,3], @first : f32[4]",
                                         "@x : i64[5,1], @f : f32[2,5,3], @first : f32[4]"};
    enum { BATCH = 5, LAST = 3, LAYERS = 2, UNITS = 3, WHOLE = 4 };
    const rt_field fields[] = {{.name = "x", .dtype = IR_i64, .rank = 1, .dims = {1}, .bound = 9},
                               {.name = "f", .dtype = IR_f32, .rank = 2, .dims = {LAYERS, UNITS}},
                               {.name = "first", .dtype = IR_f32, .whole = true, .rank = 1, .dims = {WHOLE}}};
    for (int fixed = 0; fixed < 2; fixed++) {
        rt_loader *feed = NULL;
        float samples[BATCH][LAYERS][UNITS], first[WHOLE], again[WHOLE];
        ir_module *m = load_inputs(t, models[fixed]);
        rt_dataset *data = make_data(t, fields, 3, BATCH + LAST);
        assert_int_equal(rt_loader_open(ir_graph_find(m, "g"), data, NULL, BATCH, t->d, &feed), AMPC_OK);
        assert_int_equal(rt_dataset_slice(data, 0, 1, 2, first, IR_f32, t->d), AMPC_OK);
        assert_int_equal(rt_dataset_slice(data, 4, 2, 2, again, IR_f32, t->d), AMPC_OK);
        assert_memory_equal(first, again, sizeof first);
        for (int64_t from = 0; from <= BATCH; from += BATCH) {
            const int64_t count = from ? LAST : BATCH, filled = from && !fixed ? LAST : BATCH;
            if (rt_loader_slice(feed, from, count, t->d) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
            assert_int_equal(rt_dataset_slice(data, from, count, 1, samples, IR_f32, t->d), AMPC_OK);
            for (int64_t n = count; n < filled; n++) memcpy(samples[n], samples[count - 1], sizeof samples[n]);
            const float *got = rt_loader_inputs(feed)[1].data;
            assert_int_equal(rt_loader_inputs(feed)[1].dims[1], filled);
            for (int layer = 0; layer < LAYERS; layer++)
                for (int64_t n = 0; n < filled; n++, got += UNITS)
                    assert_memory_equal(got, samples[n][layer], sizeof samples[n][layer]);
            assert_memory_equal(rt_loader_inputs(feed)[2].data, first, sizeof first);
        }
        rt_loader_close(feed);
        rt_dataset_close(data);
        ir_module_free(m);
    }
}

/* Random indices stay within the indexed axis, even through casts and reshapes. */
TEST_SCRATCH(test_bounds)
{
    rt_field *fields;
    size_t n;
    ir_module *m = test_module(t->d,
                               "param @table : f32[6,5] = zero\n"
                               "graph @g(@x : i64[N,4], @mask : i64[N,4], @label : i32[N,4] as label) {\nforward:\n"
                               "  %e = gather @table, @x {axis=0} : f32[N,4,5]\n"
                               "  %logits = reshape %e {shape=[4*N,5]} : f32[4*N,5]\n"
                               "  %wide = cast @label {to=i64} : i64[N,4]\n"
                               "  %flat = reshape %wide {shape=[4*N]} : i64[4*N]\n"
                               "  %loss, %lse, %p = softmax_cross_entropy %logits, %flat {ignore_index=-100} : "
                               "f32[], f32[4*N], f32[4*N,5]\n"
                               "  output \"loss\" = %loss\n  output \"mask\" = @mask\n}\n");
    assert_int_equal(rt_loader_fields(ir_graph_find(m, "g"), NULL, t->d, &fields, &n), AMPC_OK);
    assert_int_equal(n, 3);
    assert_int_equal(fields[0].bound, 6);
    assert_int_equal(fields[1].bound, 0);
    assert_int_equal(fields[2].bound, 5);
    free(fields);
    ir_module_free(m);
}

/* The bound of a tuple of indices is that of its smallest axis; a batch axis does not count. */
TEST_SCRATCH(test_bounds_of_tuples)
{
    rt_field *fields;
    size_t n;
    ir_module *m = test_module(t->d, "param @table : f32[2,6,5,7] = zero\n"
                                     "graph @g(@x : i64[2,2], @y : i64[2,3,1], @z : i64[2,6,4,7]) {\nforward:\n"
                                     "  %a = gather_nd @table, @x : f32[2,5,7]\n"
                                     "  %b = gather_nd @table, @y {batch=1} : f32[2,3,5,7]\n"
                                     "  %c = gather_elements @table, @z {axis=2} : f32[2,6,4,7]\n"
                                     "  output \"a\" = %a\n  output \"b\" = %b\n  output \"c\" = %c\n}\n");
    assert_int_equal(rt_loader_fields(ir_graph_find(m, "g"), NULL, t->d, &fields, &n), AMPC_OK);
    assert_int_equal(fields[0].bound, 2);
    assert_int_equal(fields[1].bound, 6);
    assert_int_equal(fields[2].bound, 5);
    free(fields);
    ir_module_free(m);
}

/* A size that is not proportional to the batch is an error where it stops fitting, rather than a wrong run. */
TEST_SCRATCH(test_partial_batch_does_not_fit)
{
    rt_loader *feed = NULL;
    const rt_field field = {.name = "x", .dtype = IR_f32, .rank = 1, .dims = {5}};
    ir_module *m = load_inputs(t, "@x : f32[N,N]");
    rt_dataset *data = make_data(t, &field, 1, ROWS);
    assert_int_equal(rt_loader_open(ir_graph_find(m, "g"), data, NULL, 5, t->d, &feed), AMPC_OK);
    assert_int_equal(rt_loader_slice(feed, 0, 5, t->d), AMPC_OK);
    assert_int_equal(rt_loader_slice(feed, 20, 3, t->d), AMPC_REJECTED);
    scratch_expect(t, "of type f32[N,N] in a batch of 3");
    rt_loader_close(feed);
    rt_dataset_close(data);
    ir_module_free(m);
}
