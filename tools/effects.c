/* effects.c - refuses an option of the command line that can have no effect in its command: the kind of output does not
 * contain what it changes, or another option that it needs is missing. The rows of options.def say which. */
#include "tools/options.h"

#include <string.h>

/* ---- kinds of output --------------------------------------------------------------------------- */

static unsigned kind_of(const char *path)
{
    int kind = 0;
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    if (strcmp(path, "-") == 0) return OUTPUT_STDOUT;
    return dot && pass_find_word(output_kinds, dot + 1, &kind) ? (unsigned)kind : 0;
}

unsigned options_output(const tool_options *o)
{
    if (!o->output) return OUTPUT_NONE;
    if (o->emit && strcmp(o->output, "-") != 0) return (unsigned)o->emit;
    return kind_of(o->output);
}

/* ".npz or .csv" */
static const char *suffixes(unsigned kinds, arena *a)
{
    const char *text = NULL, *last = NULL;
    for (const pass_word *w = output_kinds; w->word; w++) {
        if (!(kinds & (unsigned)w->value)) continue;
        if (last) text = text ? arena_printf(a, "%s, %s", text, last) : last;
        last = arena_printf(a, ".%s", w->word);
    }
    if (!last) return "nothing";
    return text ? arena_printf(a, "%s or %s", text, last) : last;
}

static ampc_status check_output(const tool_options *o, const command *c, diag *d)
{
    const unsigned kind = options_output(o);
    const char *known = suffixes(c->outputs, o->arena);
    if (!c->outputs || (kind & c->outputs)) return AMPC_OK;
    if (kind == OUTPUT_NONE)
        return diag_error(d, AMPC_USAGE, DIAG_FILE(c->name), "no output; use -o FILE, with the suffix %s", known);
    if (kind == OUTPUT_STDOUT)
        return diag_error(d, AMPC_USAGE, DIAG_FILE(c->name), "-o -: the output is a file, with the suffix %s", known);
    return diag_error(d, AMPC_USAGE, DIAG_FILE(o->output), "unknown output format: %s writes %s%s", c->name, known,
                      c->bit == COMMAND_AMPC ? "; --emit chooses for other names" : "");
}

static const char *kind_text(const tool_options *o, unsigned kind)
{
    if (kind == OUTPUT_STDOUT) return "standard output";
    if (kind == OUTPUT_NONE) return "a command without -o";
    if (kind == OUTPUT_ONNX_TRAIN) return "the file of --emit=onnx-train";
    return arena_printf(o->arena, "a %s file", suffixes(kind, o->arena));
}

/* ---- what an option needs ---------------------------------------------------------------------- */

static bool is_given(const tool_options *o, const char *name, size_t length)
{
    for (const option *row = option_table; row->name; row++)
        if (strlen(row->name) == length && strncmp(row->name, name, length) == 0) return o->given[row - option_table];
    return false;
}

/* Whether the option has this value. */
static bool has_word(const tool_options *o, const char *name, size_t length, const char *word)
{
    int value = 0, wanted;
    for (const option *row = option_table; row->name; row++) {
        if (strlen(row->name) != length || strncmp(row->name, name, length) != 0) continue;
        const void *field = (const char *)o + row->field;
        if (row->kind == OPTION_TEXT)
            return *(const char *const *)field && strcmp(*(const char *const *)field, word) == 0;
        memcpy(&value, field, sizeof value);
        return pass_find_word(row->words, word, &wanted) && value == wanted;
    }
    return false;
}

/* What only the module tells. */
static bool is_of_module(const char *what) { return strcmp(what, "loss") == 0 || strcmp(what, "scaling") == 0; }

