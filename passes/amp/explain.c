/* explain.c - records the precision of each node of the model and the reason, and prints --explain. */
#include "ir/base/json_writer.h"
#include "passes/amp/explain.h"

#include <stdio.h>
#include <string.h>

/* ---- records --------------------------------------------------------------------------------- */

const char *amp_precision_name(ir_dtype t) { return t == IR_f32 ? "fp32" : t == IR_f16 ? "fp16" : ir_dtype_name(t); }

/* Node names are unique per graph only. */
const char *amp_graph_place(const ir_graph *g, arena *a)
{
    const char *place = "";
    for (; g->owner; g = g->owner->graph) {
        const char *owner = g->owner->loc.node ? g->owner->loc.node : ir_op_get(g->owner->op)->name;
        place = arena_printf(a, "%s/%s%s%s", owner, g->name, *place ? "/" : "", place);
    }
    return place;
}

static const char *key_of(const char *place, const char *node, arena *a)
{
    return *place ? arena_printf(a, "%s\x1f%s", place, node) : node;
}

const node_report *amp_node_report(const compile_report *r, const ir_node *n, arena *a)
{
    if (!n->loc.op || !r->by_node) return NULL;
    return strmap_get(r->by_node, key_of(amp_graph_place(n->graph, a), n->loc.node, a));
}

static const char *cause_text(const amp_entry *e, arena *a)
{
    if (e->cause) {
        const ir_node *def = e->cause->kind == IR_VALUE_RESULT ? e->cause->def : NULL;
        return def && def->loc.op ? arena_printf(a, "%s (%s)", def->loc.node, def->loc.op) : e->cause->name;
    }
    if (!e->line) return "";
    return e->line->line ? arena_printf(a, "%s:%d", e->line->file, e->line->line) : e->line->file;
}

static ir_dtype computes_in(const ir_node *n, const amp_entry *e)
{
    if (e->compute_dtype != IR_NO_DTYPE) return e->compute_dtype;
    for (int i = 0; i < ir_declared_operands(n); i++)
        if (ir_in(n, i) && ir_dtype_is_float(ir_in(n, i)->type.dtype)) return ir_in(n, i)->type.dtype;
    return n->n_out > 0 ? n->out[0]->type.dtype : IR_NO_DTYPE;
}

static node_report describe(const ir_node *n, const amp_entry *e, const char *place, arena *a)
{
    const ir_dtype result = e->rule == AMP_USER_CAST ? n->out[0]->type.dtype : e->result;
    const bool other = result != e->compute_dtype && result != IR_NO_DTYPE;
    return (node_report){.name = n->loc.node,
                         .op = n->loc.op,
                         .place = place,
                         .colour = e->colour,
                         .type = computes_in(n, e),
                         .writes = other ? result : IR_NO_DTYPE,
                         .rule = amp_rule_sentence(e->rule),
                         .cause = arena_strdup(a, cause_text(e, a)),
                         .alone_in = e->alternative_cost ? arena_strdup(a, e->alternative_cost) : NULL};
}

static node_report *add_record(compile_report *r, const node_report *record, arena *a)
{
    node_report *added = arena_alloc(a, sizeof *added);
    *added = *record;
    added->number = (int)r->nodes.count;
    vec_push(a, &r->nodes, added);
    return added;
}

/* A node and those that it was fused from. */
static void add_records(compile_report *r, const ir_node *n, const node_report *record, arena *a)
{
    strmap_put(r->by_node, key_of(record->place, record->name, a), add_record(r, record, a));
    for (const ir_origin *p = n->loc.fused_from; p && p->op; p++) {
        if (strcmp(p->node, record->name) == 0) continue;
        node_report part = *record;
        part.name = p->node;
        part.op = p->op;
        part.part_of = record->name;
        part.rule = arena_printf(a, "part of %s (%s): %s", record->name, record->op, record->rule);
        add_record(r, &part, a);
    }
}

