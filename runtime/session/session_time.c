/* session_time.c - repeats the last run, timed by run or by launch.
 *
 * On a discrete device, times are differences between timed marks. Marks between runs are enqueued with the runs, so
 * the device never waits for the host. Marks between launches are part of a recording: if the host enqueued one launch
 * at a time, short kernels would end before the next one arrives, and the marks would measure the host. */
#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/session/session_state.h"

#include <assert.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_ENQUEUED = 64 }; /* runs enqueued before the host reads the time of the first */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

bool rt_session_has_clock(const rt_session *s) { return s->backend->device_ops != NULL; }

/* ---- repetitions ----------------------------------------------------------------------------- */

/* Returns the slot whose inputs the last run read. */
static int last_slot(const rt_session *s) { return s->backend->device_ops ? (int)((s->runs - 1) % RT_SLOTS) : 0; }

static ampc_status begin_repetitions(rt_session *s, diag *d)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    assert(s->last && s->runs > 0); /* callers run the graph first */
    s->n_outputs = 0;
    s->error[0] = '\0';
    TRY(rt_shared_require_stores(s, s->last->plan->graph, d));
    if (device_ops) RT_DEVICE(s, d, device_ops->clear_fault(&s->ctx));
    return AMPC_OK;
}

/* Waits for the enqueued work. Returns `status` if it is an error, else the fault of the repetitions, if any. */
static ampc_status end_repetitions(rt_session *s, ampc_status status, diag *d)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    int *fault = &s->reports[RT_READBACK_RUNS].fault;
    if (status != AMPC_OK) {
        if (device_ops) device_ops->wait(&s->ctx, NULL);
        return status;
    }
    if (device_ops) {
        RT_DEVICE(s, d, device_ops->download_fault(&s->ctx, fault));
        RT_DEVICE(s, d, device_ops->wait(&s->ctx, NULL));
    }
    if (*fault != K_NO_FAULT) return rt_run_fault(s->last->plan, *fault, d);
    rt_outputs_collect(s);
    return AMPC_OK;
}

/* The sizes that depend on data are those of the last run, because its inputs are the same. */
static ampc_status repeat(rt_session *s, diag *d)
{
    for (int part = 0; part < s->n_run; part++) TRY(rt_run_enqueue(s, s->run[part], last_slot(s), d));
    return AMPC_OK;
}

static ampc_status refresh(rt_session *s, diag *d)
{
    for (int part = 0; part < s->n_run; part++) TRY(rt_run_refresh(s, s->run[part], d));
    return AMPC_OK;
}

/* ---- run by run ------------------------------------------------------------------------------ */

/* A ring for a sequence of marks of any length. */
typedef struct mark_ring {
    void *marks[MAX_ENQUEUED + 1];
} mark_ring;

static void **mark_at(mark_ring *r, int64_t i) { return &r->marks[i % (MAX_ENQUEUED + 1)]; }

static ampc_status read_run(rt_session *s, mark_ring *r, int64_t i, diag *d, double *ms)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    RT_DEVICE(s, d, device_ops->wait(&s->ctx, *mark_at(r, i + 1)));
    RT_DEVICE(s, d, device_ops->elapsed(&s->ctx, *mark_at(r, i), *mark_at(r, i + 1), &ms[i]));
    return AMPC_OK;
}

static ampc_status time_device(rt_session *s, mark_ring *r, int64_t warmup, int64_t n, diag *d, double *ms)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    for (int64_t i = 0; i < warmup; i++) TRY(repeat(s, d));
    RT_DEVICE(s, d, device_ops->mark_time(&s->ctx, mark_at(r, 0)));
    for (int64_t i = 0; i < n; i++) {
        TRY(repeat(s, d));
        if (i >= MAX_ENQUEUED) TRY(read_run(s, r, i - MAX_ENQUEUED, d, ms));
        RT_DEVICE(s, d, device_ops->mark_time(&s->ctx, mark_at(r, i + 1)));
    }
    for (int64_t i = n > MAX_ENQUEUED ? n - MAX_ENQUEUED : 0; i < n; i++) TRY(read_run(s, r, i, d, ms));
    return AMPC_OK;
}

static ampc_status time_host(rt_session *s, int64_t warmup, int64_t n, diag *d, double *ms)
{
    for (int64_t i = -warmup; i < n; i++) {
        const int64_t start = now_ns();
        TRY(repeat(s, d));
        if (i >= 0) ms[i] = (double)(now_ns() - start) * 1e-6;
    }
    return AMPC_OK;
}

/* Does what only the first repetition needs, so that it is not timed. */
static ampc_status prepare_repetitions(rt_session *s, diag *d)
{
    void **recording = &s->last->recordings[last_slot(s)];
    TRY(refresh(s, d));
    return *recording || !rt_run_records(s, s->last) ? AMPC_OK : rt_run_record(s, s->last, recording, d);
}

ampc_status rt_session_time(rt_session *s, int64_t warmup, int64_t n, diag *d, double *ms)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    mark_ring ring = {.marks = {NULL}};
    TRY(begin_repetitions(s, d));
    ampc_status status = prepare_repetitions(s, d);
    if (status == AMPC_OK)
        status = device_ops ? time_device(s, &ring, warmup, n, d, ms) : time_host(s, warmup, n, d, ms);
    status = end_repetitions(s, status, d);
    for (int i = 0; device_ops && i <= MAX_ENQUEUED; i++) device_ops->unmark(&s->ctx, ring.marks[i]);
    return status;
}

