/* trainer.c - the training loop; the header describes a step and the conditions that end a run. */
#include "runtime/train/trainer.h"

#include "runtime/backend/alloc.h"
#include "runtime/data/loader.h"
#include "runtime/files/folder_lock.h"
#include "runtime/backend/memory.h"
#include "runtime/train/guard.h"
#include "runtime/train/replicas.h"
#include "runtime/train/stepper.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Data recorded when a step is submitted. */
typedef struct submission {
    rt_position after; /* data position after the step */
    double began;
    int64_t samples;
} submission;

/* What ends a run early: a signal, a callback. */
enum { STOP_SIGNAL = 1, STOP_ENOUGH = 2, STARVED = 4 };

struct rt_trainer {
    rt_stepper stepper;
    rt_team *peers; /* NULL: none */
    rt_dataset *data;
    rt_loader *feed;
    rt_schedule schedule;
    int64_t steps;   /* of the entire run */
    int64_t window;  /* micro-batches per step; 1: a step is one run of @train_step */
    bool whole;      /* an epoch has whole windows, of equal shares of the ranks */
    int64_t batches; /* of the entire run */
    double began;
    rt_trace *trace;                          /* NULL: none */
    double rate;                              /* value of @lr; NAN: unknown */
    rt_position position;                     /* of the next batch to submit */
    submission submissions[RT_READBACK_RUNS]; /* of the pending steps, by number */
    double collected;                         /* time of the last collected result */
    rt_guard guard;
    uint64_t evaluated;    /* the step after which it was last evaluated, or that it resumed from */
    unsigned asks;         /* STOP_.. of this rank */
    unsigned stops;        /* of any rank, known to all: the run ends before the next step */
    bool compared;         /* the ranks have compared the collectives of their plans */
    bool starved;          /* the run stops, and a batch or an evaluation did not get its samples or was abandoned */
    bool lacks_evaluation; /* it was an evaluation */
};

/* ---- opening ---- */

static ampc_status set_seed(rt_trainer *t, uint64_t seed, diag *d)
{
    t->stepper.state.position.seed = seed;
    t->position = t->stepper.state.position;
    return rt_session_seed(t->stepper.session, seed, d);
}

/* Steps of so many batches; the last one may have fewer micro-batches. */
static int64_t steps_of(const rt_trainer *t, int64_t batches) { return (batches - 1) / t->window + 1; }

static ampc_status check_rows(const rt_trainer *t, int64_t batch, diag *d)
{
    const int64_t rows = rt_dataset_rows(t->data);
    if (rt_dataset_batches(t->data, batch)) return AMPC_OK;
    if (t->whole && rows >= batch)
        return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE,
                          "the data has %" PRId64 " samples, fewer than one window of %" PRId64 " batches of %" PRId64,
                          rows, t->window, batch);
    return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE,
                      "the data has %" PRId64 " samples, fewer than one batch of %" PRId64, rows, batch);
}

/* The batch of all ranks. One that the graph fixes is that of each. */
static ampc_status find_batch(const rt_trainer *t, const rt_trainer_options *o, diag *d, int64_t *batch)
{
    const k_ranks *r = rt_team_ranks(t->peers);
    const int64_t fixed = rt_loader_fixed_batch(t->stepper.graph, rt_session_sizes(t->stepper.session));
    *batch = o->batch ? o->batch : fixed;
    if (!r) return AMPC_OK;
    if (fixed > 0 && !checked_mul(fixed, r->count, batch)) *batch = INT64_MAX;
    if (o->batch && o->batch != *batch)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                          "a batch of %" PRId64 " does not fit a model with a fixed batch of %" PRId64
                          " on %d ranks, which together have %" PRId64,
                          o->batch, fixed, r->count, *batch);
    if (t->whole && *batch % r->count)
        return diag_error(d, AMPC_USAGE, DIAG_USE(DIAG_NOWHERE, OPTION_batch, .value = "N"),
                          "deterministic sums need equal shares: a batch of %" PRId64 " is not a multiple of %d ranks",
                          *batch, r->count);
    if (*batch >= r->count || !*batch) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_USE(DIAG_NOWHERE, OPTION_batch, .value = "N"),
                      "a batch of %" PRId64 " has fewer samples than there are ranks: %d", *batch, r->count);
}

