/* signature.c - the tensors of a program that torch.onnx (dynamo) exported, and what became of them.
 *
 * The file has the signature of the program, which lists every parameter and buffer, and for each node the call of
 * torch that it came from, with these tensors as arguments. The nodes of a call read its tensors in the order of its
 * arguments; where they read another one, the exporter has merged the argument with it, and where the last one is
 * missing, it has removed a bias. This does not depend on the names of rewrite rules, except for the removal of
 * biases. A tensor that the exporter computed from one of the program counts as that one.
 *
 * The table is the only reading of the signature: ties.c undoes what it lists, exported.c reports it. */
#include "frontend/lower/lower.h"

#include <string.h>

/* The key of torch.onnx (dynamo) for the call of a node. */
#define CALL "pkg.torch.onnx.fx_node"

typedef VEC(onnx_spec *) spec_list;

typedef struct group { /* the nodes of one call */
    const char *call;
    bool norm, folded; /* the call is a BatchNormalization; no node is */
    bool whole;        /* the nodes and every argument are as the exporter first wrote them */
    size_t last;       /* of its nodes */
    size_t unbiased;   /* the node whose bias was removed; SIZE_MAX: none */
    spec_list arguments;
    VEC(onnx_reading) operands; /* that stand for a tensor of the program */
} group;

typedef struct reader {
    const Onnx__GraphProto *graph;
    arena *arena;
    onnx_signature *out;
    strmap *by_argument, *by_target;
    strmap *stands_for; /* initializer -> onnx_spec * */
    strmap *values;     /* names of graph inputs and of results of nodes */
    strmap *folded;     /* modules that have been reported */
    strmap *by_call;
    VEC(group *) groups;
} reader;

static void add(reader *r, ir_fact fact, const char *name) { vec_push(r->arena, &r->out->names[fact], name); }

/* ---- the tensors ------------------------------------------------------------------------------- */

/* Reads the line "p_fc_weight: PARAMETER target='fc.weight'". */
static void read_line(reader *r, const char *line, size_t length)
{
    static const char *const kinds[] = {": PARAMETER target='", ": BUFFER target='"};
    const char *text = arena_strndup(r->arena, line, length);
    for (int i = 0; i < 2; i++) {
        const char *kind = strstr(text, kinds[i]);
        const char *target = kind ? kind + strlen(kinds[i]) : NULL, *end = kind ? strchr(target, '\'') : NULL;
        if (!end) continue;
        onnx_spec *s = arena_alloc(r->arena, sizeof *s);
        *s = (onnx_spec){.argument = arena_strndup(r->arena, text, (size_t)(kind - text)),
                         .target = arena_strndup(r->arena, target, (size_t)(end - target)),
                         .parameter = i == 0};
        vec_push(r->arena, &r->out->specs, s);
        strmap_put(r->by_argument, s->argument, s);
        strmap_put(r->by_target, s->target, s);
    }
}

/* Marks the tensors in a list in Python syntax as present: ['fc.weight', 'val_3']. Returns their number, and the last
 * of them. */
static int mark_sources(const reader *r, const char *sources, onnx_spec **last)
{
    int count = 0;
    for (const char *at = sources; (at = strchr(at, '\''));) {
        const size_t length = strcspn(++at, "'");
        onnx_spec *s = strmap_get(r->by_target, arena_strndup(r->arena, at, length));
        if (s) *last = s, s->present = true, count++;
        at += length + (at[length] != '\0');
    }
    return count;
}

/* "fc.weight+val_3" */
static const char *plain_sources(const reader *r, const char *sources)
{
    char *text = arena_strdup(r->arena, sources), *to = text;
    for (const char *at = sources; *at; at++) {
        if (*at == ',') *to++ = '+';
        else if (!strchr("[]' ", *at)) *to++ = *at;
    }
    *to = '\0';
    return text;
}

static size_t index_of(const reader *r, const char *name)
{
    const size_t *i = strmap_get(r->out->initializers, name);
    return i ? *i : SIZE_MAX;
}

