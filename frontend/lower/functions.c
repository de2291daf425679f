/* functions.c - the model-local functions: finding them, and what the nodes of their bodies refer to. */
#include "frontend/lower/lower.h"

#include <stdio.h>
#include <string.h>

/* ---- the functions of the model ---------------------------------------------------------------- */

static const char *key_of(onnx_importer *im, const char *domain, const char *name, const char *overload)
{
    return arena_printf(im->scratch, "%s\x1f%s\x1f%s", onnx_is_default_domain(domain) ? "" : domain, name, overload);
}

/* The inputs or outputs of a function as those of a graph. */
static Onnx__ValueInfoProto **declare(arena *a, char **names, size_t n)
{
    Onnx__ValueInfoProto **infos = arena_array(a, n + 1, sizeof *infos);
    for (size_t i = 0; i < n; i++) {
        infos[i] = arena_alloc(a, sizeof **infos);
        onnx__value_info_proto__init(infos[i]);
        infos[i]->name = names[i];
    }
    return infos;
}

static Onnx__GraphProto *body_of(arena *a, const Onnx__FunctionProto *f)
{
    Onnx__GraphProto *g = arena_alloc(a, sizeof *g);
    onnx__graph_proto__init(g);
    g->node = f->node;
    g->n_node = f->n_node;
    g->input = declare(a, f->input, g->n_input = f->n_input);
    g->output = declare(a, f->output, g->n_output = f->n_output);
    g->value_info = f->value_info;
    g->n_value_info = f->n_value_info;
    return g;
}

/* The operator set of the default domain that the function imports; the model's if it imports none. */
static ampc_status opset_of(onnx_importer *im, const Onnx__FunctionProto *f, int *out)
{
    int64_t opset = im->model_opset;
    for (size_t i = 0; i < f->n_opset_import; i++)
        if (onnx_is_default_domain(f->opset_import[i]->domain)) opset = f->opset_import[i]->version;
    *out = (int)opset;
    if (opset >= ONNX_OPSET_FIRST && opset <= ONNX_OPSET_LAST) return AMPC_OK;
    return diag_error(im->diag, AMPC_UNSUPPORTED, DIAG_FILE(im->path),
                      "function %s: opset %lld is not supported (%d to %d)", f->name, (long long)opset,
                      ONNX_OPSET_FIRST, ONNX_OPSET_LAST);
}

ampc_status onnx_functions_bind(onnx_importer *im)
{
    const Onnx__ModelProto *m = im->file->model;
    im->functions = m->n_functions ? strmap_new(im->scratch) : NULL;
    for (size_t i = 0; i < m->n_functions; i++) {
        const Onnx__FunctionProto *p = m->functions[i];
        onnx_function *f = arena_alloc(im->scratch, sizeof *f);
        *f = (onnx_function){.proto = p, .body = body_of(im->scratch, p), .index = i};
        TRY(opset_of(im, p, &f->opset));
        if (!strmap_enter(im->functions, key_of(im, p->domain, p->name, p->overload), f))
            return diag_error(im->diag, AMPC_REJECTED, DIAG_FILE(im->path), "duplicate function %s%s%s", p->domain,
                              *p->domain ? "." : "", p->name);
    }
    return AMPC_OK;
}

onnx_function *onnx_function_find(const onnx_importer *im, const Onnx__NodeProto *p)
{
    char key[3 * 1024 + 8]; /* names have at most ONNX_MAX_NAME bytes */
    if (!im->functions) return NULL;
    const char *domain = onnx_is_default_domain(p->domain) ? "" : p->domain;
    snprintf(key, sizeof key, "%s\x1f%s\x1f%s", domain, p->op_type, p->overload);
    return strmap_get(im->functions, key);
}

/* ---- references -------------------------------------------------------------------------------- */

static const Onnx__AttributeProto *find_attribute(Onnx__AttributeProto *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i]->name, name) == 0) return list[i];
    return NULL;
}

/* The attribute that a reference means: the call's or the function's default; NULL: it is absent. */
static const Onnx__AttributeProto *referent(const onnx_call *call, const char *name)
{
    const Onnx__FunctionProto *f = call->function->proto;
    const Onnx__AttributeProto *a = find_attribute(call->node->attribute, call->node->n_attribute, name);
    return a ? a : find_attribute(f->attribute_proto, f->n_attribute_proto, name);
}

static void resolve_attributes(onnx_importer *im, const onnx_call *call, Onnx__NodeProto *p)
{
    Onnx__AttributeProto **list = arena_array(im->scratch, p->n_attribute + 1, sizeof *list);
    size_t n = 0;
    for (size_t i = 0; i < p->n_attribute; i++) {
        const char *name = p->attribute[i]->ref_attr_name;
        const Onnx__AttributeProto *from = *name ? referent(call, name) : p->attribute[i];
        if (!from) continue;
        list[n] = arena_alloc(im->scratch, sizeof **list);
        *list[n] = *from;
        list[n++]->name = p->attribute[i]->name;
    }
    p->attribute = list;
    p->n_attribute = n;
}

static bool is_absent(const onnx_scope *scope, const char *name)
{
    const onnx_binding *b = *name ? onnx_find(scope, name) : NULL;
    return b && b->absent;
}

const Onnx__NodeProto *onnx_resolve(onnx_importer *im, const onnx_scope *scope, const Onnx__NodeProto *p)
{
    static char nothing[1];
    bool refers = false;
    if (!scope->call) return p;
    for (size_t i = 0; i < p->n_attribute; i++) refers |= *p->attribute[i]->ref_attr_name != 0;
    for (size_t i = 0; i < p->n_input; i++) refers |= is_absent(scope, p->input[i]);
    if (!refers) return p;
    Onnx__NodeProto *copy = arena_alloc(im->scratch, sizeof *copy);
    *copy = *p;
    copy->input = arena_array(im->scratch, p->n_input + 1, sizeof *copy->input);
    for (size_t i = 0; i < p->n_input; i++) copy->input[i] = is_absent(scope, p->input[i]) ? nothing : p->input[i];
    resolve_attributes(im, scope->call, copy);
    return copy;
}

bool onnx_needs_functions(const onnx_importer *im, const Onnx__GraphProto *g)
{
    bool needs = false;
    for (size_t i = 0; i < g->n_node && !needs; i++) {
        const Onnx__NodeProto *p = g->node[i];
        needs = onnx_function_find(im, p) != NULL;
        for (size_t k = 0; k < p->n_attribute && !needs; k++) {
            const Onnx__AttributeProto *a = p->attribute[k];
            needs = *a->ref_attr_name || (a->g && onnx_needs_functions(im, a->g));
            for (size_t j = 0; j < a->n_graphs && !needs; j++) needs = onnx_needs_functions(im, a->graphs[j]);
        }
    }
    return needs;
}
