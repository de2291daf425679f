/* run_info.c - info: describes a model: its interface, its export, its operators, its memory, and what to type next. */
#include "ir/exported.h"
#include "ir/json_writer.h"
#include "ir/text.h"
#include "runtime/backend/backend.h"
#include "runtime/plan/plan.h"
#include "tools/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* An ONNX operator, and what all ops support to which its nodes were lowered. */
typedef struct operator_row {
    const char *name, *last; /* last: node that was counted */
    int64_t nodes;
    bool gradient, cpu, cuda;
} operator_row;

typedef struct info {
    run_context *c;
    const ir_module *module;
    const ir_graph *graph; /* the entry that is planned */
    VEC(operator_row) operators;
    int64_t parameters, elements, parameter_bytes, states, state_bytes;
    const char *open; /* "--dim T=SIZE ..": symbols without a size, so that there is no plan; NULL: none */
    int64_t memory, flops;
} info;

/* ---- collecting ------------------------------------------------------------------------------- */

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

static void count_operator(info *f, const ir_node *n)
{
    operator_row *row = NULL;
    for (size_t i = 0; i < f->operators.count && !row; i++)
        if (strcmp(f->operators.items[i].name, n->loc.op) == 0) row = &f->operators.items[i];
    if (!row) {
        const operator_row fresh = {.name = n->loc.op, .last = "", .gradient = true, .cpu = true, .cuda = true};
        vec_push(f->c->tool->arena, &f->operators, fresh);
        row = &f->operators.items[f->operators.count - 1];
    }
    const char *node = n->loc.node ? n->loc.node : "";
    row->nodes += strcmp(row->last, node) != 0;
    row->last = node;
    row->gradient &= pass_has_gradient(n->op);
    if (!needs_kernel(n->op)) return;
    row->cpu &= runs_on("cpu", n->op);
    row->cuda &= runs_on("cuda", n->op);
}

static void collect(info *f)
{
    const ir_graph *forward = ir_graph_by_role(f->module, IR_GRAPH_infer);
    for (const ir_node *n = forward ? forward->first : NULL; n; n = n->next)
        if (n->loc.op && n->n_out && n->op != IR_OP_cast) count_operator(f, n);
    for (size_t i = 0; i < f->module->storage.count; i++) {
        const ir_storage *s = f->module->storage.items[i];
        const int64_t bytes = ir_storage_bytes(s);
        if (s->kind == IR_PARAM) {
            f->parameters++;
            f->elements += bytes / (int64_t)ir_dtype_size(s->type.dtype);
            f->parameter_bytes += bytes;
        } else if (s->kind == IR_STATE) {
            f->states++;
            f->state_bytes += bytes;
        }
    }
}

/* Symbols of inputs that neither the batch nor --dim binds. */
static const char *open_symbols(const info *f)
{
    const ir_dim_table *t = f->module->dims;
    int64_t *sizes = f->c->sizes, size;
    const char *text = NULL;
    for (size_t i = 0; i < f->graph->inputs.count; i++) {
        const ir_type *type = &f->graph->inputs.items[i]->type;
        size_t symbol;
        for (int k = 0; k < type->rank; k++) {
            if (ir_dim_eval(t, type->dims[k], sizes, &size, &symbol) || symbol == SIZE_MAX) continue;
            const char *name = arena_printf(f->c->tool->arena, "--dim %s=SIZE", ir_dim_symbol_name(t, symbol));
            if (!text) text = name;
            else if (!strstr(text, name)) text = arena_printf(f->c->tool->arena, "%s %s", text, name);
        }
    }
    return text;
}

static ampc_status plan(info *f)
{
    tool *t = f->c->tool;
    const rt_plan *p;
    rt_memory memory;
    f->open = open_symbols(f);
    if (f->open) return AMPC_OK;
    TRY(run_select_outputs(f->c, f->graph));
    TRY(rt_session_plan(f->c->session, f->graph->name, NULL, 0, NULL, t->diag, &p));
    TRY(rt_session_memory(f->c->session, f->graph->name, NULL, 0, t->diag, &memory));
    f->memory = memory.arena + memory.storage;
    for (; p; p = p->next_part) f->flops += rt_plan_sum(p).flops;
    return AMPC_OK;
}

