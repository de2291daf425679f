/* trainer.c - the training loop; see the header for what a step is and what ends a run. */
#include "runtime/trainer.h"

#include "runtime/feed.h"
#include "runtime/gradient_fault.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct rt_trainer {
    rt_session *session;
    const ir_module *module;
    rt_dataset *data;
    rt_feed *feed;
    rt_schedule schedule;
    rt_run_state state;
    int64_t steps;       /* of the whole run */
    const char *loss;    /* name of the output */
    rt_tensor lr, step;  /* live views of the session */
    rt_tensor scale;     /* data NULL: no loss scaling */
    double floor;
    uint64_t floor_skips;
    double began;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static ampc_status no_memory(diag *d)
{
    return diag_error(d, AMPC_NO_MEMORY, DIAG_NOWHERE, "out of memory");
}

/* ---- opening ---- */

static ampc_status find_states(rt_trainer *t, diag *d)
{
    t->loss = ir_meta_get(t->module, "loss");
    if (!ir_graph_find(t->module, "train_step") || !t->loss)
        return diag_error(d, AMPC_UNSUPPORTED, DIAG_NOWHERE,
                          "the module has no training step: compile it with a loss (--loss)");
    TRY(rt_session_storage(t->session, "lr", d, &t->lr));
    TRY(rt_session_storage(t->session, "step", d, &t->step));
    if (ir_storage_find(t->module, "loss_scale")) TRY(rt_session_storage(t->session, "loss_scale", d, &t->scale));
    return AMPC_OK;
}

/* A scale that nothing moves is always at its floor. */
static double model_floor(const ir_module *m)
{
    for (const ir_node *n = ir_graph_find(m, "train_step")->first; n; n = n->next)
        if (n->op == IR_OP_update_loss_scaling) return n->attr[IR_ATTR(update_loss_scaling, min)].f;
    return INFINITY;
}

static ampc_status set_seed(rt_trainer *t, uint64_t seed, diag *d)
{
    rt_tensor rng;
    t->state.position.seed = seed;
    if (!seed || !ir_storage_find(t->module, "rng")) return AMPC_OK;
    TRY(rt_session_storage(t->session, "rng", d, &rng));
    ir_store_i64(rng.dtype, rng.data, (int64_t)seed);
    return AMPC_OK;
}

static ampc_status set_length(rt_trainer *t, const rt_trainer_options *o, diag *d)
{
    int64_t batch = rt_feed_batch(t->feed), rows = rt_dataset_rows(t->data);
    int64_t batches = rt_dataset_batches(t->data, batch);
    t->state.batch = batch;
    t->state.rows = rows;
    if (!batches)
        return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE,
                          "the data has %" PRId64 " samples, fewer than one batch of %" PRId64, rows, batch);
    t->steps = o->steps;
    if (o->epochs && !checked_mul(o->epochs, batches, &t->steps))
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "too many epochs");
    return AMPC_OK;
}

static ampc_status set_up(rt_trainer *t, const rt_trainer_options *o, diag *d)
{
    TRY(find_states(t, d));
    TRY(rt_feed_open(t->module, ir_graph_find(t->module, "train_step"), t->data, o->batch, d, &t->feed));
    TRY(set_length(t, o, d));
    TRY(set_seed(t, o->seed, d));
    double lr = o->lr < 0 ? ir_load_f64(t->lr.dtype, t->lr.data) : o->lr;
    TRY(rt_schedule_parse(o->schedule, lr, t->steps, d, &t->schedule));
    rt_schedule_print(&t->schedule, t->state.schedule);
    t->floor = fmax(o->scale_floor > 0 ? o->scale_floor : 1, model_floor(t->module));
    t->floor_skips = o->floor_skips > 0 ? (uint64_t)o->floor_skips : 50;
    t->began = now();
    return AMPC_OK;
}