static bool is_met(const tool_options *o, const char *what)
{
    const char *equals = strchr(what, '=');
    if (*what == '!') return !is_given(o, what + 1, strlen(what + 1));
    if (*what == '.')
        return strcmp(strrchr(o->operands.items[0], '.') ? strrchr(o->operands.items[0], '.') : "", what) == 0;
    if (equals && equals[-1] == '!') return !has_word(o, what, (size_t)(equals - what) - 1, equals + 1);
    for (size_t n; *what; what += n + (what[n] == '|')) {
        n = strcspn(what, "|");
        const size_t name = strcspn(what, "=|"), rest = n - name;
        const char *word = rest ? arena_strndup(o->arena, what + name + 1, rest - 1) : NULL;
        if (word ? has_word(o, what, name, word) : is_given(o, what, n)) return true;
    }
    return false;
}

/* "requires --a or --b" */
static const char *requirement(const tool_options *o, const char *what)
{
    const char *text = NULL, *differs = strstr(what, "!=");
    if (*what == '!') return arena_printf(o->arena, "has no effect with --%s", what + 1);
    if (*what == '.') return arena_printf(o->arena, "requires a %s model", what);
    if (differs)
        return arena_printf(o->arena, "has no effect with --%.*s=%s", (int)(differs - what), what, differs + 2);
    if (strcmp(what, "loss") == 0)
        return "requires a loss: add one with --loss, or select an output with --loss-output";
    if (strcmp(what, "scaling") == 0)
        return "requires loss scaling, which only fp16 has by default: use --dtype=fp16 or --loss-scale=dynamic";
    for (size_t n; *what; what += n + (what[n] == '|')) {
        n = strcspn(what, "|");
        text = arena_printf(o->arena, "%s --%.*s", text ? arena_printf(o->arena, "%s or", text) : "requires", (int)n,
                            what);
    }
    return text;
}

static ampc_status missing(const tool_options *o, const command *c, const option *row, const char *what, diag *d)
{
    return diag_error(d, AMPC_USAGE, DIAG_FILE(c->name), "--%s %s", row->name, requirement(o, what));
}

static bool is_asked(const tool_options *o, const option *row) { return o->given[row - option_table] == GIVEN_BY_USER; }

/* Reports the first need that is not met: with a module those that only the module tells, else the others. */
static ampc_status check_needs(const tool_options *o, const command *c, const option *row, const ir_module *m, diag *d)
{
    for (size_t i = 0; i < sizeof row->needs / sizeof *row->needs && row->needs[i].what; i++) {
        const option_need *need = &row->needs[i];
        if (need->commands && !(need->commands & c->bit)) continue;
        if (is_of_module(need->what) != (m != NULL)) continue;
        const bool met = !m                                   ? is_met(o, need->what)
                         : strcmp(need->what, "scaling") == 0 ? ir_state_by_role(m, IR_STATE_loss_scale) != NULL
                                                              : ir_graph_by_role(m, IR_GRAPH_grad) != NULL;
        if (!met) return missing(o, c, row, need->what, d);
    }
    return AMPC_OK;
}

/* ---- options ----------------------------------------------------------------------------------- */

ampc_status options_check(const tool_options *o, const command *c, diag *d)
{
    const unsigned kind = options_output(o);
    if (options_only_print(o)) return AMPC_OK;
    TRY(check_output(o, c, d));
    for (const option *row = option_table; row->name; row++) {
        if (!is_asked(o, row)) continue;
        if ((row->not_into & kind) && c->bit != COMMAND_EXPORT) /* which writes trained weights */
            return diag_error(d, AMPC_USAGE, DIAG_FILE(c->name), "--%s has no effect on %s; it has one on %s",
                              row->name, kind_text(o, kind), suffixes(c->outputs & ~row->not_into, o->arena));
        if (c->bit == COMMAND_OPT && option_compiles(row, c) && !o->passes.count) return missing(o, c, row, "pass", d);
        TRY(check_needs(o, c, row, NULL, d));
    }
    return AMPC_OK;
}

ampc_status options_check_module(const tool_options *o, const command *c, const ir_module *m, diag *d)
{
    for (const option *row = option_table; row->name; row++)
        if (is_asked(o, row)) TRY(check_needs(o, c, row, m, d));
    return AMPC_OK;
}