/* What to type next, for a model without a training step, with one, or with a problem to solve first. */
static const char *next_command(const info *f)
{
    const char *model = f->c->tool->o.operands.items[0];
    arena *a = f->c->tool->arena;
    const bool onnx = tool_ends_with(model, ".onnx");
    if (ir_graph_by_role(f->module, IR_GRAPH_train_step))
        return arena_printf(a, "ampc-run train %s --data=SPEC --epochs=N%s", model,
                            onnx ? " and the options of this command" : "");
    if (ir_exported_get(f->module, IR_FACT_folded).count)
        return arena_printf(a, "to train it, export again: %s", ir_exporter_get(f->module)->whole);
    if (onnx)
        return arena_printf(a, "ampc %s -o model.ir --loss=ce%s", model,
                            ir_meta_get(f->module, IR_EXPORTED_BATCH) ? " --batch=64" : "");
    return arena_printf(a, "ampc-run infer %s --inputs=FILE", model);
}

/* ---- printing --------------------------------------------------------------------------------- */

static const char *meta(const info *f, const char *key)
{
    const char *text = ir_meta_get(f->module, key);
    return text ? text : "unknown";
}

/* The summary of the compiler; of a compiled module, only its level and low type are known. */
static const char *precision_text(const info *f)
{
    const tool *t = f->c->tool;
    return t->compile ? pass_summary(t->compile, t->arena) : meta(f, "amp");
}

static const char *type_text(const info *f, const ir_value *v)
{
    return ir_type_print(f->module, &v->type, f->c->tool->arena);
}

static void print_text(const info *f)
{
    arena *a = f->c->tool->arena;
    const ir_dim_table *dims = f->module->dims;
    printf("exporter    %s, %s, mode %s, opset %s\n", ir_exporter_get(f->module)->name, meta(f, IR_EXPORTED_PRODUCER),
           meta(f, IR_EXPORTED_MODE), meta(f, "opset"));
    for (int i = 0; i < IR_FACT_COUNT; i++)
        if (ir_exported_get(f->module, i).count) printf("            %s\n", ir_exported_text(f->module, i, 8, a));
    if (ir_meta_get(f->module, IR_EXPORTED_BATCH))
        printf("            the batch is fixed at %s\n", ir_meta_get(f->module, IR_EXPORTED_BATCH));
    for (size_t i = 0; i < f->graph->inputs.count; i++)
        printf("%-11s %s: %s\n", i ? "" : "inputs", f->graph->inputs.items[i]->name,
               type_text(f, f->graph->inputs.items[i]));
    for (const ir_node *o = ir_first_output(f->graph), *first = o; o; o = ir_next_output(o))
        printf("%-11s %s: %s\n", o == first ? "outputs" : "", ir_output_name(o), type_text(f, ir_in(o, 0)));
    printf("symbols    ");
    for (size_t i = 0; i < ir_dim_symbol_count(dims); i++) printf(" %s", ir_dim_symbol_name(dims, i));
    printf("%s\n", ir_dim_symbol_count(dims) ? "" : " none");
    printf("parameters  %" PRId64 " (%" PRId64 " elements, %" PRId64 " bytes), %" PRId64 " states (%" PRId64
           " bytes)\n",
           f->parameters, f->elements, f->parameter_bytes, f->states, f->state_bytes);
    printf("operators   %-24s %6s  gradient  cpu  cuda\n", "", "nodes");
    for (size_t i = 0; i < f->operators.count; i++) {
        const operator_row *r = &f->operators.items[i];
        printf("            %-24s %6" PRId64 "  %-8s  %-3s  %s\n", r->name, r->nodes, r->gradient ? "yes" : "no",
               r->cpu ? "yes" : "no",
               !find_device("cuda") ? "not built"
               : r->cuda            ? "yes"
                                    : "no");
    }
    printf("precision   %s\n", precision_text(f));
    if (f->open) printf("@%-10s unknown sizes: %s\n", f->graph->name, f->open);
    else
        printf("@%-10s batch %" PRId64 ": %" PRId64 " bytes planned, %" PRId64 " FLOPs\n", f->graph->name,
               run_choose_batch(f->c, f->graph), f->memory, f->flops);
    printf("next        %s\n", next_command(f));
}

