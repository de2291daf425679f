/* params_report.c - reports what is trained and what is not, as a note and as a list. */
#include "ir/graph/exported.h"
#include "ir/base/json_writer.h"
#include "passes/train/params.h"

#include <string.h>

enum { NAMES_SHOWN = 4 };

bool pass_explains_params(const compile_options *o) { return o->explain && strcmp(o->explain, "params") == 0; }

static const char *const held_reasons[] = {
    [IR_HELD_NODE] = "value of a Constant node",
    [IR_HELD_NAME] = "one element with a name that an exporter generated",
    [IR_HELD_DECLARED] = "declared a buffer or constant by the exporter",
    [IR_HELD_MASK] = "a mask: added to or multiplied with the operand of a Softmax, with mask values only",
    [IR_HELD_SCALE] = "a scale of quantisation",
    [IR_HELD_SETTING] = "a setting of an operator: a bound, a pad value, a statistic or class weights",
    [IR_HELD_READ] = "an operator needs its value at compile time",
    [IR_HELD_APART] = "no output has a derivative with respect to it",
};

typedef struct description {
    const char *state, *reason;
} description;

/* Held by what it is for, not by chance, so the note does not list it. */
static bool is_apart(const ir_storage *s) { return s->held == IR_HELD_APART || s->held == IR_HELD_SETTING; }

static description describe(const ir_storage *s, const compile_options *o)
{
    bool chosen = o->train.count && !pass_match(&o->train, s->name);
    if (s->kind == IR_STATE)
        return (description){"buffer", s->merged ? "the graph updates it; the exporter had merged it with others"
                                                 : "the graph updates it"};
    if (is_apart(s)) return (description){"constant", held_reasons[s->held]};
    if (s->held) return (description){"held constant", held_reasons[s->held]};
    if (!s->frozen)
        return (description){"trained", !s->merged   ? ""
                                        : *s->merged ? "the exporter had merged it with others"
                                                     : "the exporter had removed it because it was zero"};
    return (description){"frozen", chosen ? "--train does not match it" : "--freeze matches it"};
}

static long long count_elements(const ir_storage *s)
{
    return (long long)(ir_storage_bytes(s) / (int64_t)ir_dtype_size(s->type.dtype));
}

/* Whether to list the initializer. Scalars in Constant nodes are left out: a model has hundreds of them. */
static bool is_listed(const ir_storage *s)
{
    if (!ir_dtype_is_float(s->type.dtype)) return false;
    return s->kind != IR_CONST || (s->held && (s->held != IR_HELD_NODE || count_elements(s) != 1));
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
        bool held = s->held && s->held != IR_HELD_NODE && !is_apart(s);
        bool trained = s->kind == IR_PARAM && !s->held && !s->frozen;
        t.trained += trained;
        const bool merged = s->merged && *s->merged;
        t.separate += merged && s->kind == IR_PARAM && s->held != IR_HELD_DECLARED;
        t.constants += merged && (s->kind == IR_CONST || s->held == IR_HELD_DECLARED);
        t.statistics += merged && s->kind == IR_STATE;
        t.restored += s->merged && !*s->merged;
        t.frozen += s->kind == IR_PARAM && !s->held && s->frozen;
        if (trained) t.elements += count_elements(s);
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
    const int copies = ir_exported_get(m, IR_FACT_shared).count, count = t->separate + t->constants + t->statistics;
    const char *text = "", *kinds = "";
    kinds = add_count(a, kinds, t->separate, "parameter (--no-untie keeps them shared)",
                      "parameters (--no-untie keeps them shared)");
    kinds = add_count(a, kinds, t->statistics, "running statistic", "running statistics");
    kinds = add_count(a, kinds, t->constants, "constant", "constants");
    text = add_count(a, text, count, "initializer that the exporter had merged is separate: ",
                     "initializers that the exporter had merged are separate: ");
    text = arena_printf(a, "%s%s", text, kinds);
    text = add_count(a, text, t->restored, "bias that it had removed is restored",
                     "biases that it had removed are restored");
    text = add_count(a, text, copies, "copy is computed from its parameter",
                     "copies are computed from their parameters");
    if (*text) diag_note(d, DIAG_FILE(ir_module_source(m)), "%s", text);
}

void params_note(const ir_module *m, diag *d, arena *a)
{
    totals t = count_params(m, a);
    const char *text = arena_printf(a, "%d initializer%s trained (%lld elements)", t.trained, t.trained == 1 ? "" : "s",
                                    t.elements);
    if (t.frozen) text = arena_printf(a, "%s, %d frozen", text, t.frozen);
    if (t.held) text = arena_printf(a, "%s, %d held constant: %s", text, t.held, t.names);
    if (t.held > NAMES_SHOWN) text = arena_printf(a, "%s and %d more", text, t.held - NAMES_SHOWN);
    diag_note(d, DIAG_FILE(ir_module_source(m)), "%s%s", text, t.held ? " (--explain=params lists the reasons)" : "");
    note_undone(m, &t, d, a);
}

ampc_status params_check_export(const ir_module *m, diag *d, arena *a)
{
    const diag_loc loc = DIAG_FILE(ir_module_source(m));
    ampc_status status = AMPC_OK;
    bool any = false;
    for (int i = 0; i < IR_FACT_COUNT; i++) {
        if (!ir_facts[i].cost || !ir_exported_get(m, i).count) continue;
        any = true;
        if (diag_warning(d, loc, "%s; %s", ir_exported_text(m, i, NAMES_SHOWN, a), ir_facts[i].cost) != AMPC_OK)
            status = diag_status(d);
    }
    if (ir_meta_get(m, IR_EXPORTED_BATCH))
        diag_note(d, loc, "the export fixed the batch at %s; --batch=N makes it symbolic",
                  ir_meta_get(m, IR_EXPORTED_BATCH));
    if (any) diag_note(d, loc, "an export that keeps the network as it is: %s", ir_exporter_get(m)->whole);
    return status;
}

/* ---- the list --------------------------------------------------------------------------------- */

static void print_json(FILE *f, const ir_storage *s, const description *is)
{
    json_writer w = {.file = f};
    json_begin(&w, NULL, '{');
    json_write_string(&w, "name", s->name);
    json_write_string(&w, "dtype", ir_dtype_name(s->type.dtype));
    json_begin(&w, "shape", '[');
    for (int i = 0; i < s->type.rank; i++) json_write_integer(&w, NULL, (int64_t)s->type.dims[i]);
    json_end(&w, ']');
    json_write_integer(&w, "elements", count_elements(s));
    json_write_string(&w, "state", is->state);
    json_write_string(&w, "reason", is->reason);
    json_end(&w, '}');
    putc('\n', f);
}

void params_explain(const ir_module *m, const compile *c, arena *a)
{
    FILE *f = c->report.text;
    for (size_t i = 0; i < m->storage.count && f; i++) {
        const ir_storage *s = m->storage.items[i];
        if (!is_listed(s)) continue;
        description is = describe(s, c->options);
        if (c->options->json) print_json(f, s, &is);
        else
            diag_print(f, "%s: %s, %lld element%s, %s%s%s\n", s->name, ir_type_print(m, &s->type, a), count_elements(s),
                       count_elements(s) == 1 ? "" : "s", is.state, *is.reason ? ": " : "", is.reason);
    }
}