/* An initializer computed from `s` alone. All but the first of those in the file are copies of it, or of `s`. */
static void read_computed(reader *r, onnx_spec *s, const char *name, const char *text)
{
    const size_t index = index_of(r, name);
    const bool floats = ir_dtype_is_float(onnx_type_dtype(r->graph->initializer[index]->data_type));
    const bool copy = s && floats && s->parameter && s->stored;
    if (s && floats) strmap_put(r->stands_for, name, s);
    if (copy)
        vec_push(r->arena, &r->out->copies,
                 ((onnx_copy){.initializer = index, .source = s->source, .text = text, .whole = s->whole}));
    else add(r, IR_FACT_computed, text);
    if (s && floats && !s->stored) s->stored = true, s->source = index;
}

static void read_specs(reader *r)
{
    const Onnx__GraphProto *g = r->graph;
    for (const char *line = r->out->text; line && *line;) {
        const size_t length = strcspn(line, "\n");
        read_line(r, line, length);
        line += length + (line[length] == '\n');
    }
    for (size_t i = 0; i < g->n_initializer; i++) {
        const char *name = g->initializer[i]->name;
        onnx_spec *s = strmap_get(r->by_target, name);
        size_t *index = arena_alloc(r->arena, sizeof *index);
        *index = i;
        strmap_put(r->out->initializers, name, index);
        if (!s) continue;
        s->present = s->stored = s->whole = true;
        s->source = i;
        strmap_put(r->stands_for, name, s);
    }
    for (size_t i = 0; i < g->n_value_info; i++) {
        const Onnx__ValueInfoProto *v = g->value_info[i];
        const char *sources = onnx_metadata(v->metadata_props, v->n_metadata_props, ONNX_FOLDED_FROM);
        onnx_spec *s = NULL;
        const int count = sources ? mark_sources(r, sources, &s) : 0;
        if (count && index_of(r, v->name) != SIZE_MAX)
            read_computed(r, count == 1 ? s : NULL, v->name,
                          arena_printf(r->arena, "%s from %s", v->name, plain_sources(r, sources)));
    }
}

/* If another tool has renamed all tensors, the signature says nothing. */
static bool is_valid(const onnx_signature *s)
{
    for (size_t i = 0; i < s->specs.count; i++)
        if (s->specs.items[i]->parameter && s->specs.items[i]->present) return true;
    return false;
}

/* ---- the calls --------------------------------------------------------------------------------- */

static bool contains(const spec_list *list, const onnx_spec *s)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i] == s) return true;
    return false;
}

/* Calls whose first argument is the last operand of the ONNX operator. */
static bool adds_first(const char *call)
{
    static const char *const names[] = {".addmm.", ".baddbmm.", ".addbmm.", ".addmv.", ".addr."};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(call, names[i])) return true;
    return false;
}

/* `call` is "%linear : [..] = call_function[target=torch.ops.aten.linear.default](args = (%x, %p_fc_weight), ..)". */
static void read_arguments(reader *r, group *g)
{
    const char *args = strstr(g->call, "(args"), *first = args ? strchr(args, '%') : NULL;
    onnx_spec *added = NULL;
    for (const char *at = args; at && (at = strchr(at, '%'));) {
        const size_t length = strcspn(++at, ",)] ");
        onnx_spec *s = strmap_get(r->by_argument, arena_strndup(r->arena, at, length));
        g->whole &= s || strmap_get(r->values, arena_strndup(r->arena, at, length));
        if (!s) continue;
        s->called = true;
        if (at == first + 1 && adds_first(g->call)) added = s;
        else vec_push(r->arena, &g->arguments, s);
    }
    if (added) vec_push(r->arena, &g->arguments, added);
    const char *norm = strstr(g->call, "batch_norm");
    g->norm = g->folded = norm && norm < args;
}

static group *group_of(reader *r, const char *call)
{
    group *g = strmap_get(r->by_call, call);
    if (g) return g;
    g = arena_alloc(r->arena, sizeof *g);
    *g = (group){.call = call, .whole = true, .unbiased = SIZE_MAX};
    strmap_put(r->by_call, call, g);
    vec_push(r->arena, &r->groups, g);
    read_arguments(r, g);
    return g;
}

