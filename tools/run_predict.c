/* run_predict.c - predict: the outputs of every sample to a .npz or .csv file. */
#include "runtime/train/predict.h"
#include "tools/run.h"

ampc_status run_predict(run_context *c)
{
    const tool_options *o = &c->tool->o;
    const ir_graph *g, *predicted = rt_predicted_graph(c->tool->module);
    rt_dataset *data = NULL;
    TRY(run_need_entry(c, predicted ? predicted->name : ir_graph_words[IR_GRAPH_infer], &g));
    TRY(run_open_data(c, o->data, RT_TEST, g, &data));
    ampc_status status = rt_predict(c->session, c->tool->module, data, o->batch, o->output, c->tool->diag);
    rt_dataset_close(data);
    return status;
}
