/* trace.c - formats events into a buffer, which is written when it is full. */
#include "runtime/files/trace.h"

#include "ir/json_writer.h"
#include "runtime/backend/memory.h"
#include "runtime/files/io.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BUFFER = 1 << 16 };

struct rt_trace {
    char *path;
    diag *d;
    int fd;
    double opened;
    pthread_mutex_t lock; /* of what follows */
    bool has_events;
    int failed; /* errno of the first failure */
    size_t count;
    char buffer[BUFFER];
};

static const char *const lane_names[RT_LANE_COUNT] = {
    [RT_LANE_STEPS] = "steps",
    [RT_LANE_DATA] = "data",
    [RT_LANE_FILES] = "checkpoints",
    [RT_LANE_EVALUATION] = "evaluation",
};

double rt_trace_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- writing: with the lock held, or by the only thread -------------------------------------------- */

static void flush(rt_trace *t)
{
    if (!t->failed && !rt_io_write(t->fd, t->buffer, t->count)) t->failed = errno;
    t->count = 0;
}

static void append(rt_trace *t, const char *text, size_t n)
{
    if (n > sizeof t->buffer - t->count) flush(t);
    if (n > sizeof t->buffer) t->failed = t->failed ? t->failed : ENOMEM;
    else memcpy(t->buffer + t->count, text, n);
    t->count += n <= sizeof t->buffer ? n : 0;
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
    } else if (!t->failed) t->failed = ENOMEM;
    free(text);
}

static void put_metadata(rt_trace *t, const char *name, rt_lane lane, const char *value)
{
    json_writer w;
    if (!begin_event(&w, name, "M", lane)) {
        t->failed = t->failed ? t->failed : ENOMEM;
        return;
    }
    json_begin(&w, "args", '{');
    json_write_string(&w, "name", value);
    json_end(&w, '}');
    end_event(t, &w);
}

/* ---- the interface --------------------------------------------------------------------------------- */

ampc_status rt_trace_open(const char *path, diag *d, rt_trace **out)
{
    rt_trace *t = calloc(1, sizeof *t);
    if (!t) return rt_no_memory(d);
    t->d = d;
    t->fd = -1;
    t->opened = rt_trace_now();
    pthread_mutex_init(&t->lock, NULL);
    t->path = strdup(path);
    if (t->path) t->fd = rt_io_open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (t->fd < 0) {
        ampc_status s = t->path ? diag_errno(d, DIAG_FILE(path), "cannot create") : rt_no_memory(d);
        (void)rt_trace_close(t);
        return s;
    }
    put_metadata(t, "process_name", 0, "ampc");
    for (int lane = 0; lane < RT_LANE_COUNT; lane++) put_metadata(t, "thread_name", (rt_lane)lane, lane_names[lane]);
    *out = t;
    return AMPC_OK;
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
    else if (!t->failed) t->failed = ENOMEM;
    pthread_mutex_unlock(&t->lock);
}

ampc_status rt_trace_close(rt_trace *t)
{
    ampc_status s = AMPC_OK;
    if (!t) return AMPC_OK;
    if (t->fd >= 0) {
        append(t, "\n]\n", 3);
        flush(t);
        if (!rt_io_close(t->fd) && !t->failed) t->failed = errno;
        if (t->failed == ENOMEM) s = rt_no_memory(t->d);
        else if (t->failed) {
            errno = t->failed;
            s = diag_errno(t->d, DIAG_FILE(t->path), "cannot write");
        }
    }
    pthread_mutex_destroy(&t->lock);
    free(t->path);
    free(t);
    return s;
}