static void read_node(reader *r, size_t i)
{
    const Onnx__NodeProto *n = r->graph->node[i];
    const char *call = onnx_metadata(n->metadata_props, n->n_metadata_props, CALL);
    const char *rule = onnx_metadata(n->metadata_props, n->n_metadata_props, ONNX_RULES);
    if (!call || !strstr(call, "(args")) return;
    group *g = group_of(r, call);
    g->whole &= !rule;
    if (rule && strstr(rule, "RemoveOptionalBias")) g->unbiased = i;
    g->folded &= !(onnx_is_default_domain(n->domain) && strcmp(n->op_type, "BatchNormalization") == 0);
    g->last = i;
    for (size_t k = 0; k < n->n_input; k++) {
        onnx_spec *s = strmap_get(r->stands_for, n->input[k]);
        if (s) vec_push(r->arena, &g->operands, ((onnx_reading){s, NULL, i, (int)k}));
    }
}

/* Removes operands that belong to a call without nodes, which was fused into this one. */
static void keep_operands_of_calls(group *g)
{
    size_t kept = 0;
    for (size_t i = 0; i < g->operands.count; i++)
        if (g->operands.items[i].spec->called) g->operands.items[kept++] = g->operands.items[i];
    g->operands.count = kept;
}

/* ---- arguments and operands ----------------------------------------------------------------------- */

static void add_merged(reader *r, onnx_reading operand, onnx_spec *is)
{
    const onnx_spec *with = operand.spec;
    operand.spec = is;
    operand.with = with;
    is->explained = true;
    vec_push(r->arena, &r->out->merged, operand);
}

/* Whether each operand is the argument at its position, or stands for it because that one is not in the file. */
static bool match_in_order(reader *r, const group *g)
{
    if (g->arguments.count != g->operands.count) return false;
    for (size_t i = 0; i < g->arguments.count; i++)
        if (g->arguments.items[i]->present && g->arguments.items[i] != g->operands.items[i].spec) return false;
    for (size_t i = 0; i < g->arguments.count; i++)
        if (g->arguments.items[i] != g->operands.items[i].spec)
            add_merged(r, g->operands.items[i], g->arguments.items[i]);
    return true;
}

static bool is_read(const group *g, const onnx_spec *s)
{
    for (size_t i = 0; i < g->operands.count; i++)
        if (g->operands.items[i].spec == s) return true;
    return false;
}

/* An operand that the exporter generated, such as the scale of an InstanceNormalization, merged with a parameter. */
static void add_constant(reader *r, onnx_reading operand)
{
    onnx_spec *s = arena_alloc(r->arena, sizeof *s);
    const Onnx__NodeProto *n = r->graph->node[operand.node];
    s->target = arena_printf(r->arena, "%s.constant%d", *n->name ? n->name : n->op_type, operand.operand);
    while (strmap_get(r->by_target, s->target) || strmap_get(r->out->initializers, s->target))
        s->target = arena_printf(r->arena, "%s.s", s->target);
    strmap_put(r->by_target, s->target, s);
    add_merged(r, operand, s);
}

static bool is_direct(const reader *r, const onnx_reading *o)
{
    return strcmp(r->graph->node[o->node]->input[o->operand], o->spec->target) == 0;
}

/* Compares what the arguments that are not in the file and the operands that are not arguments have in common. */
static void match_rest(reader *r, const group *g)
{
    VEC(onnx_reading) foreign = {0};
    spec_list missing = {0};
    bool same = true;
    for (size_t i = 0; i < g->operands.count; i++) {
        const onnx_reading o = g->operands.items[i];
        if (contains(&g->arguments, o.spec)) continue;
        vec_push(r->arena, &foreign, o);
        same &= o.spec == foreign.items[0].spec;
    }
    for (size_t i = 0; i < g->arguments.count; i++)
        if (!g->arguments.items[i]->present && !contains(&missing, g->arguments.items[i]))
            vec_push(r->arena, &missing, g->arguments.items[i]);
    const bool all = missing.count == 1 && same;
    for (size_t i = 0; i < foreign.count; i++) {
        if (!missing.count && g->whole && is_direct(r, &foreign.items[i])) add_constant(r, foreign.items[i]);
        else if (all || missing.count == foreign.count) add_merged(r, foreign.items[i], missing.items[all ? 0 : i]);
    }
    for (size_t i = 0; i < missing.count; i++) {
        onnx_spec *s = missing.items[i];
        if (!s->explained && foreign.count && s->parameter)
            add(r, IR_FACT_merged, arena_printf(r->arena, "%s with %s", s->target, foreign.items[0].spec->target));
        s->explained |= foreign.count > 0;
    }
}

