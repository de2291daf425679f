/* test_api_inspect.c - comparing precisions, predictions and the files of a training through ampc.h. */
#include "tests/unit/api_handles.h"

#include <dirent.h>
#include <math.h>

enum { ROWS = 32 };

/* ---- comparing --------------------------------------------------------------------------------- */

typedef struct summary {
    handles *h;
    int values, worst, backward;
    double error, largest, f32_error;
    bool noise;
} summary;

static void add_up(void *user, const ampc_compared *v)
{
    summary *s = user;
    assert_true(*v->tensor && v->elements > 0 && v->not_finite == 0);
    if (s->values && !v->noise) assert_true(!s->noise && v->error <= s->error); /* sorted, noise last */
    s->values++;
    s->worst += v->loses_most;
    s->backward += v->backward;
    s->noise = v->noise;
    s->error = v->error;
    if (!v->noise && !(v->error <= s->largest)) s->largest = v->error;
    if (!v->noise) s->f32_error = fmax(s->f32_error, v->f32_error);
    if (v->loses_most) assert_true(v->added > 0);
    assert_int_equal(ampc_check(s->h->s, "infer", NULL, 0, NULL), AMPC_USAGE); /* not during the callback */
}

static void compare(handles *h, const char *graph, summary *s)
{
    *s = (summary){.h = h};
    OK(h->c, ampc_compare(h->s, &training, graph, h->in, 2, add_up, s));
    assert_true(s->values > 3 && s->worst == 1);
    assert_true(s->f32_error < 1e-5);
    /* Far above it, but not as if the references had other weights. */
    assert_true(s->largest > 1e-5 && s->largest < 0.02);
}

TEST_HANDLES(test_compare)
{
    ampc_tensor *before, *after;
    summary s;
    for (int i = 0; i < 40; i++) OK(h->c, ampc_train_step(h->s, h->in, 2, NULL));
    const char *key = ampc_session_key(h->s, 0);
    OK(h->c, ampc_session_get(h->s, key, &before));
    compare(h, "grad", &s);
    assert_true(s.backward > 0);
    OK(h->c, ampc_compare(h->s, &training, "infer", h->in, 1, add_up, &(summary){.h = h}));
    OK(h->c, ampc_session_get(h->s, key, &after));
    assert_memory_equal(ampc_tensor_data(before), ampc_tensor_data(after), ampc_tensor_bytes(before));
    ampc_tensor_free(before);
    ampc_tensor_free(after);
    expect_failure(ampc_compare(h->s, &training, "train_step", h->in, 2, add_up, &s), AMPC_USAGE, h->c,
                   "changes the weights");
    OK(h->c, ampc_train_step(h->s, h->in, 2, NULL));
}

/* ---- predictions ------------------------------------------------------------------------------- */

static int count_lines(const char *path)
{
    FILE *f = fopen(path, "r");
    int lines = 0;
    assert_non_null(f);
    for (int c; (c = getc(f)) != EOF;) lines += c == '\n';
    fclose(f);
    return lines;
}

TEST_SCRATCH(test_predict)
{
    handles own = open_all(&training), *h = &own;
    const ampc_data_field fields[] = {
        {.name = "x", .dtype = AMPC_F32, .rank = 1, .dims = {4}, .data = ampc_tensor_data(h->in[0])},
        {.name = "label", .dtype = AMPC_I64, .data = ampc_tensor_data(h->in[1])}};
    const ampc_data_options o = {.struct_size = sizeof o, .fields = fields, .n_fields = 2, .rows = ROWS};
    ampc_data *data;
    OK(h->c, ampc_data_create(h->c, &o, &data));
    OK(h->c, ampc_predict_data(h->s, data, 5, scratch_path(t, "own.csv")));
    assert_int_equal(count_lines(scratch_path(t, "own.csv")), 1 + ROWS);
    OK(h->c, ampc_predict(h->s, "synthetic,rows=7", 0, scratch_path(t, "made.csv")));
    assert_int_equal(count_lines(scratch_path(t, "made.csv")), 1 + 7);
    OK(h->c, ampc_predict(h->s, "synthetic,rows=7", 0, scratch_path(t, "made.npz")));
    expect_failure(ampc_predict(h->s, "synthetic", 0, scratch_path(t, "made.txt")), AMPC_USAGE, h->c, ".npz or .csv");
    expect_failure(ampc_predict(h->s, "synthetic", 0, scratch_path(t, "none/made.csv")), AMPC_IO, h->c,
                   "none/made.csv");
    ampc_data_free(data);
    close_all(h);
}

/* ---- the files of a training ------------------------------------------------------------------- */

TEST_SCRATCH(test_files)
{
    handles own = open_all(&training), *h = &own;
    const char *log = scratch_path(t, "log.jsonl"), *events = scratch_path(t, "events"),
               *trace = scratch_path(t, "trace.json");
    const ampc_train_options o = {.struct_size = sizeof o,
                                  .data = "synthetic,rows=24",
                                  .eval_data = "synthetic,rows=24",
                                  .epochs = 2,
                                  .batch = 8,
                                  .log = log,
                                  .tensorboard = events,
                                  .trace = trace};
    OK(h->c, ampc_train(h->s, &o));
    assert_int_equal(count_lines(log), 1 + 6 + 2); /* header, steps, evaluations */
    assert_true(count_lines(trace) > 6);
    struct dirent **names;
    const int n = scandir(events, &names, NULL, alphasort);
    assert_int_equal(n, 3);
    assert_non_null(strstr(names[2]->d_name, "tfevents"));
    for (int i = 0; i < n; i++) free(names[i]);
    free(names);
    ampc_train_options bad = o;
    bad.log = "/none/log";
    expect_failure(ampc_train(h->s, &bad), AMPC_IO, h->c, "/none/log");
    bad = o;
    bad.tensorboard = log;
    expect_failure(ampc_train(h->s, &bad), AMPC_IO, h->c, "log.jsonl");
    bad = o;
    bad.trace = "/none/trace";
    expect_failure(ampc_train(h->s, &bad), AMPC_IO, h->c, "/none/trace");
    close_all(h);
}
