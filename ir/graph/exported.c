/* exported.c - the exporters, and what they have done to a network. */
#include "ir/graph/exported.h"
#include "ir/base/text_buffer.h"

const ir_exporter_info ir_exporters[IR_EXPORTER_COUNT] = {
#define EXPORTER(word, name, whole, mode, batch) {#word, name, whole, mode, batch},
#include "ir/graph/exported.def"
};

const ir_fact_info ir_facts[IR_FACT_COUNT] = {
#define FACT(word, one, many, cost) {#word, one, many, cost},
#include "ir/graph/exported.def"
};

const ir_exporter_info *ir_exporter_get(const ir_module *m) { return &ir_exporters[m->training.exported.exporter]; }

void ir_exported_set(ir_module *m, ir_fact fact, const char *const *names, int count)
{
    const char **copies = arena_array(m->arena, (size_t)count + 1, sizeof *copies);
    for (int i = 0; i < count; i++) copies[i] = arena_strdup(m->arena, names[i]);
    m->training.exported.facts[fact] = (ir_names){copies, count};
}

void ir_exported_copy(ir_module *to, const ir_module *from, const char *prefix)
{
    ir_export *into = &to->training.exported;
    const ir_export *of = &from->training.exported;
    if (!into->exporter) into->exporter = of->exporter;
    into->untied |= of->untied;
    for (int i = 0; i < IR_FACT_COUNT; i++) {
        const ir_names *before = &into->facts[i], *more = &of->facts[i];
        const int count = before->count + more->count;
        const char **names = arena_array(to->arena, (size_t)count + 1, sizeof *names);
        for (int k = 0; k < before->count; k++) names[k] = before->items[k];
        for (int k = 0; k < more->count; k++)
            names[before->count + k] = arena_printf(to->arena, "%s: %s", prefix, more->items[k]);
        into->facts[i] = (ir_names){names, count};
    }
}

const char *ir_exported_text(const ir_module *m, ir_fact fact, int shown, arena *a)
{
    const ir_names *names = &m->training.exported.facts[fact];
    const int listed = shown && names->count > shown ? shown : names->count;
    if (!names->count) return "";
    text_buffer t = {.arena = a};
    text_add(&t, "%d %s: ", names->count, names->count == 1 ? ir_facts[fact].one : ir_facts[fact].many);
    for (int i = 0; i < listed; i++) text_add(&t, "%s%s", i ? ", " : "", names->items[i]);
    if (listed < names->count) text_add(&t, " and %d more", names->count - listed);
    return text_finish(&t);
}
