/* api_train.c - the training loop and the evaluation of a data set in the public API. */
#include "runtime/api/api.h"

#include "ir/limits.h"
#include "runtime/data/loader.h"
#include "runtime/train/scoring.h"
#include "runtime/train/trainer.h"

#include <stdlib.h>

/* Opens the data set described by `spec`; synthetic data have the types of the inputs of `graph`. */
static ampc_status open_data(const ampc_session *s, const ir_graph *g, const char *spec, rt_split split, uint64_t seed,
                             diag *d, rt_dataset **data)
{
    rt_dataset_options o = {.split = split, .seed = seed};
    rt_field *fields = NULL;
    if (!spec) return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "no data specified");
    if (g) TRY(rt_loader_fields(g, rt_session_sizes(s->rt), d, &fields, &o.n_fields));
    o.fields = fields;
    ampc_status status = rt_dataset_open(spec, &o, d, data);
    free(fields);
    return status;
}

/* ---- training ---- */

typedef struct loop {
    const ampc_train_options *options;
    const rt_trainer *trainer;
    uint64_t skipped; /* skipped steps before the current one */
} loop;

static ampc_status begin(void *user, uint64_t first)
{
    loop *l = user;
    (void)first;
    l->skipped = rt_trainer_state(l->trainer)->skipped;
    return AMPC_OK;
}

static bool report(void *user, const rt_step_record *step)
{
    loop *l = user;
    const ampc_step_result r = {.struct_size = sizeof r,
                                .step = (int64_t)step->step,
                                .skipped = (int64_t)step->skipped,
                                .epoch = step->epoch,
                                .loss = step->loss,
                                .lr = step->lr,
                                .loss_scale = step->scale,
                                .grad_norm = step->grad_norm,
                                .was_skipped = step->skipped > l->skipped};
    l->skipped = step->skipped;
    return l->options->progress && l->options->progress(l->options->user, &r);
}

static ampc_status run(ampc_session *s, const ampc_train_options *o, rt_dataset *data, diag *d)
{
    rt_trainer *t;
    loop l = {.options = o};
    const rt_trainer_options options = {.batch = o->batch,
                                        .steps = o->steps,
                                        .epochs = o->epochs,
                                        .lr = o->lr > 0 ? o->lr : -1,
                                        .schedule = o->lr_schedule,
                                        .seed = o->seed,
                                        .workers = o->workers};
    const rt_train_plan plan = {.folder = o->checkpoint_dir,
                                .save_every = o->save_every,
                                .keep = o->keep,
                                .resume = o->resume != 0,
                                .allow_fallback = o->allow_fallback != 0,
                                .reset_optimizer = o->reset_optimizer != 0,
                                .no_scaling = o->no_loss_scaling != 0,
                                .on_begin = begin,
                                .on_step = report,
                                .user = &l};
    TRY(rt_trainer_open(s->rt, s->module->ir, data, &options, d, &t));
    l.trainer = t;
    ampc_status status = rt_trainer_run(t, &plan, d);
    s->stepper.state = *rt_trainer_state(t);
    s->stepper.read = NULL; /* the trainer's stepper has selected its own scalars */
    rt_trainer_close(t);
    return status;
}

ampc_status ampc_train(ampc_session *session, const ampc_train_options *options)
{
    static const api_range ranges[] = {
        API_RANGE(ampc_train_options, steps, LIMITS_STEPS),      API_RANGE(ampc_train_options, epochs, LIMITS_EPOCHS),
        API_RANGE(ampc_train_options, batch, LIMITS_BATCH),      API_RANGE(ampc_train_options, lr, LIMITS_RATE),
        API_RANGE(ampc_train_options, save_every, LIMITS_STEPS), API_RANGE(ampc_train_options, keep, LIMITS_KEEP),
        API_RANGE(ampc_train_options, workers, LIMITS_WORKERS),  {NULL, 0, API_REAL, 0, 0},
    };
    ampc_train_options o;
    rt_dataset *data;
    diag *d;
    TRY(api_enter_idle(session, &d));
    TRY(api_options(options, &o, sizeof o, d));
    TRY(api_ranges(d, &o, ranges));
    if ((o.steps > 0) == (o.epochs > 0))
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "specify either steps or epochs");
    const ir_graph *step = ir_graph_by_role(session->module->ir, IR_GRAPH_train_step);
    TRY(open_data(session, step, o.data, RT_TRAIN, o.seed, d, &data));
    session->trains = true;
    ampc_status status = run(session, &o, data, d);
    session->trains = false;
    if (status == AMPC_OK) diag_clear(d); /* discard messages of calls made in `progress` */
    rt_dataset_close(data);
    return status;
}

/* ---- evaluation ---- */

ampc_status ampc_evaluate(ampc_session *session, const char *data, int64_t batch, ampc_evaluation *result)
{
    rt_eval eval;
    rt_dataset *set;
    diag *d;
    TRY(api_enter_session(session, &d));
    NEED(data);
    NEED(result);
    TRY(api_result_check(result, d));
    if (batch) TRY(api_number(d, "batch", (double)batch, LIMITS_BATCH));
    TRY(open_data(session, rt_evaluated_graph(session->module->ir), data, RT_TEST, 0, d, &set));
    ampc_status status = rt_evaluate(session->rt, session->module->ir, set, &(rt_eval_options){.batch = batch}, d,
                                     &eval);
    rt_dataset_close(set);
    if (status != AMPC_OK) return status;
    const ampc_evaluation out = {
        .loss = rt_eval_number(&eval, "loss"), .accuracy = rt_eval_number(&eval, "accuracy"), .samples = eval.samples};
    api_result(&out, result, sizeof out);
    return AMPC_OK;
}
