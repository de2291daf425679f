/* test_metrics.c - metrics over 1000 samples against scikit-learn and PyTorch (metrics.def), in batches of any size; which
 * metrics a model has; and the state of watched metrics.
 *
 * make_metrics.py makes the same scores and labels and says which library defines what. */
#include "ir/graph/ir.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/monitor.h"
#include "tests/data.h"
#include "tests/train/noise.h"
#include "tests/unit/scratch.h"

#include <math.h>

enum { ROWS = 1000, MAX_ELEMENTS = 24, MAX_CLASSES = 5 };
static const int64_t FINE = 1 << 18;

typedef enum kind { CLASSES, COLUMNS, VALUES } kind;

/* One data set and the graph that reads it. */
typedef struct dataset {
    const char *name;
    kind kind;
    int64_t classes, inner; /* COLUMNS, VALUES: classes counts columns */
    int64_t levels;         /* steps of the scores in 1 */
    const char *labels;     /* the classes among the labels */
    int rank;               /* of a sample of x, */
    int64_t dims[3];
    bool classes_first; /* and whether its classes are the first axis */
    const char *meta, *graph;
} dataset;

#define SCORES(type, label) \
    "graph @eval(@x : f32[" type "], @label : i64[" label \
    "] as label) as eval {\nforward:\n  output \"y\" = @x as logits\n}\n"
#define NUMBERS(type) \
    "graph @eval(@x : f32[" type "], @label : f32[" type \
    "] as label) as eval {\nforward:\n  output \"y\" = @x as logits\n}\n"
#define LOSS(compared) "loss \"l\" : any " compared "\n"
#define CE LOSS("classes axis 1")

static const dataset datasets[] = {
    {"classes", CLASSES, 5, 1, FINE, "01234", 1, {5}, false, CE, SCORES("N,5", "N")},
    {"two", CLASSES, 2, 1, FINE, "01", 1, {2}, false, CE, SCORES("N,2", "N")},
    {"ties", CLASSES, 5, 1, 2, "01234", 1, {5}, false, CE, SCORES("N,5", "N")},
    {"absent", CLASSES, 5, 1, FINE, "013", 1, {5}, false, CE, SCORES("N,5", "N")},
    {"one", CLASSES, 5, 1, FINE, "2", 1, {5}, false, CE, SCORES("N,5", "N")},
    {"nan", CLASSES, 5, 1, FINE, "01234", 1, {5}, false, CE, SCORES("N,5", "N")},
    {"probabilities",
     CLASSES,
     4,
     1,
     FINE,
     "0123",
     1,
     {4},
     false,
     CE,
     "graph @eval(@x : f32[N,4], @label : i64[N] as label) as eval {\nforward:\n"
     "  %p = softmax @x {axis=-1} : f32[N,4]\n  output \"y\" = %p as logits\n}\n"},
    {"maps", CLASSES, 4, 6, FINE, "0123", 3, {4, 2, 3}, true, CE, SCORES("N,4,2,3", "N,2,3")},
    {"tokens",
     CLASSES,
     4,
     6,
     FINE,
     "0123",
     2,
     {6, 4},
     false,
     LOSS("classes axis 2"),
     "graph @eval(@x : f32[N,6,4], @label : i64[N,6] as label) as eval {\nforward:\n"
     "  %s = reshape @x {shape=[6*N,4]} : f32[6*N,4]\n  %l = reshape @label {shape=[6*N]} : i64[6*N]\n"
     "  %loss, %lse, %p = softmax_cross_entropy %s, %l {ignore_index=3} : f32[], f32[6*N], f32[6*N,4]\n"
     "  output \"loss\" = %loss as loss\n  output \"y\" = @x as logits\n}\n"},
    {"yes", COLUMNS, 1, 1, FINE, "", 0, {0}, false, LOSS("binary"), NUMBERS("N")},
    {"labels", COLUMNS, 4, 1, 4, "", 1, {4}, false, LOSS("binary"), NUMBERS("N,4")},
    {"masks", COLUMNS, 2, 6, FINE, "", 3, {2, 2, 3}, false, LOSS("binary"), NUMBERS("N,2,2,3")},
    {"values", VALUES, 3, 1, FINE, "", 1, {3}, false, LOSS("values"), NUMBERS("N,3")},
};
enum { DATASETS = sizeof datasets / sizeof *datasets };

