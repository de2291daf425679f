/* info_model.c - describes a model: its interface, its export, its operators, its memory, and what to type next. */
#include "frontend/recipe.h"
#include "ir/graph/exported.h"
#include "runtime/backend/backend.h"
#include "runtime/plan/plan.h"
#include "runtime/train/checkpoint_file.h"
#include "tools/info.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct model {
    run_context *c;
    const ir_module *module;
    const ir_graph *graph; /* the entry that is planned */
    info_operators operators;
    int64_t parameters, elements, parameter_bytes, states, state_bytes;
    const char *open; /* "--dim T=SIZE ..": symbols without a size, so that there is no plan; NULL: none */
    int64_t memory, flops;
    recipe_options options; /* of a recipe */
    const char *checkpoint; /* of --checkpoint; NULL: none */
    rt_checkpoint_fit fit;
} model;

/* ---- collecting ------------------------------------------------------------------------------- */

static void collect(model *f)
{
    const ir_graph *forward = ir_graph_by_role(f->module, IR_GRAPH_infer);
    if (forward) f->operators = info_collect_operators(forward, f->c->tool->custom, f->c->tool->arena);
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
static const char *open_symbols(const model *f)
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

static ampc_status plan(model *f)
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
    for (int part = 0; (p = rt_session_planned(f->c->session, part)); part++) f->flops += rt_plan_sum(p).flops;
    return AMPC_OK;
}

static ampc_status compare_checkpoint(model *f)
{
    rt_checkpoint_file *file;
    diag *d = f->c->tool->diag;
    TRY(run_checkpoint_path(f->c, &f->checkpoint));
    if (!f->checkpoint) return AMPC_OK;
    TRY(rt_checkpoint_file_open(f->checkpoint, RT_CHECKPOINT_WEIGHTS, d, &file));
    const ampc_status status = rt_checkpoint_file_fit(file, f->module, &f->fit);
    rt_checkpoint_file_free(file);
    return status;
}

/* What to type next, for a model without a training step, with one, or with a problem to solve first. */
static const char *next_command(const model *f)
{
    const char *path = f->c->tool->o.operands.items[0];
    arena *a = f->c->tool->arena;
    const bool onnx = tool_ends_with(path, ".onnx");
    if (ir_graph_by_role(f->module, IR_GRAPH_train_step))
        return arena_printf(a, "ampc-run train %s --data=SPEC --epochs=N%s", path,
                            onnx ? " and the options of this command" : "");
    const ir_exporter_info *exporter = ir_exporter_get(f->module);
    if (f->module->training.exported.facts[IR_FACT_folded].count)
        return arena_printf(a, "to train it, export again: %s%s%s", exporter->whole,
                            exporter->mode ? ", and compile with --mode=" : "", exporter->mode ? exporter->mode : "");
    if (onnx)
        return arena_printf(a, "ampc %s -o model.ir --loss=ce%s", path,
                            f->module->training.exported.batch ? " --batch=64" : "");
    return arena_printf(a, "ampc-run infer %s --inputs=FILE", path);
}

/* ---- sections ----------------------------------------------------------------------------------- */

static const char *meta(const ir_module *m, const char *key)
{
    const char *text = ir_meta_get(m, key);
    return text ? text : "unknown";
}

static const char *opset_text(const ir_module *m, char text[24])
{
    const int64_t opset = ir_training_opset(&m->training, "");
    snprintf(text, 24, "%" PRId64, opset);
    return opset ? text : "unknown";
}

/* The summary of the compiler; of a compiled module, only its level and low type are known. */
static const char *precision_text(const model *f)
{
    const tool *t = f->c->tool;
    char text[IR_PRECISION_TEXT];
    if (t->compile) return pass_summary(t->compile, t->arena);
    return ir_training_precision(&f->module->training, text) ? arena_strdup(t->arena, text) : "unknown";
}

static const char *type_text(const model *f, const ir_value *v)
{
    return ir_type_print(f->module, &v->type, f->c->tool->arena);
}