static void record_nodes(const ir_graph *g, const amp_scope *s)
{
    VEC(const ir_node *) chosen = {0};
    compile_report *r = s->report;
    arena *a = s->compile->arena;
    const char *place = amp_graph_place(g, a);
    strmap *at = strmap_new_borrowing(s->arena); /* by name: the position in `chosen`, plus one */
    if (!r->by_node) r->by_node = strmap_new(a);
    for (const ir_node *n = g->first; n && n->phase == IR_FORWARD; n = n->next) {
        if (!n->loc.op) continue;
        const uintptr_t known = (uintptr_t)strmap_get(at, n->loc.node);
        if (!known) {
            vec_push(s->arena, &chosen, n);
            strmap_put(at, n->loc.node, (void *)(uintptr_t)chosen.count);
        } else if (s->entries[n->id].colour != IR_KEEP) chosen.items[known - 1] = n;
    }
    for (size_t i = 0; i < chosen.count; i++) {
        const ir_node *n = chosen.items[i];
        const node_report record = describe(n, &s->entries[n->id], place, a);
        add_records(r, n, &record, a);
    }
}

/* ---- --explain ------------------------------------------------------------------------------- */

static void print_text(FILE *f, const node_report *r)
{
    diag_print(f, "%s (%s): %s, %s%s%s\n    rule: %s\n", r->name, r->op, ir_colour_name(r->colour),
               amp_precision_name(r->type), r->writes != IR_NO_DTYPE ? ", writes " : "",
               r->writes != IR_NO_DTYPE ? amp_precision_name(r->writes) : "", r->rule);
    if (*r->cause) diag_print(f, "    cause: %s\n", r->cause);
    if (r->alone_in) fprintf(f, "    in %s\n", r->alone_in);
}

static void print_json(FILE *f, const node_report *r)
{
    json_writer w = {.file = f};
    json_begin(&w, NULL, '{');
    json_write_string(&w, "name", r->name);
    json_write_string(&w, "op", r->op);
    json_write_string(&w, "colour", ir_colour_name(r->colour));
    json_write_string(&w, "dtype", amp_precision_name(r->type));
    json_write_string(&w, "rule", r->rule);
    json_write_string(&w, "cause", r->cause);
    if (r->writes != IR_NO_DTYPE) json_write_string(&w, "writes", amp_precision_name(r->writes));
    if (r->alone_in) json_write_string(&w, "alone_in", r->alone_in);
    json_end(&w, '}');
    putc('\n', f);
}

static bool explains_all(const compile_options *o) { return strcmp(o->explain, "all") == 0; }

void amp_explain_more(const ir_node *n, const char *sentence, const compile *c)
{
    FILE *f = c->report.text;
    const compile_options *o = c->options;
    if (!f || !n->loc.op || pass_explains(o) != EXPLAINS_NODES || n->graph != pass_primary(n->graph->module)) return;
    if (!explains_all(o) && strcmp(o->explain, n->loc.node) != 0) return;
    if (!o->json) {
        diag_print(f, "%s (%s): %s\n", n->loc.node, n->loc.op, sentence);
        return;
    }
    json_writer w = {.file = f};
    json_begin(&w, NULL, '{');
    json_write_string(&w, "name", n->loc.node);
    json_write_string(&w, "op", n->loc.op);
    json_write_string(&w, "more", sentence);
    json_end(&w, '}');
    putc('\n', f);
}

static void explain(const compile_options *o, compile_report *report, size_t from)
{
    const bool all = explains_all(o);
    report->explained |= all;
    for (size_t i = from; i < report->nodes.count; i++) {
        const node_report *r = report->nodes.items[i];
        if (!all && strcmp(o->explain, r->name) != 0) continue;
        report->explained = true;
        if (report->text) (o->json ? print_json : print_text)(report->text, r);
    }
}

void amp_report_nodes(const ir_graph *g, const amp_scope *s)
{
    const compile_options *o = s->compile->options;
    const bool explains = pass_explains(o) == EXPLAINS_NODES;
    if (!s->report || !(explains || o->draws || o->reports)) return;
    const size_t before = s->report->nodes.count;
    record_nodes(g, s);
    if (explains) explain(o, s->report, before);
}
