/* test_api_inspect.c - comparing precisions, predictions and the files of a training through ampc.h. */
#include "tests/unit/api_calls.h"

#include <dirent.h>
#include <math.h>

enum { ROWS = 32 };

typedef struct handles {
    ampc_context *c;
    ampc_module *m;
    ampc_session *s;
    ampc_tensor *in[2];
    char folder[64];
} handles;

static int open_all(void **state)
{
    static handles h;
    float x[ROWS][4];
    int64_t label[ROWS];
    const int64_t dims[] = {ROWS, 4};
    h = (handles){.folder = "/tmp/ampc-test-XXXXXX"};
    for (int i = 0; i < ROWS * 4; i++) x[i / 4][i % 4] = (float)(i * 37 % 19) / 9 - 1;
    for (int i = 0; i < ROWS; i++) label[i] = x[i][0] > 0;
    *state = &h;
    return !mkdtemp(h.folder) || ampc_context_create(NULL, &h.c) || ampc_module_import(h.c, MLP, NULL, 0, &h.m) ||
           ampc_module_compile(h.m, &training) || ampc_session_open(h.m, &one_thread, &h.s) ||
           ampc_tensor_create(h.c, "x", AMPC_F32, 2, dims, x, &h.in[0]) ||
           ampc_tensor_create(h.c, "label", AMPC_I64, 1, dims, label, &h.in[1]);
}

static int close_all(void **state)
{
    handles *h = *state;
    char command[128];
    ampc_tensor_free(h->in[0]);
    ampc_tensor_free(h->in[1]);
    ampc_session_free(h->s);
    ampc_module_free(h->m);
    ampc_context_free(h->c);
    snprintf(command, sizeof command, "rm -r %s", h->folder);
    return system(command);
}

static const char *path_in(const handles *h, const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", h->folder, name);
    return path;
}

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

#define TEST_INSPECT(name) TEST_WITH(open_all, close_all, handles *h, name)

TEST_INSPECT(test_compare)
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

TEST_INSPECT(test_predict)
{
    const ampc_data_field fields[] = {
        {.name = "x", .dtype = AMPC_F32, .rank = 1, .dims = {4}, .data = ampc_tensor_data(h->in[0])},
        {.name = "label", .dtype = AMPC_I64, .data = ampc_tensor_data(h->in[1])}};
    const ampc_data_options o = {.struct_size = sizeof o, .fields = fields, .n_fields = 2, .rows = ROWS};
    ampc_data *data;
    OK(h->c, ampc_data_create(h->c, &o, &data));
    OK(h->c, ampc_predict_data(h->s, data, 5, path_in(h, "own.csv")));
    assert_int_equal(count_lines(path_in(h, "own.csv")), 1 + ROWS);
    OK(h->c, ampc_predict(h->s, "synthetic,rows=7", 0, path_in(h, "made.csv")));
    assert_int_equal(count_lines(path_in(h, "made.csv")), 1 + 7);
    OK(h->c, ampc_predict(h->s, "synthetic,rows=7", 0, path_in(h, "made.npz")));
    expect_failure(ampc_predict(h->s, "synthetic", 0, path_in(h, "made.txt")), AMPC_USAGE, h->c, ".npz or .csv");
    expect_failure(ampc_predict(h->s, "synthetic", 0, path_in(h, "none/made.csv")), AMPC_IO, h->c, "none/made.csv");
    ampc_data_free(data);
}

/* ---- the files of a training ------------------------------------------------------------------- */

TEST_INSPECT(test_files)
{
    char log[128], events[128], trace[128];
    snprintf(log, sizeof log, "%s", path_in(h, "log.jsonl"));
    snprintf(events, sizeof events, "%s", path_in(h, "events"));
    snprintf(trace, sizeof trace, "%s", path_in(h, "trace.json"));
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
}
