/* run_bench.c - bench: times an entry graph on synthetic inputs and traces its launches.
 *
 * It measures two times. Resident: the inputs are already on the device, and the host does nothing between runs. With
 * input: a loop as in training, which copies the inputs of the next run while the device computes. */
#include "ir/base/json_writer.h"
#include "ir/text/text.h"
#include "runtime/backend/memory.h"
#include "runtime/data/loader.h"
#include "runtime/files/atomic_file.h"
#include "tools/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEAD = 3,         /* number of runs after which every set of device inputs has its captured graph */
    PROFILED_RUNS = 5 /* the trace shows medians over these */
};

/* Milliseconds of each run, sorted. */
typedef struct times {
    double *ms;
    int64_t n;
} times;

typedef struct bench {
    run_context *c;
    const ir_graph *graph;
    rt_dataset *data;
    rt_loader *feed;
    times resident, with_input;
    rt_memory memory;
    json_writer trace;
} bench;

static ampc_status open_inputs(bench *b)
{
    run_context *c = b->c;
    int64_t batch = run_choose_batch(c, b->graph);
    TRY(run_open_data(c, arena_printf(c->tool->arena, "synthetic,rows=%" PRId64, batch), RT_TRAIN, b->graph, &b->data));
    TRY(rt_loader_open(b->graph, b->data, c->sizes, batch, c->tool->diag, &b->feed));
    return rt_loader_slice(b->feed, 0, rt_loader_batch(b->feed), c->tool->diag);
}

/* ---- trace ----------------------------------------------------------------------------------- */

static const char *or_empty(const char *text) { return text ? text : ""; }

static void write_launch(json_writer *w, const rt_launch *launch, const ir_loc *loc, const char *node)
{
    json_begin(w, "args", '{');
    json_write_integer(w, "step", launch->step);
    json_write_integer(w, "steps", launch->steps);
    json_write_string(w, "onnx", or_empty(loc->node));
    json_write_string(w, "operator", or_empty(loc->op));
    json_write_string(w, "ir", node);
    json_end(w, '}');
}

enum { COPIES = IR_PHASE_COUNT }; /* lane of the copies before and after the plan's steps; the others are phases */

static void write_lane_name(json_writer *w, int lane)
{
    json_begin(w, NULL, '{');
    json_write_string(w, "name", "thread_name");
    json_write_string(w, "ph", "M");
    json_write_integer(w, "pid", 0);
    json_write_integer(w, "tid", lane);
    json_begin(w, "args", '{');
    json_write_string(w, "name", lane == COPIES ? "copies" : ir_phase_names[lane]);
    json_end(w, '}');
    json_end(w, '}');
}

static void write_event(void *user, const rt_launch *launch)
{
    bench *b = user;
    json_writer *w = &b->trace;
    const ir_node *node = launch->node;
    const ir_loc loc = node ? node->loc : (ir_loc){.op = NULL};
    json_begin(w, NULL, '{');
    json_write_string(w, "name", loc.node ? loc.node : launch->op);
    json_write_string(w, "cat", launch->op);
    json_write_string(w, "ph", "X");
    json_write_real(w, "ts", "%.17g", launch->start_ms * 1e3);
    json_write_real(w, "dur", "%.17g", launch->ms * 1e3);
    json_write_integer(w, "pid", 0);
    json_write_integer(w, "tid", node ? (int)node->phase : COPIES);
    write_launch(w, launch, &loc, node ? ir_print_node(node, b->c->tool->arena) : "");
    json_end(w, '}');
}

static ampc_status write_trace(bench *b)
{
    json_begin(&b->trace, NULL, '{');
    json_begin(&b->trace, "traceEvents", '[');
    for (int lane = 0; lane <= COPIES; lane++) write_lane_name(&b->trace, lane);
    TRY(rt_session_profile(b->c->session, PROFILED_RUNS, b->c->tool->diag, write_event, b));
    json_end(&b->trace, ']');
    json_write_string(&b->trace, "displayTimeUnit", "ms");
    json_end(&b->trace, '}');
    return AMPC_OK;
}

static ampc_status trace(bench *b)
{
    const char *path = b->c->tool->o.trace;
    diag *d = b->c->tool->diag;
    size_t n;
    if (!path) return AMPC_OK;
    if (!json_open_text(&b->trace)) return rt_no_memory(d);
    ampc_status status = write_trace(b);
    char *text = json_close_text(&b->trace, &n);
    if (status == AMPC_OK) status = text ? rt_atomic_save(path, text, n, d) : rt_no_memory(d);
    free(text);
    return status;
}

