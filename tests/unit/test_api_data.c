/* test_api_data.c - training and evaluation on data of the caller: arrays and functions give the same bits, for any
 * number of threads that read ahead, and a function that fails ends the run. */
#include "tests/unit/api_handles.h"

#include <stdatomic.h>

enum { ROWS = 40, BATCH = 8, STEPS = 7 };

typedef struct samples {
    float x[ROWS][4];
    int64_t label[ROWS];
    int fails_at; /* row; -1: none */
    atomic_int calls;
} samples;

static samples own;

static int set_up(void **state)
{
    own = (samples){.fails_at = -1};
    for (int i = 0; i < ROWS * 4; i++) own.x[i / 4][i % 4] = (float)(i * 37 % 19) / 9 - 1;
    for (int i = 0; i < ROWS; i++) own.label[i] = own.x[i][0] > 0;
    return set_up_handles(state);
}

static int read_row(void *user, int64_t row, size_t field, void *dst)
{
    samples *d = user;
    d->calls++;
    if (row == d->fails_at) return 3;
    if (field == 0) memcpy(dst, d->x[row], sizeof d->x[row]);
    else memcpy(dst, &d->label[row], sizeof *d->label);
    return 0;
}

/* In memory, or by the function. */
static ampc_data *describe(handles *h, bool in_memory, const char *options)
{
    ampc_data *data;
    ampc_data_field fields[] = {{.name = "x", .dtype = AMPC_F32, .rank = 1, .dims = {4}},
                                {.name = "label", .dtype = AMPC_I64}};
    if (in_memory) {
        fields[0].data = own.x;
        fields[1].data = own.label;
    }
    const ampc_data_options o = {.struct_size = sizeof o,
                                 .fields = fields,
                                 .n_fields = 2,
                                 .rows = ROWS,
                                 .read = in_memory ? NULL : read_row,
                                 .user = &own,
                                 .options = options};
    OK(h->c, ampc_data_create(h->c, &o, &data));
    return data;
}

/* Trains a new session; returns its first weight. */
static ampc_tensor *train(handles *h, bool in_memory, int workers)
{
    ampc_session *s;
    ampc_tensor *weight;
    ampc_data *data = describe(h, in_memory, NULL);
    const ampc_train_options how = {
        .struct_size = sizeof how, .dataset = data, .steps = STEPS, .batch = BATCH, .seed = 5, .workers = workers};
    OK(h->c, ampc_session_open(h->m, &one_thread, &s));
    OK(h->c, ampc_train(s, &how));
    OK(h->c, ampc_session_get(s, "param/fc1.weight", &weight));
    ampc_session_free(s);
    ampc_data_free(data);
    return weight;
}

#define TEST_DATA(name) TEST_WITH(set_up, tear_down_handles, handles *h, name)

TEST_DATA(test_same_bits)
{
    ampc_tensor *expected = train(h, true, -1), *initial;
    OK(h->c, ampc_session_get(h->s, "param/fc1.weight", &initial));
    assert_memory_not_equal(ampc_tensor_data(initial), ampc_tensor_data(expected), ampc_tensor_bytes(expected));
    for (int workers = -1; workers < 4; workers++) {
        ampc_tensor *have = train(h, false, workers);
        assert_memory_equal(ampc_tensor_data(have), ampc_tensor_data(expected), ampc_tensor_bytes(expected));
        ampc_tensor_free(have);
    }
    ampc_tensor_free(expected);
    ampc_tensor_free(initial);
}

static void count_evaluations(void *user, int64_t step, const ampc_evaluation *result)
{
    ++*(int *)user;
    assert_true(step > 0);
    assert_int_equal(result->samples, ROWS / 4);
}

