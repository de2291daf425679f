/* api_describe.c - what a module has: inputs and results of its graphs, and the precision of its nodes. */
#include "runtime/api/api.h"

#include "runtime/backend/memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- inputs and results ---- */

ampc_status api_graph(const ampc_module *m, const char *key, diag *d, const ir_graph **out)
{
    *out = ir_graph_by_key(m->ir, key);
    if (*out) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "the module has no entry graph '%s'", key);
}

/* The text of a symbolic dimension, which the module owns; NULL: memory is exhausted. */
static const char *dim_name(ampc_module *m, ir_dim dim)
{
    size_t symbol;
    text_buffer text = {0};
    api_dim_names *names = &m->names;
    if (ir_dim_is_symbol(m->ir->dims, dim, &symbol)) return ir_dim_symbol_name(m->ir->dims, symbol);
    for (size_t i = 0; i < names->count; i++)
        if (names->items[i].dim == dim) return names->items[i].text;
    void *items = realloc(names->items, (names->count + 1) * sizeof *names->items);
    if (!items) return NULL;
    names->items = items;
    ir_dim_add_text(&text, m->ir->dims, dim);
    char *made = text_finish(&text);
    if (!made) return NULL;
    names->items[names->count++] = (api_dim_name){dim, made};
    return made;
}

/* An input or result of a graph. */
typedef struct port {
    const char *name;
    const ir_type *type;
} port;

/* Stores the one with this index, unless there are fewer, and returns how many there are. */
typedef size_t find_port(const ir_graph *g, size_t index, port *found);

static size_t find_input(const ir_graph *g, size_t index, port *found)
{
    if (index < g->inputs.count) *found = (port){g->inputs.items[index]->name, &g->inputs.items[index]->type};
    return g->inputs.count;
}

static size_t find_result(const ir_graph *g, size_t index, port *found)
{
    size_t count = 0;
    for (const ir_node *n = ir_first_output(g); n; n = ir_next_output(n), count++)
        if (count == index) *found = (port){ir_output_name(n), &ir_in(n, 0)->type};
    return count;
}

static ampc_status count_ports(const ampc_module *m, const char *graph, find_port *find, diag *d, size_t *count)
{
    const ir_graph *g;
    port none;
    TRY(api_graph(m, graph, d, &g));
    *count = find(g, SIZE_MAX, &none);
    return AMPC_OK;
}

/* `what` is what the graph has. */
static ampc_status describe_port(ampc_module *m, const char *graph, find_port *find, size_t index, const char *what,
                                 ampc_input_info *info, diag *d)
{
    const ir_graph *g;
    port found;
    TRY(api_result_check(info, d));
    TRY(api_graph(m, graph, d, &g));
    const size_t count = find(g, index, &found);
    if (index >= count) return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "graph '%s' has %zu %s", graph, count, what);
    const ir_type *t = found.type;
    ampc_input_info out = {.name = found.name, .dtype = (ampc_dtype)t->dtype, .rank = t->rank};
    for (int i = 0; i < t->rank; i++) {
        const bool symbolic = ir_dim_is_symbolic(t->dims[i]);
        out.dims[i] = symbolic ? -1 : t->dims[i];
        if (symbolic && !(out.dim_names[i] = dim_name(m, t->dims[i]))) return rt_no_memory(d);
    }
    api_result(&out, info, sizeof out);
    return AMPC_OK;
}

ampc_status ampc_module_input_count(ampc_module *module, const char *graph, size_t *count)
{
    diag *d;
    TRY(api_enter_module(module, &d));
    NEED(graph);
    NEED(count);
    return count_ports(module, graph, find_input, d, count);
}

ampc_status ampc_module_output_count(ampc_module *module, const char *graph, size_t *count)
{
    diag *d;
    TRY(api_enter_module(module, &d));
    NEED(graph);
    NEED(count);
    return count_ports(module, graph, find_result, d, count);
}

ampc_status ampc_module_input(ampc_module *module, const char *graph, size_t index, ampc_input_info *info)
{
    diag *d;
    TRY(api_enter_module(module, &d));
    NEED(graph);
    NEED(info);
    return describe_port(module, graph, find_input, index, "inputs", info, d);
}

ampc_status ampc_module_output(ampc_module *module, const char *graph, size_t index, ampc_input_info *info)
{
    diag *d;
    TRY(api_enter_module(module, &d));
    NEED(graph);
    NEED(info);
    return describe_port(module, graph, find_result, index, "results", info, d);
}

/* ---- the precision of nodes ---- */

/* Compiles the module's model again and stores what is printed. */
static ampc_status describe_precision(const ampc_module *m, const ampc_compile_options *options, api_compilation *c,
                                      diag *d, char **text)
{
    ampc_compile_options o;
    char *printed = NULL;
    size_t size = 0;
    TRY(api_compile_options(options, d, &o));
    c->for_onnx = m->source.keep_unknown;
    c->text = open_memstream(&printed, &size);
    if (!c->text) return rt_no_memory(d);
    ampc_status status = api_compile_again(m, &o, c, d);
    if (status == AMPC_OK) ir_module_free(c->ir);
    free(c->summary);
    if (fclose(c->text) != 0 && status == AMPC_OK) status = rt_no_memory(d);
    if (status == AMPC_OK) *text = printed;
    else free(printed);
    return status;
}

ampc_status ampc_module_explain(ampc_module *module, const ampc_compile_options *options, const char *what, int json,
                                char **text)
{
    diag *d;
    TRY(api_enter_module(module, &d));
    NEED(what);
    NEED(text);
    api_compilation c = {.explain = what, .json = json != 0};
    return describe_precision(module, options, &c, d, text);
}

static ampc_status print_stats(const api_compilation *c, compile *compiled)
{
    pass_print_stats(c->ir, compiled, c->text, compiled->arena);
    return AMPC_OK;
}

ampc_status ampc_module_report(ampc_module *module, const ampc_compile_options *options, char **text)
{
    diag *d;
    TRY(api_enter_module(module, &d));
    NEED(text);
    api_compilation c = {.finish = print_stats, .json = true};
    return describe_precision(module, options, &c, d, text);
}
