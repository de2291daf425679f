/* run_train.c - train: the trainer with a log, a progress line, evaluation after each epoch and a plot.
 *
 * SIGINT or SIGTERM lets the current step finish, unless its data or loops are too slow, and saves a checkpoint; the
 * exit status is 128 + signal. A second signal kills the process. */
#include "ir/base/json_writer.h"
#include "runtime/data/loader.h"
#include "runtime/train/recorder.h"
#include "runtime/train/stepper.h"
#include "runtime/train/trainer.h"
#include "tools/run.h"
#include "tools/svg_plot.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_BATCH = 64 };

typedef struct training {
    run_context *c;
    rt_dataset *data, *eval_data;
    rt_trainer *trainer;
    rt_recorder *recorder;
    rt_trace *trace;           /* NULL: none */
    VEC(rt_step_record) steps; /* for the plot if there is no log */
    rt_step_record last;
    rt_eval eval;                  /* the latest evaluation; without values before the first */
    rt_metric_choices metrics;     /* of --metric */
    rt_monitor best, early_stop;   /* of these options */
    double busy;                   /* seconds in steps */
    double epoch_busy, epoch_loss; /* sums since the start of the epoch */
    int64_t run, epoch_steps, epochs;
    double shown, rate_from, rate_busy; /* since the last progress line */
    int64_t rate_steps, rate_samples;
    int64_t samples;               /* of all steps of this run */
    ampc_status status;            /* error status of a callback */
    rt_reduction_time *reductions; /* of each rank */
} training;

static volatile sig_atomic_t stop_signal;

static void on_signal(int number) { stop_signal = number; }