typedef struct stored_value {
    const char *dataset, *metric;
    double value;
} stored_value;
typedef struct stored_matrix {
    const char *dataset;
    int64_t counts[MAX_CLASSES * MAX_CLASSES];
} stored_matrix;

#define VALUE(dataset, metric, value) {#dataset, #metric, value},
#define MATRIX(...)
static const stored_value values[] = {
#include "tests/train/metrics.def"
};
#undef VALUE
#undef MATRIX
#define VALUE(...)
#define MATRIX(dataset, ...) {#dataset, {__VA_ARGS__}},
static const stored_matrix matrices[] = {
#include "tests/train/metrics.def"
};
#undef VALUE
#undef MATRIX
enum { STORED = sizeof values / sizeof *values, MATRICES = sizeof matrices / sizeof *matrices };

/* ---- data ---- */

static bool is(const dataset *s, const char *name) { return strcmp(s->name, name) == 0; }

static double score_of_class(const dataset *s, int64_t item, int64_t c, int64_t label)
{
    if (is(s, "absent") && c == 4) return -100;
    if (is(s, "nan") && (item % 50 == 5 || (item % 10 == 0 && c == 1))) return NAN;
    const double x = floor(4 * noise(item * s->classes + c, 2) * (double)s->levels) / (double)s->levels;
    return x + (c == label ? 1.5 : 0);
}

static void make_classes(const dataset *s, float *x, int64_t *label)
{
    for (int64_t i = 0; i < ROWS * s->inner; i++) {
        label[i] = s->labels[(int)(noise(i, 1) * (double)strlen(s->labels))] - '0';
        for (int64_t c = 0; c < s->classes; c++) {
            const int64_t row = i / s->inner, k = i % s->inner;
            const int64_t at = s->classes_first ? (row * s->classes + c) * s->inner + k : i * s->classes + c;
            x[at] = (float)score_of_class(s, i, c, label[i]);
        }
    }
}

static void make_columns(const dataset *s, float *x, float *label)
{
    for (int64_t i = 0; i < ROWS * s->classes * s->inner; i++) {
        const int64_t column = i / s->inner % s->classes;
        const bool none = is(s, "labels") && column == 3;
        label[i] = !none && noise(i, 3) < 0.4;
        x[i] = (float)(floor(4 * noise(i, 4) * (double)s->levels) / (double)s->levels - 2.5) + label[i] -
               (none ? 8.0f : 0);
    }
}

static void make_values(const dataset *s, float *x, float *label)
{
    for (int64_t i = 0; i < ROWS * s->classes; i++) {
        const double y = floor(8 * noise(i, 5) * 1024) / 1024;
        x[i] = (float)(y + noise(i, 6) - 0.5);
        label[i] = i % s->classes == 2 ? 2.5f : (float)y;
    }
}

static rt_dataset *open_data(scratch *t, const dataset *s)
{
    static float x[ROWS * MAX_ELEMENTS], numbers[ROWS * MAX_ELEMENTS];
    static int64_t labels[ROWS * MAX_ELEMENTS];
    char *spec;
    rt_dataset *data = NULL;
    rt_array scores = {.dtype = IR_f32, .rank = 1 + s->rank, .dims = {ROWS}, .data = x};
    rt_array label = {.dtype = IR_i64, .rank = 1, .dims = {ROWS}, .data = labels};
    memcpy(scores.dims + 1, s->dims, sizeof s->dims);
    if (s->kind == CLASSES) {
        make_classes(s, x, labels);
        for (int i = 0; i < s->rank; i++) /* all axes but that of the classes */
            if (i != (s->classes_first ? 0 : s->rank - 1)) label.dims[label.rank++] = s->dims[i];
    } else {
        (s->kind == COLUMNS ? make_columns : make_values)(s, x, numbers);
        label = scores;
        label.data = numbers;
    }
    assert_true(rt_array_bytes(scores.dtype, scores.rank, scores.dims, &scores.bytes));
    assert_true(rt_array_bytes(label.dtype, label.rank, label.dims, &label.bytes));
    assert_int_equal(npy_write(scratch_path(t, "x.npy"), &scores, t->d), AMPC_OK);
    assert_int_equal(npy_write(scratch_path(t, "label.npy"), &label, t->d), AMPC_OK);
    assert_true(asprintf(&spec, "npy:x=%s,label=%s", scratch_path(t, "x.npy"), scratch_path(t, "label.npy")) > 0);
    if (rt_dataset_open(spec, &(rt_dataset_options){.n_fields = 0}, t->d, &data) != AMPC_OK)
        fail_msg("%s", diag_first_error(t->d));
    free(spec);
    return data;
}