static const char *join(const ir_names *names, const char *separator, arena *a)
{
    const char *text = "";
    for (int i = 0; i < names->count; i++) text = arena_printf(a, "%s%s%s", text, i ? separator : "", names->items[i]);
    return text;
}

void info_print_export(const tool *t, const ir_module *m)
{
    if (!m->training.recipe) /* which has several models */
        info_line("exporter", "%s, %s, mode %s, opset %s", ir_exporter_get(m)->name, meta(m, IR_EXPORTED_PRODUCER),
                  meta(m, IR_EXPORTED_MODE), opset_text(m, (char[24]){0}));
    for (int i = 0; i < IR_FACT_COUNT; i++)
        if (m->training.exported.facts[i].count) info_line("", "%s", ir_exported_text(m, i, 8, t->arena));
    const int64_t batch = m->training.exported.batch;
    if (batch) info_line("", "the batch is fixed at %" PRId64, batch);
}

void info_write_export(const ir_module *m, json_writer *w)
{
    json_write_string(w, "exporter", ir_exporter_get(m)->word);
    json_write_string(w, "producer", meta(m, IR_EXPORTED_PRODUCER));
    json_write_string(w, "mode", meta(m, IR_EXPORTED_MODE));
    json_write_string(w, "opset", opset_text(m, (char[24]){0}));
    char batch[24];
    snprintf(batch, sizeof batch, "%" PRId64, m->training.exported.batch);
    if (m->training.exported.batch) json_write_string(w, "batch", batch);
    json_begin(w, "exported", '{');
    for (int i = 0; i < IR_FACT_COUNT; i++)
        if (m->training.exported.facts[i].count)
            json_write_string(w, ir_facts[i].word, join(&m->training.exported.facts[i], ", ", m->arena));
    json_end(w, '}');
}

static void print_export(const void *subject)
{
    const model *f = subject;
    info_print_export(f->c->tool, f->module);
}

static void write_export(const void *subject, json_writer *w)
{
    info_write_export(((const model *)subject)->module, w);
}

static void print_interface(const void *subject)
{
    const model *f = subject;
    const ir_dim_table *dims = f->module->dims;
    const char *symbols = "";
    for (size_t i = 0; i < f->graph->inputs.count; i++)
        info_line(i ? "" : "inputs", "%s: %s", f->graph->inputs.items[i]->name,
                  type_text(f, f->graph->inputs.items[i]));
    for (const ir_node *o = ir_first_output(f->graph), *first = o; o; o = ir_next_output(o))
        info_line(o == first ? "outputs" : "", "%s: %s", ir_output_name(o), type_text(f, ir_in(o, 0)));
    for (size_t i = 0; i < ir_dim_symbol_count(dims); i++)
        symbols = arena_printf(f->c->tool->arena, "%s%s%s", symbols, i ? " " : "", ir_dim_symbol_name(dims, i));
    info_line("symbols", "%s", *symbols ? symbols : "none");
}

static void write_value(json_writer *w, const model *f, const char *name, const ir_value *v)
{
    json_begin(w, NULL, '{');
    json_write_string(w, "name", name);
    json_write_string(w, "type", type_text(f, v));
    json_end(w, '}');
}

static void write_interface(const void *subject, json_writer *w)
{
    const model *f = subject;
    const ir_dim_table *dims = f->module->dims;
    json_begin(w, "inputs", '[');
    for (size_t i = 0; i < f->graph->inputs.count; i++)
        write_value(w, f, f->graph->inputs.items[i]->name, f->graph->inputs.items[i]);
    json_end(w, ']');
    json_begin(w, "outputs", '[');
    for (const ir_node *o = ir_first_output(f->graph); o; o = ir_next_output(o))
        write_value(w, f, ir_output_name(o), ir_in(o, 0));
    json_end(w, ']');
    json_begin(w, "symbols", '[');
    for (size_t i = 0; i < ir_dim_symbol_count(dims); i++) json_write_string(w, NULL, ir_dim_symbol_name(dims, i));
    json_end(w, ']');
}

