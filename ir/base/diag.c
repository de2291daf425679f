/* diag.c - formats messages, passes them to the sink, and remembers the first error with its location, and the counts.
 *
 * Text that comes from files (names, source lines, quotations) is escaped: control characters, invisible ones such as
 * those that reverse the direction, and bytes that are not valid UTF-8 become \xNN, so a malicious model cannot send
 * control sequences to the terminal. If memory for a message cannot
 * be allocated, a fixed text replaces it; the returned code is always correct. */
#include "ir/base/diag.h"

#include "ir/base/text_buffer.h"
#include "ir/base/utf8.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_LIMIT = 128, LINE_BEFORE = 80, LINE_SHOWN = 160 };

static const char *const no_memory = "error: out of memory while reporting an error";

struct diag {
    diag_sink *sink;
    diag_watcher *watcher;
    const diag_words *words;
    void *user;
    bool strict;
    ampc_status status;
    size_t counts[DIAG_NOTE + 1];
    char *first_error; /* NULL if none, or if it could not be copied */
    diag_loc first;    /* where; its strings are copies, NULL if they could not be made */
};

diag *diag_new(diag_sink *sink, void *user)
{
    diag *d = calloc(1, sizeof *d);
    if (!d) return NULL;
    d->sink = sink;
    d->user = user;
    return d;
}

static void forget(diag *d)
{
    free(d->first_error);
    free((char *)d->first.file);
    free((char *)d->first.name);
    free((char *)d->first.op);
    d->first_error = NULL;
    d->first = DIAG_NOWHERE;
}

void diag_free(diag *d)
{
    if (!d) return;
    forget(d);
    free(d);
}

void diag_set_strict(diag *d, bool strict) { d->strict = strict; }
void diag_set_watcher(diag *d, diag_watcher *watcher) { d->watcher = watcher; }
void diag_set_words(diag *d, const diag_words *words) { d->words = words; }
void diag_share_words(diag *d, const diag *other) { d->words = other->words; }

static const char *plain_name(option_id option)
{
    static const char *const names[] = {
#define COMPILE(name, field, member, ...) [OPTION_##member] = (name),
#define COMPILER(name, field, ...) [OPTION_##field] = (name),
#define TRAIN COMPILER
#define SESSION COMPILER
#define TOOL COMPILER
#include "ir/base/options.def"
    };
    return names[option];
}

const char *diag_option_name(const diag *d, option_id option)
{
    const char *name = d->words ? d->words->name(option) : NULL;
    return name ? name : plain_name(option);
}

/* Appends n bytes with unprintable ones escaped, at most `limit` characters and then "..."; bytes in `unescaped` are
 * copied. Returns the number of columns written. */
static size_t put_escaped(text_buffer *t, const char *bytes, size_t n, size_t limit, const char *unescaped)
{
    size_t columns = 0, characters = 0;
    for (size_t i = 0; i < n; characters++) {
        if (characters == limit) {
            text_put(t, "...");
            return columns + 3;
        }
        uint32_t code = 0;
        size_t length = utf8_decode(bytes + i, n - i, &code);
        if (length && (!utf8_is_control(code) || (code && code < 0x80 && strchr(unescaped, (int)code)))) {
            text_add_bytes(t, bytes + i, length);
            columns++;
            i += length;
            continue;
        }
        for (size_t end = i + (length ? length : 1); i < end; i++, columns += 4)
            text_add(t, "\\x%02x", (unsigned char)bytes[i]);
    }
    return columns;
}

const char *diag_kind_word(diag_kind kind)
{
    static const char *const kinds[] = {
#define KIND(name, word) [DIAG_##name] = (word),
        DIAG_KINDS(KIND)
#undef KIND
    };
    return kinds[kind];
}

/* "FILE:LINE:COL: KIND 'NAME' (OP): "; every part is optional. */
static void put_location(text_buffer *t, diag_loc loc)
{
    if (loc.file) {
        put_escaped(t, loc.file, strlen(loc.file), SIZE_MAX, "");
        text_put(t, ":");
    }
    if (loc.line > 0) text_add(t, "%d:", loc.line);
    if (loc.line > 0 && loc.column > 0) text_add(t, "%d:", loc.column);
    if (t->length) text_put(t, " ");
    bool named = loc.name && *loc.name;
    if (!named && !loc.op) return;
    text_put(t, diag_kind_word(loc.kind));
    if (named) {
        text_put(t, " '");
        put_escaped(t, loc.name, strlen(loc.name), NAME_LIMIT, "");
        text_put(t, "'");
    }
    if (loc.op) {
        text_put(t, " (");
        put_escaped(t, loc.op, strlen(loc.op), NAME_LIMIT, "");
        text_put(t, ")");
    }
    text_put(t, ": ");
}

/* Appends the source line and a caret under the column; of a long line only the part around the column. */
static void put_caret(text_buffer *t, diag_loc loc)
{
    size_t length = strlen(loc.text), column = loc.column > 0 ? (size_t)loc.column - 1 : 0;
    if (column > length) column = length;
    size_t start = length > LINE_SHOWN && column > LINE_BEFORE ? column - LINE_BEFORE : 0;
    while (start && ((unsigned char)loc.text[start] >> 6) == 2) start--;
    text_put(t, "\n  ");
    text_buffer pad = {0};
    size_t columns = put_escaped(&pad, loc.text + start, column - start, SIZE_MAX, "");
    free(pad.data);
    put_escaped(t, loc.text + start, length - start, LINE_SHOWN, "");
    if (loc.column <= 0) return;
    text_put(t, "\n  ");
    while (columns--) text_put(t, " ");
    text_put(t, "^");
}