/* Opens the loader for the share of this rank. */
static ampc_status open_feed(rt_trainer *t, int64_t batch, diag *d)
{
    int64_t first = 0, own = batch;
    k_ranks *r = rt_team_ranks(t->peers);
    if (r) own = k_rank_part(batch, r->index, r->count, &first);
    TRY(rt_loader_open(t->stepper.graph, t->data, rt_session_sizes(t->stepper.session), own, d, &t->feed));
    t->stepper.state.batch = r ? batch : rt_loader_batch(t->feed);
    if (!r) return AMPC_OK;
    r->share = (double)own / (double)batch;
    rt_loader_share(t->feed, batch, first);
    return AMPC_OK;
}

static ampc_status set_length(rt_trainer *t, const rt_trainer_options *o, diag *d)
{
    int64_t batch = t->stepper.state.batch, rows = rt_dataset_rows(t->data);
    int64_t batches = rt_dataset_batches(t->data, batch);
    t->stepper.state.rows = rows;
    TRY(check_rows(t, batch, d));
    if (!checked_mul(o->epochs ? o->epochs : o->steps, o->epochs ? batches : t->window, &t->batches))
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "too many %s", o->epochs ? "epochs" : "steps");
    t->steps = steps_of(t, t->batches);
    return AMPC_OK;
}

static ampc_status set_up(rt_trainer *t, rt_session *s, const ir_module *m, const rt_trainer_options *o, diag *d)
{
    const rt_stepper_options watch = {o->scale_floor, o->floor_skips, o->allow_skipped_steps};
    TRY(rt_stepper_open(s, m, &watch, d, &t->stepper));
    t->peers = t->stepper.peers = o->peers;
    t->window = t->stepper.apply && m->training.window > 1 ? m->training.window : 1;
    t->whole = o->tree;
    if (t->whole) rt_dataset_set_window(t->data, t->window);
    int64_t batch;
    TRY(find_batch(t, o, d, &batch));
    if (batch > 0) TRY(check_rows(t, batch, d)); /* before there is memory for such a batch */
    TRY(open_feed(t, batch, d));
    t->stepper.feed = t->feed;
    TRY(rt_loader_read_ahead(t->feed, o->workers, d));
    TRY(set_length(t, o, d));
    t->guard = (rt_guard){.session = s, .step = t->window > 1 ? t->stepper.apply : t->stepper.graph};
    if (o->allow_skipped_steps || ir_state_by_role(m, IR_STATE_loss_scale)) t->guard.step = NULL;
    TRY(set_seed(t, o->seed, d));
    double lr = o->lr;
    if (!ir_state_by_role(m, IR_STATE_lr))
        return diag_error(d, AMPC_REJECTED, DIAG_FILE(ir_module_source(m)),
                          "there is nothing to train: the module has no parameters, or all of them are frozen");
    if (lr < 0) TRY(rt_session_get_number(s, ir_state_name(m, IR_STATE_lr), d, &lr));
    TRY(rt_schedule_parse(o->lr_schedule, lr, t->steps, d, &t->schedule));
    rt_schedule_print(&t->schedule, t->stepper.state.schedule);
    t->began = rt_trace_now();
    t->rate = NAN;
    return AMPC_OK;
}

ampc_status rt_trainer_open(rt_session *s, const ir_module *m, rt_dataset *data, const rt_trainer_options *o, diag *d,
                            rt_trainer **out)
{
    assert((o->steps > 0) != (o->epochs > 0)); /* callers reject both and neither */
    rt_trainer *t = rt_alloc(1, sizeof *t);
    if (!t) return rt_no_memory(d);
    t->data = data;
    ampc_status status = set_up(t, s, m, o, d);
    if (status == AMPC_OK) *out = t;
    else rt_trainer_close(t);
    return status;
}

void rt_trainer_close(rt_trainer *t)
{
    if (!t) return;
    rt_guard_clear(&t->guard);
    rt_loader_close(t->feed);
    rt_free(t);
}

static uint64_t steps_submitted(const rt_trainer *t) { return t->stepper.state.step + (uint64_t)t->stepper.pending; }

const rt_loader *rt_trainer_feed(const rt_trainer *t) { return t->feed; }