static void print_parameters(const void *subject)
{
    const model *f = subject;
    info_line("parameters",
              "%" PRId64 " (%" PRId64 " elements, %" PRId64 " bytes), %" PRId64 " states (%" PRId64 " bytes)",
              f->parameters, f->elements, f->parameter_bytes, f->states, f->state_bytes);
}

static void write_parameters(const void *subject, json_writer *w)
{
    const model *f = subject;
    json_write_integer(w, "parameters", f->parameters);
    json_write_integer(w, "parameter_elements", f->elements);
    json_write_integer(w, "parameter_bytes", f->parameter_bytes);
    json_write_integer(w, "state_bytes", f->state_bytes);
}

static void print_operators(const void *subject)
{
    const model *f = subject;
    info_line("operators", "%-24s %6s  " INFO_SUPPORT, "", "nodes");
    for (size_t i = 0; i < f->operators.count; i++) {
        const info_operator *r = &f->operators.items[i];
        info_line("", "%-24s %6" PRId64 "  %s", r->name, r->nodes, info_support_text(r, f->c->tool->arena));
    }
}

static void write_operators(const void *subject, json_writer *w)
{
    const model *f = subject;
    json_begin(w, "operators", '[');
    for (size_t i = 0; i < f->operators.count; i++) {
        const info_operator *r = &f->operators.items[i];
        json_begin(w, NULL, '{');
        json_write_string(w, "name", r->name);
        json_write_integer(w, "nodes", r->nodes);
        json_write_bool(w, "supported", true);
        info_write_support(r, w);
        json_end(w, '}');
    }
    json_end(w, ']');
}

/* ---- a recipe ---- */

typedef struct entry {
    const char *name, *text;
} entry;

static entry model_entry(const ir_training *t, size_t i, arena *a)
{
    (void)a;
    return (entry){t->models.items[i].name, t->models.items[i].path};
}

static const char *term_text(const ir_loss *l, arena *a)
{
    const char *text = arena_printf(a, "%s%s%s", l->kind, *l->options ? "," : "", l->options);
    if (l->weight != 1) text = arena_printf(a, "%s,weight=%g", text, l->weight);
    if (l->output) text = arena_printf(a, "%s:%s", text, l->output);
    return l->target ? arena_printf(a, "%s,%s", text, l->target) : text;
}

/* Whether term i is the first one of its loss. */
static bool begins_loss(const ir_training *t, size_t i)
{
    return !i || strcmp(t->losses.items[i].name, t->losses.items[i - 1].name) != 0;
}

static entry loss_entry(const ir_training *t, size_t index, arena *a)
{
    size_t i = 0;
    for (size_t loss = 0; loss <= index; i++) loss += begins_loss(t, i);
    entry e = {t->losses.items[i - 1].name, term_text(&t->losses.items[i - 1], a)};
    for (; i < t->losses.count && !begins_loss(t, i); i++)
        e.text = arena_printf(a, "%s+%s", e.text, term_text(&t->losses.items[i], a));
    return e;
}

static entry trainer_entry(const ir_training *t, size_t i, arena *a)
{
    const ir_trainer *r = &t->trainers.items[i];
    return (entry){arena_printf(a, "%zu", i + 1),
                   arena_printf(a, "%s by %s on %s", join(&r->globs, ",", a), r->optimizer, join(&r->losses, "+", a))};
}

static size_t count_models(const ir_training *t) { return t->models.count; }
static size_t count_losses(const ir_training *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->losses.count; i++) n += begins_loss(t, i);
    return n;
}
static size_t count_trainers(const ir_training *t) { return t->trainers.count; }

static const struct section {
    const char *key;
    size_t (*count)(const ir_training *t);
    entry (*get)(const ir_training *t, size_t i, arena *a);
} recipe_sections[] = {{"models", count_models, model_entry},
                       {"losses", count_losses, loss_entry},
                       {"trains", count_trainers, trainer_entry}};
enum { RECIPE_SECTIONS = sizeof recipe_sections / sizeof *recipe_sections };

