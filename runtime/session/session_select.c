/* session_select.c - selects the outputs that runs of a graph compute.
 *
 * Selections are interned: there is one object for each set of outputs that a session ever selected. A plan is made for
 * one selection, so selecting a set again finds its plans in the cache. */
#include "ir/base/text_buffer.h"
#include "runtime/backend/alloc.h"
#include "runtime/backend/memory.h"
#include "runtime/session/session_state.h"

#include <stdio.h>
#include <string.h>

int rt_output_count(const ir_graph *g)
{
    int count = 0;
    for (const ir_node *n = ir_first_output(g); n; n = ir_next_output(n)) count++;
    return count;
}

/* Returns the position in the module, or -1. */
static int find_graph(const rt_session *s, const char *name)
{
    for (size_t i = 0; i < s->module->graphs.count; i++)
        if (strcmp(s->module->graphs.items[i]->name, name) == 0) return (int)i;
    return -1;
}

/* ---- making selections ---- */

static ampc_status reject_name(const ir_graph *g, const char *name, diag *d)
{
    char text[512];
    text_buffer t = TEXT_IN(text);
    for (const ir_node *n = ir_first_output(g); n; n = ir_next_output(n)) text_add_item(&t, ", ", ir_output_name(n));
    return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "graph @%s has no output '%s'; its outputs are: %s", g->name,
                      name, text);
}

static bool is_among(const char *name, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

/* Whether one of these outputs is a sum of parts, which evaluation needs. */
static bool has_parts(const ir_graph *g, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (g->role == IR_GRAPH_eval && ir_training_mean(&g->module->training, names[i])) return true;
    return false;
}

/* Returns the selected outputs in graph order, without duplicates, with the parts of a loss. NULL: out of memory. */
static rt_selection *make_selection(const ir_graph *g, const char *const *names, int n)
{
    rt_selection *made = rt_alloc(1, sizeof *made + (size_t)rt_output_count(g) * sizeof *made->names);
    if (!made) return NULL;
    made->graph = g;
    const bool parts = has_parts(g, names, n);
    for (const ir_node *node = ir_first_output(g); node; node = ir_next_output(node))
        if (is_among(ir_output_name(node), names, n) || (parts && node->role == IR_OUTPUT_loss_part))
            made->names[made->n++] = ir_output_name(node);
    return made;
}

static bool is_same(const rt_selection *a, const rt_selection *b)
{
    return a->graph == b->graph && a->n == b->n && memcmp(a->names, b->names, (size_t)a->n * sizeof *a->names) == 0;
}

/* Returns the one object for this set; owns or frees `made`. */
static const rt_selection *intern(rt_shared *h, rt_selection *made)
{
    pthread_mutex_lock(&h->lock);
    rt_selection *existing = h->selections;
    while (existing && !is_same(existing, made)) existing = existing->next;
    if (!existing) {
        made->next = h->selections;
        h->selections = made;
    }
    pthread_mutex_unlock(&h->lock);
    if (existing) rt_free(made);
    return existing ? existing : made;
}

ampc_status rt_session_select(rt_session *s, const char *graph, const char *const *names, int n, diag *d)
{
    const int at = find_graph(s, graph);
    if (at < 0) return diag_error(d, AMPC_REJECTED, DIAG_NOWHERE, "the module has no graph @%s", graph);
    const ir_graph *g = s->module->graphs.items[at];
    if (!names) {
        s->selected[at] = NULL;
        return AMPC_OK;
    }
    for (int i = 0; i < n; i++)
        if (!ir_graph_find_output(g, names[i])) return reject_name(g, names[i], d);
    rt_selection *made = make_selection(g, names, n);
    if (!made) return rt_no_memory(d);
    const rt_selection *existing = intern(s->shared, made);
    s->selected[at] = existing->n == rt_output_count(g) ? NULL : existing;
    return AMPC_OK;
}

/* ---- reading them ---- */

const rt_selection *rt_session_selection(const rt_session *s, const ir_graph *g)
{
    const int at = find_graph(s, g->name);
    return at < 0 ? NULL : s->selected[at];
}

const char *rt_session_not_selected(const rt_session *s, const char *name)
{
    const rt_plan *p = s->last ? s->last->plan : NULL;
    if (!p || !p->selection || !ir_graph_find_output(p->graph, name)) return NULL;
    return is_among(name, p->selection->names, p->selection->n) ? NULL : p->graph->name;
}

void rt_session_free_selections(rt_shared *h)
{
    for (rt_selection *at = h->selections, *next; at; at = next) {
        next = at->next;
        rt_free(at);
    }
}