static ir_module *open_module(scratch *t, const char *meta, const char *graph)
{
    char *text;
    ir_module *m = NULL;
    assert_true(asprintf(&text, "ampc-ir 3\n%s%s", meta, graph) > 0);
    if (ir_parse(text, strlen(text), "metrics.ir", t->d, &m) != AMPC_OK)
        fail_msg("%s in\n%s", diag_first_error(t->d), text);
    free(text);
    return m;
}

/* ---- values ---- */

typedef struct evaluated {
    ir_module *m;
    rt_dataset *data;
} evaluated;

static ampc_status evaluate(scratch *t, const evaluated *of, int64_t batch, bool fixed, const char *metrics,
                            rt_eval *out)
{
    static rt_metric_choices choices; /* the names of topK stay here */
    int64_t sizes[] = {fixed ? batch : -1, -1};
    const rt_session_options o = {.device = "cpu", .threads = 1, .symbol_sizes = sizes};
    rt_session *s = NULL;
    choices.count = 0;
    assert_int_equal(rt_metrics_parse(metrics, OPTION_metrics, t->d, &choices), AMPC_OK);
    assert_int_equal(rt_session_open(of->m, &o, t->d, &s), AMPC_OK);
    ampc_status status = rt_evaluate(s, of->m, of->data, &(rt_eval_options){.batch = batch, .metrics = &choices}, t->d,
                                     out);
    rt_session_close(s);
    return status;
}

static void expect_matrix(const dataset *s, const rt_eval *got)
{
    const int64_t side = s->kind == CLASSES ? s->classes : 2;
    for (int i = 0; i < MATRICES; i++) {
        if (!is(s, matrices[i].dataset)) continue;
        assert_int_equal(got->classes, side);
        assert_memory_equal(got->confusion, matrices[i].counts, (size_t)(side * side) * sizeof(int64_t));
        return;
    }
    fail_msg("no matrix is stored for %s", s->name);
}