static void set_option(text_buffer *t, const char *option, const diag_remedy *r)
{
    if (r->key) text_add(t, "add %s=%s to %s", r->key, r->value, option);
    else text_add(t, r->value ? "set %s to %s" : "set %s", option, r->value);
}

/* "; set OPTION to VALUE PURPOSE" */
static void put_remedy(text_buffer *t, const diag_words *words, const diag_remedy *r)
{
    const char *name = words ? words->name(r->option) : plain_name(r->option);
    if (!name) return;
    text_buffer raw = {0};
    (words && words->remedy ? words->remedy : set_option)(&raw, name, r);
    if (r->purpose) text_add(&raw, " %s", r->purpose);
    text_put(t, "; ");
    if (raw.failed) t->failed = true;
    else put_escaped(t, raw.data, raw.length, SIZE_MAX, "");
    free(raw.data);
}

static void put_message(text_buffer *t, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    char *raw = length < 0 ? NULL : malloc((size_t)length + 1);
    if (raw) {
        vsnprintf(raw, (size_t)length + 1, format, again);
        put_escaped(t, raw, (size_t)length, SIZE_MAX, "\n\t");
    } else {
        t->failed = true;
    }
    free(raw);
    va_end(again);
}

void diag_print(FILE *f, const char *format, ...)
{
    text_buffer t = {0};
    va_list args;
    va_start(args, format);
    put_message(&t, format, args);
    va_end(args);
    fputs(t.failed ? no_memory : t.data ? t.data : "", f);
    free(t.data);
}

static const char *copied(const char *text) { return text ? strdup(text) : NULL; }

/* The text is freed or kept. */
static void deliver(diag *d, diag_level level, ampc_status code, diag_loc loc, text_buffer t)
{
    d->counts[level]++;
    if (d->watcher) d->watcher(d->user, level, &loc);
    if (d->sink) d->sink(d->user, level, t.failed ? no_memory : t.data);
    if (level == DIAG_ERROR && d->status == AMPC_OK) {
        d->status = code;
        d->first = (diag_loc){.file = copied(loc.file),
                              .kind = loc.kind,
                              .name = copied(loc.name),
                              .op = copied(loc.op),
                              .line = loc.line,
                              .column = loc.column};
        if (!t.failed) {
            d->first_error = t.data;
            return;
        }
    }
    free(t.data);
}

static void report(diag *d, diag_level level, ampc_status code, diag_loc loc, const char *format, va_list args)
{
    static const char *const words[] = {"error: ", "warning: ", "remark: ", "note: "};
    text_buffer t = {0};
    put_location(&t, loc);
    text_put(&t, words[level]);
    if (loc.about) text_add(&t, "%s: ", diag_option_name(d, loc.about));
    put_message(&t, format, args);
    if (loc.remedy.option) put_remedy(&t, d->words, &loc.remedy);
    if (loc.text && loc.line > 0) put_caret(&t, loc);
    deliver(d, level, code, loc, t);
}

ampc_status diag_repeat(diag *d, ampc_status code, const char *message)
{
    text_buffer t = {0};
    text_put(&t, message);
    deliver(d, DIAG_ERROR, code, DIAG_NOWHERE, t);
    return code;
}

ampc_status diag_verror(diag *d, ampc_status code, diag_loc loc, const char *format, va_list args)
{
    report(d, DIAG_ERROR, code, loc, format, args);
    return code;
}

ampc_status diag_error(diag *d, ampc_status code, diag_loc loc, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report(d, DIAG_ERROR, code, loc, format, args);
    va_end(args);
    return code;
}

ampc_status diag_errno(diag *d, diag_loc loc, const char *what)
{
    if (errno == ENOMEM) return diag_error(d, AMPC_NO_MEMORY, loc, "%s: out of memory", what);
    return diag_error(d, AMPC_IO, loc, "%s: %s", what, strerrordesc_np(errno));
}

ampc_status diag_warning(diag *d, diag_loc loc, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report(d, d->strict ? DIAG_ERROR : DIAG_WARNING, AMPC_REJECTED, loc, format, args);
    va_end(args);
    return d->strict ? AMPC_REJECTED : AMPC_OK;
}

void diag_remark(diag *d, diag_loc loc, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report(d, DIAG_REMARK, AMPC_OK, loc, format, args);
    va_end(args);
}

void diag_note(diag *d, diag_loc loc, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report(d, DIAG_NOTE, AMPC_OK, loc, format, args);
    va_end(args);
}

ampc_status diag_status(const diag *d) { return d->status; }

size_t diag_count(const diag *d, diag_level level) { return d->counts[level]; }

const char *diag_message_text(const char *message)
{
    static const char before[] = "): error: ";
    const char *found = strstr(message, before);
    return found ? found + sizeof before - 1 : message;
}

const char *diag_first_error(const diag *d)
{
    if (d->first_error) return d->first_error;
    return d->status == AMPC_OK ? "" : no_memory;
}

const diag_loc *diag_first_loc(const diag *d) { return &d->first; }

void diag_clear(diag *d)
{
    forget(d);
    d->status = AMPC_OK;
    memset(d->counts, 0, sizeof d->counts);
}

const char *ampc_status_name(ampc_status s)
{
    switch (s) {
#define NAME(name, code, text) \
    case name: return #name;
        AMPC_STATUS_MAP(NAME)
#undef NAME
    }
    return "unknown status";
}

const char *ampc_status_sentence(ampc_status s)
{
    switch (s) {
#define SENTENCE(name, code, text) \
    case name: return text;
        AMPC_STATUS_MAP(SENTENCE)
#undef SENTENCE
    }
    return "unknown status";
}
