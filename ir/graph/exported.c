/* exported.c - the entries "exporter" and "export.FACT": "COUNT NAME, NAME, ..". */
#include "ir/graph/exported.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const ir_exporter_info ir_exporters[IR_EXPORTER_COUNT] = {
#define EXPORTER(word, name, whole, batch) {#word, name, whole, batch},
#include "ir/base/text_buffer.h"
#include "ir/graph/exported.def"
};

const ir_fact_info ir_facts[IR_FACT_COUNT] = {
#define FACT(word, one, many, cost) {#word, one, many, cost},
#include "ir/graph/exported.def"
};

void ir_exporter_set(ir_module *m, ir_exporter exporter) { ir_meta_set(m, "exporter", ir_exporters[exporter].word); }

const ir_exporter_info *ir_exporter_get(const ir_module *m)
{
    const char *word = ir_meta_get(m, "exporter");
    for (int i = 0; word && i < IR_EXPORTER_COUNT; i++)
        if (strcmp(ir_exporters[i].word, word) == 0) return &ir_exporters[i];
    return &ir_exporters[IR_EXPORTER_other];
}

static const char *key_of(arena *a, ir_fact fact) { return arena_printf(a, "export.%s", ir_facts[fact].word); }

ir_exported ir_exported_get(const ir_module *m, ir_fact fact)
{
    const char *text = ir_meta_get(m, key_of(m->arena, fact));
    char *end = NULL;
    const long count = text ? strtol(text, &end, 10) : 0;
    if (count < 1 || count > INT32_MAX || *end != ' ') return (ir_exported){0, ""};
    return (ir_exported){(int)count, end + 1};
}

void ir_exported_set(ir_module *m, ir_fact fact, const char *const *names, int count)
{
    text_buffer t = {.arena = m->arena};
    if (!count) return;
    text_add(&t, "%d", count);
    for (int i = 0; i < count; i++) text_add(&t, "%s%s", i ? ", " : " ", names[i]);
    ir_meta_set(m, key_of(m->arena, fact), text_finish(&t));
}

void ir_exported_copy(ir_module *to, const ir_module *from, const char *prefix)
{
    const char *exporter = ir_meta_get(from, "exporter");
    if (exporter && !ir_meta_get(to, "exporter")) ir_meta_set(to, "exporter", exporter);
    for (int i = 0; i < IR_FACT_COUNT; i++) {
        const ir_exported e = ir_exported_get(from, i), before = ir_exported_get(to, i);
        if (e.count)
            ir_meta_set(to, key_of(to->arena, i),
                        arena_printf(to->arena, "%d %s%s%s: %s", before.count + e.count, before.names,
                                     before.count ? ", " : "", prefix, e.names));
    }
}

const char *ir_exported_text(const ir_module *m, ir_fact fact, int shown, arena *a)
{
    const ir_exported e = ir_exported_get(m, fact);
    const char *what = e.count == 1 ? ir_facts[fact].one : ir_facts[fact].many, *end = e.names;
    if (!e.count) return "";
    if (!shown || e.count <= shown) return arena_printf(a, "%d %s: %s", e.count, what, e.names);
    for (int i = 0; i < shown && end; i++) end = strstr(end + (i ? 2 : 0), ", ");
    const int length = end ? (int)(end - e.names) : (int)strlen(e.names);
    return arena_printf(a, "%d %s: %.*s and %d more", e.count, what, length, e.names, e.count - shown);
}