static void expect_values(scratch *t, const dataset *s, const evaluated *of, int64_t batch, bool fixed)
{
    rt_eval got;
    char metrics[256] = "";
    size_t n = 0, at = 0;
    for (int i = 0; i < STORED; i++)
        if (is(s, values[i].dataset))
            at += (size_t)snprintf(metrics + at, sizeof metrics - at, "%s%s", at ? "," : "", values[i].metric);
    if (s->kind != VALUES) snprintf(metrics + at, sizeof metrics - at, ",confusion");
    if (evaluate(t, of, batch, fixed, metrics, &got) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    assert_int_equal(got.samples, ROWS);
    for (int i = 0; i < STORED; i++) {
        if (!is(s, values[i].dataset)) continue;
        const double value = rt_eval_number(&got, values[i].metric), wanted = values[i].value;
        if (!(isnan(wanted) ? isnan(value) : fabs(value - wanted) <= 1e-6 * fmax(1, fabs(wanted))))
            fail_msg("%s: %s is %.9g in batches of %d, not %.9g", s->name, values[i].metric, value, (int)batch, wanted);
        n++;
    }
    assert_true(n >= 3);
    if (s->kind != VALUES) expect_matrix(s, &got);
    rt_eval_clear(&got);
}

/* 7 and 300 have a partial last batch; a fixed one is padded. */
TEST_SCRATCH(test_values)
{
    static const int64_t batches[] = {1000, 300, 7, 1};
    for (int i = 0; i < DATASETS; i++) {
        const dataset *s = &datasets[i];
        const evaluated of = {open_module(t, s->meta, s->graph), open_data(t, s)};
        for (size_t k = 0; k < sizeof batches / sizeof *batches; k++) expect_values(t, s, &of, batches[k], false);
        expect_values(t, s, &of, 64, true);
        rt_dataset_close(of.data);
        ir_module_free(of.m);
    }
}

/* Probabilities instead of labels: the most probable class is the label. */
TEST_SCRATCH(test_probabilities_as_labels)
{
    static float x[ROWS * MAX_CLASSES], probabilities[ROWS * MAX_CLASSES];
    static int64_t labels[ROWS];
    const dataset *s = &datasets[0];
    rt_array label = {
        .dtype = IR_f32, .rank = 2, .dims = {ROWS, 5}, .bytes = sizeof probabilities, .data = probabilities};
    rt_eval got;
    char *spec;
    make_classes(s, x, labels);
    for (int64_t i = 0; i < ROWS * s->classes; i++) probabilities[i] = i % 5 == labels[i / 5] ? 0.6f : 0.1f;
    rt_dataset_close(open_data(t, s));
    assert_int_equal(npy_write(scratch_path(t, "soft.npy"), &label, t->d), AMPC_OK);
    assert_true(asprintf(&spec, "npy:x=%s,label=%s", scratch_path(t, "x.npy"), scratch_path(t, "soft.npy")) > 0);
    evaluated of = {.m = open_module(t, LOSS("classes axis 1"), NUMBERS("N,5"))};
    assert_int_equal(rt_dataset_open(spec, &(rt_dataset_options){.n_fields = 0}, t->d, &of.data), AMPC_OK);
    if (evaluate(t, &of, 300, false, "auc,confusion", &got) != AMPC_OK) fail_msg("%s", diag_first_error(t->d));
    expect_matrix(s, &got);
    for (int i = 0; i < STORED; i++)
        if (is(s, values[i].dataset) && strcmp(values[i].metric, "auc") == 0)
            assert_float_equal(rt_eval_number(&got, "auc"), values[i].value, 1e-6);
    rt_eval_clear(&got);
    rt_dataset_close(of.data);
    ir_module_free(of.m);
    free(spec);
}

/* ---- which metrics ---- */

static const struct {
    const char *dataset, *meta; /* meta NULL: that of the data set */
    const char *names;          /* of all values without options */
    const char *metric, *error; /* a metric without meaning here */
} usual[] = {
    {"classes", NULL, "accuracy ", "mse", "the model predicts one class per sample"},
    {"classes", NULL, "accuracy ", "iou", "metrics for that: loss, accuracy, topK, perplexity"},
    {"classes", NULL, "accuracy ", "top5", "is always 1: there are 5 classes"},
    {"classes", NULL, "accuracy ", "loss", "the module has no loss"},
    {"maps", NULL, "accuracy iou ", "r2", "a map of classes"},
    {"tokens", NULL, "loss accuracy perplexity ", "r2", "a row of classes"},
    {"yes", NULL, "accuracy ", "top2", "the model predicts yes or no"},
    {"values", NULL, "mse mae ", "accuracy", "real numbers; metrics for that: loss, mse, mae, r2"},
    {"values", LOSS(""), "", "mse", "nothing that is compared with labels"},
    {"classes", "", "", "accuracy", "nothing that is compared"}, /* without a loss, y has the shape of x */
    {"probabilities", LOSS("values") CE, "accuracy ", "mae", "one class per sample"},
};

TEST_SCRATCH(test_usual)
{
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        const dataset *s = datasets;
        while (!is(s, usual[i].dataset)) s++;
        const char *meta = usual[i].meta ? usual[i].meta : s->meta;
        char *graph = strdup(s->graph), *logits = strstr(graph, " as logits");
        if (!*meta && logits) memset(logits, ' ', strlen(" as logits"));
        const evaluated of = {open_module(t, meta, graph), open_data(t, s)};
        rt_eval got;
        char names[256] = "";
        rt_session *session = NULL;
        assert_int_equal(rt_session_open(of.m, &(rt_session_options){.device = "cpu", .threads = 1}, t->d, &session),
                         AMPC_OK);
        assert_int_equal(rt_evaluate(session, of.m, of.data, NULL, t->d, &got), AMPC_OK);
        for (int k = 0; k < got.count; k++) strcat(strcat(names, got.value[k].name), " ");
        assert_string_equal(names, usual[i].names);
        rt_eval_clear(&got);
        assert_int_equal(evaluate(t, &of, 100, false, usual[i].metric, &got), AMPC_USAGE);
        scratch_expect(t, usual[i].error);
        rt_session_close(session);
        rt_dataset_close(of.data);
        ir_module_free(of.m);
        free(graph);
    }
}