bool rt_trainer_done(const rt_trainer *t) { return steps_submitted(t) >= (uint64_t)t->steps; }
int64_t rt_trainer_steps(const rt_trainer *t) { return t->steps; }
bool rt_trainer_lacks_evaluation(const rt_trainer *t) { return t->lacks_evaluation; }
const rt_run_state *rt_trainer_state(const rt_trainer *t) { return &t->stepper.state; }

/* ---- one step ---- */

static double epochs_done(const rt_trainer *t)
{
    const rt_run_state *state = &t->stepper.state;
    int64_t batches = rt_dataset_batches(t->data, state->batch);
    return (double)state->position.epoch + (double)state->position.batch / (double)batches;
}

static void record(const rt_trainer *t, double began, int64_t samples, const rt_step_result *r, rt_step_record *out)
{
    double end = rt_trace_now();
    *out = (rt_step_record){
        .step = t->stepper.state.step,
        .epoch = epochs_done(t),
        .loss = r->loss,
        .lr = r->lr,
        .scale = r->scale,
        .skipped = t->stepper.state.skipped,
        .grad_norm = r->grad_norm,
        .samples = samples,
        .samples_s = (double)samples / fmax(end - began, 1e-9),
        .t = end - t->began,
    };
}

/* Sets @lr for the next step. A rate that varies is known only if no step is pending, since the rate depends on the
 * number of accepted steps. */
static ampc_status set_rate(rt_trainer *t, diag *d)
{
    double accepted = 0;
    rt_session *s = t->stepper.session;
    const ir_module *m = t->stepper.graph->module;
    if (!isnan(t->rate) && rt_schedule_is_constant(&t->schedule)) return AMPC_OK;
    assert(!t->stepper.pending); /* a varying rate is set only between steps */
    TRY(rt_session_get_number(s, ir_state_name(m, IR_STATE_step), d, &accepted));
    accepted += (double)t->stepper.state.before_reset;
    double rate = rt_schedule_is_plateau(&t->schedule)
                      ? rt_plateau_rate(&t->stepper.state.plateau, &t->schedule, (int64_t)accepted)
                      : rt_schedule_rate(&t->schedule, (int64_t)accepted);
    if (rate != t->rate) TRY(rt_session_set_number(s, ir_state_name(m, IR_STATE_lr), rate, d));
    t->rate = rate;
    return AMPC_OK;
}

static bool has_signal(const rt_train_plan *plan) { return plan->stop && *plan->stop; }

/* If any rank stops or lacks its samples, all do. */
static ampc_status agree(rt_trainer *t, ampc_status mine, diag *d)
{
    unsigned flags = t->asks | (t->starved ? STARVED : 0);
    TRY(rt_team_agree(t->peers, mine, &flags, d));
    t->stops = flags & ~(unsigned)STARVED;
    t->starved = flags & STARVED;
    return AMPC_OK;
}

/* Whether the next step, which has got so many samples, does not take place. */
static bool ends_before(const rt_trainer *t, const submission *next)
{
    return t->starved || (t->stops && !next->samples);
}

/* Once, before the first step. The sizes of a rank are those of its share, so it has a plan of its own. */
static ampc_status compare_plans(rt_trainer *t, diag *d)
{
    const rt_stepper *s = &t->stepper;
    if (t->compared) return AMPC_OK;
    t->compared = true;
    TRY(rt_replicas_compare_plans(t->peers, s->session, t->window > 1 ? s->accumulate : s->graph,
                                  rt_loader_inputs(t->feed), rt_loader_count(t->feed), d));
    return rt_replicas_compare_plans(t->peers, s->session, t->window > 1 ? s->apply : NULL, NULL, 0, d);
}

/* The samples of this rank. */
static ampc_status load_batch(rt_trainer *t, submission *to, diag *d)
{
    const double began = rt_trace_now();
    const ampc_status loaded = rt_loader_next(t->feed, &t->position, d);
    t->starved = rt_loader_stopped(t->feed);
    TRY(agree(t, loaded, d));
    if (ends_before(t, to)) return AMPC_OK;
    rt_trace_span(t->trace, RT_LANE_DATA, "batch", began);
    rt_position_advance(&t->position, t->data, t->stepper.state.batch);
    to->after = t->position;
    to->samples += t->stepper.state.batch;
    return compare_plans(t, d);
}

/* Passes the status of a run on, unless the run was abandoned because the program stops; then its batch, at `before`,
 * is the next one of a resumed training. */
