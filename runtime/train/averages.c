/* averages.c - adds up the parts of losses, batch after batch. */
#include "runtime/train/averages.h"

#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"

#include <math.h>
#include <stdio.h>

typedef struct part {
    const char *value, *weight; /* outputs; no weight: value is a mean over the samples, or a sum that is not divided */
    double factor;
    bool is_sum;
    double sum, weights; /* so far */
} part;

typedef struct average {
    const char *name; /* of the output */
    part *parts;
    int count;
} average;

struct rt_averages {
    const ir_graph *graph;
    bool has_loss;
    int count;
    average items[];
};

/* ---- what an output is made of ---- */

/* The output of that name, a float, or NULL. */
static const char *find_output(const ir_graph *g, const char *name)
{
    const ir_node *output = ir_graph_find_output(g, name);
    const ir_type *type = output ? &ir_in(output, 0)->type : NULL;
    return type && !type->rank && ir_dtype_is_float(type->dtype) ? ir_output_name(output) : NULL;
}

static bool add_part(const ir_graph *g, const ir_addend *from, average *a)
{
    part *p = &a->parts[a->count++];
    *p = (part){.factor = from->factor, .is_sum = from->sum, .value = find_output(g, from->value)};
    if (from->weight) p->weight = find_output(g, from->weight);
    return p->value && !from->weight == !p->weight;
}

static ampc_status open_one(const ir_graph *g, const char *name, diag *d, average *a)
{
    const ir_mean *mean = g->role == IR_GRAPH_eval ? ir_training_mean(&g->module->training, name) : NULL;
    *a = (average){.name = name, .parts = rt_alloc(mean ? (size_t)mean->count : 1, sizeof *a->parts)};
    if (!a->parts) return rt_no_memory(d);
    if (!mean) a->parts[a->count++] = (part){.value = name, .factor = 1};
    for (int i = 0; mean && i < mean->count; i++)
        if (!add_part(g, &mean->addends[i], a))
            return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "the mean of '%s' is not made of outputs of @%s", name,
                              g->name);
    return AMPC_OK;
}

static ampc_status open_all(const ir_graph *g, int limit, diag *d, rt_averages *a)
{
    const char *loss = ir_output_name(ir_output_by_role(g, IR_OUTPUT_loss));
    a->has_loss = loss;
    if (loss) TRY(open_one(g, loss, d, &a->items[a->count++]));
    limit += a->count;
    for (const ir_node *n = ir_first_output(g); n && a->count < limit; n = ir_next_output(n))
        if (n->role == IR_OUTPUT_loss_term) TRY(open_one(g, ir_output_name(n), d, &a->items[a->count++]));
    return AMPC_OK;
}

ampc_status rt_averages_open(const ir_graph *g, int limit, diag *d, rt_averages **out)
{
    rt_averages *a = *out = rt_alloc(1, sizeof *a + ((size_t)limit + 1) * sizeof *a->items);
    if (!a) return rt_no_memory(d);
    a->graph = g;
    const ampc_status status = open_all(g, limit, d, a);
    if (status == AMPC_OK) return AMPC_OK;
    rt_averages_close(a);
    *out = NULL;
    return status;
}

void rt_averages_close(rt_averages *a)
{
    for (int i = 0; a && i < a->count; i++) rt_free(a->items[i].parts);
    rt_free(a);
}

int rt_averages_count(const rt_averages *a) { return a->count; }
bool rt_averages_has_loss(const rt_averages *a) { return a->has_loss; }
const char *rt_averages_name(const rt_averages *a, int i) { return a->items[i].name; }

/* ---- adding ---- */

static double number(rt_session *s, const char *output)
{
    const rt_tensor *t = rt_session_output(s, output);
    return t ? ir_load_f64(t->dtype, t->data) : NAN;
}

static void add(part *p, rt_session *s, double samples, double times, double of)
{
    const double value = number(s, p->value), weight = p->weight ? number(s, p->weight) : samples;
    const double sum = p->weight || p->is_sum ? value : value * samples;
    p->sum += sum * times / of;
    p->weights += weight * times / of;
}

void rt_averages_add(rt_averages *a, rt_session *s, int64_t samples, int64_t times, int64_t of)
{
    for (int i = 0; i < a->count; i++)
        for (int k = 0; k < a->items[i].count; k++)
            add(&a->items[i].parts[k], s, (double)samples, (double)times, (double)of);
}

double rt_averages_value(const rt_averages *a, int i)
{
    double value = 0;
    for (int k = 0; k < a->items[i].count; k++) {
        const part *p = &a->items[i].parts[k];
        if (p->is_sum) value += p->factor * p->sum;
        else value += p->weights > 0 ? p->factor * p->sum / p->weights : NAN;
    }
    return value;
}