/* A label for which there is not a score. */
TEST_SCRATCH(test_labels)
{
    rt_eval got;
    dataset s = datasets[0];
    s.labels = "012347";
    const evaluated of = {open_module(t, s.meta, s.graph), open_data(t, &s)};
    assert_int_equal(evaluate(t, &of, 100, false, "accuracy", &got), AMPC_REJECTED);
    scratch_expect(t, "has label 7, but the scores are of 5 classes");
    rt_dataset_close(of.data);
    ir_module_free(of.m);
}

TEST_SCRATCH(test_names)
{
    static const char *const bad[] = {"",     "top",      "top0",      "top-1", "top1234567890",
                                      "topk", "Accuracy", "accuracy ", "f1"};
    rt_metric_choices all = {.count = 0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(rt_metrics_parse(bad[i], OPTION_metrics, t->d, &all), AMPC_USAGE);
        scratch_expect(t, "metric: unknown metric");
    }
    assert_int_equal(rt_metrics_parse("top5,accuracy,top05,accuracy,top2", OPTION_metrics, t->d, &all), AMPC_OK);
    assert_int_equal(all.count, 3);
    for (int i = all.count; i < RT_METRICS_MAX; i++) {
        char name[16];
        snprintf(name, sizeof name, "top%d", 10 + i);
        assert_int_equal(rt_metrics_parse(name, OPTION_metrics, t->d, &all), AMPC_OK);
    }
    assert_int_equal(rt_metrics_parse("top99", OPTION_metrics, t->d, &all), AMPC_USAGE);
    scratch_expect(t, "more than 32 metrics");
}

/* ---- watched metrics ---- */

static const struct {
    const char *text, *values; /* "+": the best so far, "-": not, "!": not, and the run stops */
    double value[8];
} watched[] = {
    {"accuracy,patience=2", "+-+-!", {0.5, 0.5, 0.75, 0.7, 0.7}},
    {"accuracy,patience=2,min-delta=0.1", "+-!", {0.5, 0.55, 0.59}},
    {"accuracy,patience=1,min-delta=0.1", "++!", {0.5, 0.75, 0.8}},
    {"loss", "-+-+--!", {NAN, 2, NAN, 1, 1, 3, NAN}},
    {"mse,min-delta=0.5,patience=1", "+!", {2, 1.75}},
};

TEST_SCRATCH(test_watching)
{
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++) {
        rt_monitor m;
        rt_monitor_state now = {.bad = 0};
        assert_int_equal(rt_monitor_parse(watched[i].text, OPTION_early_stop, t->d, &m), AMPC_OK);
        for (size_t k = 0; watched[i].values[k]; k++) {
            char text[RT_MONITOR_TEXT];
            const char wanted = watched[i].values[k];
            assert_int_equal(rt_monitor_observe(&m, watched[i].value[k], k + 1, &now), wanted == '+');
            assert_int_equal(rt_monitor_exhausted(&m, &now), wanted == '!');
            rt_monitor_print(&now, text); /* a checkpoint after each evaluation */
            memset(&now, 0, sizeof now);
            assert_true(rt_monitor_read(text, &now));
        }
    }
}

TEST_SCRATCH(test_watch_texts)
{
    rt_monitor_state read;
    assert_false(rt_monitor_read("loss 0x1p0 3", &read) || rt_monitor_read("loss 0x1p0 3 -1", &read) ||
                 rt_monitor_read("loss 0x1p0 3 1 x", &read) || rt_monitor_read("", &read));
}
