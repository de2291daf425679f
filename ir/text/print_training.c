/* print_training.c - the text of what a module knows of its training: see parse_training.c. */
#include "ir/graph/exported.h"
#include "ir/ops/number.h"
#include "ir/text/text.h"

const char *ir_print_decision(const ir_storage *s, arena *a)
{
    const char *text = "";
    for (int i = 0; i < IR_TENSOR_FACT_COUNT; i++)
        if (s->facts & 1U << i) text = arena_printf(a, "%s%s%s", text, *text ? ", " : " facts(", ir_tensor_facts[i]);
    if (*text) text = arena_printf(a, "%s)", text);
    return s->rule ? arena_printf(a, "%s by %s", text, ir_rules[s->rule].word) : text;
}

/* ---- statements at the head ------------------------------------------------------------------------------ */

typedef struct printer {
    const ir_module *m;
    arena *arena;
    ir_text_lines *lines;
} printer;

#define PRINT(p, ...) arena_printf((p)->arena, __VA_ARGS__)

static void put_line(const printer *p, const char *text) { vec_push(p->arena, p->lines, text); }

static const char *quote(const printer *p, const char *text) { return ir_print_string(text, p->arena); }
static const char *print_result(const printer *p, const char *name) { return ir_print_name("%", name, p->arena); }

static const char *print_names(const printer *p, const ir_names *names)
{
    const char *text = "";
    for (int i = 0; i < names->count; i++) text = PRINT(p, "%s%s%s", text, i ? ", " : "", quote(p, names->items[i]));
    return text;
}

static const char *print_number(const printer *p, double v)
{
    char number[IR_NUMBER_SIZE];
    ir_float_print(number, IR_f64, v);
    return arena_strdup(p->arena, number);
}

static const char *print_line(const printer *p, int line) { return line ? PRINT(p, " line %d", line) : ""; }

/* "KEY=VALUE,.." with the values that are neither words nor numbers as strings, in parentheses. */
static const char *print_options(const printer *p, const char *options)
{
    const char *text = "";
    double number;
    while (*options) {
        const size_t length = strcspn(options, ","), key = strcspn(options, "=,");
        const char *value = key < length ? arena_strndup(p->arena, options + key + 1, length - key - 1) : "";
        const bool is_plain = ir_name_is_plain(value) || ir_float_parse(value, &number);
        text = PRINT(p, "%s%s%.*s=%s", text, *text ? "," : "", (int)key, options, is_plain ? value : quote(p, value));
        options += length + (options[length] != 0);
    }
    return *text ? PRINT(p, "(%s)", text) : "";
}

static const char *print_floats(const printer *p, const float *values, int count)
{
    const char *text = "";
    char number[IR_NUMBER_SIZE];
    for (int i = 0; i < count; i++) {
        ir_element_print(number, IR_f32, &values[i]);
        text = PRINT(p, "%s%s%s", text, i ? ", " : "", number);
    }
    return PRINT(p, "[%s]", text);
}

static bool is_input(const ir_module *m, const char *name)
{
    for (size_t i = 0; i < m->graphs.count; i++)
        if (ir_graph_find_input(m->graphs.items[i], name)) return true;
    return false;
}

static const char *print_target(const printer *p, const char *name)
{
    double number;
    if (ir_float_parse(name, &number)) return name;
    return is_input(p->m, name) ? ir_print_name("@", name, p->arena) : print_result(p, name);
}

static void put_loss(const printer *p, const ir_loss *l)
{
    const char *text = PRINT(p, "loss %s", quote(p, l->name));
    if (l->output) text = PRINT(p, "%s of %s", text, print_result(p, l->output));
    if (l->output && l->target) text = PRINT(p, "%s, %s", text, print_target(p, l->target));
    text = PRINT(p, "%s : %s%s", text, l->kind, print_options(p, l->options));
    if (l->weight != 1) text = PRINT(p, "%s weight %s", text, print_number(p, l->weight));
    if (l->compared) text = PRINT(p, "%s %s", text, ir_compared_words[l->compared]);
    if (l->compared == IR_COMPARED_classes) text = PRINT(p, "%s axis %d", text, l->axis);
    put_line(p, PRINT(p, "%s%s", text, print_line(p, l->line)));
}

