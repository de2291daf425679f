/* run_eval.c - eval: loss and metrics over all samples. */
#include "runtime/train/scoring.h"
#include "tools/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static void print_json(const rt_eval *e)
{
    json_writer w = {.file = stdout};
    json_begin(&w, NULL, '{');
    run_write_values(&w, e, "loss");
    json_write_integer(&w, "samples", e->samples);
    json_end(&w, '}');
    putchar('\n');
}

static void print_text(const rt_eval *e)
{
    run_print_values(e, "loss");
    printf("samples %" PRId64 "\n", e->samples);
    run_print_confusion(e);
}

ampc_status run_eval(run_context *c)
{
    const ir_graph *g, *evaluated = rt_evaluated_graph(c->tool->module);
    rt_dataset *data = NULL;
    rt_metric_choices metrics;
    rt_eval result = {0};
    TRY(run_parse_metrics(c, &metrics));
    TRY(run_need_entry(c, evaluated ? evaluated->name : ir_graph_words[IR_GRAPH_infer], &g));
    TRY(run_open_data(c, c->tool->o.data, RT_TEST, g, &data));
    const rt_eval_options o = {.batch = c->tool->o.batch, .metrics = &metrics};
    ampc_status status = rt_evaluate(c->session, c->tool->module, data, &o, c->tool->diag, &result);
    if (status == AMPC_OK) {
        (c->tool->o.pass.json ? print_json : print_text)(&result);
        if (!isfinite(rt_eval_number(&result, "loss")) && ir_output_by_role(g, IR_OUTPUT_loss))
            status = run_explain(c, g, data, "the loss is not finite");
    }
    rt_eval_clear(&result);
    rt_dataset_close(data);
    return status;
}
