/* distribution.c - --explain=distribution: prints the reductions of a training step and predicts its time.
 *
 * A step is played on two tracks. The nodes run in their order on the first, each for its cost on the device of
 * --target (passes/amp/cost.h); the reductions run in their order on the second, from when their operands are there. A
 * node waits for the results that it reads. Without overlap there is one track. */
#include "passes/train/distribution.h"

#include "ir/base/json_writer.h"
#include "passes/amp/cost.h"
#include "passes/train/links.h"

#include <math.h>

enum { MOST_RANKS = 4096 };

static const double PICOSECOND = 1e-12;
static const char *const phase_words[IR_PHASE_COUNT] = {"forward", "backward", "update"};

/* A graph that a step runs so many times. */
typedef struct part {
    const ir_graph *graph;
    double times;
    double *seconds; /* by node id */
} part;

typedef struct reduction {
    const ir_node *node;
    int tensors;
    double bytes; /* on the wire */
    double times; /* a step */
    double ready; /* fraction of its phase that has been computed before it */
} reduction;

typedef struct prediction {
    int64_t ranks, hosts;
    double sent, reducing, hidden, seconds, scaling;
} prediction;

typedef struct explanation {
    const ir_module *module;
    const ir_device *device;
    link_model links;
    part parts[2];
    int n_parts;
    double phase[IR_PHASE_COUNT]; /* seconds */
    VEC(reduction) reductions;
    double bytes;
    int64_t tensors;
    const int64_t *sizes;
    arena *arena;
} explanation;

/* ---- costs of nodes ------------------------------------------------------------------------------ */

static ir_dtype computes_in(const ir_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (ir_in(n, i) && ir_dtype_is_float(ir_in(n, i)->type.dtype)) return ir_in(n, i)->type.dtype;
    return IR_f32;
}

static bool reduces(const ir_node *n) { return ir_op_has(n->op, IR_COLLECTIVE); }

static size_t count_nodes(const explanation *x)
{
    size_t nodes = 0;
    for (int i = 0; i < x->n_parts; i++) nodes += x->parts[i].graph->node_ids;
    return nodes;
}

static void predict_nodes(explanation *x)
{
    const cost_model model = cost_model_new(x->device, x->module, count_nodes(x), x->arena);
    x->sizes = model.sizes;
    for (part *p = x->parts; p < x->parts + x->n_parts; p++) {
        p->seconds = arena_array(x->arena, p->graph->node_ids + 1, sizeof *p->seconds);
        for (const ir_node *n = p->graph->first; n; n = n->next) {
            const bool free = reduces(n) || x->device->measure != DEVICE_TIME;
            p->seconds[n->id] = free ? 0 : (double)cost_of_node(&model, n, computes_in(n)) * PICOSECOND;
            x->phase[n->phase] += p->seconds[n->id] * p->times;
        }
    }
}

/* Measured times of a phase are spread over its nodes in proportion to what is predicted of them. */
static void use_measured(explanation *x)
{
    for (part *p = x->parts; p < x->parts + x->n_parts; p++)
        for (const ir_node *n = p->graph->first; n; n = n->next)
            if (x->links.seconds[n->phase] > 0 && x->phase[n->phase] > 0)
                p->seconds[n->id] *= x->links.seconds[n->phase] / x->phase[n->phase];
    for (int i = 0; i < IR_PHASE_COUNT; i++)
        if (x->links.seconds[i] > 0 && x->phase[i] > 0) x->phase[i] = x->links.seconds[i];
}

/* ---- the reductions ------------------------------------------------------------------------------ */

static double wire_bytes(const explanation *x, const ir_node *n)
{
    const ir_dtype wire = (ir_dtype)n->attr[IR_ATTR(all_reduce, wire)].i;
    double elements = 0;
    for (int i = 0; i < n->n_in; i++) elements += pass_elements(x->module, &ir_in(n, i)->type, x->sizes);
    return elements * (double)ir_dtype_size(wire);
}

static void find_reductions(explanation *x)
{
    double before[IR_PHASE_COUNT] = {0};
    for (const part *p = x->parts; p < x->parts + x->n_parts; p++)
        for (const ir_node *n = p->graph->first; n; n = n->next) {
            before[n->phase] += p->seconds[n->id] * p->times;
            if (!reduces(n)) continue;
            const double all = x->phase[n->phase];
            const reduction r = {n, n->n_in, wire_bytes(x, n), p->times, all > 0 ? before[n->phase] / all : 1};
            vec_push(x->arena, &x->reductions, r);
            x->bytes += r.bytes * r.times;
            x->tensors += r.tensors;
        }
}