static void write_value(json_writer *w, const info *f, const char *name, const ir_value *v)
{
    json_begin(w, NULL, '{');
    json_write_string(w, "name", name);
    json_write_string(w, "type", type_text(f, v));
    json_end(w, '}');
}

static void write_operators(json_writer *w, const info *f)
{
    json_begin(w, "operators", '[');
    for (size_t i = 0; i < f->operators.count; i++) {
        const operator_row *r = &f->operators.items[i];
        json_begin(w, NULL, '{');
        json_write_string(w, "name", r->name);
        json_write_integer(w, "nodes", r->nodes);
        json_write_bool(w, "gradient", r->gradient);
        json_write_bool(w, "cpu", r->cpu);
        if (find_device("cuda")) json_write_bool(w, "cuda", r->cuda);
        json_end(w, '}');
    }
    json_end(w, ']');
}

static void write_export(json_writer *w, const info *f)
{
    json_write_string(w, "exporter", ir_exporter_get(f->module)->word);
    json_write_string(w, "producer", meta(f, IR_EXPORTED_PRODUCER));
    json_write_string(w, "mode", meta(f, IR_EXPORTED_MODE));
    json_write_string(w, "opset", meta(f, "opset"));
    if (ir_meta_get(f->module, IR_EXPORTED_BATCH)) json_write_string(w, "batch", meta(f, IR_EXPORTED_BATCH));
    json_begin(w, "exported", '{');
    for (int i = 0; i < IR_FACT_COUNT; i++)
        if (ir_exported_get(f->module, i).count)
            json_write_string(w, ir_facts[i].word, ir_exported_get(f->module, i).names);
    json_end(w, '}');
}

static void print_json(const info *f)
{
    json_writer w = {.file = stdout};
    const ir_dim_table *dims = f->module->dims;
    json_begin(&w, NULL, '{');
    write_export(&w, f);
    json_begin(&w, "inputs", '[');
    for (size_t i = 0; i < f->graph->inputs.count; i++)
        write_value(&w, f, f->graph->inputs.items[i]->name, f->graph->inputs.items[i]);
    json_end(&w, ']');
    json_begin(&w, "outputs", '[');
    for (const ir_node *o = ir_first_output(f->graph); o; o = ir_next_output(o))
        write_value(&w, f, ir_output_name(o), ir_in(o, 0));
    json_end(&w, ']');
    json_begin(&w, "symbols", '[');
    for (size_t i = 0; i < ir_dim_symbol_count(dims); i++) json_write_string(&w, NULL, ir_dim_symbol_name(dims, i));
    json_end(&w, ']');
    json_write_integer(&w, "parameters", f->parameters);
    json_write_integer(&w, "parameter_elements", f->elements);
    json_write_integer(&w, "parameter_bytes", f->parameter_bytes);
    json_write_integer(&w, "state_bytes", f->state_bytes);
    write_operators(&w, f);
    json_write_string(&w, "precision", precision_text(f));
    json_write_string(&w, "entry", f->graph->name);
    if (!f->open) {
        json_write_integer(&w, "planned_batch", run_choose_batch(f->c, f->graph));
        json_write_integer(&w, "planned_bytes", f->memory);
        json_write_integer(&w, "flops", f->flops);
    }
    json_write_string(&w, "next_command", next_command(f));
    json_end(&w, '}');
    putchar('\n');
}

ampc_status run_info(run_context *c)
{
    info f = {.c = c, .module = c->tool->module};
    TRY(run_chosen_entry(c, &f.graph));
    collect(&f);
    TRY(plan(&f));
    (c->tool->o.pass.json ? print_json : print_text)(&f);
    return AMPC_OK;
}
