/* test_prefetch.c - batches that threads read ahead: the same bytes for any number of threads, errors at the batch that
 * has them, jumps and early ends; and data sets over the caller's memory and function. */
#include "runtime/data/loader.h"
#include "tests/data.h"
#include "tests/unit/scratch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { ROWS = 23, BATCH = 4, BATCHES = ROWS / BATCH, WIDTH = 5, NEVER = 1000 };

/* A source whose rows are functions of their numbers. */
typedef struct producer {
    atomic_llong bad_row;
    atomic_int bad_calls, calls, elsewhere; /* of the bad row; all; in other threads than the first */
    pthread_t thread;
    bool slow;
} producer;

static int read_row(void *user, int64_t row, size_t field, void *dst)
{
    producer *p = user;
    if (p->slow) nanosleep(&(struct timespec){.tv_nsec = (row * 7 % 5) * 100000}, NULL);
    p->calls++;
    p->elsewhere += !pthread_equal(p->thread, pthread_self());
    if (row == p->bad_row) {
        p->bad_calls++;
        return 17;
    }
    for (int k = 0; field == 0 && k < WIDTH; k++) ((float *)dst)[k] = (float)(row * 10 + k);
    if (field == 1) *(int64_t *)dst = row;
    return 0;
}

static const rt_source_field called[] = {{.field = {.name = "x", .dtype = IR_f32, .rank = 1, .dims = {WIDTH}}},
                                         {.field = {.name = "label", .dtype = IR_i64}}};

static rt_dataset *open_source(scratch *t, producer *p, bool one_thread, const char *options)
{
    const rt_source source = {.fields = called,
                              .n_fields = 2,
                              .rows = ROWS,
                              .read = read_row,
                              .user = p,
                              .one_thread = one_thread,
                              .options = options};
    rt_dataset *data = NULL;
    p->thread = pthread_self();
    assert_int_equal(rt_dataset_open_source(&source, RT_TRAIN, NULL, t->d, &data), AMPC_OK);
    return data;
}

static ir_module *load(scratch *t)
{
    static const char text[] =
        "ampc-ir 3\n"
        "graph @g(@label : i32[N] as label, @x : f16[5,N]) {\nforward:\n  output \"y\" = @x\n}\n";
    ir_module *m = NULL;
    assert_int_equal(ir_parse(text, sizeof text - 1, "feed.ir", t->d, &m), AMPC_OK);
    return m;
}

typedef struct feed {
    ir_module *m;
    rt_loader *loader;
} feed;

static feed open_feed(scratch *t, rt_dataset *data, int workers)
{
    const int64_t sizes[] = {BATCH};
    feed f = {.m = load(t)};
    assert_int_equal(rt_loader_open(ir_graph_find(f.m, "g"), data, sizes, BATCH, t->d, &f.loader), AMPC_OK);
    assert_int_equal(rt_loader_read_ahead(f.loader, workers, t->d), AMPC_OK);
    return f;
}

static void close_feed(feed *f)
{
    rt_loader_close(f->loader);
    ir_module_free(f->m);
}

/* ---- the same batches ---- */

/* Checks the inputs of a batch against the rows that the data set itself returns for the position. */
static void expect_batch(scratch *t, const feed *f, rt_dataset *data, const rt_position *p)
{
    uint16_t x[BATCH][WIDTH]; /* f16 */
    int32_t label[BATCH];
    const rt_tensor *in = rt_loader_inputs(f->loader);
    assert_int_equal(dataset_batch(data, p, BATCH, 0, x, IR_f16, t->d), AMPC_OK);
    assert_int_equal(dataset_batch(data, p, BATCH, 1, label, IR_i32, t->d), AMPC_OK);
    assert_memory_equal(in[0].data, label, sizeof label);
    for (int i = 0; i < BATCH; i++)
        for (int k = 0; k < WIDTH; k++) assert_true(((const uint16_t *)in[1].data)[k * BATCH + i] == x[i][k]);
}