static void put_trainer(const printer *p, const ir_trainer *t)
{
    const size_t name = strcspn(t->optimizer, ",");
    const char *options = t->optimizer + name + (t->optimizer[name] != 0);
    put_line(p, PRINT(p, "train %s by %.*s%s on %s%s", print_names(p, &t->globs), (int)name, t->optimizer,
                      print_options(p, options), print_names(p, &t->losses), print_line(p, t->line)));
}

static void put_mean(const printer *p, const ir_mean *mean)
{
    const char *text = PRINT(p, "mean %s of ", print_result(p, mean->output));
    for (int i = 0; i < mean->count; i++) {
        const ir_addend *a = &mean->addends[i];
        text = PRINT(p, "%s%s%s * %s%s", text, i ? ", " : "", print_number(p, a->factor), a->sum ? "sum " : "",
                     print_result(p, a->value));
        if (a->weight) text = PRINT(p, "%s per %s", text, print_result(p, a->weight));
    }
    put_line(p, text);
}

static void put_file(const printer *p, const ir_training *t)
{
    for (size_t i = 0; i < t->opsets.count; i++) {
        const ir_opset *o = &t->opsets.items[i];
        const char *domain = *o->domain ? PRINT(p, "%s ", quote(p, o->domain)) : "";
        put_line(p, PRINT(p, "opset %s%lld", domain, (long long)o->version));
    }
    if (t->codes) put_line(p, PRINT(p, "codes %s", quote(p, t->codes)));
}

static void put_export(const printer *p, const ir_export *e)
{
    if (e->exporter) put_line(p, PRINT(p, "exporter %s", ir_exporters[e->exporter].word));
    if (e->batch) put_line(p, PRINT(p, "batch %lld", (long long)e->batch));
    if (e->untied) put_line(p, "untied");
    for (int i = 0; i < IR_FACT_COUNT; i++)
        if (e->facts[i].count) put_line(p, PRINT(p, "exported %s %s", ir_facts[i].word, print_names(p, &e->facts[i])));
}

static void put_options(const printer *p, const ir_training *t)
{
    char precision[IR_PRECISION_TEXT];
    const ir_normalization *n = &t->normalization;
    if (ir_training_precision(t, precision))
        put_line(p, PRINT(p, "precision %s%s%s", precision, t->profile ? " profile " : "",
                          t->profile ? quote(p, t->profile) : ""));
    if (t->unfused) put_line(p, "unfused");
    if (t->window) put_line(p, PRINT(p, "window %lld", (long long)t->window));
    if (n->input)
        put_line(p, PRINT(p, "normalize %s shift %s scale %s after %d", ir_print_name("@", n->input, p->arena),
                          print_floats(p, n->shift, n->count), print_floats(p, n->scale, n->count), n->after));
}

ir_text_lines ir_print_training(const ir_module *m, arena *a)
{
    ir_text_lines lines = {0};
    const ir_training *t = &m->training;
    const printer p = {m, a, &lines};
    put_file(&p, t);
    put_export(&p, &t->exported);
    put_options(&p, t);
    if (t->recipe) put_line(&p, PRINT(&p, "recipe %s", quote(&p, t->recipe)));
    for (size_t i = 0; i < t->models.count; i++)
        put_line(&p,
                 PRINT(&p, "model %s from %s", quote(&p, t->models.items[i].name), quote(&p, t->models.items[i].path)));
    for (size_t i = 0; i < t->losses.count; i++) put_loss(&p, &t->losses.items[i]);
    for (size_t i = 0; i < t->trainers.count; i++) put_trainer(&p, &t->trainers.items[i]);
    for (size_t i = 0; i < t->means.count; i++) put_mean(&p, &t->means.items[i]);
    return lines;
}
