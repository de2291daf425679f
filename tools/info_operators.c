/* info_operators.c - the operators of a model, and what supports them. */
#include "runtime/backend/backend.h"
#include "tools/info.h"

#include <string.h>

/* NULL: the program was built without this device. */
static const rt_backend *find_device(const char *device)
{
    int index;
    return rt_backend_find(device, &index);
}

static bool runs_on(const char *device, ir_op op)
{
    const rt_backend *b = find_device(device);
    const k_kernel *k = b ? b->kernel(op) : NULL;
    return k && k->run;
}

/* Ops that no kernel executes: views, statements, and control flow, which the session runs itself. */
static bool needs_kernel(ir_op op) { return runs_on("cpu", op) || runs_on("cuda", op); }

static void count_operator(info_operators *all, const ir_node *n, arena *a)
{
    info_operator *row = info_find_operator(all, n->loc.op);
    if (!row) {
        const info_operator fresh = {.name = n->loc.op, .last = "", .gradient = true, .cpu = true, .cuda = true};
        vec_push(a, all, fresh);
        row = &all->items[all->count - 1];
    }
    const char *node = n->loc.node ? n->loc.node : "";
    row->nodes += strcmp(row->last, node) != 0;
    row->last = node;
    row->gradient &= pass_has_gradient(n->op);
    if (!needs_kernel(n->op)) return;
    row->cpu &= runs_on("cpu", n->op);
    row->cuda &= runs_on("cuda", n->op);
}

info_operator *info_find_operator(const info_operators *all, const char *name)
{
    info_operator *row = NULL;
    for (size_t i = 0; i < all->count && !row; i++)
        if (strcmp(all->items[i].name, name) == 0) row = &all->items[i];
    return row;
}

/* A custom operator has the functions of its plug-in. */
static void restrict_to_functions(const info_operators *all, const custom_ops *custom, arena *a)
{
    for (const custom_op *op = custom->first; op; op = op->next) {
        info_operator *row = info_find_operator(all, arena_printf(a, "%s::%s", op->table.domain, op->table.name));
        if (!row) continue;
        row->gradient &= custom_has_gradient(op);
        row->cpu &= op->table.forward_cpu != NULL;
        row->cuda &= op->table.forward_cuda != NULL;
    }
}

info_operators info_collect_operators(const ir_graph *g, const custom_ops *custom, arena *a)
{
    info_operators all = {0};
    for (const ir_node *n = g->first; n; n = n->next)
        if (n->loc.op && n->n_out && n->op != IR_OP_cast) count_operator(&all, n, a);
    restrict_to_functions(&all, custom, a);
    return all;
}

const char *info_support_text(const info_operator *o, arena *a)
{
    const char *cuda = o->cuda ? "yes" : "no";
    return arena_printf(a, "%-8s  %-3s  %s", o->gradient ? "yes" : "no", o->cpu ? "yes" : "no",
                        find_device("cuda") ? cuda : "not built");
}

void info_write_support(const info_operator *o, json_writer *w)
{
    json_write_bool(w, "gradient", o->gradient);
    json_write_bool(w, "cpu", o->cpu);
    if (find_device("cuda")) json_write_bool(w, "cuda", o->cuda);
}