/* ---- prediction ---------------------------------------------------------------------------------- */

typedef struct tracks {
    double *ready; /* by value id: when it is there */
    double nodes, reductions, reducing;
} tracks;

static double when_read(const tracks *t, const ir_node *n)
{
    double at = 0;
    for (int i = 0; i < n->n_in; i++) {
        const ir_value *v = ir_in(n, i);
        if (v && v->kind == IR_VALUE_RESULT) at = fmax(at, t->ready[v->id]);
    }
    return at;
}

static double play_reduction(const explanation *x, tracks *t, double from, double seconds)
{
    t->reductions = fmax(from, x->links.overlap ? t->reductions : t->nodes) + seconds;
    t->reducing += seconds;
    if (!x->links.overlap) t->nodes = t->reductions;
    return t->reductions;
}

/* Returns the seconds of one run of a graph, and adds those of its reductions. */
static double play(const explanation *x, const part *p, int64_t ranks, double *reducing)
{
    tracks t = {.ready = arena_array(x->arena, p->graph->value_ids + 1, sizeof *t.ready)};
    for (const ir_node *n = p->graph->first; n; n = n->next) {
        double at = when_read(&t, n);
        if (reduces(n)) at = play_reduction(x, &t, at, links_all_reduce(&x->links, ranks, wire_bytes(x, n)));
        else if (p->seconds[n->id] > 0) at = t.nodes = fmax(at, t.nodes) + p->seconds[n->id];
        for (int i = 0; i < n->n_out; i++) t.ready[n->out[i]->id] = at;
    }
    *reducing += t.reducing * p->times;
    return fmax(t.nodes, t.reductions) * p->times;
}

static prediction predict(const explanation *x, int64_t ranks, double alone)
{
    prediction r = {.ranks = ranks, .hosts = links_hosts(&x->links, ranks), .sent = links_sent(ranks, x->bytes)};
    for (const part *p = x->parts; p < x->parts + x->n_parts; p++) r.seconds += play(x, p, ranks, &r.reducing);
    if (alone <= 0) alone = r.seconds;
    r.hidden = r.reducing > 0 ? fmin(1, fmax(0, 1 - (r.seconds - alone) / r.reducing)) : 1;
    r.scaling = r.seconds > 0 ? alone / r.seconds : 1;
    return r;
}

/* ---- printing ------------------------------------------------------------------------------------ */

static const char *reduced_word(const ir_node *n) { return ir_words_reduced[n->attr[IR_ATTR(all_reduce, by)].i]; }

static const char *wire_word(const ir_node *n) { return ir_dtype_name((ir_dtype)n->attr[IR_ATTR(all_reduce, wire)].i); }

static void print_reductions(const explanation *x, FILE *f)
{
    fprintf(f, "reductions of a step: %zu, of %lld tensors, %.0f bytes on the wire\n", x->reductions.count,
            (long long)x->tensors, x->bytes);
    fprintf(f, "  by    wire  tensors        bytes  times  ready after\n");
    for (size_t i = 0; i < x->reductions.count; i++) {
        const reduction *r = &x->reductions.items[i];
        fprintf(f, "  %-4s  %-4s  %7d %12.0f %6.0f  %.0f %% of the %s\n", reduced_word(r->node), wire_word(r->node),
                r->tensors, r->bytes, r->times, 100 * r->ready, phase_words[r->node->phase]);
    }
}

static void print_speed(FILE *f, const char *name, const link_speed *l)
{
    fprintf(f, "%s %g GB/s, %g us; ", name, l->bandwidth / 1e9, l->latency * 1e6);
}

static void print_assumptions(const explanation *x, bool assumed, FILE *f)
{
    fprintf(f, "computation of one rank:");
    for (int i = 0; i < IR_PHASE_COUNT; i++)
        fprintf(f, "%s %s %.4g ms (%s)", i ? "," : "", phase_words[i], 1e3 * x->phase[i],
                x->links.seconds[i] > 0 ? "as described" : "predicted");
    fprintf(f, "; for %s, symbolic sizes as %lld\n", x->device->name, (long long)x->device->symbol);
    fprintf(f, "links%s: %lld ranks per host; ", assumed ? ", assumed" : "", (long long)x->links.host);
    print_speed(f, "inside", &x->links.inside);
    print_speed(f, "between", &x->links.between);
    fprintf(f, "%s\n", x->links.overlap ? "reduced during the backward" : "the backward waits for reductions");
}

