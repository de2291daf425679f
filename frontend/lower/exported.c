/* exported.c - what the exporter did to the network, for the module's metadata (ir/exported.h).
 *
 * torch.onnx (dynamo) stores the signature of the exported program, which lists every parameter and buffer, and the
 * call of torch that each node came from, with these tensors as arguments. A tensor of the signature that is not in
 * the graph was folded, merged or removed; the call in which it was an argument tells which. This does not depend on
 * the name of a rewrite rule. Other exporters only leave names. */
#include "frontend/lower/lower.h"
#include "ir/exported.h"

#include <string.h>

/* Keys of torch.onnx (dynamo) for a node: the call of torch, and the rewrite rules that were applied to it. */
#define CALL "pkg.torch.onnx.fx_node"
#define RULES "pkg.onnxscript.rewriter.rule_name"

enum { MAX_METADATA = 512 }; /* IR text may have 1024 entries */

typedef struct spec { /* a tensor of the signature */
    const char *argument, *target;
    bool parameter, present, explained;
} spec;

typedef struct analysis {
    onnx_importer *im;
    const Onnx__GraphProto *graph;
    arena *arena;
    const char *signature; /* NULL: none */
    VEC(spec *) specs;     /* in the order of the signature */
    strmap *by_argument, *by_target;
    strmap *initializers;   /* names */
    strmap *folded_modules; /* names in the fact `folded` */
    VEC(const char *) names[IR_FACT_COUNT];
} analysis;

static const char *node_text(const Onnx__NodeProto *n, const char *key)
{
    return onnx_metadata(n->metadata_props, n->n_metadata_props, key);
}

static void add(analysis *a, ir_fact fact, const char *name) { vec_push(a->arena, &a->names[fact], name); }

/* ---- the exporter ------------------------------------------------------------------------------ */

