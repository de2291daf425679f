/* api_evaluate.c - evaluation of and predictions for data sets in the public API. */
#include "runtime/api/api.h"

#include "ir/base/limits.h"
#include "runtime/backend/memory.h"
#include "runtime/data/loader.h"
#include "runtime/train/predict.h"
#include "runtime/train/scoring.h"

#include <stdlib.h>

ampc_status api_open_data(const ampc_session *s, const ir_graph *g, api_data_choice from, rt_split split, uint64_t seed,
                          diag *d, rt_dataset **data)
{
    if (!from.spec == !from.data)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, from.spec ? "two data sets specified" : "no data specified");
    if (from.spec) return rt_loader_open_data(s->rt, g, from.spec, split, seed, d, data);
    const char *codes = split == RT_TRAIN ? NULL : rt_session_codes(s->rt);
    TRY(rt_dataset_open_source(&from.data->source, split, codes, d, data));
    return split == RT_TRAIN ? rt_loader_keep_codes(s->rt, *data, d) : AMPC_OK;
}

ampc_evaluation api_evaluation(const rt_eval *eval, ampc_metric *metrics)
{
    for (int i = 0; i < eval->count; i++) metrics[i] = (ampc_metric){eval->value[i].name, eval->value[i].value};
    return (ampc_evaluation){.struct_size = sizeof(ampc_evaluation),
                             .loss = rt_eval_number(eval, "loss"),
                             .accuracy = rt_eval_number(eval, "accuracy"),
                             .samples = eval->samples,
                             .metrics = metrics,
                             .n_metrics = (size_t)eval->count,
                             .confusion = eval->confusion,
                             .classes = eval->classes,
                             .class_names = (const char *const *)eval->names.items,
                             .n_class_names = eval->names.count};
}

void api_evaluated_free(api_evaluated *e)
{
    if (e) rt_eval_clear(&e->eval);
    free(e);
}

static ampc_status evaluate(const ampc_session *s, api_data_choice from, int64_t batch, const char *metrics, diag *d,
                            api_evaluated *e)
{
    rt_dataset *set;
    const rt_eval_options o = {.batch = batch, .metrics = &e->choices};
    if (metrics) TRY(rt_metrics_parse(metrics, OPTION_metrics, d, &e->choices));
    TRY(api_open_data(s, rt_evaluated_graph(s->module->ir), from, RT_TEST, 0, d, &set));
    ampc_status status = rt_evaluate(s->rt, s->module->ir, set, &o, d, &e->eval);
    rt_dataset_close(set);
    return status;
}

static ampc_status evaluate_checked(ampc_session *session, api_data_choice from, int64_t batch, const char *metrics,
                                    diag *d, ampc_evaluation *result)
{
    NEED(result);
    TRY(api_result_check(result, d));
    if (batch) TRY(api_number(d, "batch", (double)batch, LIMITS_BATCH));
    api_evaluated *e = calloc(1, sizeof *e);
    if (!e) return rt_no_memory(d);
    ampc_status status = evaluate(session, from, batch, metrics, d, e);
    if (status != AMPC_OK) {
        api_evaluated_free(e);
        return status;
    }
    api_evaluated_free(session->evaluated);
    session->evaluated = e;
    const ampc_evaluation out = api_evaluation(&e->eval, e->metrics);
    api_result(&out, result, sizeof out);
    return AMPC_OK;
}

ampc_status ampc_evaluate_metrics(ampc_session *session, const char *data, int64_t batch, const char *metrics,
                                  ampc_evaluation *result)
{
    diag *d;
    TRY(api_enter_session(session, &d));
    NEED(data);
    return evaluate_checked(session, (api_data_choice){.spec = data}, batch, metrics, d, result);
}

ampc_status ampc_evaluate_data(ampc_session *session, const ampc_data *data, int64_t batch, const char *metrics,
                               ampc_evaluation *result)
{
    diag *d;
    TRY(api_enter_session(session, &d));
    NEED(data);
    return evaluate_checked(session, (api_data_choice){.data = data}, batch, metrics, d, result);
}

ampc_status ampc_evaluate(ampc_session *session, const char *data, int64_t batch, ampc_evaluation *result)
{
    return ampc_evaluate_metrics(session, data, batch, NULL, result);
}

/* ---- predictions ---- */

static ampc_status predict(ampc_session *s, api_data_choice from, int64_t batch, const char *path, diag *d)
{
    rt_dataset *set;
    NEED(path);
    if (batch) TRY(api_number(d, "batch", (double)batch, LIMITS_BATCH));
    TRY(api_open_data(s, rt_predicted_graph(s->module->ir), from, RT_TEST, 0, d, &set));
    ampc_status status = rt_predict(s->rt, s->module->ir, set, batch, path, d);
    rt_dataset_close(set);
    return status;
}

ampc_status ampc_predict(ampc_session *session, const char *data, int64_t batch, const char *path)
{
    diag *d;
    TRY(api_enter_session(session, &d));
    NEED(data);
    return predict(session, (api_data_choice){.spec = data}, batch, path, d);
}

ampc_status ampc_predict_data(ampc_session *session, const ampc_data *data, int64_t batch, const char *path)
{
    diag *d;
    TRY(api_enter_session(session, &d));
    NEED(data);
    return predict(session, (api_data_choice){.data = data}, batch, path, d);
}