/* The removed bias is the last argument; an argument that the nodes still read is none. */
static void match(reader *r, group *g)
{
    onnx_spec *last = g->arguments.count ? g->arguments.items[g->arguments.count - 1] : NULL;
    if (g->unbiased != SIZE_MAX && last && !is_read(g, last)) {
        vec_push(r->arena, &r->out->dropped, ((onnx_reading){last, NULL, g->unbiased, 2}));
        last->explained = true;
        g->arguments.count--;
    }
    if (!match_in_order(r, g)) match_rest(r, g);
}

/* ---- BatchNormalization ------------------------------------------------------------------------ */

/* "b1" of "b1.weight" */
static const char *module_of(const reader *r, const char *target)
{
    const char *dot = strrchr(target, '.');
    return dot ? arena_strndup(r->arena, target, (size_t)(dot - target)) : target;
}

static void explain_folded(reader *r, const group *g)
{
    for (size_t i = 0; i < g->arguments.count; i++) {
        onnx_spec *s = g->arguments.items[i];
        const char *module = module_of(r, s->target);
        if (s->present) continue;
        s->explained = true;
        if (strmap_enter(r->folded, module, r))
            add(r, IR_FACT_folded, arena_printf(r->arena, "%s into %s", module, r->graph->node[g->last]->op_type));
    }
}

/* The bias of an operator whose call was replaced by that of the BatchNormalization folded into it. */
static bool is_bias_of_folded(const reader *r, const onnx_spec *s)
{
    const char *weight = arena_printf(r->arena, "%s.weight", module_of(r, s->target));
    for (size_t i = 0; i < r->groups.count; i++) {
        const Onnx__NodeProto *n = r->graph->node[r->groups.items[i]->last];
        if (r->groups.items[i]->norm && n->n_input > 1 && strcmp(n->input[1], weight) == 0) return true;
    }
    return false;
}

/* ---- the table ---------------------------------------------------------------------------------- */

static void explain(reader *r)
{
    for (size_t i = 0; i < r->graph->n_input; i++) strmap_put(r->values, r->graph->input[i]->name, r);
    for (size_t i = 0; i < r->graph->n_node; i++)
        for (size_t k = 0; k < r->graph->node[i]->n_output; k++) strmap_put(r->values, r->graph->node[i]->output[k], r);
    for (size_t i = 0; i < r->graph->n_node; i++) read_node(r, i);
    for (size_t i = 0; i < r->groups.count; i++) {
        group *g = r->groups.items[i];
        keep_operands_of_calls(g);
        if (g->folded) explain_folded(r, g);
        else match(r, g);
    }
    for (size_t i = 0; i < r->out->specs.count; i++) {
        const onnx_spec *s = r->out->specs.items[i];
        if (s->parameter && !s->present && !s->explained && !is_bias_of_folded(r, s))
            add(r, IR_FACT_missing, s->target);
    }
}

const onnx_signature *onnx_signature_read(const Onnx__GraphProto *g, arena *a)
{
    onnx_signature *out = arena_alloc(a, sizeof *out);
    reader r = {.graph = g,
                .arena = a,
                .out = out,
                .by_argument = strmap_new(a),
                .by_target = strmap_new(a),
                .stands_for = strmap_new(a),
                .values = strmap_new(a),
                .folded = strmap_new(a),
                .by_call = strmap_new(a)};
    out->text = onnx_metadata(g->metadata_props, g->n_metadata_props, ONNX_SIGNATURE);
    out->initializers = strmap_new(a);
    read_specs(&r);
    out->valid = is_valid(out);
    if (out->valid) explain(&r);
    return out;
}