ampc_status rt_trainer_open(rt_session *s, const ir_module *m, rt_dataset *data, const rt_trainer_options *o, diag *d,
                            rt_trainer **out)
{
    assert((o->steps > 0) != (o->epochs > 0));
    rt_trainer *t = calloc(1, sizeof *t);
    if (!t) return no_memory(d);
    t->session = s;
    t->module = m;
    t->data = data;
    ampc_status status = set_up(t, o, d);
    if (status == AMPC_OK) *out = t;
    else rt_trainer_close(t);
    return status;
}

void rt_trainer_close(rt_trainer *t)
{
    if (!t) return;
    rt_feed_close(t->feed);
    free(t);
}

bool rt_trainer_done(const rt_trainer *t) { return t->state.step >= (uint64_t)t->steps; }
int64_t rt_trainer_steps(const rt_trainer *t) { return t->steps; }
const rt_run_state *rt_trainer_state(const rt_trainer *t) { return &t->state; }

/* ---- one step ---- */

static double scalar(const rt_tensor *t, double absent)
{
    return t && t->data ? ir_load_f64(t->dtype, t->data) : absent;
}

static void count_skip(rt_trainer *t, bool skipped)
{
    bool at_floor = scalar(&t->scale, 1) <= t->floor;
    t->state.skipped += skipped;
    t->state.stuck = skipped && at_floor ? t->state.stuck + 1 : 0;
}

static ampc_status check_numbers(rt_trainer *t, double loss, diag *d)
{
    if (!isfinite(loss))
        return diag_error(d, AMPC_NUMERIC, DIAG_NOWHERE,
                          "step %" PRIu64 ": the loss is %g before scaling, which no smaller loss scale can mend",
                          t->state.step, loss);
    if (t->state.stuck < t->floor_skips) return AMPC_OK;
    return rt_gradient_fault(t->session, t->module, rt_feed_inputs(t->feed), rt_feed_count(t->feed), d,
                             "step %" PRIu64 ": %" PRIu64 " steps in a row were skipped with the loss scale at %g",
                             t->state.step, t->state.stuck, scalar(&t->scale, 1));
}

static double epochs_done(const rt_trainer *t)
{
    int64_t batches = rt_dataset_batches(t->data, t->state.batch);
    return (double)t->state.position.epoch + (double)t->state.position.batch / (double)batches;
}

static void record(const rt_trainer *t, double began, double loss, double lr, double scale, rt_step *out)
{
    double end = now();
    *out = (rt_step){
        .step = t->state.step,
        .epoch = epochs_done(t),
        .loss = loss,
        .lr = lr,
        .scale = scale,
        .skipped = t->state.skipped,
        .grad_norm = scalar(rt_session_output(t->session, "grad_norm"), NAN),
        .samples_s = (double)t->state.batch / fmax(end - began, 1e-9),
        .t = end - t->began,
    };
}

ampc_status rt_trainer_step(rt_trainer *t, diag *d, rt_step *out)
{
    double began = now(), scale = scalar(&t->scale, 1);
    double lr = rt_schedule_rate(&t->schedule, ir_load_i64(t->step.dtype, t->step.data));
    TRY(rt_feed_take(t->feed, &t->state.position, d));
    ir_store_f64(t->lr.dtype, t->lr.data, lr);
    TRY(rt_session_run(t->session, "train_step", rt_feed_inputs(t->feed), rt_feed_count(t->feed), d));
    double loss = scalar(rt_session_output(t->session, t->loss), NAN);
    const rt_tensor *found = rt_session_output(t->session, "found_inf");
    t->state.step++;
    rt_position_advance(&t->state.position, t->data, t->state.batch);
    count_skip(t, found && ir_load_i64(found->dtype, found->data) != 0);
    if (out) record(t, began, loss, lr, scale, out);
    return check_numbers(t, loss, d);
}

/* ---- checkpoints ---- */

ampc_status rt_trainer_save(rt_trainer *t, const char *folder, int keep, diag *d)
{
    return rt_checkpoint_put(t->session, t->module, &t->state, folder, keep, d);
}

