/* run_lr_find.c - lr-find: a short training whose learning rate grows geometrically, and the rate at which its loss
 * falls fastest. */
#include "ir/base/json_writer.h"
#include "runtime/data/loader.h"
#include "runtime/train/stepper.h"
#include "runtime/train/trainer.h"
#include "tools/run.h"
#include "tools/svg_plot.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { DEFAULT_BATCH = 64, DEFAULT_STEPS = 100, MIN_POINTS = 5 };
static const double SMOOTHING = 0.9; /* share of the past in the moving average */
static const double DIVERGED = 4;    /* times the smallest smoothed loss */

typedef struct search {
    run_context *c;
    VEC(rt_step_record) steps, smooth; /* of the accepted steps */
    double average, weight, lowest;
    uint64_t skipped;
    double found; /* the suggestion; NAN: none */
} search;

static bool on_step(void *user, const rt_step_record *step)
{
    search *s = user;
    rt_step_record smooth = *step;
    const bool accepted = step->skipped == s->skipped;
    s->skipped = step->skipped;
    if (!accepted || !isfinite(step->loss)) return false;
    s->average = SMOOTHING * s->average + (1 - SMOOTHING) * step->loss;
    s->weight = SMOOTHING * s->weight + (1 - SMOOTHING);
    smooth.loss = s->average / s->weight;
    vec_push(s->c->tool->arena, &s->steps, *step);
    vec_push(s->c->tool->arena, &s->smooth, smooth);
    s->lowest = fmin(s->lowest, smooth.loss);
    return s->steps.count >= MIN_POINTS && s->lowest > 0 && smooth.loss > DIVERGED * s->lowest;
}

/* The rate in the middle of the steepest descent before the minimum. */
static void suggest(search *s)
{
    double steepest = 0;
    s->found = NAN;
    for (size_t i = 1; i + 1 < s->smooth.count && s->smooth.items[i - 1].loss > s->lowest; i++) {
        const double change = s->smooth.items[i + 1].loss - s->smooth.items[i - 1].loss;
        if (change >= steepest) continue;
        steepest = change;
        s->found = s->smooth.items[i].lr;
    }
}

static ampc_status check_options(run_context *c)
{
    const tool_options *o = &c->tool->o;
    diag_loc loc = DIAG_FILE("ampc-run lr-find");
    if (o->lr_from >= o->lr_to)
        return diag_error(c->tool->diag, AMPC_USAGE, loc, "--lr-from must be smaller than --lr-to");
    if (o->steps && o->steps < MIN_POINTS)
        return diag_error(c->tool->diag, AMPC_USAGE, loc, "--steps must be at least %d", MIN_POINTS);
    return AMPC_OK;
}

/* A loss that is not finite ends the search as any other divergence does; only an early one is an error. */
static ampc_status train(search *s, rt_trainer *t)
{
    tool *base = s->c->tool;
    const rt_train_plan plan = {.on_step = on_step, .user = s};
    diag *quiet = diag_new(NULL, NULL);
    if (!quiet) return diag_error(base->diag, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory");
    ampc_status status = rt_trainer_run(t, &plan, quiet);
    if (status == AMPC_NUMERIC && s->steps.count >= MIN_POINTS) status = AMPC_OK;
    if (status != AMPC_OK) diag_repeat(base->diag, status, diag_first_error(quiet));
    diag_free(quiet);
    return status;
}

static ampc_status run_search(search *s, rt_dataset *data, int64_t batch)
{
    const tool_options *o = &s->c->tool->o;
    char schedule[160];
    rt_trainer *t;
    const int64_t steps = o->steps ? o->steps : DEFAULT_STEPS;
    snprintf(schedule, sizeof schedule, "exponential,lr=%.17g,factor=%.17g,every=%" PRId64, o->lr_from,
             o->lr_to / o->lr_from, steps - 1);
    const rt_trainer_options options = {.batch = batch,
                                        .steps = steps,
                                        .lr = -1,
                                        .lr_schedule = schedule,
                                        .seed = o->pass.seed,
                                        .allow_skipped_steps = true};
    TRY(rt_trainer_open(s->c->session, s->c->tool->module, data, &options, s->c->tool->diag, &t));
    ampc_status status = train(s, t);
    rt_trainer_close(t);
    if (status == AMPC_OK) suggest(s);
    return status;
}

static void print_result(const search *s)
{
    const tool_options *o = &s->c->tool->o;
    if (o->pass.json) {
        json_writer w = {.file = stdout};
        json_begin(&w, NULL, '{');
        json_write_real(&w, "lr", "%.9g", s->found);
        json_write_real(&w, "loss", "%.9g", s->lowest);
        json_write_integer(&w, "steps", (int64_t)s->steps.count);
        json_write_integer(&w, "skipped", (int64_t)s->skipped);
        json_end(&w, '}');
        putchar('\n');
    } else if (isnan(s->found)) printf("no learning rate lowered the loss in %zu steps\n", s->steps.count);
    else printf("learning rate %.3g  smallest loss %.4f  %zu steps\n", s->found, s->lowest, s->steps.count);
}

static ampc_status write_plot(const search *s)
{
    const tool_options *o = &s->c->tool->o;
    const plot_run runs[] = {{"loss", s->steps.items, s->steps.count}, {"smoothed", s->smooth.items, s->smooth.count}};
    if (!o->plot) return AMPC_OK;
    return plot_write_rates(o->plot, o->operands.items[0], runs, 2, s->found, s->c->tool->diag);
}

ampc_status run_lr_find(run_context *c)
{
    search s = {.c = c, .lowest = INFINITY};
    const ir_graph *g;
    rt_dataset *data = NULL;
    TRY(check_options(c));
    TRY(run_need_entry(c, ir_graph_words[IR_GRAPH_train_step], &g));
    TRY(rt_stepper_select(c->session, c->tool->module, NULL, 0, c->tool->diag));
    TRY(run_open_data(c, c->tool->o.data, RT_TRAIN, g, &data));
    const int64_t batch = c->tool->o.batch || rt_loader_fixed_batch(g, c->sizes) ? c->tool->o.batch : DEFAULT_BATCH;
    ampc_status status = run_search(&s, data, batch);
    rt_dataset_close(data);
    TRY(status);
    print_result(&s);
    return write_plot(&s);
}
