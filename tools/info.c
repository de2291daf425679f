/* info.c - prints descriptions, and keeps messages that become part of them. */
#include "tools/info.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void info_report(const tool *t, const info_section *sections, const void *subject)
{
    json_writer w = {.file = stdout};
    if (t->o.pass.json) json_begin(&w, NULL, '{');
    for (const info_section *s = sections; s->print; s++) {
        if (t->o.pass.json) s->write(subject, &w);
        else s->print(subject);
    }
    if (!t->o.pass.json) return;
    json_end(&w, '}');
    putchar('\n');
}

void info_line(const char *label, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text;
    if (vasprintf(&text, format, args) < 0) text = NULL;
    diag_print(stdout, "%-11s %s\n", label, text ? text : "?");
    free(text);
    va_end(args);
}

void info_print_next(const char *text, bool first)
{
    diag_print(stdout, first ? "next        %s\n" : "            %s\n", text);
}

void info_write_strings(json_writer *w, const char *key, const char *const *items, size_t n)
{
    json_begin(w, key, '[');
    for (size_t i = 0; i < n; i++) json_write_string(w, NULL, items[i]);
    json_end(w, ']');
}

const char *info_count(int64_t n, const char *what, arena *a)
{
    return arena_printf(a, "%" PRId64 " %s%s", n, what, n == 1 ? "" : "s");
}

/* ---- messages ---------------------------------------------------------------------------------- */

static void keep_node(void *user, diag_level level, const diag_loc *loc)
{
    info_messages *m = user;
    if (level == DIAG_ERROR && loc->kind == DIAG_NODE && loc->name) strmap_put(m->nodes, loc->name, m);
}

static void keep_text(void *user, diag_level level, const char *message)
{
    info_messages *m = user;
    if (level == m->kept[0] || level == m->kept[1])
        vec_push(m->tool->arena, &m->texts, arena_strdup(m->tool->arena, message));
    else console_message(&m->tool->console, level, message);
}

diag *info_messages_open(tool *t, diag_level first, diag_level second, info_messages *m)
{
    *m = (info_messages){.tool = t, .kept = {first, second}, .nodes = strmap_new(t->arena)};
    diag *d = diag_new(keep_text, m);
    if (!d) return NULL;
    diag_share_words(d, t->diag);
    diag_set_watcher(d, keep_node);
    diag_set_strict(d, t->o.strict);
    return d;
}

void info_messages_report(const info_messages *m)
{
    for (size_t i = 0; i < m->texts.count; i++) console_message(&m->tool->console, DIAG_ERROR, m->texts.items[i]);
}

void info_messages_print(const info_messages *m, const char *label)
{
    for (size_t i = 0; i < m->texts.count; i++) info_line(i ? "" : label, "%s", m->texts.items[i]);
}

void info_messages_write(const info_messages *m, json_writer *w, const char *key)
{
    info_write_strings(w, key, m->texts.items, m->texts.count);
}