TEST_SCRATCH(test_same_batches)
{
    static const int workers[] = {-1, 0, 1, 2, 3, 8};
    static const char *const options[] = {NULL, "order=file", "validation=0.4,split-seed=3",
                                          "limit=9,permute-labels=2"};
    for (size_t w = 0; w < sizeof workers / sizeof *workers; w++)
        for (size_t o = 0; o < sizeof options / sizeof *options; o++) {
            producer p = {.bad_row = NEVER, .slow = true}, q = p;
            rt_dataset *data = open_source(t, &p, false, options[o]), *other = open_source(t, &q, false, options[o]);
            feed f = open_feed(t, data, workers[w]);
            rt_position at = {.seed = 5};
            for (int i = 0; i < 3 * BATCHES; i++) {
                if (i == 7) at.epoch += 2; /* not the next batch: what was read ahead is discarded */
                assert_int_equal(rt_loader_next(f.loader, &at, t->d), AMPC_OK);
                expect_batch(t, &f, other, &at);
                rt_position_advance(&at, data, BATCH);
            }
            assert_int_equal(p.elsewhere > 0, workers[w] >= 0);
            close_feed(&f);
            rt_dataset_close(data);
            rt_dataset_close(other);
        }
}

/* ---- errors ---- */

TEST_SCRATCH(test_error_is_reported_when_its_batch_is_due)
{
    static const int workers[] = {-1, 1, 3};
    for (size_t w = 0; w < sizeof workers / sizeof *workers; w++)
        for (int64_t bad = 0; bad < BATCHES * BATCH; bad += 3) {
            producer p = {.bad_row = bad};
            rt_dataset *data = open_source(t, &p, false, "order=file");
            feed f = open_feed(t, data, workers[w]);
            rt_position at = {.seed = 5};
            for (int64_t i = 0; i < bad / BATCH; i++) {
                assert_int_equal(rt_loader_next(f.loader, &at, t->d), AMPC_OK);
                rt_position_advance(&at, data, BATCH);
            }
            assert_int_equal(diag_count(t->d, DIAG_ERROR), 0);
            assert_int_equal(rt_loader_next(f.loader, &at, t->d), AMPC_IO);
            assert_int_equal(diag_count(t->d, DIAG_ERROR), 1);
            char message[80];
            snprintf(message, sizeof message, "failed with code 17 for row %d of 'label'", (int)bad);
            scratch_expect(t, message);
            p.bad_row = NEVER; /* a failure that passes: the batch can be read again */
            assert_int_equal(rt_loader_next(f.loader, &at, t->d), AMPC_OK);
            close_feed(&f);
            rt_dataset_close(data);
        }
}

/* Loaders that are closed while threads still read. */
TEST_SCRATCH(test_early_end)
{
    for (int i = 0; i < 20; i++) {
        producer p = {.bad_row = NEVER, .slow = true};
        rt_dataset *data = open_source(t, &p, false, NULL);
        feed f = open_feed(t, data, 1 + i % 4);
        if (i % 5) assert_int_equal(rt_loader_next(f.loader, &(rt_position){.batch = 2}, t->d), AMPC_OK);
        close_feed(&f);
        rt_dataset_close(data);
    }
}

TEST_SCRATCH(test_one_thread)
{
    producer p = {.bad_row = NEVER};
    rt_dataset *data = open_source(t, &p, true, NULL);
    feed f = open_feed(t, data, 3);
    assert_int_equal(rt_loader_next(f.loader, &(rt_position){0}, t->d), AMPC_OK);
    assert_int_equal(p.elsewhere, 0);
    assert_int_equal(p.calls, 2 * BATCH); /* nothing is read ahead */
    close_feed(&f);
    rt_dataset_close(data);
}

/* ---- borrowed memory ---- */