static void print_prediction(const prediction *r, FILE *f)
{
    fprintf(f, "  %5lld  %5lld  %12.0f  %11.4g  %5.1f %%  %8.4g  %6.1f %%\n", (long long)r->ranks, (long long)r->hosts,
            r->sent, 1e3 * r->reducing, 100 * r->hidden, 1e3 * r->seconds, 100 * r->scaling);
}

static void write_reductions(const explanation *x, json_writer *w)
{
    json_begin(w, "reductions", '[');
    for (size_t i = 0; i < x->reductions.count; i++) {
        const reduction *r = &x->reductions.items[i];
        json_begin(w, NULL, '{');
        json_write_string(w, "by", reduced_word(r->node));
        json_write_string(w, "wire", wire_word(r->node));
        json_write_integer(w, "tensors", r->tensors);
        json_write_real(w, "bytes", "%.0f", r->bytes);
        json_write_real(w, "times", "%.0f", r->times);
        json_write_string(w, "phase", phase_words[r->node->phase]);
        json_write_real(w, "ready", "%.4g", r->ready);
        json_end(w, '}');
    }
    json_end(w, ']');
    json_write_real(w, "bytes", "%.0f", x->bytes);
    for (int i = 0; i < IR_PHASE_COUNT; i++) json_write_real(w, phase_words[i], "%.6g", x->phase[i]);
}

static void write_prediction(const prediction *r, json_writer *w)
{
    json_begin(w, NULL, '{');
    json_write_integer(w, "ranks", r->ranks);
    json_write_integer(w, "hosts", r->hosts);
    json_write_real(w, "sent_bytes", "%.0f", r->sent);
    json_write_real(w, "reducing_s", "%.6g", r->reducing);
    json_write_real(w, "hidden", "%.4g", r->hidden);
    json_write_real(w, "step_s", "%.6g", r->seconds);
    json_write_real(w, "scaling", "%.4g", r->scaling);
    json_end(w, '}');
}

static void print(const explanation *x, bool assumed, bool json, FILE *f)
{
    json_writer w = {.file = f};
    double alone = 0;
    if (json) {
        json_begin(&w, NULL, '{');
        write_reductions(x, &w);
        json_begin(&w, "scaling", '[');
    } else {
        print_reductions(x, f);
        print_assumptions(x, assumed, f);
        fprintf(f, "  ranks  hosts  bytes sent by each  reducing, ms  hidden  step, ms  scaling\n");
    }
    for (int64_t ranks = 1; ranks <= MOST_RANKS; ranks *= 2) {
        const prediction r = predict(x, ranks, alone);
        if (ranks == 1) alone = r.seconds;
        if (json) write_prediction(&r, &w);
        else print_prediction(&r, f);
    }
    if (!json) return;
    json_end(&w, ']');
    json_end(&w, '}');
    putc('\n', f);
}

/* ---- the step ------------------------------------------------------------------------------------ */

static void add_part(explanation *x, ir_graph_role role, double times)
{
    const ir_graph *g = ir_graph_by_role(x->module, role);
    if (g) x->parts[x->n_parts++] = (part){.graph = g, .times = times};
}

ampc_status distribution_explain(const ir_module *m, const compile *c, arena *a)
{
    const compile_options *o = c->options;
    explanation x = {.module = m, .arena = a};
    TRY(device_load(o->target, a, c->diag, &x.device));
    TRY(links_load(o->links, c->diag, &x.links));
    add_part(&x, IR_GRAPH_accumulate, (double)m->training.window);
    add_part(&x, x.n_parts ? IR_GRAPH_apply : IR_GRAPH_train_step, 1);
    if (!x.n_parts)
        return diag_error(c->diag, AMPC_USAGE, DIAG_OPTION(explain), "there is no training step to distribute");
    predict_nodes(&x);
    use_measured(&x);
    find_reductions(&x);
    if (c->report.text) print(&x, !o->links, o->json, c->report.text);
    return AMPC_OK;
}
