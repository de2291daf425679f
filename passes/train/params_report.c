/* params_report.c - reports what is trained and what is not, as a note and as a list. */
#include "ir/graph/exported.h"
#include "ir/base/json_writer.h"
#include "passes/train/params.h"

#include <string.h>

enum { NAMES_SHOWN = 4 };

static ir_rule rule_of(const ir_storage *s) { return s->kind == IR_STATE ? IR_RULE_buffer : s->rule; }
static ir_outcome outcome_of(const ir_storage *s) { return ir_rules[rule_of(s)].outcome; }

/* Whether to list the initializer. Scalars in Constant nodes are left out: a model has hundreds of them. */
static bool is_listed(const ir_storage *s)
{
    if (!ir_dtype_is_float(s->type.dtype)) return false;
    return s->kind != IR_CONST || (s->facts & IR_TENSOR(node) && !params_is_single(s)) || s->rule == IR_RULE_named;
}

/* ---- the note --------------------------------------------------------------------------------- */

typedef struct totals {
    int trained, frozen, held, separate, constants, statistics, restored;
    long long elements;
    const char *names; /* names of the first held ones */
} totals;

static totals count_params(const ir_module *m, arena *a)
{
    totals t = {.names = ""};
    for (size_t i = 0; i < m->storage.count; i++) {
        const ir_storage *s = m->storage.items[i];
        if (s->kind == IR_CONST && !s->facts) continue;
        const ir_outcome outcome = outcome_of(s);
        const bool held = outcome == IR_HELD && s->rule != IR_RULE_node, merged = s->merged && *s->merged;
        t.trained += outcome == IR_TRAINED;
        t.frozen += outcome == IR_FROZEN;
        t.statistics += merged && outcome == IR_BUFFER;
        t.separate += merged && (outcome == IR_TRAINED || outcome == IR_FROZEN);
        t.constants += merged && (outcome == IR_HELD || outcome == IR_CONSTANT);
        t.restored += s->merged && !*s->merged;
        if (outcome == IR_TRAINED) t.elements += params_count_elements(s);
        if (held && t.held < NAMES_SHOWN) t.names = arena_printf(a, "%s%s%s", t.names, t.held ? ", " : "", s->name);
        t.held += held;
    }
    return t;
}

/* Appends "2 biases" to a list. */
static const char *add_count(arena *a, const char *list, int count, const char *one, const char *many)
{
    if (!count) return list;
    return arena_printf(a, "%s%s%d %s", list, *list ? ", " : "", count, count == 1 ? one : many);
}

/* Notes what the importer has undone of what an exporter did to tensors. */
static void note_undone(const ir_module *m, const totals *t, diag *d, arena *a)
{
    const int copies = m->training.exported.facts[IR_FACT_shared].count,
              count = t->separate + t->constants + t->statistics;
    const char *text = "", *kinds = "";
    kinds = add_count(a, kinds, t->separate, "parameter", "parameters");
    kinds = add_count(a, kinds, t->statistics, "running statistic", "running statistics");
    kinds = add_count(a, kinds, t->constants, "constant", "constants");
    text = add_count(a, text, count, "initializer that the exporter had merged is separate: ",
                     "initializers that the exporter had merged are separate: ");
    text = arena_printf(a, "%s%s", text, kinds);
    text = add_count(a, text, t->restored, "bias that it had removed is restored",
                     "biases that it had removed are restored");
    text = add_count(a, text, copies, "copy is computed from its parameter",
                     "copies are computed from their parameters");
    diag_loc loc = DIAG_FILE(ir_module_source(m));
    if (t->separate) loc = DIAG_USE(loc, OPTION_untie, .purpose = "to keep the parameters shared");
    if (*text) diag_note(d, loc, "%s", text);
}

void params_note(const ir_module *m, diag *d, arena *a)
{
    totals t = count_params(m, a);
    const char *text = arena_printf(a, "%d initializer%s trained (%lld elements)", t.trained, t.trained == 1 ? "" : "s",
                                    t.elements);
    if (t.frozen) text = arena_printf(a, "%s, %d frozen", text, t.frozen);
    if (t.held) text = arena_printf(a, "%s, %d held constant: %s", text, t.held, t.names);
    if (t.held > NAMES_SHOWN) text = arena_printf(a, "%s and %d more", text, t.held - NAMES_SHOWN);
    diag_loc loc = DIAG_FILE(ir_module_source(m));
    if (t.held) loc = DIAG_USE(loc, OPTION_explain, .value = "params", .purpose = "for the reasons");
    diag_note(d, loc, "%s", text);
    note_undone(m, &t, d, a);
}

