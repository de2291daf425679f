/* trace.c - formats events and writes them to a file that replaces the old one at the end. */
#include "runtime/files/trace.h"

#include "ir/base/json_writer.h"
#include "runtime/backend/memory.h"
#include "runtime/files/atomic_file.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct rt_trace {
    char *path;
    diag *d;
    rt_atomic_file *file;
    double opened;
    pthread_mutex_t lock; /* of what follows */
    bool has_events, has_spans;
    ampc_status status; /* of the first failure, which is reported */
};

static const char *const lane_names[RT_LANE_COUNT] = {
    [RT_LANE_STEPS] = "steps",           [RT_LANE_DATA] = "data",
    [RT_LANE_FILES] = "checkpoints",     [RT_LANE_EVALUATION] = "evaluation",
    [RT_LANE_REDUCTIONS] = "reductions",
};

double rt_trace_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- writing: with the lock held, or by the only thread -------------------------------------------- */

static void append(rt_trace *t, const char *text, size_t n)
{
    if (t->status == AMPC_OK) t->status = rt_atomic_write(t->file, text, n);
}

static void fail_for_memory(rt_trace *t)
{
    if (t->status == AMPC_OK) t->status = rt_no_memory(t->d);
}

/* Starts an event; end_event appends and frees it. */
static bool begin_event(json_writer *w, const char *name, const char *phase, rt_lane lane)
{
    if (!json_open_text(w)) return false;
    json_begin(w, NULL, '{');
    json_write_string(w, "name", name);
    json_write_string(w, "ph", phase);
    json_write_integer(w, "pid", 0);
    json_write_integer(w, "tid", lane);
    return true;
}

static void end_event(rt_trace *t, json_writer *w)
{
    size_t n;
    json_end(w, '}');
    char *text = json_close_text(w, &n);
    if (text) {
        append(t, t->has_events ? ",\n" : "[\n", 2);
        append(t, text, n);
        t->has_events = true;
    } else fail_for_memory(t);
    free(text);
}

static void put_metadata(rt_trace *t, const char *name, rt_lane lane, const char *value)
{
    json_writer w;
    if (!begin_event(&w, name, "M", lane)) {
        fail_for_memory(t);
        return;
    }
    json_begin(&w, "args", '{');
    json_write_string(&w, "name", value);
    json_end(&w, '}');
    end_event(t, &w);
}

/* ---- the interface --------------------------------------------------------------------------------- */

/* Removes what a killed run left. */
static void sweep(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    if (folder && *name) rt_atomic_sweep(folder, name);
    free(folder);
}

ampc_status rt_trace_open(const char *path, diag *d, rt_trace **out)
{
    rt_trace *t = calloc(1, sizeof *t);
    if (!t) return rt_no_memory(d);
    t->d = d;
    t->opened = rt_trace_now();
    pthread_mutex_init(&t->lock, NULL);
    t->path = strdup(path);
    t->status = t->path ? rt_atomic_open(t->path, d, &t->file) : rt_no_memory(d);
    if (t->status == AMPC_OK) {
        sweep(t->path); /* not the file just created, which is locked */
        put_metadata(t, "process_name", 0, "ampc");
        for (int lane = 0; lane < RT_LANE_COUNT; lane++)
            put_metadata(t, "thread_name", (rt_lane)lane, lane_names[lane]);
    }
    const ampc_status status = t->status;
    if (status == AMPC_OK) *out = t;
    else (void)rt_trace_close(t, false);
    return status;
}

void rt_trace_span(rt_trace *t, rt_lane lane, const char *name, double began)
{
    json_writer w;
    if (!t) return;
    const double end = rt_trace_now();
    const bool formatted = begin_event(&w, name, "X", lane);
    if (formatted) {
        json_write_string(&w, "cat", lane_names[lane]);
        json_write_real(&w, "ts", "%.3f", 1e6 * (began - t->opened));
        json_write_real(&w, "dur", "%.3f", 1e6 * (end - began));
    }
    pthread_mutex_lock(&t->lock);
    if (formatted) end_event(t, &w);
    else fail_for_memory(t);
    t->has_spans = true;
    pthread_mutex_unlock(&t->lock);
}

ampc_status rt_trace_close(rt_trace *t, bool succeeded)
{
    if (!t) return AMPC_OK;
    ampc_status s;
    if (t->file) append(t, "\n]\n", 3);
    if (t->status == AMPC_OK && (succeeded || t->has_spans)) s = rt_atomic_commit(t->file);
    else {
        s = t->status;
        rt_atomic_abort(t->file);
    }
    pthread_mutex_destroy(&t->lock);
    free(t->path);
    free(t);
    return s;
}
