/* exported.c - what the exporter did to the network, for the module's metadata (ir/graph/exported.h).
 *
 * For an export by torch.onnx (dynamo), the signature of the program tells (signature.c), and the table of ties what is
 * undone (ties.c). Other exporters only leave names. */
#include "frontend/lower/lower.h"
#include "ir/graph/exported.h"

#include <string.h>

enum { MAX_METADATA = 512 }; /* IR text may have 1024 entries */

typedef struct analysis {
    onnx_importer *im;
    const Onnx__GraphProto *graph;
    arena *arena;
    const onnx_signature *signature;
    VEC(const char *) names[IR_FACT_COUNT];
} analysis;

static void add(analysis *a, ir_fact fact, const char *name) { vec_push(a->arena, &a->names[fact], name); }

/* ---- the exporter ------------------------------------------------------------------------------ */

/* The dynamo exporter names nodes node_conv2d_1; TorchScript names them by modules, or not at all. */
static bool is_dynamo(const analysis *a)
{
    const Onnx__GraphProto *g = a->graph;
    return a->signature->text || (g->n_node && strncmp(g->node[0]->name, "node_", 5) == 0);
}

static ir_exporter exporter_of(const analysis *a)
{
    static const struct {
        const char *producer;
        ir_exporter exporter;
    } producers[] = {{"pytorch", IR_EXPORTER_torchscript},
                     {"tf2onnx", IR_EXPORTER_tf2onnx},
                     {"PaddlePaddle", IR_EXPORTER_paddle},
                     {"Paddle2ONNX", IR_EXPORTER_paddle}};
    const char *producer = a->im->file->model->producer_name;
    for (size_t i = 0; i < sizeof producers / sizeof *producers; i++)
        if (strcmp(producers[i].producer, producer) == 0)
            return producers[i].exporter == IR_EXPORTER_torchscript && is_dynamo(a) ? IR_EXPORTER_dynamo
                                                                                    : producers[i].exporter;
    return a->signature->text ? IR_EXPORTER_dynamo : IR_EXPORTER_other;
}

static bool is_operator(const Onnx__NodeProto *n, const char *name)
{
    return onnx_is_default_domain(n->domain) && strcmp(n->op_type, name) == 0;
}

static const Onnx__AttributeProto *attribute_of(const Onnx__NodeProto *n, const char *name)
{
    for (size_t i = 0; i < n->n_attribute; i++)
        if (strcmp(n->attribute[i]->name, name) == 0) return n->attribute[i];
    return NULL;
}

/* Of the first running mean in the signature. torch.onnx (dynamo) writes a BatchNormalization in evaluation mode even
 * if the program updates its statistics. */
static const char *mode_in_signature(const analysis *a)
{
    for (size_t i = 0; i < a->signature->specs.count; i++) {
        const onnx_spec *s = a->signature->specs.items[i];
        const char *mutated = arena_printf(a->arena, "BUFFER_MUTATION target='%s'", s->target);
        if (!s->parameter && strstr(s->target, "running_mean"))
            return strstr(a->signature->text, mutated) ? "training" : "evaluation";
    }
    return NULL;
}

/* "training", "evaluation" or NULL. */
static const char *mode_of(const analysis *a)
{
    const char *mode = mode_in_signature(a);
    for (size_t i = 0; i < a->graph->n_node && !mode; i++) {
        const Onnx__NodeProto *n = a->graph->node[i];
        const Onnx__AttributeProto *training = attribute_of(n, "training_mode");
        if (is_operator(n, "BatchNormalization"))
            mode = (training && training->i) || n->n_output > 1 ? "training" : "evaluation";
        if (is_operator(n, "Dropout") && n->n_input > 2 && *n->input[2]) mode = "training";
    }
    return mode ? mode : a->names[IR_FACT_folded].count ? "evaluation" : NULL;
}

/* ---- what became of the tensors ------------------------------------------------------------------ */

static void add_once(analysis *a, strmap *seen, ir_fact fact, const char *name)
{
    if (strmap_enter(seen, name, a)) add(a, fact, name);
}

static bool is_undone(const analysis *a, const onnx_reading *r)
{
    return onnx_tie_at(a->im->ties, r->node, (size_t)r->operand);
}