static ampc_status check_resumed(const rt_trainer *t, const rt_run_state *from, const char *path, diag *d)
{
    if (from->batch != t->state.batch)
        return diag_error(d, AMPC_USAGE, DIAG_FILE(path),
                          "the run used batches of %" PRId64 ", not %" PRId64 "; go on with the same", from->batch,
                          t->state.batch);
    if (from->rows != t->state.rows)
        return diag_error(d, AMPC_USAGE, DIAG_FILE(path),
                          "the run used data of %" PRId64 " samples, not %" PRId64, from->rows, t->state.rows);
    if (strcmp(from->schedule, t->state.schedule) == 0) return AMPC_OK;
    return diag_warning(d, DIAG_FILE(path), "the schedule was %s; going on with %s", from->schedule,
                        t->state.schedule);
}

ampc_status rt_trainer_resume(rt_trainer *t, const char *folder, bool allow_fallback, diag *d, char **path)
{
    rt_run_state from;
    TRY(rt_checkpoint_resume(t->session, t->module, folder, allow_fallback, d, &from, path));
    if (!*path) return AMPC_OK;
    ampc_status s = check_resumed(t, &from, *path, d);
    if (s != AMPC_OK) {
        free(*path);
        *path = NULL;
        return s;
    }
    memcpy(from.schedule, t->state.schedule, sizeof from.schedule);
    t->state = from;
    return AMPC_OK;
}

/* ---- the whole loop ---- */

static ampc_status begin(rt_trainer *t, const rt_train_plan *plan, diag *d)
{
    char *path = NULL;
    if (!plan->folder) return AMPC_OK;
    TRY(rt_checkpoint_folder(plan->folder, d));
    if (plan->resume) {
        TRY(rt_trainer_resume(t, plan->folder, plan->allow_fallback, d, &path));
        if (path) diag_remark(d, DIAG_FILE(path), "resumed at step %" PRIu64, t->state.step);
        else diag_remark(d, DIAG_FILE(plan->folder), "no checkpoint yet: starting from the beginning");
        free(path);
        return AMPC_OK;
    }
    TRY(rt_checkpoint_newest(plan->folder, d, &path));
    if (!path) return AMPC_OK;
    ampc_status s = diag_error(d, AMPC_USAGE, DIAG_FILE(path),
                               "a checkpoint of an earlier run: resume it (--resume), or name another folder");
    free(path);
    return s;
}

static ampc_status save_if_due(rt_trainer *t, const rt_train_plan *plan, uint64_t *saved, bool due, diag *d)
{
    if (!plan->folder || !due || *saved == t->state.step) return AMPC_OK;
    TRY(rt_trainer_save(t, plan->folder, plan->keep, d));
    *saved = t->state.step;
    return AMPC_OK;
}

static ampc_status one_round(rt_trainer *t, const rt_train_plan *plan, uint64_t *saved, diag *d, bool *stop)
{
    rt_step step;
    uint64_t epoch = t->state.position.epoch;
    TRY(rt_trainer_step(t, d, &step));
    bool due = plan->save_every > 0 && t->state.step % (uint64_t)plan->save_every == 0;
    TRY(save_if_due(t, plan, saved, due, d));
    if (plan->on_epoch && t->state.position.epoch != epoch) TRY(plan->on_epoch(plan->user, t->state.position.epoch));
    *stop = plan->on_step && plan->on_step(plan->user, &step);
    return AMPC_OK;
}

ampc_status rt_trainer_run(rt_trainer *t, const rt_train_plan *plan, diag *d)
{
    bool stop = false;
    TRY(begin(t, plan, d));
    uint64_t saved = t->state.step;
    while (!stop && !rt_trainer_done(t) && !(plan->stop && *plan->stop))
        TRY(one_round(t, plan, &saved, d, &stop));
    return save_if_due(t, plan, &saved, true, d);
}
