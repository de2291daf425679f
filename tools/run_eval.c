/* run_eval.c - eval: loss and accuracy over all samples. */
#include "ir/json_writer.h"
#include "runtime/train/trainer.h"
#include "tools/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static void print_json(const rt_eval *e)
{
    json_writer w = {.file = stdout};
    json_begin(&w, NULL, '{');
    json_write_real(&w, "loss", "%.9g", e->loss);
    for (int i = 0; i < e->parts; i++) json_write_real(&w, e->part[i].name, "%.9g", e->part[i].loss);
    json_write_real(&w, "accuracy", "%.9g", e->accuracy);
    json_write_integer(&w, "samples", e->samples);
    json_end(&w, '}');
    putchar('\n');
}

static void print_text(const rt_eval *e)
{
    if (isfinite(e->loss)) printf("loss %.6f  ", e->loss);
    for (int i = 0; i < e->parts; i++) printf("%s %.6f  ", e->part[i].name, e->part[i].loss);
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
    (c->tool->o.pass.json ? print_json : print_text)(&result);
    if (isfinite(result.loss) || !ir_output_by_role(g, IR_OUTPUT_loss)) return AMPC_OK;
    return diag_error(c->tool->diag, AMPC_NUMERIC, DIAG_NOWHERE, "the loss is not finite");
}