/* What the table of ties undoes has facts of its own, without a cost for a training. */
static void add_tensors(analysis *a)
{
    const onnx_signature *s = a->signature;
    strmap *seen = strmap_new(a->arena);
    for (int i = 0; i < IR_FACT_COUNT; i++)
        for (size_t k = 0; k < s->names[i].count; k++) add(a, (ir_fact)i, s->names[i].items[k]);
    for (size_t i = 0; i < s->merged.count; i++) {
        const onnx_reading *r = &s->merged.items[i];
        const char *with = a->graph->node[r->node]->input[r->operand];
        if (r->spec->parameter)
            add_once(a, seen, is_undone(a, r) ? IR_FACT_separated : IR_FACT_merged,
                     arena_printf(a->arena, "%s with %s", r->spec->target, with));
    }
    for (size_t i = 0; i < s->dropped.count; i++) {
        const onnx_reading *r = &s->dropped.items[i];
        add_once(a, seen, is_undone(a, r) ? IR_FACT_restored : IR_FACT_dropped, r->spec->target);
    }
    for (size_t i = 0; i < s->copies.count; i++) {
        const onnx_copy *c = &s->copies.items[i];
        const bool undone = onnx_ties_derived(a->im->ties, c->initializer);
        add_once(a, seen, undone ? IR_FACT_shared : c->whole ? IR_FACT_copied : IR_FACT_computed, c->text);
    }
}

/* ---- exporters without metadata ------------------------------------------------------------------ */

static bool starts_with(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

/* TorchScript computes the weight and the bias of a Conv only to fold a BatchNormalization; tf2onnx says so. Rewrite
 * rules are listed even in a file whose calls and signature were removed. */
static bool has_folded(const analysis *a, ir_exporter exporter, const Onnx__NodeProto *n)
{
    const char *rule = onnx_metadata(n->metadata_props, n->n_metadata_props, ONNX_RULES);
    const bool biased = n->n_input > 2 && strmap_get(a->signature->initializers, n->input[1]) &&
                        strmap_get(a->signature->initializers, n->input[2]);
    if (exporter == IR_EXPORTER_torchscript)
        return biased && starts_with(n->input[1], "onnx::Conv") && starts_with(n->input[2], "onnx::Conv");
    if (biased && strstr(n->input[2], "_fused_bn")) return true;
    return rule && strstr(rule, "FuseBatchNorm") && !a->signature->valid;
}

static void find_folded(analysis *a, ir_exporter exporter)
{
    for (size_t i = 0; i < a->graph->n_node; i++) {
        const Onnx__NodeProto *n = a->graph->node[i];
        const char *name = *n->name ? n->name : n->n_output ? n->output[0] : n->op_type;
        if (has_folded(a, exporter, n)) add(a, IR_FACT_folded, name);
    }
}

/* ---- the entries --------------------------------------------------------------------------------- */

/* What the file says to other programs, for conversions. Of several entries with one key, the first one counts. */
static void keep_metadata(const analysis *a)
{
    const Onnx__ModelProto *m = a->im->file->model;
    ir_module *module = a->im->module;
    const size_t n = m->n_metadata_props < MAX_METADATA ? m->n_metadata_props : MAX_METADATA;
    for (size_t i = 0; i < n; i++) {
        const Onnx__StringStringEntryProto *entry = m->metadata_props[i];
        if (!entry) continue;
        const char *key = arena_printf(a->arena, IR_METADATA "%s", entry->key);
        if (strcmp(entry->key, ONNX_CODES) != 0) {
            if (!ir_meta_get(module, key)) ir_meta_set(module, key, entry->value);
        } else if (!module->training.codes) module->training.codes = arena_strdup(module->arena, entry->value);
    }
    if (n < m->n_metadata_props)
        diag_warning(a->im->diag, DIAG_FILE(a->im->file->path), "conversions keep the first %zu of %zu metadata_props",
                     n, m->n_metadata_props);
}

static void set_entries(analysis *a, ir_exporter exporter)
{
    const Onnx__ModelProto *m = a->im->file->model;
    ir_module *module = a->im->module;
    const char *mode;
    find_folded(a, exporter);
    if (exporter || *m->producer_name) module->training.exported.exporter = exporter;
    if (*m->producer_name)
        ir_meta_set(
            module, IR_EXPORTED_PRODUCER,
            arena_printf(a->arena, "%s%s%s", m->producer_name, *m->producer_version ? " " : "", m->producer_version));
    mode = mode_of(a);
    if (mode) ir_meta_set(module, IR_EXPORTED_MODE, mode);
    keep_metadata(a);
    for (int i = 0; i < IR_FACT_COUNT; i++) ir_exported_set(module, i, a->names[i].items, (int)a->names[i].count);
}

void onnx_record_export(onnx_importer *im)
{
    analysis a = {
        .im = im, .graph = im->file->model->graph, .arena = im->scratch, .signature = onnx_ties_signature(im->ties)};
    add_tensors(&a);
    set_entries(&a, exporter_of(&a));
}