static ampc_status unless_abandoned(rt_trainer *t, const rt_position *before, ampc_status s)
{
    if (s == AMPC_OK || !rt_session_stopped(t->stepper.session)) return s;
    t->position = *before;
    t->starved = true;
    return AMPC_OK;
}

/* Runs the micro-batches of the next step. A checkpoint may have been saved within a window. */
static ampc_status fill_window(rt_trainer *t, submission *to, diag *d)
{
    int64_t count, left = t->batches - (int64_t)steps_submitted(t) * t->window;
    bool unscaled;
    TRY(rt_stepper_window(&t->stepper, d, &count, &unscaled));
    if (count >= left || count >= t->window || unscaled) return agree(t, AMPC_OK, d);
    for (; count < left && count < t->window && !unscaled; count++) {
        const rt_position before = t->position;
        TRY(load_batch(t, to, d));
        if (ends_before(t, to)) return AMPC_OK;
        TRY(unless_abandoned(
            t, &before,
            rt_stepper_accumulate(&t->stepper, rt_loader_inputs(t->feed), rt_loader_count(t->feed), d, NULL)));
        if (t->starved) return AMPC_OK;
    }
    return AMPC_OK;
}

static ampc_status submit(rt_trainer *t, diag *d)
{
    const rt_position before = t->position;
    submission *next = &t->submissions[steps_submitted(t) % RT_READBACK_RUNS];
    *next = (submission){.after = t->position, .began = rt_trace_now()};
    TRY(t->window > 1 ? fill_window(t, next, d) : load_batch(t, next, d));
    if (ends_before(t, next)) return AMPC_OK;
    TRY(set_rate(t, d));
    if (t->window > 1) return rt_stepper_apply(&t->stepper, d);
    return unless_abandoned(t, &before,
                            rt_stepper_submit(&t->stepper, rt_loader_inputs(t->feed), rt_loader_count(t->feed), d));
}

static ampc_status collect(rt_trainer *t, diag *d, rt_step_record *out)
{
    rt_step_result result;
    rt_run_state *state = &t->stepper.state;
    const submission *oldest = &t->submissions[state->step % RT_READBACK_RUNS];
    double began = fmax(oldest->began, t->collected);
    state->position = oldest->after;
    ampc_status status = rt_stepper_collect(&t->stepper, rt_loader_inputs(t->feed), rt_loader_count(t->feed), d,
                                            &result);
    t->collected = rt_trace_now();
    rt_trace_span(t->trace, RT_LANE_STEPS, result.skipped ? "skipped step" : "step", began);
    if (status == AMPC_OK && !result.skipped && rt_schedule_is_plateau(&t->schedule))
        rt_plateau_observe(&state->plateau, &t->schedule, steps_of(t, rt_dataset_batches(t->data, state->batch)),
                           result.loss);
    record(t, began, oldest->samples, &result, out);
    return status;
}

/* ---- unchecked updates ---- */

/* Whether the next step is the last one before the state leaves the training. */
static bool is_guarded(const rt_trainer *t, const rt_train_plan *plan)
{
    const uint64_t next = steps_submitted(t) + 1;
    const bool save_due = plan->checkpoint_dir && plan->save_every > 0 && next % (uint64_t)plan->save_every == 0;
    return t->guard.step && (next >= (uint64_t)t->steps || save_due);
}

/* Fails with AMPC_NUMERIC if the state after the last step, which is not pending, is not finite. */
static ampc_status examine(rt_trainer *t, diag *d)
{
    char why[256];
    const ir_storage *found;
    const uint64_t step = t->stepper.state.step;
    if (!t->guard.step || !t->stepper.steps || t->guard.examined == step) return AMPC_OK;
    TRY(rt_guard_examine(&t->guard, d, &found));
    if (found) {
        snprintf(why, sizeof why, "the update has made '%s' NaN or infinite", found->name);
        TRY(rt_guard_restore(&t->guard, d));
        return rt_stepper_explain(&t->stepper, rt_loader_inputs(t->feed), rt_loader_count(t->feed), d, why);
    }
    rt_guard_clear(&t->guard);
    t->guard.examined = step;
    return AMPC_OK;
}

/* ---- checkpoints ---- */