/* ---- times ----------------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static times make_times(bench *b)
{
    const int64_t n = b->c->tool->o.iterations;
    return (times){arena_array(b->c->tool->arena, (size_t)n, sizeof(double)), n};
}

static void sort_times(times *t) { qsort(t->ms, (size_t)t->n, sizeof *t->ms, compare_doubles); }

static ampc_status submit(bench *b, int64_t *run)
{
    return rt_session_submit(b->c->session, b->graph->name, rt_loader_inputs(b->feed), rt_loader_count(b->feed),
                             b->c->tool->diag, run);
}

static ampc_status collect(bench *b, int64_t run)
{
    return rt_session_collect(b->c->session, run, b->c->tool->diag, NULL);
}

/* Measures the time from one submit to the next. */
static ampc_status time_submits(bench *b, times *t)
{
    const int64_t warmup = b->c->tool->o.warmup, lead = warmup > LEAD ? warmup : LEAD;
    int64_t run = 0, collected = -1;
    double last = 0;
    for (int64_t i = -lead; i < t->n; i++) {
        TRY(submit(b, &run));
        if (collected < 0) collected = run - 1;
        if (run - collected == RT_READBACK_RUNS) TRY(collect(b, ++collected));
        const double now = tool_seconds();
        if (i >= 0) t->ms[i] = (now - last) * 1e3;
        last = now;
    }
    while (collected < run) TRY(collect(b, ++collected));
    return AMPC_OK;
}

static ampc_status measure(bench *b)
{
    const tool_options *o = &b->c->tool->o;
    int64_t run;
    b->resident = make_times(b);
    b->with_input = make_times(b);
    TRY(submit(b, &run));
    TRY(collect(b, run));
    TRY(rt_session_time(b->c->session, o->warmup, b->resident.n, b->c->tool->diag, b->resident.ms));
    TRY(time_submits(b, &b->with_input));
    sort_times(&b->resident);
    sort_times(&b->with_input);
    return rt_session_memory(b->c->session, b->graph->name, rt_loader_inputs(b->feed), rt_loader_count(b->feed),
                             b->c->tool->diag, &b->memory);
}

static double percentile(const times *t, double p) { return t->ms[(int64_t)(p * (double)(t->n - 1) + 0.5)]; }

static double median(const times *t) { return (t->ms[(t->n - 1) / 2] + t->ms[t->n / 2]) / 2; }

static const char *device_of(const bench *b)
{
    const char *device = b->c->tool->o.device;
    return device ? device : "cpu";
}

static void print_json(const bench *b)
{
    const times *r = &b->resident, *in = &b->with_input;
    const int64_t batch = rt_loader_batch(b->feed);
    json_writer w = {.file = stdout};
    json_begin(&w, NULL, '{');
    json_write_string(&w, "entry", b->graph->name);
    json_write_string(&w, "device", device_of(b));
    json_write_string(&w, "clock", rt_session_has_clock(b->c->session) ? "device" : "host");
    json_write_integer(&w, "batch", batch);
    json_write_integer(&w, "iterations", r->n);
    json_write_real(&w, "min_ms", "%.6g", percentile(r, 0));
    json_write_real(&w, "median_ms", "%.6g", median(r));
    json_write_real(&w, "p90_ms", "%.6g", percentile(r, 0.9));
    json_write_real(&w, "p99_ms", "%.6g", percentile(r, 0.99));
    json_write_real(&w, "with_input_median_ms", "%.6g", median(in));
    json_write_real(&w, "with_input_p90_ms", "%.6g", percentile(in, 0.9));
    json_write_real(&w, "samples_s", "%.6g", (double)batch / median(r) * 1e3);
    json_write_integer(&w, "planned_bytes", b->memory.arena + b->memory.storage);
    if (b->memory.used) json_write_integer(&w, "device_used_bytes", b->memory.used);
    json_end(&w, '}');
    putchar('\n');
}

static void print_row(const char *name, double resident, double with_input)
{
    printf("%-10s %11.3f ms %11.3f ms\n", name, resident, with_input);
}

static void print_text(const bench *b)
{
    const times *r = &b->resident, *w = &b->with_input;
    const double batch = (double)rt_loader_batch(b->feed);
    const char *clock = rt_session_has_clock(b->c->session) ? "device" : "host";
    printf("@%s  batch %" PRId64 "  %" PRId64 " iterations  on %s, %s clock\n", b->graph->name,
           rt_loader_batch(b->feed), r->n, device_of(b), clock);
    printf("%-10s %14s %14s\n", "", "resident", "with input");
    print_row("min", percentile(r, 0), percentile(w, 0));
    print_row("median", median(r), median(w));
    print_row("p90", percentile(r, 0.9), percentile(w, 0.9));
    print_row("p99", percentile(r, 0.99), percentile(w, 0.99));
    printf("%-10s %14.6g %14.6g\n", "samples/s", batch / median(r) * 1e3, batch / median(w) * 1e3);
    printf("%" PRId64 " bytes planned", b->memory.arena + b->memory.storage);
    if (b->memory.used) printf(", %" PRId64 " bytes in use on the device", b->memory.used);
    putchar('\n');
}

static ampc_status bench_all(bench *b)
{
    TRY(run_chosen_entry(b->c, &b->graph));
    TRY(run_select_outputs(b->c, b->graph));
    TRY(open_inputs(b));
    TRY(measure(b));
    (b->c->tool->o.pass.json ? print_json : print_text)(b);
    return trace(b);
}

ampc_status run_bench(run_context *c)
{
    bench b = {.c = c};
    ampc_status status = bench_all(&b);
    rt_loader_close(b.feed);
    rt_dataset_close(b.data);
    return status;
}
