/* api_train.c - the training loop in the public API. */
#include "runtime/api/api.h"

#include "ir/base/limits.h"
#include "runtime/train/recorder.h"
#include "runtime/train/scoring.h"
#include "runtime/train/trainer.h"

typedef struct loop {
    const ampc_train_options *options;
    const ampc_session *session;
    const rt_trainer *trainer;
    rt_recorder *recorder; /* NULL before the run begins */
    uint64_t skipped;      /* skipped steps before the current one */
    ampc_status status;    /* of the recorder */
    diag *d;
} loop;

static ampc_status begin(void *user, uint64_t first)
{
    loop *l = user;
    const rt_recorder_options o = {
#define RECORDER(name, member, kind, ...) .member = l->options->member,
#include "ir/base/options.def"
        .checkpoints = l->options->checkpoint_dir,
        .resumed = l->options->resume != 0,
        .model = l->session->module->source.path,
        .seed = l->options->seed};
    l->skipped = rt_trainer_state(l->trainer)->skipped;
    return rt_recorder_open(&o, l->trainer, l->session->module->ir, first, l->d, &l->recorder);
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
    l->status = rt_recorder_step(l->recorder, step);
    if (l->status != AMPC_OK) return true;
    return l->options->progress && l->options->progress(l->options->user, &r);
}

static ampc_status sync_files(void *user) { return rt_recorder_sync(((loop *)user)->recorder); }

static ampc_status show(const loop *l, const rt_eval *eval)
{
    const uint64_t step = rt_trainer_state(l->trainer)->step;
    ampc_metric metrics[RT_EVAL_VALUES];
    const ampc_evaluation e = api_evaluation(eval, metrics);
    TRY(rt_recorder_evaluation(l->recorder, step, eval));
    if (l->options->evaluated) l->options->evaluated(l->options->user, (int64_t)step, &e);
    return AMPC_OK;
}

static ampc_status end_epoch(void *user, uint64_t epoch, const rt_eval *eval)
{
    (void)epoch;
    return eval ? show(user, eval) : AMPC_OK;
}

static ampc_status end_run(void *user, const rt_eval *eval) { return show(user, eval); }

/* What is evaluated and watched. */
typedef struct watching {
    rt_dataset *data; /* NULL: no evaluation */
    rt_metric_choices metrics;
    rt_monitor best, early_stop;
} watching;

static bool evaluates(const ampc_train_options *o) { return o->eval_data || o->eval_dataset; }

static ampc_status choose_watching(const ampc_train_options *o, diag *d, watching *w)
{
    if (!evaluates(o) && (o->metrics || o->best || o->early_stop || o->evaluated))
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "metrics, best, early_stop and evaluated require eval_data");
    if (o->best && !o->checkpoint_dir) return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "best requires checkpoint_dir");
    if (o->metrics) TRY(rt_metrics_parse(o->metrics, OPTION_metrics, d, &w->metrics));
    if (o->best) TRY(rt_monitor_parse(o->best, OPTION_best, d, &w->best));
    return o->early_stop ? rt_monitor_parse(o->early_stop, OPTION_early_stop, d, &w->early_stop) : AMPC_OK;
}

/* After the training data, whose names the evaluation reads by. */
static ampc_status open_watching(const ampc_session *s, const ampc_train_options *o, diag *d, watching *w)
{
    const api_data_choice from = {o->eval_data, o->eval_dataset};
    if (!evaluates(o)) return AMPC_OK;
    return api_open_data(s, rt_evaluated_graph(s->module->ir), from, RT_TEST, o->seed, d, &w->data);
}

static ampc_status run(ampc_session *s, const ampc_train_options *o, rt_dataset *data, const watching *w, diag *d)
{
    rt_trainer *t;
    rt_trace *trace = NULL;
    loop l = {.options = o, .session = s, .d = d};
    rt_trainer_options options = {
#define TRAINER(name, member, kind, ...) .member = o->member,
#include "ir/base/options.def"
        .seed = o->seed, .workers = o->workers};
    if (!(o->lr > 0)) options.lr = -1;
    rt_train_plan plan = {
#define PLANNED(name, member, kind, ...) .member = o->member,
#include "ir/base/options.def"
        .on_begin = begin,
        .on_step = report,
        .on_save = sync_files,
        .on_epoch = end_epoch,
        .on_end = end_run,
        .user = &l,
        .eval_data = w->data,
        .metrics = &w->metrics,
        .best = o->best ? &w->best : NULL,
        .early_stop = o->early_stop ? &w->early_stop : NULL};
    TRY(rt_trainer_open(s->rt, s->module->ir, data, &options, d, &t));
    l.trainer = t;
    ampc_status status = o->trace ? rt_trace_open(o->trace, d, &trace) : AMPC_OK;
    plan.trace = trace;
    if (status == AMPC_OK) status = rt_trainer_run(t, &plan, d);
    if (status == AMPC_OK) status = l.status;
    const ampc_status closed = rt_recorder_close(l.recorder), traced = rt_trace_close(trace, status == AMPC_OK);
    if (status == AMPC_OK) status = closed != AMPC_OK ? closed : traced;
    s->stepper.state = *rt_trainer_state(t);
    s->stepper.read = NULL; /* the trainer's stepper has selected its own scalars */
    rt_trainer_close(t);
    return status;
}

ampc_status ampc_train(ampc_session *session, const ampc_train_options *options)
{
    /* clang-format off */
    static const api_option rows[] = {
#define TRAIN(name, member, kind, ...) API_OPTION(ampc_train_options, member, 0, kind)
#include "ir/base/options.def"
        {.name = NULL},
    };
    /* clang-format on */
    ampc_train_options o;
    watching watched = {.data = NULL};
    rt_dataset *data = NULL;
    diag *d;
    TRY(api_enter_idle(session, &d));
    TRY(api_options(options, &o, sizeof o, d));
    TRY(api_check_options(d, &o, rows));
    if (o.workers) TRY(api_number(d, "workers", o.workers, LIMITS_WORKERS));
    if ((o.steps > 0) == (o.epochs > 0))
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "specify either steps or epochs");
    const ir_graph *step = ir_graph_by_role(session->module->ir, IR_GRAPH_train_step);
    TRY(choose_watching(&o, d, &watched));
    ampc_status status = api_open_data(session, step, (api_data_choice){o.data, o.dataset}, RT_TRAIN, o.seed, d, &data);
    if (status == AMPC_OK) status = open_watching(session, &o, d, &watched);
    if (status == AMPC_OK) {
        session->trains = true;
        status = run(session, &o, data, &watched, d);
        session->trains = false;
    }
    if (status == AMPC_OK) diag_clear(d); /* discard messages of calls made in the callbacks */
    rt_dataset_close(data);
    rt_dataset_close(watched.data);
    return status;
}