TEST_SCRATCH(test_borrowed_memory)
{
    float x[ROWS][WIDTH], row[WIDTH], whole[3] = {1, 2, 3}, got[3];
    producer p = {.bad_row = NEVER, .thread = pthread_self()};
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < WIDTH; k++) x[i][k] = (float)(100 * i + k);
    const rt_source_field fields[] = {
        {.field = {.name = "x", .dtype = IR_f32, .rank = 1, .dims = {WIDTH}}, .data = x},
        {.field = {.name = "label", .dtype = IR_i64}},
        {.field = {.name = "w", .dtype = IR_f32, .whole = true, .rank = 1, .dims = {3}}, .data = whole}};
    rt_source source = {.fields = fields, .n_fields = 3, .rows = ROWS, .read = read_row, .user = &p};
    rt_dataset *data = NULL;
    assert_int_equal(rt_dataset_open_source(&source, RT_TRAIN, NULL, t->d, &data), AMPC_OK);
    assert_int_equal(rt_dataset_slice(data, 7, 1, 0, row, IR_f32, t->d), AMPC_OK);
    assert_memory_equal(row, x[7], sizeof row);
    x[7][2] = -1; /* it is the caller's memory, not a copy */
    assert_int_equal(rt_dataset_slice(data, 7, 1, 0, row, IR_f32, t->d), AMPC_OK);
    assert_true(row[2] == -1);
    assert_int_equal(rt_dataset_slice(data, 7, 2, 2, got, IR_f32, t->d), AMPC_OK);
    assert_memory_equal(got, whole, sizeof got);
    rt_dataset_close(data);
    source.n_fields = 1;
    assert_int_equal(rt_dataset_open_source(&source, RT_TRAIN, NULL, t->d, &data), AMPC_OK);
    assert_int_equal(rt_dataset_reading(data), RT_IN_MEMORY);
    rt_dataset_close(data);
}

TEST_SCRATCH(test_malformed_sources)
{
    static const float x[ROWS];
    static const struct {
        rt_source_field field;
        int64_t rows;
        const char *options, *message;
    } rows[] = {
        {{.field = {.name = "x", .dtype = IR_f32}, .data = x}, 0, NULL, "data of 0 rows"},
        {{.field = {.name = "x", .dtype = IR_f32}, .data = x}, INT64_MAX, NULL, "(the range is 1 to 2147483647)"},
        {{.field = {.name = "", .dtype = IR_f32}, .data = x}, ROWS, NULL, "field 0 of the data has no name"},
        {{.field = {.name = "x", .dtype = IR_f32}}, ROWS, NULL, "there is no function to read it"},
        {{.field = {.name = "x", .dtype = IR_f32, .rank = 99}, .data = x}, ROWS, NULL, "too many dimensions"},
        {{.field = {.name = "x", .dtype = IR_f32, .rank = 1, .dims = {INT64_MAX}}, .data = x}, ROWS, NULL, "too large"},
        {{.field = {.name = "x", .dtype = IR_f32}, .data = x}, ROWS, "rows=3", "unknown key 'rows'"},
        {{.field = {.name = "x", .dtype = IR_f32}, .data = x}, ROWS, "permute-labels=1", "finds no array of samples"},
    };
    rt_dataset *data = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const rt_source source = {
            .fields = &rows[i].field, .n_fields = 1, .rows = rows[i].rows, .options = rows[i].options};
        assert_int_equal(rt_dataset_open_source(&source, RT_TRAIN, NULL, t->d, &data), AMPC_USAGE);
        scratch_expect(t, rows[i].message);
    }
    const rt_source_field twice[] = {rows[0].field, rows[0].field};
    const rt_source same = {.fields = twice, .n_fields = 2, .rows = ROWS}, none = {.rows = ROWS};
    assert_int_equal(rt_dataset_open_source(&same, RT_TRAIN, NULL, t->d, &data), AMPC_USAGE);
    scratch_expect(t, "field 1 of the data has the name of an earlier one");
    assert_int_equal(rt_dataset_open_source(&none, RT_TRAIN, NULL, t->d, &data), AMPC_USAGE);
    scratch_expect(t, "the data have no fields");
}
