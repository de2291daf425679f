/* session_run.c - executes a planned run: snapshots, steps, commits.
 *
 * A device that works in host memory issues the steps one by one in each run. So does the first run of a plan on a
 * discrete device, which loads everything that is loaded lazily. The second run is recorded, once for each set of input
 * addresses; from then on a run is one replay. A run issues the steps if it is observed, with sync_launch, and if its
 * plan has an `if` or `loop`, whose condition the host reads. */
#include "runtime/session/session_state.h"

#include <assert.h>

static ampc_status note_launch(const rt_frame *f, int first, int steps, diag *d)
{
    rt_session *s = f->session;
    return s->after_launch ? s->after_launch(f, first, steps, d) : AMPC_OK;
}

typedef ampc_status copy_fn(const k_context *ctx, void *dst, const void *src, size_t bytes);

/* Copies buffers before step `at`. */
static ampc_status copy_buffers(const rt_frame *f, const rt_copy *copies, int n, copy_fn *copy, int at, diag *d)
{
    for (int i = 0; i < n; i++)
        RT_DEVICE(f->session, d,
                  copy(&f->session->ctx, rt_address(f, copies[i].to), rt_address(f, copies[i].from),
                       (size_t)f->execution->plan->buffers[copies[i].to].bytes));
    return n ? note_launch(f, at, 0, d) : AMPC_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static ampc_status run_kernel(const rt_frame *f, int i)
{
    rt_session *s = f->session;
    const rt_device_ops *device_ops = s->backend->device_ops;
    const k_kernel *kernel = f->execution->plan->steps[i]->kernel;
    TRY(kernel->run(rt_execution_calls(f, i, 1)));
    if (!device_ops || !(s->sync_launch || s->observer.fn)) return AMPC_OK;
    if (kernel->join) TRY(kernel->join(rt_execution_calls(f, i, 1)));
    return s->sync_launch ? device_ops->wait(&s->ctx, NULL) : AMPC_OK;
}

static ampc_status run_batch(const rt_frame *f, int first, int n)
{
    return f->execution->plan->steps[first]->kernel->run_batch(rt_execution_calls(f, first, n), n);
}

/* Launches n steps at once, in a profiler range named after their first node. */
static ampc_status launch(const rt_frame *f, int i, int n)
{
    rt_session *s = f->session;
    const rt_device_ops *device_ops = s->backend->device_ops;
    const rt_step *step = f->execution->plan->steps[i];
    s->error[0] = '\0';
    if (device_ops) device_ops->begin_range(&s->ctx, step->node->loc.node ? step->node->loc.node : rt_step_name(step));
    ampc_status status = n > 1 ? run_batch(f, i, n) : run_kernel(f, i);
    if (device_ops) device_ops->end_range(&s->ctx);
    return status;
}

static ampc_status run_control(const rt_frame *f, int i, diag *d);

/* Lets the steps from `first` to `end` wait for the calls that they join. */
static ampc_status run_joins(const rt_frame *f, int first, int end)
{
    const rt_plan *p = f->execution->plan;
    for (int i = first; p->joins && i < end; i++) {
        const k_kernel *kernel = p->joins[i] >= 0 ? p->steps[p->joins[i]]->kernel : NULL;
        if (kernel && kernel->join) TRY(kernel->join(rt_execution_calls(f, p->joins[i], 1)));
    }
    return AMPC_OK;
}

static ampc_status run_steps(const rt_frame *f, int first, int end, diag *d)
{
    rt_session *s = f->session;
    const rt_plan *p = f->execution->plan;
    for (int i = first, n; i < end; i += n) {
        const rt_step *step = p->steps[i];
        n = s->sync_launch || s->observer.fn ? 1 : step->batch;
        s->error[0] = '\0';
        ampc_status status = run_joins(f, i, i + n);
        if (status == AMPC_OK && step->control) TRY(run_control(f, i, d));
        else if (status == AMPC_OK) status = launch(f, i, n);
        if (status == AMPC_OK) {
            TRY(note_launch(f, i, n, d));
            continue;
        }
        const bool safe = i < p->safe_from || s->backend->device_ops;
        assert(safe); /* steps that may fail precede those that write storage */
        (void)safe;
        return diag_error(d, status, ir_diag_loc(step->node), "%s: %s", rt_step_name(step),
                          s->error[0] ? s->error : ampc_status_sentence(status));
    }
    return AMPC_OK;
}

/* Runs everything but the hoisted steps. */
static ampc_status issue_frame(const rt_frame *f, diag *d)
{
    const rt_plan *p = f->execution->plan;
    TRY(note_launch(f, p->n_hoisted, RT_FRAME_BEGINS, d));
    TRY(copy_buffers(f, p->before, p->n_before, f->session->backend->copy, p->n_hoisted, d));
    TRY(run_steps(f, p->n_hoisted, p->n_steps, d));
    RT_DEVICE(f->session, d, run_joins(f, p->n_steps, p->n_steps + 1));
    if (f->session->observer.keeps_storage) return AMPC_OK;
    return copy_buffers(f, p->after, p->n_after, f->session->backend->commit, p->n_steps, d);
}

/* ---- subgraphs ------------------------------------------------------------------------------- */

static ampc_status run_control(const rt_frame *f, int i, diag *d)
{
    rt_control_run r = {.session = f->session,
                        .step = f->execution->plan->steps[i],
                        .args = rt_execution_calls(f, i, 1),
                        .bodies = f->execution->bodies[i]};
    TRY(rt_control_begin(&r, d));
    while (r.body >= 0) {
        const rt_execution *body = &r.bodies[r.body];
        const rt_frame inner = {f->session, body, r.args->workspace, body->inputs, r.args->step};
        TRY(issue_frame(&inner, d));
        TRY(rt_control_next(&r, d));
    }
    return AMPC_OK;
}

static ampc_status issue(rt_session *s, const rt_execution *x, diag *d)
{
    const rt_frame f = rt_entry_frame(s, x);
    if (s->backend->before_run) s->backend->before_run(&s->ctx);
    return issue_frame(&f, d);
}

ampc_status rt_run_fault(const rt_plan *p, int fault, diag *d)
{
    static const char *const sentences[] = {
#define SENTENCE(name, sentence) sentence,
        K_FAULT_MAP(SENTENCE)
#undef SENTENCE
    };
    const rt_step *step = p->steps[fault >> K_FAULT_BITS];
    return diag_error(d, AMPC_REJECTED, ir_diag_loc(step->node), "%s: %s", rt_step_name(step),
                      sentences[fault & ((1 << K_FAULT_BITS) - 1)]);
}

/* ---- recordings ------------------------------------------------------------------------------ */

bool rt_run_records(const rt_session *s, const rt_execution *x)
{
    return s->backend->device_ops && x->warm && !x->plan->reads_host && !s->sync_launch && !x->plan->observed;
}

ampc_status rt_run_record(rt_session *s, const rt_execution *x, void **recording, diag *d)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    RT_DEVICE(s, d, device_ops->record(&s->ctx));
    ampc_status issued = issue(s, x, d), finished = device_ops->finish(&s->ctx, recording);
    if (issued != AMPC_OK) return issued;
    return finished == AMPC_OK ? AMPC_OK : rt_device_error(s, finished, d);
}

