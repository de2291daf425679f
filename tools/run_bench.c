/* run_bench.c - bench: times of an entry graph on seeded inputs, and a trace of one run. */
#include "runtime/atomic_file.h"
#include "runtime/feed.h"
#include "tools/run.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct bench {
    run_context *c;
    const ir_graph *graph;
    rt_dataset *data;
    rt_feed *feed;
    double *seconds; /* [iterations], sorted */
    json_t *events;  /* of the traced run */
    int64_t began;   /* start of its first step */
} bench;

static ampc_status open_inputs(bench *b)
{
    run_context *c = b->c;
    int64_t batch = run_choose_batch(c, b->graph);
    TRY(run_open_data(c,
                      arena_printf(c->tool->arena, "synthetic,rows=%" PRId64, batch ? batch : 4096),
                      RT_TRAIN, b->graph, &b->data));
    TRY(rt_feed_open(c->tool->module, b->graph, b->data, batch, c->tool->diag, &b->feed));
    rt_feed_slice(b->feed, 0, rt_feed_batch(b->feed));
    return AMPC_OK;
}

static ampc_status run_once(bench *b)
{
    return rt_session_run(b->c->session, b->graph->name, rt_feed_inputs(b->feed),
                          rt_feed_count(b->feed), b->c->tool->diag);
}

/* ---- trace ----------------------------------------------------------------------------------- */

static void record_step(void *user, const ir_node *node, int64_t start_ns, int64_t end_ns,
                        const k_args *args)
{
    bench *b = user;
    const char *op = ir_op_get(node->op)->name, *name = node->loc.node ? node->loc.node : op;
    (void)args;
    if (!b->began) b->began = start_ns;
    char *line = strdup(ir_print_node(node, b->c->tool->arena));
    json_t *event = json_pack("{s:s, s:s, s:s, s:f, s:f, s:i, s:i, s:{s:s, s:s*}}", "name", name,
                              "cat", op, "ph", "X", "ts", (double)(start_ns - b->began) * 1e-3,
                              "dur", (double)(end_ns - start_ns) * 1e-3, "pid", 0, "tid",
                              (int)node->phase, "args", "onnx", node->loc.op ? node->loc.op : "",
                              "ir", line);
    free(line);
    if (event) json_array_append_new(b->events, event); /* NULL: a name that is no UTF-8 */
}

static ampc_status save_trace(bench *b, const char *path)
{
    diag *d = b->c->tool->diag;
    json_t *root = json_pack("{s:O, s:s}", "traceEvents", b->events, "displayTimeUnit", "ms");
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    ampc_status status = text ? rt_atomic_save(path, text, strlen(text), d)
                              : diag_error(d, AMPC_NO_MEMORY, DIAG_FILE(path), "out of memory");
    free(text);
    json_decref(root);
    return status;
}

static ampc_status trace(bench *b)
{
    const char *path = b->c->tool->o.profile;
    if (!path) return AMPC_OK;
    b->events = json_array();
    rt_session_set_hook(b->c->session, record_step, b);
    ampc_status status = run_once(b);
    rt_session_set_hook(b->c->session, NULL, NULL);
    if (status == AMPC_OK) status = save_trace(b, path);
    json_decref(b->events);
    return status;
}

/* ---- times ----------------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static ampc_status measure(bench *b)
{
    const tool_options *o = &b->c->tool->o;
    b->seconds = arena_array(b->c->tool->arena, (size_t)o->iterations, sizeof *b->seconds);
    for (int64_t i = 0; i < o->warmup; i++) TRY(run_once(b));
    for (int64_t i = 0; i < o->iterations; i++) {
        double start = tool_seconds();
        TRY(run_once(b));
        b->seconds[i] = tool_seconds() - start;
    }
    qsort(b->seconds, (size_t)o->iterations, sizeof *b->seconds, compare_doubles);
    return AMPC_OK;
}

/* The value that a share p of the sorted times does not exceed, in milliseconds. */
static double percentile(const bench *b, double p)
{
    int64_t n = b->c->tool->o.iterations, at = (int64_t)(p * (double)(n - 1) + 0.5);
    return b->seconds[at] * 1e3;
}

static double median(const bench *b)
{
    int64_t n = b->c->tool->o.iterations;
    return (b->seconds[(n - 1) / 2] + b->seconds[n / 2]) / 2 * 1e3;
}

static ampc_status print_times(const bench *b)
{
    const tool_options *o = &b->c->tool->o;
    rt_memory memory;
    TRY(rt_session_memory(b->c->session, b->graph->name, rt_feed_inputs(b->feed),
                          rt_feed_count(b->feed), b->c->tool->diag, &memory));
    int64_t batch = rt_feed_batch(b->feed), bytes = memory.arena + memory.storage;
    double middle = median(b), samples_s = (double)batch / middle * 1e3;
    printf(o->pass.json
               ? "{\"entry\": \"%s\", \"batch\": %" PRId64 ", \"iterations\": %" PRId64
                 ", \"min_ms\": %.6g, \"median_ms\": %.6g, \"p90_ms\": %.6g, \"p99_ms\": %.6g, "
                 "\"samples_s\": %.6g, \"planned_bytes\": %" PRId64 "}\n"
               : "@%s  batch %" PRId64 "  %" PRId64
                 " iterations  min %.3f ms  median %.3f ms  p90 %.3f ms  "
                 "p99 %.3f ms  %.6g samples/s  %" PRId64 " bytes planned\n",
           b->graph->name, batch, o->iterations, percentile(b, 0), middle, percentile(b, 0.9),
           percentile(b, 0.99), samples_s, bytes);
    return AMPC_OK;
}

static ampc_status bench_all(bench *b)
{
    TRY(run_chosen_entry(b->c, &b->graph));
    TRY(run_select_outputs(b->c, b->graph));
    TRY(open_inputs(b));
    TRY(measure(b));
    TRY(print_times(b));
    return trace(b);
}

ampc_status run_bench(run_context *c)
{
    bench b = {.c = c};
    ampc_status status = bench_all(&b);
    rt_feed_close(b.feed);
    rt_dataset_close(b.data);
    return status;
}
