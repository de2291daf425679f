/* options.c - reads a command line by the rows of option_table.c.
 *
 * Every argument that begins with a dash is looked up by name among the rows that the program has; its value is
 * checked by the row's kind and stored at the row's offset. A name that no row has, or a word that an option does not
 * know, is answered with the nearest one. */
#include "tools/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    tool_options *o;
    const option_program *program;
    diag *diag;
    int argc, at; /* the next argument */
    char **argv;
} reader;

tool_options options_default(arena *a)
{
    return (tool_options){.arena = a,
                          .pass = pass_options_default(),
                          .untie = true,
                          .device = "cpu",
                          .lr = -1,
                          .keep = 2,
                          .iterations = 50,
                          .warmup = 5};
}

/* ---- looking up ------------------------------------------------------------------------------ */

static const option *find_option(const char *name, unsigned where)
{
    for (const option *row = option_table; row->name; row++)
        if ((row->where & where) && strcmp(row->name, name) == 0) return row;
    return NULL;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Levenshtein distance; what does not fit counts as far. */
static size_t edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 64 };
    size_t n = strlen(a), m = strlen(b), row[LONGEST + 1];
    if (n > LONGEST || m > LONGEST) return LONGEST;
    for (size_t j = 0; j <= m; j++) row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t changed = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = least(changed, least(row[j], row[j - 1]) + 1);
        }
    }
    return row[m];
}

nearest_word nearest_to(const char *word)
{
    const size_t farthest = least(3, strlen(word) / 2); /* what is farther is another word */
    return (nearest_word){.word = word, .limit = farthest + 1};
}

void nearest_offer(nearest_word *n, const char *name)
{
    size_t distance = edit_distance(n->word, name);
    if (distance >= n->limit) return;
    n->best = name;
    n->limit = distance;
}

static const char *nearest_option(const char *name, unsigned where)
{
    nearest_word n = nearest_to(name);
    for (const option *row = option_table; row->name; row++)
        if (row->where & where && row->name[1]) nearest_offer(&n, row->name);
    return n.best;
}

static const char *dashes(const char *name) { return name[1] ? "--" : "-"; }

static diag_loc here(const reader *r) { return DIAG_FILE(r->program->name); }

static ampc_status unknown_option(const reader *r, const char *name)
{
    const char *near = nearest_option(name, r->program->bit);
    if (find_option(name, FOR_ALL))
        return diag_error(r->diag, AMPC_USAGE, here(r), "%s%s is not an option of %s", dashes(name),
                          name, r->program->name);
    if (near)
        return diag_error(r->diag, AMPC_USAGE, here(r), "unknown option %s%s; did you mean %s%s?",
                          dashes(name), name, dashes(near), near);
    return diag_error(r->diag, AMPC_USAGE, here(r),
                      "unknown option %s%s; '%s --help=all' lists them", dashes(name), name,
                      r->program->name);
}

/* ---- values ---------------------------------------------------------------------------------- */

bool options_int(const char *text, int64_t *out)
{
    char *end = NULL;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || errno) return false;
    *out = v;
    return true;
}

static bool parse_real(const char *text, double *out)
{
    char *end = NULL;
    *out = strtod(text, &end);
    return end != text && !*end && *out - *out == 0;
}

static void add_text(tool_options *o, pass_strings *list, const char *text)
{
    const char **items = arena_array(o->arena, (size_t)list->count + 1, sizeof *items);
    if (list->count) memcpy(items, list->items, (size_t)list->count * sizeof *items);
    items[list->count++] = text;
    list->items = items;
}

static void add_parts(tool_options *o, pass_strings *list, const char *text)
{
    while (*text) {
        size_t length = strcspn(text, ",");
        if (length) add_text(o, list, arena_strndup(o->arena, text, length));
        text += length + (text[length] == ',');
    }
}

static ampc_status bad_value(const reader *r, const option *row, const char *value)
{
    bool limited = row->low < row->high;
    if (row->kind == OPTION_WORD) {
        nearest_word n = nearest_to(value);
        for (const option_word *w = row->words; w->word; w++) nearest_offer(&n, w->word);
        return diag_error(r->diag, AMPC_USAGE, here(r), "%s%s: '%s' is none of %s%s%s%s", dashes(row->name), row->name,
                          value, row->value, n.best ? "; did you mean " : "", n.best ? n.best : "", n.best ? "?" : "");
    }
    return diag_error(r->diag, AMPC_USAGE, here(r),
                      limited ? "%s%s: '%s' is no %s from %g to %g" : "%s%s: '%s' is no %s",
                      dashes(row->name), row->name, value,
                      row->kind == OPTION_INT ? "whole number" : "number", row->low, row->high);
}

static bool in_limits(const option *row, double v)
{
    return row->low >= row->high || (v >= row->low && v <= row->high);
}

static ampc_status store_number(const reader *r, const option *row, const char *value, void *at)
{
    int64_t whole;
    double real;
    if (row->kind == OPTION_INT) {
        if (!options_int(value, &whole) || !in_limits(row, (double)whole))
            return bad_value(r, row, value);
        memcpy(at, &whole, sizeof whole);
        return AMPC_OK;
    }
    if (!parse_real(value, &real) || !in_limits(row, real)) return bad_value(r, row, value);
    memcpy(at, &real, sizeof real);
    return AMPC_OK;
}