/* Whether the schedules are constant and differ in their length alone, which changes no rate. */
static bool differ_in_length(const rt_trainer *t, const char *before)
{
    static const char LENGTH[] = ",steps=";
    const char *now = t->stepper.state.schedule, *length = strstr(now, LENGTH);
    if (!rt_schedule_is_constant(&t->schedule) || !length || strchr(before, ';')) return false;
    return strncmp(before, now, (size_t)(length - now) + strlen(LENGTH)) == 0;
}

/* Steps that add the same tree may have had their samples in other micro-batches. Between two steps, only the position
 * tells. */
static void convert_position(const rt_trainer *t, rt_run_state *from)
{
    const uint64_t batch = (uint64_t)t->stepper.state.batch, was = (uint64_t)from->batch;
    const uint64_t epoch = (uint64_t)rt_dataset_batches(t->data, t->stepper.state.batch) * batch;
    const uint64_t read = from->position.epoch * epoch + from->position.batch * was;
    if (!t->whole || read != from->step * batch * (uint64_t)t->window) return;
    from->position.batch = from->position.batch * was / batch;
    from->batch = t->stepper.state.batch;
}

static ampc_status check_resumed(const rt_trainer *t, const rt_run_state *from, const char *path, diag *d)
{
    if (from->batch != t->stepper.state.batch)
        return diag_error(d, AMPC_USAGE, DIAG_FILE(path),
                          "the run used a batch size of %" PRId64 ", not %" PRId64 "; resume with the same batch size",
                          from->batch, t->stepper.state.batch);
    if (from->rows != t->stepper.state.rows)
        return diag_error(d, AMPC_USAGE, DIAG_FILE(path), "the run used data of %" PRId64 " samples, not %" PRId64,
                          from->rows, t->stepper.state.rows);
    if (from->position.batch >= (uint64_t)rt_dataset_batches(t->data, from->batch))
        return diag_error(d, AMPC_REJECTED, DIAG_FILE(path),
                          "the run was at batch %" PRIu64 ", but an epoch has %" PRId64, from->position.batch,
                          rt_dataset_batches(t->data, from->batch));
    if (strcmp(from->schedule, t->stepper.state.schedule) == 0 || differ_in_length(t, from->schedule)) return AMPC_OK;
    return diag_warning(d, DIAG_FILE(path), "the schedule was %s; continuing with %s", from->schedule,
                        t->stepper.state.schedule);
}

/* A run that watches another metric than before forgets the best value of the old one. */
static ampc_status check_monitor(const rt_monitor *m, rt_monitor_state *from, const char *path, diag *d)
{
    if (!m || !from->metric[0] || strcmp(m->metric.name, from->metric) == 0) return AMPC_OK;
    TRY(diag_warning(d, DIAG_FILE(path), "the run watched the metric %s; the best %s so far is unknown", from->metric,
                     m->metric.name));
    *from = (rt_monitor_state){.bad = 0};
    return AMPC_OK;
}

/* The session has the codes of the checkpoint and goes on with those of the data. */
static ampc_status check_codes(const rt_trainer *t, const char *path, diag *d)
{
    const char *was = rt_session_codes(t->stepper.session);
    char *codes = rt_codebook_print(rt_dataset_codes(t->data));
    ampc_status s = codes ? AMPC_OK : rt_no_memory(d);
    if (codes && was && strcmp(was, codes) != 0)
        s = diag_error(d, AMPC_USAGE, DIAG_FILE(path),
                       "the classes, categories or means of the data were %.200s, not %.200s", was, codes);
    if (s == AMPC_OK) s = rt_session_set_codes(t->stepper.session, codes, d);
    free(codes);
    return s;
}

/* *path: the checkpoint, malloced; NULL if there is none. */
static ampc_status resume(rt_trainer *t, const rt_train_plan *plan, diag *d, char **path)
{
    rt_run_state from;
    const rt_checkpoint_how how = {.part = RT_CHECKPOINT_ALL, .reset_optimizer = plan->reset_optimizer};
    TRY(rt_checkpoint_resume(t->stepper.session, t->stepper.graph->module, plan->checkpoint_dir, &how,
                             plan->allow_fallback, d, &from, path));
    if (!*path) return AMPC_OK;
    convert_position(t, &from);
    ampc_status s = check_resumed(t, &from, *path, d);
    if (s == AMPC_OK) s = check_codes(t, *path, d);
    if (s == AMPC_OK) s = check_monitor(plan->best, &from.best, *path, d);
    if (s == AMPC_OK) s = check_monitor(plan->early_stop, &from.early_stop, *path, d);
    if (s != AMPC_OK) {
        free(*path);
        *path = NULL;
        return s;
    }
    memcpy(from.schedule, t->stepper.state.schedule, sizeof from.schedule);
    t->stepper.state = from;
    t->position = from.position;
    t->rate = NAN;
    return AMPC_OK;
}