/* The dynamo exporter names nodes node_conv2d_1; TorchScript names them by modules, or not at all. */
static bool is_dynamo(const analysis *a)
{
    const Onnx__GraphProto *g = a->graph;
    return a->signature || (g->n_node && strncmp(g->node[0]->name, "node_", 5) == 0);
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
    return a->signature ? IR_EXPORTER_dynamo : IR_EXPORTER_other;
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
    for (size_t i = 0; i < a->specs.count; i++) {
        const spec *s = a->specs.items[i];
        const char *mutated = arena_printf(a->arena, "BUFFER_MUTATION target='%s'", s->target);
        if (!s->parameter && strstr(s->target, "running_mean"))
            return strstr(a->signature, mutated) ? "training" : "evaluation";
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

/* ---- the signature of torch.export -------------------------------------------------------------- */

/* Reads the line "p_fc_weight: PARAMETER target='fc.weight'". */
static void read_line(analysis *a, const char *line, size_t length)
{
    static const char *const kinds[] = {": PARAMETER target='", ": BUFFER target='"};
    const char *text = arena_strndup(a->arena, line, length);
    for (int i = 0; i < 2; i++) {
        const char *kind = strstr(text, kinds[i]);
        const char *target = kind ? kind + strlen(kinds[i]) : NULL, *end = kind ? strchr(target, '\'') : NULL;
        if (!end) continue;
        spec *s = arena_alloc(a->arena, sizeof *s);
        *s = (spec){.argument = arena_strndup(a->arena, text, (size_t)(kind - text)),
                    .target = arena_strndup(a->arena, target, (size_t)(end - target)),
                    .parameter = i == 0};
        vec_push(a->arena, &a->specs, s);
        strmap_put(a->by_argument, s->argument, s);
        strmap_put(a->by_target, s->target, s);
    }
}

/* Marks the sources in a list in Python syntax as present: ['fc.weight', 'val_3']. Returns whether there are any. */
static bool mark_sources(analysis *a, const char *sources)
{
    bool any = false;
    for (const char *at = sources; (at = strchr(at, '\''));) {
        const size_t length = strcspn(++at, "'");
        spec *s = strmap_get(a->by_target, arena_strndup(a->arena, at, length));
        if (s) s->present = any = true;
        at += length + (at[length] != '\0');
    }
    return any;
}

/* "fc.weight+val_3" */
static const char *plain_sources(const analysis *a, const char *sources)
{
    char *text = arena_strdup(a->arena, sources), *to = text;
    for (const char *at = sources; *at; at++) {
        if (*at == ',') *to++ = '+';
        else if (!strchr("[]' ", *at)) *to++ = *at;
    }
    *to = '\0';
    return text;
}

static void read_signature(analysis *a)
{
    const Onnx__GraphProto *g = a->graph;
    for (const char *line = a->signature; line && *line;) {
        const size_t length = strcspn(line, "\n");
        read_line(a, line, length);
        line += length + (line[length] == '\n');
    }
    for (size_t i = 0; i < g->n_initializer; i++) {
        spec *s = strmap_get(a->by_target, g->initializer[i]->name);
        if (s) s->present = true;
        strmap_put(a->initializers, g->initializer[i]->name, a);
    }
    for (size_t i = 0; i < g->n_value_info; i++) {
        const Onnx__ValueInfoProto *v = g->value_info[i];
        const char *sources = onnx_metadata(v->metadata_props, v->n_metadata_props, ONNX_FOLDED_FROM);
        if (sources && mark_sources(a, sources) && strmap_get(a->initializers, v->name))
            add(a, IR_FACT_computed, arena_printf(a->arena, "%s from %s", v->name, plain_sources(a, sources)));
    }
}

/* If another tool has renamed all tensors, the signature says nothing. */
static bool is_signature_valid(const analysis *a)
{
    for (size_t i = 0; i < a->specs.count; i++)
        if (a->specs.items[i]->parameter && a->specs.items[i]->present) return true;
    return false;
}

/* ---- what happened to missing tensors ------------------------------------------------------------ */

/* "b1" of "b1.weight" */
static const char *module_of(const analysis *a, const char *target)
{
    const char *dot = strrchr(target, '.');
    return dot ? arena_strndup(a->arena, target, (size_t)(dot - target)) : target;
}

static void add_folded(analysis *a, const char *what, const Onnx__NodeProto *into)
{
    if (strmap_enter(a->folded_modules, what, a))
        add(a, IR_FACT_folded, arena_printf(a->arena, "%s into %s", what, into->op_type));
}

static bool is_argument(const analysis *a, const char *call, const spec *s)
{
    const char *at = strstr(call, arena_printf(a->arena, "%%%s", s->argument));
    return at && strchr(",)] ", at[1 + strlen(s->argument)]);
}

/* The initializer that the node has in place of its missing argument number `missing`: torch and ONNX order operands
 * alike. */
static const char *replacement(const analysis *a, const Onnx__NodeProto *n, const char *call, int missing)
{
    for (size_t i = 0; i < n->n_input; i++) {
        const spec *s = strmap_get(a->by_target, n->input[i]);
        if (s && s->present && !is_argument(a, call, s) && missing-- == 0) return s->target;
    }
    return NULL;
}

/* `call` is "%linear : [..] = call_function[target=torch.ops.aten.linear.default](args = (%x, %p_fc_weight), ..)", in
 * which the tensor is the missing argument number `missing`. */
static void explain(analysis *a, spec *s, const Onnx__NodeProto *n, const char *call, int missing)
{
    const char *target = strstr(call, "[target="), *args = target ? strchr(target, ']') : NULL;
    const char *rule = node_text(n, RULES), *other = replacement(a, n, call, missing);
    if (!args) return;
    const char *norm = strstr(target, "batch_norm");
    s->explained = true;
    if (norm && norm < args && !is_operator(n, "BatchNormalization")) add_folded(a, module_of(a, s->target), n);
    else if (rule && strstr(rule, "RemoveOptionalBias")) add(a, IR_FACT_dropped, s->target);
    else if (other && s->parameter) add(a, IR_FACT_merged, arena_printf(a->arena, "%s with %s", s->target, other));
    else s->explained = !s->parameter && other;
}

static void explain_arguments(analysis *a, const Onnx__NodeProto *n)
{
    const char *call = node_text(n, CALL);
    int missing = 0;
    for (const char *at = call ? strstr(call, "(args") : NULL; at && (at = strchr(at, '%'));) {
        const size_t length = strcspn(++at, ",)] ");
        spec *s = strmap_get(a->by_argument, arena_strndup(a->arena, at, length));
        if (!s || s->present) continue;
        if (!s->explained) explain(a, s, n, call, missing);
        missing++;
    }
}

/* The bias of an operator whose call was replaced by that of the BatchNormalization folded into it. */
static bool is_bias_of_folded(const analysis *a, const spec *s)
{
    const char *weight = arena_printf(a->arena, "%s.weight", module_of(a, s->target));
    for (size_t i = 0; i < a->graph->n_node; i++) {
        const Onnx__NodeProto *n = a->graph->node[i];
        const char *call = node_text(n, CALL);
        if (call && strstr(call, "batch_norm") && n->n_input > 1 && strcmp(n->input[1], weight) == 0) return true;
    }
    return false;
}

static void explain_missing(analysis *a)
{
    if (!is_signature_valid(a)) return;
    for (size_t i = 0; i < a->graph->n_node; i++) explain_arguments(a, a->graph->node[i]);
    for (size_t i = 0; i < a->specs.count; i++) {
        const spec *s = a->specs.items[i];
        if (s->parameter && !s->present && !s->explained && !is_bias_of_folded(a, s))
            add(a, IR_FACT_missing, s->target);
    }
}

/* ---- exporters without metadata ------------------------------------------------------------------ */

static bool starts_with(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

/* TorchScript computes the weight and the bias of a Conv only to fold a BatchNormalization; tf2onnx says so. Rewrite
 * rules are listed even in a file whose calls and signature were removed. */
static bool has_folded(const analysis *a, ir_exporter exporter, const Onnx__NodeProto *n)
{
    const char *rule = node_text(n, RULES);
    const bool biased = n->n_input > 2 && strmap_get(a->initializers, n->input[1]) &&
                        strmap_get(a->initializers, n->input[2]);
    if (exporter == IR_EXPORTER_torchscript)
        return biased && starts_with(n->input[1], "onnx::Conv") && starts_with(n->input[2], "onnx::Conv");
    if (biased && strstr(n->input[2], "_fused_bn")) return true;
    return rule && strstr(rule, "FuseBatchNorm") && !is_signature_valid(a);
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
        const bool codes = strcmp(entry->key, ONNX_CODES) == 0;
        const char *key = codes ? IR_CODES : arena_printf(a->arena, IR_METADATA "%s", entry->key);
        if (!ir_meta_get(module, key)) ir_meta_set(module, key, entry->value);
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
    if (exporter || *m->producer_name) ir_exporter_set(module, exporter);
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
    const Onnx__GraphProto *g = im->file->model->graph;
    arena *scratch = im->scratch;
    analysis a = {.im = im,
                  .graph = g,
                  .arena = scratch,
                  .signature = onnx_metadata(g->metadata_props, g->n_metadata_props, ONNX_SIGNATURE),
                  .by_argument = strmap_new(scratch),
                  .by_target = strmap_new(scratch),
                  .initializers = strmap_new(scratch),
                  .folded_modules = strmap_new(scratch)};
    read_signature(&a);
    explain_missing(&a);
    set_entries(&a, exporter_of(&a));
}