static ampc_status store_word(const reader *r, const option *row, const char *value, void *at)
{
    for (const option_word *w = row->words; w->word; w++)
        if (strcmp(w->word, value) == 0) {
            memcpy(at, &w->value, sizeof w->value);
            return AMPC_OK;
        }
    return bad_value(r, row, value);
}

static ampc_status store_once(const reader *r, const option *row, const char *value,
                              const char **at)
{
    const char *initial = row->initial; /* what the defaults hold counts as not said */
    if (*at && strcmp(*at, initial) != 0 && strcmp(*at, value) != 0)
        return diag_error(r->diag, AMPC_USAGE, here(r), "--%s is given twice: '%s' and '%s'",
                          row->name, *at, value);
    *at = value;
    return AMPC_OK;
}

/* What only the importer or the passes read; the general options are everybody's. */
static bool compiles(const option *row)
{
    const size_t first = offsetof(tool_options, pass), end = first + sizeof(pass_options);
    const bool passes_read = row->offset >= first && row->offset < end;
    return row->group == GROUP_PRECISION || row->group == GROUP_TRAINING ||
           (row->group != GROUP_GENERAL && passes_read);
}

static ampc_status store(const reader *r, const option *row, const char *value)
{
    void *at = (char *)r->o + row->offset;
    if (compiles(row) && !r->o->compile_option) r->o->compile_option = row->name;
    switch (row->kind) {
    case OPTION_SET: *(bool *)at = true; return AMPC_OK;
    case OPTION_CLEAR: *(bool *)at = false; return AMPC_OK;
    case OPTION_TEXT: *(const char **)at = value; return AMPC_OK;
    case OPTION_ONCE: return store_once(r, row, value, at);
    case OPTION_WORD: return store_word(r, row, value, at);
    case OPTION_INT:
    case OPTION_REAL: return store_number(r, row, value, at);
    case OPTION_TEXTS: add_text(r->o, at, value); return AMPC_OK;
    case OPTION_LIST: add_parts(r->o, at, value); return AMPC_OK;
    case OPTION_LATER: break;
    }
    if (row->initial && strcmp(row->initial, value) == 0) return AMPC_OK;
    return diag_error(r->diag, AMPC_UNSUPPORTED, here(r), "--%s=%s is not supported yet", row->name,
                      value);
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* `attached` is what follows the name in the same argument, NULL for nothing. */
static ampc_status read_option(reader *r, const char *name, const char *attached)
{
    const option *row = find_option(name, r->program->bit);
    if (!row) return unknown_option(r, name);
    bool takes = row->value != NULL;
    if (!takes && attached)
        return diag_error(r->diag, AMPC_USAGE, here(r), "%s%s takes no value", dashes(name), name);
    if (attached) return store(r, row, attached);
    if (row->implied || !takes) return store(r, row, row->implied);
    if (r->at == r->argc)
        return diag_error(r->diag, AMPC_USAGE, here(r), "%s%s needs a value: %s", dashes(name),
                          name, row->value);
    return store(r, row, r->argv[r->at++]);
}

static ampc_status read_argument(reader *r, bool *operands_only)
{
    char *text = r->argv[r->at++];
    if (*operands_only || text[0] != '-' || !text[1]) {
        add_text(r->o, &r->o->operands, text);
        return AMPC_OK;
    }
    if (strcmp(text, "--") == 0) {
        *operands_only = true;
        return AMPC_OK;
    }
    if (text[1] == '-') {
        size_t length = strcspn(text + 2, "=");
        return read_option(r, arena_strndup(r->o->arena, text + 2, length),
                           text[2 + length] ? text + 2 + length + 1 : NULL);
    }
    return read_option(r, arena_strndup(r->o->arena, text + 1, 1), text[2] ? text + 2 : NULL);
}

int options_first_operand(unsigned where, int argc, char **argv)
{
    int at = 0;
    for (; at < argc && argv[at][0] == '-' && argv[at][1]; at++) {
        const char *name = argv[at] + 1 + (argv[at][1] == '-');
        char plain[64];
        snprintf(plain, sizeof plain, "%.*s", (int)strcspn(name, "="), name);
        const option *row = find_option(plain, where);
        at += row && row->value && !row->implied && !strchr(name, '=');
    }
    return at;
}

ampc_status options_parse(tool_options *o, const option_program *p, int argc, char **argv, diag *d)
{
    reader r = {.o = o, .program = p, .diag = d, .argc = argc, .argv = argv};
    bool operands_only = false;
    while (r.at < argc) TRY(read_argument(&r, &operands_only));
    if (o->help || o->version || o->list_passes || o->print_ops) return AMPC_OK;
    if (o->operands.count < p->operands_min)
        return diag_error(d, AMPC_USAGE, here(&r), "no model is named; '%s --help' shows how",
                          p->name);
    if (o->operands.count > p->operands_max)
        return diag_error(d, AMPC_USAGE, here(&r), "one operand too many: '%s'",
                          o->operands.items[p->operands_max]);
    return AMPC_OK;
}

ampc_status options_split(const char *text, const char *what, arena *a, diag *d, const char **name,
                          const char **value)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1])
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "%s: '%s' is not NAME=VALUE", what, text);
    *name = arena_strndup(a, text, (size_t)(equals - text));
    *value = equals + 1;
    return AMPC_OK;
}