/* ---- evaluation ---- */

/* Every rank evaluates all samples, so that its values are those of one process; those of the first decide. */
static ampc_status share_values(rt_trainer *t, rt_eval *eval, diag *d)
{
    double values[RT_EVAL_VALUES] = {0};
    for (int i = 0; i < eval->count; i++) values[i] = eval->value[i].value;
    TRY(rt_team_copy(t->peers, values, sizeof values, d));
    for (int i = 0; i < eval->count; i++) eval->value[i].value = values[i];
    return AMPC_OK;
}

static ampc_status evaluate_some(rt_trainer *t, const rt_train_plan *plan, int64_t limit, diag *d, rt_eval *out)
{
    rt_metric_choices watched = {.count = 0};
    if (plan->best) TRY(rt_metrics_add(&watched, &plan->best->metric, OPTION_best, d));
    if (plan->early_stop) TRY(rt_metrics_add(&watched, &plan->early_stop->metric, OPTION_early_stop, d));
    const rt_eval_options o = {.limit = limit, .metrics = plan->metrics, .required = &watched, .stop = plan->stop};
    const ampc_status s = rt_evaluate(t->stepper.session, t->stepper.graph->module, plan->eval_data, &o, d, out);
    t->starved |= out->stopped;
    TRY(agree(t, s, d));
    if (t->starved) out->stopped = t->lacks_evaluation = true;
    return out->stopped ? AMPC_OK : share_values(t, out, d);
}

/* Evaluates one sample if metrics are named, because a metric without meaning is to be found before the training. */
static ampc_status check_metrics(rt_trainer *t, const rt_train_plan *plan, diag *d)
{
    rt_eval eval = {0};
    if (!plan->eval_data || !(plan->best || plan->early_stop || (plan->metrics && plan->metrics->count)))
        return AMPC_OK;
    ampc_status status = evaluate_some(t, plan, 1, d, &eval);
    rt_eval_clear(&eval);
    return status;
}

/* The first rank writes, and gets the slices of the others. */
static ampc_status write_checkpoint(rt_trainer *t, const rt_train_plan *plan, bool best, diag *d)
{
    rt_session *s = t->stepper.session;
    const ir_module *m = t->stepper.graph->module;
    if (!rt_team_first(t->peers)) return rt_session_serve_wholes(s, d);
    const ampc_status written = best ? rt_checkpoint_put_best(s, m, &t->stepper.state, plan->checkpoint_dir, d)
                                     : rt_checkpoint_put(s, m, &t->stepper.state, plan->checkpoint_dir, (int)plan->keep,
                                                         d);
    const ampc_status ended = rt_session_end_wholes(s, d);
    return written == AMPC_OK ? ended : written;
}

/* Evaluates all samples, and saves the weights if they are the best ones. `state` is that of the run. */
static ampc_status evaluate(rt_trainer *t, const rt_train_plan *plan, rt_run_state *state, diag *d, rt_eval *out)
{
    const rt_monitor *best = plan->best, *stop = plan->early_stop;
    const double began = rt_trace_now();
    TRY(evaluate_some(t, plan, 0, d, out));
    if (out->stopped) return AMPC_OK;
    rt_trace_span(t->trace, RT_LANE_EVALUATION, "evaluate", began);
    if (stop) rt_monitor_observe(stop, rt_eval_number(out, stop->metric.name), state->step, &state->early_stop);
    if (!best || !rt_monitor_observe(best, rt_eval_number(out, best->metric.name), state->step, &state->best))
        return AMPC_OK;
    TRY(examine(t, d));
    return write_checkpoint(t, plan, true, d);
}

static ampc_status end_epoch(rt_trainer *t, const rt_train_plan *plan, diag *d)
{
    rt_eval eval = {0};
    rt_run_state *state = &t->stepper.state;
    ampc_status status = AMPC_OK;
    if (plan->eval_data) status = evaluate(t, plan, state, d, &eval);
    if (status == AMPC_OK && !eval.stopped && plan->on_epoch)
        status = plan->on_epoch(plan->user, state->position.epoch, plan->eval_data ? &eval : NULL);
    rt_eval_clear(&eval);
    t->evaluated = state->step;
    return status;
}