ampc_status params_check_export(const ir_module *m, diag *d, arena *a)
{
    const diag_loc loc = DIAG_FILE(ir_module_source(m));
    ampc_status status = AMPC_OK;
    bool any = false;
    for (int i = 0; i < IR_FACT_COUNT; i++) {
        if (!ir_facts[i].cost || !m->training.exported.facts[i].count) continue;
        any = true;
        if (diag_warning(d, loc, "%s; %s", ir_exported_text(m, i, NAMES_SHOWN, a), ir_facts[i].cost) != AMPC_OK)
            status = diag_status(d);
    }
    if (m->training.exported.batch)
        diag_note(d, DIAG_USE(loc, OPTION_batch, .value = "N", .purpose = "to make it symbolic"),
                  "the export fixed the batch at %lld", (long long)m->training.exported.batch);
    if (!any) return status;
    const ir_exporter_info *exporter = ir_exporter_get(m);
    diag_loc again = exporter->mode ? DIAG_USE(loc, OPTION_mode, exporter->mode, .purpose = "with that") : loc;
    diag_note(d, again, "an export that keeps the network as it is: %s", exporter->whole);
    return status;
}

/* ---- the list --------------------------------------------------------------------------------- */

enum { FACTS_SHOWN = IR_TENSOR_FACT_COUNT + 2 };

/* The words of what is known of the tensor; returns their number. */
static int list_facts(const ir_storage *s, const char *words[FACTS_SHOWN])
{
    int n = 0;
    for (int i = 0; i < IR_TENSOR_FACT_COUNT; i++)
        if (s->facts & 1U << i) words[n++] = ir_tensor_facts[i];
    if (params_is_single(s)) words[n++] = "single";
    if (s->merged) words[n++] = *s->merged ? "merged" : "removed";
    return n;
}

static const char *print_reason(const ir_storage *s, arena *a)
{
    const char *words[FACTS_SHOWN], *reason = ir_rules[rule_of(s)].sentence, *text;
    const int n = list_facts(s, words);
    text = arena_printf(a, "%s%s [rule %s", *reason ? ": " : "", reason, ir_rules[rule_of(s)].word);
    for (int i = 0; i < n; i++) text = arena_printf(a, "%s%s %s", text, i ? "," : "; facts", words[i]);
    return arena_printf(a, "%s]", text);
}

static void print_json(FILE *f, const ir_storage *s)
{
    const char *words[FACTS_SHOWN];
    const int n = list_facts(s, words);
    json_writer w = {.file = f};
    json_begin(&w, NULL, '{');
    json_write_string(&w, "name", s->name);
    json_write_string(&w, "dtype", ir_dtype_name(s->type.dtype));
    json_begin(&w, "shape", '[');
    for (int i = 0; i < s->type.rank; i++) json_write_integer(&w, NULL, (int64_t)s->type.dims[i]);
    json_end(&w, ']');
    json_write_integer(&w, "elements", params_count_elements(s));
    json_write_string(&w, "state", ir_outcomes[outcome_of(s)]);
    json_write_string(&w, "reason", ir_rules[rule_of(s)].sentence);
    json_write_string(&w, "rule", ir_rules[rule_of(s)].word);
    json_begin(&w, "facts", '[');
    for (int i = 0; i < n; i++) json_write_string(&w, NULL, words[i]);
    json_end(&w, ']');
    json_end(&w, '}');
    putc('\n', f);
}

void params_explain(const ir_module *m, const compile *c, arena *a)
{
    FILE *f = c->report.text;
    for (size_t i = 0; i < m->storage.count && f; i++) {
        const ir_storage *s = m->storage.items[i];
        if (!is_listed(s)) continue;
        if (c->options->json) print_json(f, s);
        else
            diag_print(f, "%s: %s, %lld element%s, %s%s\n", s->name, ir_type_print(m, &s->type, a),
                       (long long)params_count_elements(s), params_is_single(s) ? "" : "s", ir_outcomes[outcome_of(s)],
                       print_reason(s, a));
    }
}