static void print_recipe(const void *subject)
{
    const model *f = subject;
    const ir_training *t = &f->module->training;
    if (!t->recipe) return;
    for (int k = 0; k < RECIPE_SECTIONS; k++)
        for (size_t i = 0; i < recipe_sections[k].count(t); i++) {
            const entry e = recipe_sections[k].get(t, i, f->c->tool->arena);
            info_line(i ? "" : recipe_sections[k].key, "%s: %s", e.name, e.text);
        }
    for (size_t i = 0; i < f->options.count; i++) info_line(i ? "" : "options", "%s", f->options.items[i].text);
}

static void write_recipe(const void *subject, json_writer *w)
{
    const model *f = subject;
    const ir_training *t = &f->module->training;
    if (!t->recipe) return;
    for (int k = 0; k < RECIPE_SECTIONS; k++) {
        json_begin(w, recipe_sections[k].key, '{');
        for (size_t i = 0; i < recipe_sections[k].count(t); i++) {
            const entry e = recipe_sections[k].get(t, i, f->c->tool->arena);
            json_write_string(w, e.name, e.text);
        }
        json_end(w, '}');
    }
    json_begin(w, "options", '[');
    for (size_t i = 0; i < f->options.count; i++) json_write_string(w, NULL, f->options.items[i].text);
    json_end(w, ']');
}

/* ---- a checkpoint ---- */

static const char *const fits[] = {
    [RT_FITS_MODULE] = "written by this module",
    [RT_FITS_NETWORK] = "of the same network, compiled with other options; it can be resumed from and loaded",
    [RT_FITS_WEIGHTS] = "weights for all parameters and buffers",
    [RT_FITS_NOTHING] = "of another network, or without some of the parameters and buffers",
};

static void print_checkpoint(const void *subject)
{
    const model *f = subject;
    if (f->checkpoint) info_line("checkpoint", "%s: %s", f->checkpoint, fits[f->fit]);
}

static void write_checkpoint(const void *subject, json_writer *w)
{
    static const char *const words[] = {"module", "network", "weights", "nothing"};
    const model *f = subject;
    if (f->checkpoint) json_write_string(w, "checkpoint", f->checkpoint);
    if (f->checkpoint) json_write_string(w, "checkpoint_fits", words[f->fit]);
}

static void print_plan(const void *subject)
{
    const model *f = subject;
    const char *label = arena_printf(f->c->tool->arena, "@%s", f->graph->name);
    info_line("precision", "%s", precision_text(f));
    if (f->open) info_line(label, "unknown sizes: %s", f->open);
    else
        info_line(label, "batch %" PRId64 ": %" PRId64 " bytes planned, %" PRId64 " FLOPs",
                  run_choose_batch(f->c, f->graph), f->memory, f->flops);
}

static void write_plan(const void *subject, json_writer *w)
{
    const model *f = subject;
    json_write_string(w, "precision", precision_text(f));
    json_write_string(w, "entry", f->graph->name);
    if (f->open) return;
    json_write_integer(w, "planned_batch", run_choose_batch(f->c, f->graph));
    json_write_integer(w, "planned_bytes", f->memory);
    json_write_integer(w, "flops", f->flops);
}

static void print_next(const void *subject) { info_print_next(next_command(subject), true); }

static void write_next(const void *subject, json_writer *w)
{
    json_write_bool(w, "supported", true);
    json_write_string(w, "next_command", next_command(subject));
}

static const info_section sections[] = {
    {print_export, write_export},         {print_interface, write_interface}, {print_parameters, write_parameters},
    {print_operators, write_operators},   {print_recipe, write_recipe},       {print_plan, write_plan},
    {print_checkpoint, write_checkpoint}, {print_next, write_next},           {NULL, NULL},
};

ampc_status info_model(run_context *c)
{
    model f = {.c = c, .module = c->tool->module};
    TRY(run_chosen_entry(c, &f.graph));
    const char *path = c->tool->o.operands.items[0];
    if (recipe_detect(path)) TRY(recipe_read_options(path, c->tool->arena, c->tool->diag, &f.options));
    collect(&f);
    TRY(plan(&f));
    TRY(compare_checkpoint(&f));
    info_report(c->tool, sections, &f);
    return AMPC_OK;
}