/* Evaluates a run that ended within an epoch, unless a signal stopped it. */
static ampc_status end_run(rt_trainer *t, const rt_train_plan *plan, diag *d)
{
    rt_eval eval = {0};
    rt_run_state state = t->stepper.state;
    if (!plan->eval_data || t->evaluated == state.step || (t->stops & STOP_SIGNAL)) return AMPC_OK;
    ampc_status status = evaluate(t, plan, &state, d, &eval);
    if (status == AMPC_OK && !eval.stopped && plan->on_end) status = plan->on_end(plan->user, &eval);
    rt_eval_clear(&eval);
    return status;
}

static bool stops_early(const rt_trainer *t, const rt_train_plan *plan)
{
    return plan->early_stop && rt_monitor_exhausted(plan->early_stop, &t->stepper.state.early_stop);
}

static void report_stop(const rt_trainer *t, const rt_train_plan *plan, diag *d)
{
    const rt_monitor_state *watched = &t->stepper.state.early_stop;
    if (!stops_early(t, plan)) return;
    diag_note(d, DIAG_NOWHERE,
              "stopped early after step %" PRIu64 ": %s has not improved in %" PRId64
              " evaluations since %g at step %" PRIu64,
              t->stepper.state.step, watched->metric, watched->bad, watched->best, watched->step);
}

/* ---- the loop ---- */

static ampc_status begin_in_folder(rt_trainer *t, const rt_train_plan *plan, diag *d)
{
    char *path = NULL;
    if (plan->resume) {
        TRY(resume(t, plan, d, &path));
        if (path) diag_remark(d, DIAG_FILE(path), "resumed at step %" PRIu64, t->stepper.state.step);
        else diag_remark(d, DIAG_FILE(plan->checkpoint_dir), "no checkpoint yet: starting from the beginning");
        free(path);
        return AMPC_OK;
    }
    TRY(rt_checkpoint_newest(plan->checkpoint_dir, d, &path));
    if (!path && !rt_checkpoint_has_best(plan->checkpoint_dir)) return AMPC_OK;
    ampc_status s = diag_error(d, AMPC_USAGE,
                               DIAG_USE(DIAG_FILE(path ? path : plan->checkpoint_dir), OPTION_resume,
                                        .purpose = "to continue it, or another folder"),
                               "the folder has a checkpoint of an earlier run");
    free(path);
    return s;
}

/* The folder is that of the first rank, whose state all get. */
static ampc_status open_folder(rt_trainer *t, const rt_train_plan *plan, diag *d, rt_folder_lock *lock)
{
    if (!plan->checkpoint_dir || !rt_team_first(t->peers)) return AMPC_OK;
    TRY(rt_checkpoint_folder(plan->checkpoint_dir, d));
    TRY(rt_folder_lock_acquire(plan->checkpoint_dir, d, lock));
    return begin_in_folder(t, plan, d);
}

static ampc_status begin(rt_trainer *t, const rt_train_plan *plan, diag *d, rt_folder_lock *lock)
{
    TRY(check_metrics(t, plan, d));
    TRY(agree(t, open_folder(t, plan, d, lock), d));
    if (plan->resume) TRY(rt_replicas_copy(t->peers, t->stepper.session, &t->stepper.state, d));
    t->position = t->stepper.state.position;
    TRY(rt_replicas_compare(t->peers, t->stepper.session, t->data, t->position.seed, d));
    if (plan->no_loss_scaling || ir_state_by_role(t->stepper.graph->module, IR_STATE_good_steps))
        TRY(rt_stepper_set_scaling(t->stepper.session, t->stepper.graph->module, !plan->no_loss_scaling, d));
    t->stepper.searches &= !plan->no_loss_scaling;
    t->evaluated = t->stepper.state.step;
    return plan->on_begin ? plan->on_begin(plan->user, t->stepper.state.step) : AMPC_OK;
}

