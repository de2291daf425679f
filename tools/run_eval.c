/* run_eval.c - eval: loss and accuracy over all samples. */
#include "tools/run.h"

#include "runtime/train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static void print_result(const rt_eval *e, bool json, arena *a)
{
    if (json) {
        printf("{\"loss\": %s, \"accuracy\": %s, \"samples\": %" PRId64 "}\n", run_json_number(e->loss, a),
               run_json_number(e->accuracy, a), e->samples);
        return;
    }
    if (isfinite(e->loss)) printf("loss %.6f  ", e->loss);
    if (isfinite(e->accuracy)) printf("accuracy %.4f  ", e->accuracy);
    printf("samples %" PRId64 "\n", e->samples);
}

ampc_status run_eval(run_context *c)
{
    const ir_graph *g, *evaluated = rt_evaluated_graph(c->tool->module);
    rt_dataset *data = NULL;
    rt_eval result;
    TRY(run_need_entry(c, evaluated ? evaluated->name : ir_graph_words[IR_GRAPH_infer], &g));
    TRY(run_open_data(c, c->tool->o.data, RT_TEST, g, &data));
    ampc_status status = rt_evaluate(c->session, c->tool->module, data, c->tool->o.batch, c->tool->diag, &result);
    rt_dataset_close(data);
    TRY(status);
    print_result(&result, c->tool->o.pass.json, c->tool->arena);
    if (isfinite(result.loss) || !ir_output_by_role(g, IR_OUTPUT_loss)) return AMPC_OK;
    return diag_error(c->tool->diag, AMPC_NUMERIC, DIAG_NOWHERE, "the loss is not finite");
}
