/* predict.c - runs the samples of a prediction; predict_npz.c and predict_csv.c write them. */
#include "runtime/train/predict.h"

#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/train/prediction.h"

#include <string.h>

enum { DEFAULT_BATCH = 256 };

static const rt_prediction_format *find_format(const char *path)
{
    static const rt_prediction_format *const formats[] = {&rt_predict_npz, &rt_predict_csv};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const size_t n = strlen(path), suffix = strlen(formats[i]->suffix);
        if (n > suffix && strcmp(path + n - suffix, formats[i]->suffix) == 0) return formats[i];
    }
    return NULL;
}

const ir_graph *rt_predicted_graph(const ir_module *m)
{
    const ir_graph *g = ir_graph_by_role(m, IR_GRAPH_infer);
    return g ? g : ir_graph_by_role(m, IR_GRAPH_eval);
}

/* ---- outputs ---- */

static ampc_status find_outputs(rt_prediction *p)
{
    int n = 0;
    for (const ir_node *o = ir_first_output(p->graph); o; o = ir_next_output(o)) n++;
    p->outputs = rt_alloc((size_t)n + 1, sizeof *p->outputs);
    if (!p->outputs) return rt_no_memory(p->d);
    for (const ir_node *o = ir_first_output(p->graph); o; o = ir_next_output(o)) {
        const int axis = rt_loader_axis(p->feed, ir_in(o, 0));
        if (ir_output_roles[o->role].name || axis < 0) continue;
        p->outputs[p->count++] = (rt_predicted_output){ir_output_name(o), axis};
    }
    if (p->count) return AMPC_OK;
    return diag_error(p->d, AMPC_UNSUPPORTED, DIAG_NOWHERE, "no output of the model has a row for each sample");
}

/* ---- the loop ---- */

static ampc_status open_all(rt_prediction *p, const ir_module *m, int64_t *batch)
{
    const int64_t *sizes = rt_session_sizes(p->session), fixed = rt_loader_fixed_batch(p->graph, sizes);
    if (!*batch) *batch = fixed ? fixed : DEFAULT_BATCH;
    TRY(rt_loader_open(p->graph, p->data, sizes, *batch, p->d, &p->feed));
    TRY(rt_scoring_open(&p->scoring, p->session, m, p->data, p->feed, p->d));
    return find_outputs(p);
}

static ampc_status run(rt_prediction *p, const rt_prediction_format *format, int64_t batch)
{
    const int64_t rows = rt_dataset_rows(p->data);
    for (int64_t first = 0; first < rows; first += batch) {
        const int64_t count = rows - first < batch ? rows - first : batch;
        TRY(rt_loader_slice(p->feed, first, count, p->d));
        TRY(rt_session_run(p->session, p->graph->name, rt_loader_inputs(p->feed), rt_loader_count(p->feed), p->d));
        TRY(rt_scoring_bind(&p->scoring, p->d));
        TRY(rt_scoring_read(&p->scoring, first, count, p->d));
        TRY(format->add(p, first, count));
    }
    return AMPC_OK;
}

ampc_status rt_predict(rt_session *s, const ir_module *m, rt_dataset *data, int64_t batch, const char *path, diag *d)
{
    const rt_prediction_format *format = find_format(path);
    rt_prediction p = {.session = s, .graph = rt_predicted_graph(m), .data = data, .path = path, .d = d};
    if (!format) return diag_error(d, AMPC_USAGE, DIAG_FILE(path), "expected a .npz or .csv file");
    if (!p.graph) return diag_error(d, AMPC_UNSUPPORTED, DIAG_NOWHERE, "the module has no entry @infer or @eval");
    ampc_status status = open_all(&p, m, &batch);
    if (status == AMPC_OK) {
        status = format->open(&p);
        if (status == AMPC_OK) status = run(&p, format, batch);
        if (status == AMPC_OK) status = format->commit(&p);
        format->close(&p);
    }
    rt_scoring_close(&p.scoring);
    rt_loader_close(p.feed);
    rt_free(p.outputs);
    return status;
}