static ampc_status save_if_due(rt_trainer *t, const rt_train_plan *plan, uint64_t *saved, bool due, diag *d)
{
    if (!plan->checkpoint_dir || !due || *saved == t->stepper.state.step || t->lacks_evaluation) return AMPC_OK;
    TRY(examine(t, d));
    const double began = rt_trace_now();
    if (plan->on_save) TRY(plan->on_save(plan->user));
    TRY(write_checkpoint(t, plan, false, d));
    rt_trace_span(t->trace, RT_LANE_FILES, "checkpoint", began);
    *saved = t->stepper.state.step;
    return AMPC_OK;
}

static ampc_status report(rt_trainer *t, const rt_train_plan *plan, uint64_t *saved, diag *d)
{
    rt_step_record step;
    const rt_run_state *state = &t->stepper.state;
    uint64_t epoch = state->position.epoch;
    TRY(collect(t, d, &step));
    bool due = plan->save_every > 0 && state->step % (uint64_t)plan->save_every == 0;
    if (t->guard.kept && !t->stepper.pending) TRY(examine(t, d));
    if (plan->on_step && plan->on_step(plan->user, &step)) t->asks |= STOP_ENOUGH;
    if (state->position.epoch != epoch) TRY(end_epoch(t, plan, d));
    return save_if_due(t, plan, saved, due, d);
}

/* True if all pending steps must be collected before the next one is submitted: because the session will be inspected
 * and may not be ahead of the reported step, because the next learning rate depends on their results, or because no
 * more steps can be pending; always after a window, whose micro-batches are runs of the session too. */
static bool must_wait(const rt_trainer *t, const rt_train_plan *plan)
{
    uint64_t next = steps_submitted(t);
    bool save_due = plan->save_every > 0 && next % (uint64_t)plan->save_every == 0;
    bool epoch_ends = t->position.epoch != t->stepper.state.position.epoch;
    return save_due || epoch_ends || rt_trainer_done(t) || t->window > 1 || !rt_schedule_is_constant(&t->schedule) ||
           t->stepper.pending == RT_READBACK_RUNS - 1;
}

static ampc_status one_round(rt_trainer *t, const rt_train_plan *plan, uint64_t *saved, diag *d)
{
    const bool guarded = is_guarded(t, plan);
    while (guarded && t->stepper.pending) TRY(report(t, plan, saved, d));
    if (has_signal(plan)) t->asks |= STOP_SIGNAL;
    t->stops |= t->peers ? 0 : t->asks; /* ranks agree when they have the next batch */
    if (t->stops) return AMPC_OK;
    if (guarded) TRY(rt_guard_keep(&t->guard, d));
    TRY(submit(t, d));
    if (t->starved) return AMPC_OK;
    bool wait = must_wait(t, plan);
    while (t->stepper.pending && (wait || rt_stepper_ready(&t->stepper))) TRY(report(t, plan, saved, d));
    return AMPC_OK;
}

static ampc_status run_steps(rt_trainer *t, const rt_train_plan *plan, diag *d)
{
    uint64_t saved = t->stepper.state.step;
    while (!t->stops && !t->starved && !rt_trainer_done(t) && !stops_early(t, plan)) TRY(one_round(t, plan, &saved, d));
    while (t->stepper.pending) TRY(report(t, plan, &saved, d));
    if (has_signal(plan)) t->asks |= STOP_SIGNAL;
    TRY(agree(t, AMPC_OK, d));                                                /* about the evaluation */
    if (t->starved && t->window > 1) t->stepper.state.position = t->position; /* in the middle of a window */
    TRY(examine(t, d));
    TRY(save_if_due(t, plan, &saved, true, d));
    report_stop(t, plan, d);
    TRY(rt_stepper_end(&t->stepper, d));
    return end_run(t, plan, d);
}

ampc_status rt_trainer_run(rt_trainer *t, const rt_train_plan *plan, diag *d)
{
    rt_folder_lock lock = RT_NO_FOLDER_LOCK;
    t->trace = plan->trace;
    t->asks = t->stops = 0;
    t->starved = false;
    if (plan->stop) TRY(rt_loader_watch(t->feed, plan->stop, d));
    if (!t->peers) rt_session_watch(t->stepper.session, plan->stop); /* a run is of all ranks, or of none */
    ampc_status status = begin(t, plan, d, &lock);
    if (status == AMPC_OK) status = run_steps(t, plan, d);
    rt_session_watch(t->stepper.session, NULL);
    rt_folder_lock_release(&lock);
    return status;
}