/* All rows, or the part that is held out; the data set serves both calls. */
TEST_DATA(test_evaluation)
{
    int evaluations = 0;
    ampc_evaluation called = {.struct_size = sizeof called}, held = called, stored = called;
    ampc_data *function = describe(h, false, NULL), *memory = describe(h, true, NULL),
              *part = describe(h, true, "validation=0.25");
    OK(h->c, ampc_evaluate_data(h->s, function, 0, NULL, &called));
    OK(h->c, ampc_evaluate_data(h->s, memory, 16, NULL, &stored));
    OK(h->c, ampc_evaluate_data(h->s, part, 0, NULL, &held));
    assert_int_equal(called.samples, ROWS);
    assert_int_equal(stored.samples, ROWS);
    assert_int_equal(held.samples, ROWS / 4);
    assert_float_equal(called.loss, stored.loss, 1e-5);
    assert_true(called.accuracy == stored.accuracy);
    assert_in_range(own.calls, 2 * ROWS, 3 * ROWS);
    const ampc_train_options how = {.struct_size = sizeof how,
                                    .dataset = part,
                                    .eval_dataset = part,
                                    .epochs = 2,
                                    .batch = BATCH,
                                    .evaluated = count_evaluations,
                                    .user = &evaluations};
    OK(h->c, ampc_train(h->s, &how));
    assert_int_equal(evaluations, 2);
    ampc_data_free(function);
    ampc_data_free(memory);
    ampc_data_free(part);
}

/* The names of an evaluation are those of its data, or else of the training; they stay when the data are gone. */
TEST_DATA(test_class_names)
{
    ampc_evaluation e = {.struct_size = sizeof e};
    ampc_data *plain = describe(h, true, NULL), *named = describe(h, true,
                                                                  "classes=ash+b\xc3\xa9"
                                                                  "ch");
    OK(h->c, ampc_evaluate_data(h->s, plain, 0, NULL, &e));
    assert_true(!e.class_names && !e.n_class_names);
    const ampc_train_options how = {.struct_size = sizeof how, .dataset = named, .steps = 1, .batch = BATCH};
    OK(h->c, ampc_train(h->s, &how));
    ampc_data_free(named);
    OK(h->c, ampc_evaluate_data(h->s, plain, 0, NULL, &e));
    ampc_data_free(plain);
    assert_int_equal(e.n_class_names, 2);
    assert_string_equal(e.class_names[0], "ash");
    assert_string_equal(e.class_names[1], "b\xc3\xa9"
                                          "ch");
    plain = describe(h, true, "classes=x+y");
    expect_failure(ampc_evaluate_data(h->s, plain, 0, NULL, &e), AMPC_USAGE, h->c, "the training had other classes");
    ampc_data_free(plain);
    e.struct_size = offsetof(ampc_evaluation, class_names); /* a program of an older version */
    e.class_names = NULL;
    plain = describe(h, true, NULL);
    OK(h->c, ampc_evaluate_data(h->s, plain, 0, NULL, &e));
    assert_null(e.class_names);
    ampc_data_free(plain);
}

TEST_DATA(test_failures)
{
    ampc_evaluation e = {.struct_size = sizeof e};
    ampc_data *data = describe(h, false, NULL);
    ampc_train_options how = {.struct_size = sizeof how, .dataset = data, .epochs = 1, .batch = BATCH};
    own.fails_at = 17;
    expect_failure(ampc_train(h->s, &how), AMPC_IO, h->c, "failed with code 3 for row 17");
    expect_failure(ampc_evaluate_data(h->s, data, 0, NULL, &e), AMPC_IO, h->c, "failed with code 3 for row 17");
    how.data = "synthetic";
    expect_failure(ampc_train(h->s, &how), AMPC_USAGE, h->c, "two data sets");
    ampc_data_free(data);
    const ampc_data_field only = {.name = "x", .dtype = AMPC_F32, .rank = 1, .dims = {3}, .data = own.x};
    const ampc_data_options o = {.struct_size = sizeof o, .fields = &only, .n_fields = 1, .rows = ROWS};
    OK(h->c, ampc_data_create(h->c, &o, &data));
    how.data = NULL;
    how.dataset = data;
    expect_failure(ampc_train(h->s, &how), AMPC_REJECTED, h->c, "label");
    ampc_data_free(data);
}