/* ---- hoisted values ---------------------------------------------------------------------------- */

static bool reads_storage(const rt_plan *p, const rt_step *step, int j)
{
    return step->in_buffer[j] != RT_NO_BUFFER && p->buffers[step->in_buffer[j]].home == RT_STORAGE;
}

/* Whether one of the steps from `first` to `end` reads the value or a view of it. */
static bool is_read_between(const rt_plan *p, uint32_t value, int first, int end)
{
    for (const rt_use *u = p->values[p->values[value].root].uses; u; u = u->next)
        if (u->step && u->step->index >= first && u->step->index < end) return true;
    return false;
}

/* Only the storage that step i, or also a later one before step `end`, reads has to be in memory. */
static ampc_status hoist_step(const rt_frame *f, int i, int end, diag *d)
{
    const rt_plan *p = f->execution->plan;
    const rt_step *step = p->steps[i];
    for (int j = 0; j < step->n_in; j++)
        if (reads_storage(p, step, j)) TRY(rt_resident_need(f->session, p->buffers[step->in_buffer[j]].index, d));
    TRY(run_steps(f, i, i + 1, d));
    for (int j = 0; j < step->n_in; j++)
        if (reads_storage(p, step, j) && !is_read_between(p, step->in_value[j], i + 1, end))
            rt_resident_drop(f->session, p->buffers[step->in_buffer[j]].index);
    return AMPC_OK;
}

static ampc_status hoist(rt_session *s, const rt_execution *x, int first, int end, diag *d)
{
    const rt_frame f = rt_entry_frame(s, x);
    if (s->backend->device_ops) return run_steps(&f, first, end, d);
    for (int i = first; i < end; i++) TRY(hoist_step(&f, i, end, d));
    return AMPC_OK;
}

ampc_status rt_run_refresh(rt_session *s, rt_execution *x, diag *d) { return rt_shared_refresh(s, x, hoist, d); }

ampc_status rt_run_once(rt_session *s, rt_execution *x, void *recording, diag *d)
{
    TRY(rt_run_refresh(s, x, d));
    if (recording) RT_DEVICE(s, d, s->backend->device_ops->replay(&s->ctx, recording));
    else TRY(issue(s, x, d));
    x->warm = true;
    rt_shared_stored(s, x);
    return AMPC_OK;
}

ampc_status rt_run_enqueue(rt_session *s, rt_execution *x, int slot, diag *d)
{
    void **recording = &x->recordings[slot];
    if (!*recording && rt_run_records(s, x)) TRY(rt_run_record(s, x, recording, d));
    return rt_run_once(s, x, *recording, d);
}
