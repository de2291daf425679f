/* info_refused.c - describes a model that cannot be compiled: what its file says, and what the compiler refuses. */
#include "frontend/describe.h"
#include "frontend/onnx.h"
#include "runtime/backend/memory.h"
#include "tools/info.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct refused {
    tool *tool;
    const info_messages *problems;
    onnx_description file;
    int64_t unknown;        /* operators that the importer does not have */
    info_operators lowered; /* empty: the model does not declare the types that this needs */
} refused;

static void print_export(const void *subject)
{
    const refused *r = subject;
    info_print_export(r->tool, r->tool->module);
}

static void write_export(const void *subject, json_writer *w)
{
    info_write_export(((const refused *)subject)->tool->module, w);
}

#define PRINT_VALUES(label, list) \
    for (size_t i = 0; i < (list).count; i++) \
    info_line(i ? "" : (label), "%s: %s", (list).items[i].name, (list).items[i].type)

static void print_interface(const void *subject)
{
    const refused *r = subject;
    PRINT_VALUES("inputs", r->file.inputs);
    PRINT_VALUES("outputs", r->file.outputs);
}

static void write_value(json_writer *w, const onnx_described_value *v)
{
    json_begin(w, NULL, '{');
    json_write_string(w, "name", v->name);
    json_write_string(w, "type", v->type);
    json_end(w, '}');
}

static void write_interface(const void *subject, json_writer *w)
{
    const refused *r = subject;
    json_begin(w, "inputs", '[');
    for (size_t i = 0; i < r->file.inputs.count; i++) write_value(w, &r->file.inputs.items[i]);
    json_end(w, ']');
    json_begin(w, "outputs", '[');
    for (size_t i = 0; i < r->file.outputs.count; i++) write_value(w, &r->file.outputs.items[i]);
    json_end(w, ']');
}

static void print_parameters(const void *subject)
{
    const onnx_description *f = &((const refused *)subject)->file;
    info_line("parameters", "%" PRId64 " float initializers (%" PRId64 " elements, %" PRId64 " bytes)", f->tensors,
              f->elements, f->bytes);
}

static void write_parameters(const void *subject, json_writer *w)
{
    const onnx_description *f = &((const refused *)subject)->file;
    json_write_integer(w, "parameters", f->tensors);
    json_write_integer(w, "parameter_elements", f->elements);
    json_write_integer(w, "parameter_bytes", f->bytes);
}

/* "no, in 2 nodes: a, b" */
static const char *where_text(const onnx_described_operator *o, arena *a)
{
    const char *text = o->known ? arena_printf(a, "no, in %s: ", info_count(o->refused, "node", a)) : "no: ";
    for (size_t i = 0; i < o->where.count; i++)
        text = arena_printf(a, "%s%s%s", text, i ? ", " : "", o->where.items[i]);
    return o->refused > (int64_t)o->where.count ? arena_printf(a, "%s, ..", text) : text;
}

/* What supports an operator of which no node is refused; NULL: unknown. */
static const info_operator *support_of(const refused *r, const onnx_described_operator *o)
{
    const char *dot = strrchr(o->name, '.');
    return o->refused ? NULL : info_find_operator(&r->lowered, dot ? dot + 1 : o->name);
}

static void print_operators(const void *subject)
{
    const refused *r = subject;
    info_line("operators", "%-32s %6s  supported%s", "", "nodes", r->lowered.count ? "  " INFO_SUPPORT : "");
    for (size_t i = 0; i < r->file.operators.count; i++) {
        const onnx_described_operator *o = &r->file.operators.items[i];
        const info_operator *support = support_of(r, o);
        const char *text = o->refused ? where_text(o, r->tool->arena) : "yes";
        if (support) text = arena_printf(r->tool->arena, "%-9s  %s", text, info_support_text(support, r->tool->arena));
        info_line("", "%-32s %6" PRId64 "  %s", o->name, o->nodes, text);
    }
}

static void write_operators(const void *subject, json_writer *w)
{
    const refused *r = subject;
    json_begin(w, "operators", '[');
    for (size_t i = 0; i < r->file.operators.count; i++) {
        const onnx_described_operator *o = &r->file.operators.items[i];
        json_begin(w, NULL, '{');
        json_write_string(w, "name", o->name);
        json_write_integer(w, "nodes", o->nodes);
        json_write_bool(w, "supported", !o->refused);
        if (support_of(r, o)) info_write_support(support_of(r, o), w);
        if (o->refused) json_write_integer(w, "refused_nodes", o->refused);
        if (o->refused) info_write_strings(w, "refused", o->where.items, o->where.count);
        json_end(w, '}');
    }
    json_end(w, ']');
}

static void print_problems(const void *subject)
{
    info_messages_print(((const refused *)subject)->problems, "refused");
}

static void write_problems(const void *subject, json_writer *w)
{
    json_write_bool(w, "supported", false);
    info_messages_write(((const refused *)subject)->problems, w, "problems");
}

static const char *next_text(const refused *r)
{
    const char *model = r->tool->o.operands.items[0];
    arena *a = r->tool->arena;
    if (r->file.opset > ONNX_OPSET_LAST)
        return arena_printf(a, "export it again with opset %d, or convert it with onnx.version_converter",
                            ONNX_OPSET_LAST);
    if (r->unknown)
        return arena_printf(a,
                            "ampc %s -o model.amp.onnx converts it for another runtime and keeps operators that are "
                            "not supported, if the model declares the types of their results; plug-ins add "
                            "operators (--operators, docs/custom.md)",
                            model);
    return "change the export so that the nodes above have a form that docs/operators.md lists";
}

static void print_next(const void *subject) { info_print_next(next_text(subject), true); }

static void write_next(const void *subject, json_writer *w)
{
    json_write_string(w, "next_command", next_text(subject));
}

static const info_section sections[] = {
    {print_export, write_export},
    {print_interface, write_interface},
    {print_parameters, write_parameters},
    {print_operators, write_operators},
    {print_problems, write_problems},
    {print_next, write_next},
    {NULL, NULL},
};

/* The operators of the model with opaque nodes in place of those that are not supported. */
static ampc_status lower_others(refused *r)
{
    const onnx_import_options opaque = {.opaque = true, .custom = r->tool->custom};
    diag *quiet = diag_new(NULL, NULL);
    ir_module *m = NULL;
    if (!quiet) return rt_no_memory(r->tool->diag);
    ampc_status status = onnx_import(r->tool->o.operands.items[0], &opaque, quiet, &m);
    const ir_graph *g = status == AMPC_OK ? ir_graph_by_role(m, IR_GRAPH_forward) : NULL;
    if (g) r->lowered = info_collect_operators(g, r->tool->custom, r->tool->arena);
    for (size_t i = 0; i < r->lowered.count; i++) /* the module ends before its names are printed */
        r->lowered.items[i].name = arena_strdup(r->tool->arena, r->lowered.items[i].name);
    ir_module_free(m);
    diag_free(quiet);
    return status == AMPC_NO_MEMORY ? rt_no_memory(r->tool->diag) : AMPC_OK;
}

ampc_status info_refused(tool *t, const info_messages *problems)
{
    refused r = {.tool = t, .problems = problems};
    ir_module_free(t->module);
    t->module = NULL;
    TRY(onnx_describe(t->o.operands.items[0], problems->nodes, t->custom, t->arena, t->diag, &r.file, &t->module));
    for (size_t i = 0; i < r.file.operators.count; i++) r.unknown += !r.file.operators.items[i].known;
    TRY(lower_others(&r));
    info_report(t, sections, &r);
    return AMPC_OK;
}