/* ---- launch by launch ------------------------------------------------------------------------ */

/* Points of one run: launch i is between points i and i + 1. */
struct rt_points {
    int n, capacity;
    rt_launch *launches;
    void **marks;  /* of a discrete device */
    int64_t *ns;   /* of the host */
    double *times; /* [launch][run] */
};

/* Notes the time after a launch (rt_session.after_launch). */
static ampc_status note_point(const rt_frame *f, int first, int steps, diag *d)
{
    rt_session *s = f->session;
    struct rt_points *points = s->points;
    if (f->outer_step >= 0) return AMPC_OK; /* the launch of the outer step includes it */
    const int i = points->n++;
    const rt_step *step = steps > 0 ? f->execution->plan->steps[first] : NULL;
    assert(i < points->capacity); /* points_open counts the steps of the plan */
    if (i > 0)
        points->launches[i - 1] = (rt_launch){.step = first,
                                              .steps = step ? steps : 0,
                                              .op = step ? rt_step_name(step) : "copy",
                                              .node = step ? step->node : NULL};
    points->ns[i] = now_ns();
    if (s->backend->device_ops) RT_DEVICE(s, d, s->backend->device_ops->mark_time(&s->ctx, &points->marks[i]));
    return AMPC_OK;
}

static ampc_status points_open(const rt_session *s, struct rt_points *points, int runs, diag *d)
{
    for (int part = 0; part < s->n_run; part++) /* start, copies before and after */
        points->capacity += s->run[part]->plan->n_steps - s->run[part]->plan->n_hoisted + 3;
    const size_t capacity = (size_t)points->capacity;
    points->launches = rt_alloc(capacity, sizeof *points->launches);
    points->marks = rt_alloc(capacity, sizeof *points->marks);
    points->ns = rt_alloc(capacity, sizeof *points->ns);
    points->times = rt_alloc(capacity * (size_t)runs, sizeof *points->times);
    if (points->launches && points->marks && points->ns && points->times) return AMPC_OK;
    return rt_no_memory(d);
}

static void points_close(rt_session *s, struct rt_points *points)
{
    for (int i = 0; s->backend->device_ops && points->marks && i < points->capacity; i++)
        s->backend->device_ops->unmark(&s->ctx, points->marks[i]);
    void *owned[] = {points->launches, points->marks, points->ns, points->times};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) rt_free(owned[i]);
}

static ampc_status read_points(rt_session *s, const struct rt_points *points, int run, int runs, diag *d)
{
    const rt_device_ops *device_ops = s->backend->device_ops;
    for (int i = 0; i + 1 < points->n; i++) {
        double *to = &points->times[i * runs + run];
        *to = (double)(points->ns[i + 1] - points->ns[i]) * 1e-6;
        if (device_ops) RT_DEVICE(s, d, device_ops->elapsed(&s->ctx, points->marks[i], points->marks[i + 1], to));
    }
    return AMPC_OK;
}

static ampc_status profile_run(rt_session *s, void *recording, diag *d)
{
    ampc_status status = AMPC_OK;
    TRY(begin_repetitions(s, d));
    if (!recording) s->points->n = 0;
    for (int part = 0; part < s->n_run && status == AMPC_OK; part++)
        status = rt_run_once(s, s->run[part], recording, d);
    return end_repetitions(s, status, d);
}

static ampc_status profile_runs(rt_session *s, int runs, diag *d)
{
    void *recording = NULL;
    ampc_status status = AMPC_OK;
    if (rt_run_records(s, s->last)) status = rt_run_record(s, s->last, &recording, d);
    for (int i = 0; i < runs && status == AMPC_OK; i++) {
        status = profile_run(s, recording, d);
        if (status == AMPC_OK) status = read_points(s, s->points, i, runs, d);
    }
    if (recording) s->backend->device_ops->forget(&s->ctx, recording);
    return status;
}

static int compare_times(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report_launches(const struct rt_points *points, int runs, rt_launch_fn *each, void *user)
{
    double start = 0;
    for (int i = 0; i + 1 < points->n; i++) {
        double *times = &points->times[i * runs];
        rt_launch *launch = &points->launches[i];
        qsort(times, (size_t)runs, sizeof *times, compare_times);
        launch->start_ms = start;
        launch->ms = times[runs / 2];
        start += launch->ms;
        each(user, launch);
    }
}

ampc_status rt_session_profile(rt_session *s, int runs, diag *d, rt_launch_fn *each, void *user)
{
    struct rt_points points = {.n = 0};
    assert(runs > 0 && !s->observer.fn); /* the option has a minimum; profiled sessions are not observed */
    TRY(begin_repetitions(s, d));
    ampc_status status = end_repetitions(s, refresh(s, d), d);
    if (status == AMPC_OK) status = points_open(s, &points, runs, d);
    if (status == AMPC_OK) {
        s->points = &points;
        s->after_launch = note_point;
        status = profile_runs(s, runs, d);
        s->after_launch = NULL;
    }
    if (status == AMPC_OK) report_launches(&points, runs, each, user);
    points_close(s, &points);
    return status;
}
