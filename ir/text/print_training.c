/* print_training.c - the text of what a module knows of its training: see parse_training.c. */
#include "ir/graph/exported.h"
#include "ir/ops/number.h"
#include "ir/text/text.h"

#include <string.h>

void ir_add_decision(text_buffer *t, const ir_storage *s)
{
    const char *before = " facts(";
    for (int i = 0; i < IR_TENSOR_FACT_COUNT; i++) {
        if (!(s->facts & 1U << i)) continue;
        text_add(t, "%s%s", before, ir_tensor_facts[i]);
        before = ", ";
    }
    if (s->facts) text_put(t, ")");
    if (s->rule) text_add(t, " by %s", ir_rules[s->rule].word);
}

/* ---- parts of statements --------------------------------------------------------------------------------- */

/* Adds the string in quotes, between two texts. */
static void add_quoted(text_buffer *t, const char *before, const char *s, const char *after)
{
    text_put(t, before);
    ir_add_string(t, s);
    text_put(t, after);
}

static void add_names(text_buffer *t, const char *before, const ir_names *names, const char *after)
{
    for (int i = 0; i < names->count; i++) add_quoted(t, i ? ", " : before, names->items[i], "");
    text_put(t, after);
}

static void add_number(text_buffer *t, ir_dtype type, double v)
{
    char number[IR_NUMBER_SIZE];
    ir_float_print(number, type, v);
    text_put(t, number);
}

/* Adds "(KEY=VALUE,..)", with the values that are neither words nor numbers as strings. */
static void add_options(text_buffer *t, const char *options, arena *a)
{
    double number;
    if (!*options) return;
    for (const char *before = "("; *options; before = ",") {
        const size_t length = strcspn(options, ","), key = strcspn(options, "=,");
        const char *value = key < length ? arena_strndup(a, options + key + 1, length - key - 1) : "";
        text_add(t, "%s%.*s=", before, (int)key, options);
        if (ir_name_is_plain(value) || ir_float_parse(value, &number)) text_put(t, value);
        else ir_add_string(t, value);
        options += length + (options[length] != 0);
    }
    text_put(t, ")");
}

static void add_floats(text_buffer *t, const float *values, int count)
{
    text_put(t, "[");
    for (int i = 0; i < count; i++) {
        if (i) text_put(t, ", ");
        add_number(t, IR_f32, (double)values[i]);
    }
    text_put(t, "]");
}

static bool is_input(const ir_module *m, const char *name)
{
    for (size_t i = 0; i < m->graphs.count; i++)
        if (ir_graph_find_input(m->graphs.items[i], name)) return true;
    return false;
}

static void add_target(text_buffer *t, const ir_module *m, const char *name)
{
    double number;
    if (ir_float_parse(name, &number)) text_put(t, name);
    else ir_add_name(t, is_input(m, name) ? "@" : "%", name);
}

/* Ends a statement; `line`: of the recipe, or 0. */
static void end_statement(text_buffer *t, int line)
{
    if (line) text_add(t, " line %d", line);
    text_put(t, "\n");
}

/* ---- statements, each with the end of its line ----------------------------------------------------------- */

static void add_file(text_buffer *t, const ir_training *training)
{
    for (size_t i = 0; i < training->opsets.count; i++) {
        const ir_opset *o = &training->opsets.items[i];
        text_put(t, "opset ");
        if (*o->domain) add_quoted(t, "", o->domain, " ");
        text_add(t, "%lld\n", (long long)o->version);
    }
    if (training->codes) add_quoted(t, "codes ", training->codes, "\n");
}

static void add_export(text_buffer *t, const ir_export *e)
{
    if (e->exporter) text_add(t, "exporter %s\n", ir_exporters[e->exporter].word);
    if (e->batch) text_add(t, "batch %lld\n", (long long)e->batch);
    if (e->untied) text_put(t, "untied\n");
    for (int i = 0; i < IR_FACT_COUNT; i++) {
        if (!e->facts[i].count) continue;
        text_add(t, "exported %s", ir_facts[i].word);
        add_names(t, " ", &e->facts[i], "\n");
    }
}

static void add_normalization(text_buffer *t, const ir_normalization *n)
{
    ir_add_name(t, "normalize @", n->input);
    text_put(t, " shift ");
    add_floats(t, n->shift, n->count);
    text_put(t, " scale ");
    add_floats(t, n->scale, n->count);
    text_add(t, " after %d\n", n->after);
}

static void add_settings(text_buffer *t, const ir_training *training)
{
    char precision[IR_PRECISION_TEXT];
    if (ir_training_precision(training, precision)) {
        text_add(t, "precision %s", precision);
        if (training->profile) add_quoted(t, " profile ", training->profile, "");
        text_put(t, "\n");
    }
    if (training->unfused) text_put(t, "unfused\n");
    if (training->window) text_add(t, "window %lld\n", (long long)training->window);
    if (training->normalization.input) add_normalization(t, &training->normalization);
}

static void add_recipe(text_buffer *t, const ir_training *training)
{
    if (training->recipe) add_quoted(t, "recipe ", training->recipe, "\n");
    for (size_t i = 0; i < training->models.count; i++) {
        add_quoted(t, "model ", training->models.items[i].name, " from ");
        add_quoted(t, "", training->models.items[i].path, "\n");
    }
}

static void add_loss(text_buffer *t, const ir_module *m, const ir_loss *l, arena *a)
{
    add_quoted(t, "loss ", l->name, "");
    if (l->output) ir_add_name(t, " of %", l->output);
    if (l->output && l->target) {
        text_put(t, ", ");
        add_target(t, m, l->target);
    }
    text_add(t, " : %s", l->kind);
    add_options(t, l->options, a);
    if (l->weight != 1) {
        text_put(t, " weight ");
        add_number(t, IR_f64, l->weight);
    }
    if (l->compared) text_add(t, " %s", ir_compared_words[l->compared]);
    if (l->compared == IR_COMPARED_classes) text_add(t, " axis %d", l->axis);
    end_statement(t, l->line);
}

static void add_trainer(text_buffer *t, const ir_trainer *trainer, arena *a)
{
    const size_t name = strcspn(trainer->optimizer, ",");
    add_names(t, "train ", &trainer->globs, " by ");
    text_add_bytes(t, trainer->optimizer, name);
    add_options(t, trainer->optimizer + name + (trainer->optimizer[name] != 0), a);
    add_names(t, " on ", &trainer->losses, "");
    end_statement(t, trainer->line);
}

static void add_mean(text_buffer *t, const ir_mean *mean)
{
    ir_add_name(t, "mean %", mean->output);
    for (int i = 0; i < mean->count; i++) {
        const ir_addend *a = &mean->addends[i];
        text_put(t, i ? ", " : " of ");
        add_number(t, IR_f64, a->factor);
        ir_add_name(t, a->sum ? " * sum %" : " * %", a->value);
        if (a->weight) ir_add_name(t, " per %", a->weight);
    }
    text_put(t, "\n");
}

void ir_add_training(text_buffer *t, const ir_module *m, arena *a)
{
    const ir_training *training = &m->training;
    add_file(t, training);
    add_export(t, &training->exported);
    add_settings(t, training);
    add_recipe(t, training);
    for (size_t i = 0; i < training->losses.count; i++) add_loss(t, m, &training->losses.items[i], a);
    for (size_t i = 0; i < training->trainers.count; i++) add_trainer(t, &training->trainers.items[i], a);
    for (size_t i = 0; i < training->means.count; i++) add_mean(t, &training->means.items[i]);
}