/* SIG_DFL: a signal ends the process at once, which loses nothing before the first step and after the last one. */
static void handle_signals(void (*handler)(int number))
{
    struct sigaction action = {.sa_flags = SA_RESTART | (int)SA_RESETHAND};
    action.sa_handler = handler;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* ---- progress -------------------------------------------------------------------------------- */

static void show_progress(training *t, bool last)
{
    enum { LINE = 512 };
    console *out = &t->c->tool->console;
    char line[LINE];
    double now = tool_seconds(), pause = out->terminal ? 0.1 : 10;
    if (out->quiet || !rt_team_first(t->c->peers) || (!last && now - t->shown < pause)) return;
    int64_t left = rt_trainer_steps(t->trainer) - (int64_t)t->last.step;
    double each = t->rate_steps ? (now - t->rate_from) / (double)t->rate_steps : 0;
    rt_progress p = {.now = t->last,
                     .steps = (uint64_t)rt_trainer_steps(t->trainer),
                     .epochs = (uint64_t)t->c->tool->o.epochs,
                     .seconds_left = each > 0 ? each * (double)left : -1};
    if (t->rate_busy > 0) p.now.samples_s = (double)t->rate_samples / t->rate_busy;
    bool utf8 = out->terminal && getenv("LANG") && strstr(getenv("LANG"), "UTF-8");
    rt_progress_style style = !out->terminal ? RT_PROGRESS_LINE : utf8 ? RT_PROGRESS_FINE : RT_PROGRESS_BAR;
    rt_progress_format(line, sizeof line, &p, style, out->terminal ? console_columns() : sizeof line);
    console_live(out, line);
    t->shown = t->rate_from = now;
    t->rate_steps = t->rate_samples = 0;
    t->rate_busy = 0;
}

static bool on_step(void *user, const rt_step_record *step)
{
    training *t = user;
    double seconds = step->samples ? (double)step->samples / step->samples_s : 0;
    t->last = *step;
    t->busy += seconds;
    t->run++;
    t->samples += step->samples;
    t->rate_busy += seconds;
    t->rate_samples += step->samples;
    t->rate_steps++;
    if (t->recorder) t->status = rt_recorder_step(t->recorder, step);
    if (t->c->tool->o.plot && !t->c->tool->o.log) vec_push(t->c->tool->arena, &t->steps, *step);
    show_progress(t, rt_trainer_done(t->trainer));
    t->epoch_busy += seconds;
    if (isfinite(step->loss)) { /* a skipped step may have an infinite penalty */
        t->epoch_loss += step->loss;
        t->epoch_steps++;
    }
    return t->status != AMPC_OK;
}

/* Whether epochs and the result are printed as text. */
static bool prints_text(const training *t)
{
    return !t->c->tool->o.pass.json && !t->c->tool->o.quiet && rt_team_first(t->c->peers);
}

/* ---- between epochs -------------------------------------------------------------------------- */

/* Keeps the evaluation for the result. The names are those of the module and of --metric, which outlive it. */
static ampc_status keep_evaluation(training *t, const rt_eval *eval)
{
    t->eval = *eval;
    t->eval.confusion = NULL;
    if (!t->recorder) return AMPC_OK;
    return rt_recorder_evaluation(t->recorder, rt_trainer_state(t->trainer)->step, eval);
}

static ampc_status on_epoch(void *user, uint64_t epoch, const rt_eval *eval)
{
    training *t = user;
    tool *base = t->c->tool;
    t->epochs++;
    if (eval) TRY(keep_evaluation(t, eval));
    if (prints_text(t) && (base->o.epochs || eval)) {
        console_end_live(&base->console);
        printf("epoch %" PRIu64 "  ", epoch);
        if (t->epoch_steps) printf("train loss %.4f  ", t->epoch_loss / (double)t->epoch_steps);
        if (eval) run_print_values(eval, "test loss");
        printf("%.1f s\n", t->epoch_busy);
        if (eval) run_print_confusion(eval);
        fflush(stdout);
    }
    t->epoch_busy = t->epoch_loss = 0;
    t->epoch_steps = 0;
    return AMPC_OK;
}

static ampc_status on_end(void *user, const rt_eval *eval)
{
    training *t = user;
    TRY(keep_evaluation(t, eval));
    if (!prints_text(t)) return AMPC_OK;
    console_end_live(&t->c->tool->console);
    printf("end  ");
    run_print_values(eval, "test loss");
    putchar('\n');
    run_print_confusion(eval);
    return AMPC_OK;
}

/* ---- before and after ------------------------------------------------------------------------ */

static ampc_status check_options(run_context *c)
{
    const tool_options *o = &c->tool->o;
    diag_loc loc = DIAG_FILE("ampc-run train");
    if (!o->epochs == !o->steps)
        return diag_error(c->tool->diag, AMPC_USAGE, loc, "set the training length: either --epochs or --steps");
    return AMPC_OK;
}

static ampc_status parse_metrics(training *t)
{
    const tool_options *o = &t->c->tool->o;
    diag *d = t->c->tool->diag;
    TRY(run_parse_metrics(t->c, &t->metrics));
    if (o->best) TRY(rt_monitor_parse(o->best, OPTION_best, d, &t->best));
    return o->early_stop ? rt_monitor_parse(o->early_stop, OPTION_early_stop, d, &t->early_stop) : AMPC_OK;
}

/* Called by the trainer once it knows from which step it continues. */
static ampc_status open_recorder(void *user, uint64_t first)
{
    training *t = user;
    const tool_options *o = &t->c->tool->o;
    const rt_recorder_options options = {
#define RECORDER(name, member, kind, ...) .member = o->member,
#include "ir/base/options.def"
        .checkpoints = o->checkpoint_dir, .resumed = o->resume, .model = o->operands.items[0], .seed = o->pass.seed};
    handle_signals(on_signal);
    if (!rt_team_first(t->c->peers)) return AMPC_OK;
    return rt_recorder_open(&options, t->trainer, t->c->tool->module, first, t->c->tool->diag, &t->recorder);
}

static ampc_status sync_recorder(void *user)
{
    rt_recorder *r = ((training *)user)->recorder;
    return r ? rt_recorder_sync(r) : AMPC_OK;
}

/* "runs/fp16.jsonl" -> "fp16" */
static const char *run_name(const char *log, arena *a)
{
    const char *slash = strrchr(log, '/'), *name = slash ? slash + 1 : log;
    return arena_strndup(a, name, strcspn(name, "."));
}

static ampc_status plot(training *t)
{
    tool *base = t->c->tool;
    const tool_options *o = &base->o;
    int count = 0, logs = o->plot_with.count + (o->log != NULL);
    plot_run *runs = arena_array(base->arena, (size_t)logs + 1, sizeof *runs);
    ampc_status status = AMPC_OK;
    if (!o->plot || !rt_team_first(t->c->peers)) return AMPC_OK;
    for (; count < logs && status == AMPC_OK; count++) {
        const char *log = count < o->plot_with.count ? o->plot_with.items[count] : o->log;
        rt_step_record *steps = NULL;
        status = rt_log_read(log, base->diag, &steps, &runs[count].count);
        runs[count].steps = steps;
        runs[count].name = run_name(log, base->arena);
    }
    int last = count;
    if (!o->log) runs[last++] = (plot_run){"this run", t->steps.items, t->steps.count};
    if (status == AMPC_OK) status = plot_write(o->plot, o->operands.items[0], runs, (size_t)last, base->diag);
    for (int i = 0; i < count; i++) free((void *)(uintptr_t)runs[i].steps);
    return status;
}

static double loss_scale(run_context *c)
{
    double scale;
    const ir_storage *state = ir_state_by_role(c->tool->module, IR_STATE_loss_scale);
    if (!state) return 1;
    if (rt_session_get_number(c->session, state->name, c->tool->diag, &scale) != AMPC_OK) return NAN;
    return scale;
}

/* Of all ranks; NULL: there is only one. */
static ampc_status gather_times(training *t)
{
    const k_ranks *r = rt_team_ranks(t->c->peers);
    tool *base = t->c->tool;
    if (!r) return AMPC_OK;
    t->reductions = arena_array(base->arena, (size_t)r->count, sizeof *t->reductions);
    TRY(rt_team_agree(t->c->peers, AMPC_OK, NULL, base->diag));
    return rt_team_times(t->c->peers, t->reductions, base->diag);
}

static void print_times(const training *t)
{
    const k_ranks *r = rt_team_ranks(t->c->peers);
    for (int i = 0; r && t->c->tool->o.trace && i < r->count; i++)
        printf("rank %d on %s: %.3f s in %" PRId64 " reductions of %.1f MB, of %.3f s in steps\n", i,
               rt_team_host(t->c->peers, i), t->reductions[i].seconds, t->reductions[i].calls,
               (double)t->reductions[i].bytes / 1e6, t->busy);
}

static void write_times(json_writer *w, const training *t)
{
    const k_ranks *r = rt_team_ranks(t->c->peers);
    if (!r) return;
    json_begin(w, "reduction_seconds", '[');
    for (int i = 0; i < r->count; i++) json_write_real(w, NULL, "%.6g", t->reductions[i].seconds);
    json_end(w, ']');
    json_write_integer(w, "reduction_bytes", t->reductions[0].bytes);
}

static void print_json(const training *t, double samples_s, int64_t bytes)
{
    const rt_run_state *state = rt_trainer_state(t->trainer);
    json_writer w = {.file = stdout};
    json_begin(&w, NULL, '{');
    json_write_integer(&w, "steps", (int64_t)state->step);
    json_write_real(&w, "loss", "%.9g", t->last.loss);
    run_write_values(&w, &t->eval, "eval_loss");
    json_write_integer(&w, "skipped", (int64_t)state->skipped);
    json_write_real(&w, "loss_scale", "%.9g", loss_scale(t->c));
    json_write_real(&w, "seconds", "%.9g", t->busy);
    json_write_real(&w, "seconds_per_epoch", "%.9g", t->epochs ? t->busy / (double)t->epochs : NAN);
    json_write_real(&w, "samples_s", "%.9g", samples_s);
    json_write_integer(&w, "peak_bytes", bytes);
    write_times(&w, t);
    json_end(&w, '}');
    putchar('\n');
}

static ampc_status print_result(training *t)
{
    run_context *c = t->c;
    const rt_run_state *state = rt_trainer_state(t->trainer);
    rt_memory memory;
    if (!rt_team_first(c->peers) || (!prints_text(t) && !c->tool->o.pass.json)) return AMPC_OK;
    const ir_graph *accumulate = ir_graph_by_role(c->tool->module, IR_GRAPH_accumulate);
    const ir_graph *step = accumulate ? accumulate : ir_graph_by_role(c->tool->module, IR_GRAPH_train_step);
    TRY(run_planned_memory(c, step, t->data, state->batch, &memory));
    const double samples_s = t->busy > 0 ? (double)t->samples / t->busy : NAN;
    const int64_t bytes = memory.arena + memory.storage;
    if (c->tool->o.pass.json) print_json(t, samples_s, bytes);
    else
        printf("%" PRIu64 " steps  loss %.4f  loss scale %g  skipped %" PRIu64 "  %.0f samples/s  %.1f MB planned\n",
               state->step, t->last.loss, loss_scale(c), state->skipped, samples_s, (double)bytes / 1e6);
    if (!c->tool->o.pass.json) print_times(t);
    return AMPC_OK;
}

static ampc_status train(training *t)
{
    tool *base = t->c->tool;
    const tool_options *o = &base->o;
    rt_train_plan plan = {
#define PLANNED(name, member, kind, ...) .member = o->member,
#include "ir/base/options.def"
        .on_begin = open_recorder,
        .on_step = on_step,
        .on_save = sync_recorder,
        .on_epoch = on_epoch,
        .on_end = on_end,
        .user = t,
        .stop = &stop_signal,
        .trace = t->trace,
        .eval_data = t->eval_data,
        .metrics = &t->metrics,
        .best = o->best ? &t->best : NULL,
        .early_stop = o->early_stop ? &t->early_stop : NULL};
    t->shown = t->rate_from = tool_seconds();
    rt_team_trace(t->c->peers, t->trace);
    ampc_status status = rt_trainer_run(t->trainer, &plan, base->diag);
    rt_team_trace(t->c->peers, NULL);
    if (status == AMPC_OK) status = t->status;
    console_end_live(&base->console);
    ampc_status closed = rt_recorder_close(t->recorder), traced = rt_trace_close(t->trace, status == AMPC_OK);
    t->recorder = NULL;
    t->trace = NULL;
    /* A launcher sends the others SIGTERM when one rank has ended, which they report themselves. */
    if (status != AMPC_OK && t->c->peers) handle_signals(SIG_IGN);
    else if (!stop_signal) handle_signals(SIG_DFL);
    TRY(status);
    TRY(traced);
    TRY(closed);
    TRY(gather_times(t));
    TRY(plot(t));
    TRY(print_result(t));
    const bool lacks_evaluation = rt_trainer_lacks_evaluation(t->trainer);
    if (!stop_signal || !rt_team_first(t->c->peers)) return AMPC_OK;
    diag_note(base->diag, DIAG_FILE("ampc-run train"), "stopped by signal %d %safter step %" PRIu64 "%s%s",
              (int)stop_signal, lacks_evaluation ? "in the evaluation " : "", rt_trainer_state(t->trainer)->step,
              lacks_evaluation && o->checkpoint_dir ? ", which is not saved" : "",
              o->checkpoint_dir ? "; continue with --resume" : "");
    base->stopped_by = stop_signal;
    return AMPC_OK;
}

/* Computing the gradient norm reads all gradients, so it is computed only for the log and the events. */
static ampc_status select_outputs(run_context *c, const ir_graph *g)
{
    const char *const norm = ir_output_name(ir_output_by_role(g, IR_OUTPUT_grad_norm));
    const int count = (c->tool->o.log || c->tool->o.tensorboard) && norm;
    TRY(rt_stepper_select(c->session, c->tool->module, &norm, count, c->tool->diag));
    return rt_stepper_select_of(c->session, ir_graph_by_role(c->tool->module, IR_GRAPH_apply), &norm, count,
                                c->tool->diag);
}

static ampc_status open_all(training *t)
{
    run_context *c = t->c;
    const tool_options *o = &c->tool->o;
    const ir_graph *g;
    TRY(check_options(c));
    TRY(parse_metrics(t));
    TRY(run_need_entry(c, ir_graph_words[IR_GRAPH_train_step], &g));
    TRY(select_outputs(c, g));
    TRY(run_open_data(c, o->data, RT_TRAIN, g, &t->data));
    if (o->eval_data)
        TRY(run_open_data(c, o->eval_data, RT_TEST, ir_graph_by_role(c->tool->module, IR_GRAPH_eval), &t->eval_data));
    int64_t batch = o->batch || rt_loader_fixed_batch(g, c->sizes) ? o->batch : DEFAULT_BATCH;
    rt_trainer_options options = {
#define TRAINER(name, member, kind, ...) .member = o->member,
#include "ir/base/options.def"
        .seed = o->pass.seed};
    options.batch = batch;
    options.peers = c->peers;
    options.tree = o->pass.tree;
    options.workers = o->workers < 0 ? 0 : o->workers ? (int)o->workers : -1;
    if (o->trace && rt_team_first(c->peers)) TRY(rt_trace_open(o->trace, c->tool->diag, &t->trace));
    return rt_trainer_open(c->session, c->tool->module, t->data, &options, c->tool->diag, &t->trainer);
}

ampc_status run_train(run_context *c)
{
    training t = {.c = c};
    ampc_status status = open_all(&t);
    if (status == AMPC_OK) status = train(&t);
    (void)rt_recorder_close(t.recorder);
    (void)rt_trace_close(t.trace, false);
    rt_trainer_close(t.trainer);
    rt_dataset_close(t.data);
    rt_dataset_close(t.eval_data);
    return status;
}
