/* options.c - parses a command line by the rows of ir/base/options.def.
 *
 * Every argument that begins with a dash is looked up by name or alias among the rows of the command. The kind of the
 * row determines how its value is checked, and its field where the value is stored. For an unknown name or word, the
 * message suggests the closest known one. */
#include "tools/options.h"

#include "frontend/recipe.h"
#include "ir/base/beneath.h"
#include "runtime/files/atomic_file.h"
#include "runtime/plan/plan.h"
#include "ir/base/suggest.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct parser {
    tool_options *o;
    const command *command;
    diag *diag;
    int argc, at; /* at: index of the next argument */
    char **argv;
} parser;

tool_options options_default(const program *programs, unsigned commands, arena *a)
{
    size_t rows = 0;
    while (option_table[rows].name) rows++;
    tool_options o = {
        .arena = a,
        .programs = programs,
        .given = arena_array(a, rows, sizeof(unsigned char)),
        .pass = compile_options_default(),
#define TRAIN(name, member, kind, ...) OPTION_DEFAULT(member, kind)
#define SESSION TRAIN
#define TOOL TRAIN
#include "ir/base/options.def"
    };
    o.pass.pipeline.save = rt_atomic_save;
    if (commands & COMMAND_RUN) o.pass.low = IR_NO_DTYPE; /* auto */
    return o;
}

/* ---- rows ------------------------------------------------------------------------------------ */

const char *command_verb(const command *c)
{
    const char *space = strchr(c->name, ' ');
    return space ? space + 1 : NULL;
}

bool option_applies(const option *row, unsigned commands) { return !row->commands || (row->commands & commands); }

const option *option_find(const char *name, unsigned commands)
{
    for (const option *row = option_table; row->name; row++) {
        const bool named = name[0] && !name[1] ? row->alias == name[0] : strcmp(row->name, name) == 0;
        if (named && option_applies(row, commands)) return row;
    }
    return NULL;
}

/* Whether help shows the word: the first spelling of its value, unless it is the value of the bare option. */
static bool is_shown(const option *row, const pass_word *word)
{
    for (const pass_word *w = row->words; w < word; w++)
        if (w->value == word->value) return false;
    return !row->implied || strcmp(row->implied, word->word) != 0;
}

const char *option_text(const option *row, const char *text, arena *a)
{
    const char *open = row->kinds && text ? strchr(text, '{') : NULL, *list = NULL;
    if (!open) return text;
    const size_t length = strcspn(open + 1, "}");
    const char *last = arena_strndup(a, open + 1, length), *between = strcmp(last, " or ") == 0 ? ", " : last;
    for (int i = 0; row->kinds(i); i++)
        list = list ? arena_printf(a, "%s%s%s", list, row->kinds(i + 1) ? between : last, row->kinds(i))
                    : row->kinds(i);
    return arena_printf(a, "%.*s%s%s", (int)(open - text), text, list, open + length + 2);
}

const char *option_value(const option *row, arena *a)
{
    const char *text = NULL;
    if (row->kind != OPTION_WORD) return option_text(row, row->value, a);
    for (const pass_word *w = row->words; w->word; w++)
        if (is_shown(row, w)) text = text ? arena_printf(a, "%s|%s", text, w->word) : w->word;
    return text;
}

const char *option_synopsis(const option *row, bool full, arena *a)
{
    const char *value = full ? option_value(row, a) : NULL;
    const char *name = row->alias ? arena_printf(a, "-%c, --%s", row->alias, row->name)
                                  : arena_printf(a, "--%s", row->name);
    if (!full && row->alias) name = arena_printf(a, "-%c", row->alias);
    if (!value) return name;
    return arena_printf(a, row->implied ? "%s[=%s]" : "%s=%s", name, value);
}

typedef VEC(const char *) word_list;

/* Adds one alternative of a placeholder: a literal word, or the names of all passes or stages. */
static void add_words(word_list *words, const option *row, const char *text, arena *a)
{
    if (row->kind == OPTION_WORD || islower((unsigned char)*text))
        vec_push(a, words, arena_strndup(a, text, strcspn(text, "|[")));
    for (const pass_info *p = pass_table; strncmp(text, "PASS", 4) == 0 && p->name; p++) vec_push(a, words, p->name);
    for (const rt_stage *s = rt_stages; strncmp(text, "STAGE", 5) == 0 && s->name; s++) vec_push(a, words, s->name);
}

const char **option_words(const option *row, arena *a)
{
    word_list words = {0};
    const char *text = option_value(row, a);
    for (int i = 0; row->kinds && row->kinds(i); i++) {
        const char *kind = row->kinds(i);
        vec_push(a, &words, arena_strndup(a, kind, strcspn(kind, ":[K")));
    }
    while (text && *text && !row->kinds) {
        const size_t length = strcspn(text, "|");
        add_words(&words, row, text, a);
        text += length + (text[length] == '|');
    }
    vec_push(a, &words, NULL);
    return words.items;
}

/* ---- messages -------------------------------------------------------------------------------- */

static const char *dashes(const char *name) { return name[1] ? "--" : "-"; }

static diag_loc here(const parser *p) { return DIAG_FILE(p->command->name); }

/* The commands that have the option, such as "ampc, ampc-run train, check". */
static const char *commands_with(const parser *from, const option *row)
{
    const char *text = NULL;
    arena *a = from->o->arena;
    for (const program *p = from->o->programs; p->name; p++) {
        const char *names = NULL;
        for (int i = 0; i < p->count; i++) {
            if (!option_applies(row, p->commands[i].bit)) continue;
            const char *verb = command_verb(&p->commands[i]);
            names = !verb ? p->name : names ? arena_printf(a, "%s, %s", names, verb) : p->commands[i].name;
        }
        if (names) text = text ? arena_printf(a, "%s, %s", text, names) : names;
    }
    return text;
}

/* Whether other programs call the option by this name. */
static bool is_other_name(const option *row, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = row->others ? row->others : ""; *at;
         at += at[strcspn(at, " ")] ? strcspn(at, " ") + 1 : strlen(at))
        if (strcspn(at, " ") == length && strncmp(at, name, length) == 0) return true;
    return false;
}

static ampc_status unknown_option(const parser *p, const char *name)
{
    suggestion near = suggest_for(name);
    for (const option *row = option_table; row->name; row++)
        if (option_applies(row, p->command->bit)) suggest_candidate(&near, row->name);
    const option *elsewhere = option_find(name, ~0u);
    if (elsewhere)
        return diag_error(p->diag, AMPC_USAGE, here(p), "%s%s is not an option of %s; it is one of %s", dashes(name),
                          name, p->command->name, commands_with(p, elsewhere));
    for (const option *row = option_table; row->name; row++)
        if (option_applies(row, p->command->bit) && is_other_name(row, name))
            return diag_error(p->diag, AMPC_USAGE, here(p), "unknown option %s%s; here it is %s", dashes(name), name,
                              option_synopsis(row, true, p->o->arena));
    const char *hint = near.best ? suggestion_hint(&near, "--", p->o->arena)
                                 : arena_printf(p->o->arena, "; '%s --help=all' lists all options", p->command->name);
    return diag_error(p->diag, AMPC_USAGE, here(p), "unknown option %s%s%s", dashes(name), name, hint);
}

static ampc_status unknown_word(const parser *p, const option *row, const char *value)
{
    suggestion near = suggest_for(value);
    for (const pass_word *w = row->words; w->word; w++) suggest_candidate(&near, w->word);
    const char *hint = suggestion_hint(&near, "", p->o->arena);
    if (row->field == offsetof(tool_options, pass.low) && (strcmp(value, "fp32") == 0 || strcmp(value, "float32") == 0))
        hint = "; fp32 is --amp=O0";
    return diag_error(p->diag, AMPC_USAGE, here(p), "--%s: unknown value '%s' (expected %s)%s", row->name, value,
                      option_value(row, p->o->arena), hint);
}

static bool has_limits(const option *row) { return row->limits[0] < row->limits[1]; }

static ampc_status bad_number(const parser *p, const option *row, const char *value)
{
    const char *kind = row->kind == OPTION_REAL ? "a number" : "an integer";
    if (!has_limits(row))
        return diag_error(p->diag, AMPC_USAGE, here(p), "--%s: '%s' is not %s", row->name, value, kind);
    return diag_error(p->diag, AMPC_USAGE, here(p), "--%s: '%s' is not %s from %g to %g", row->name, value, kind,
                      row->limits[0], row->limits[1]);
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

static ampc_status store_list(const parser *p, const option *row, const char *value, pass_strings *list)
{
    char *rest = *value ? arena_strdup(p->o->arena, value) : NULL;
    for (char *item; (item = strsep(&rest, ","));) {
        if (!*item) return diag_error(p->diag, AMPC_USAGE, here(p), "--%s: a name is missing at a comma", row->name);
        add_text(p->o, list, item);
    }
    return AMPC_OK;
}

static bool in_limits(const option *row, double v)
{
    return !has_limits(row) || (v >= row->limits[0] && v <= row->limits[1]);
}

static ampc_status store_int(const parser *p, const option *row, const char *value, int64_t *field)
{
    int64_t v;
    if (!options_int(value, &v) || !in_limits(row, (double)v)) return bad_number(p, row, value);
    *field = v;
    return AMPC_OK;
}

static ampc_status store_real(const parser *p, const option *row, const char *value, double *field)
{
    double v;
    if (!parse_real(value, &v) || !in_limits(row, v)) return bad_number(p, row, value);
    *field = v;
    return AMPC_OK;
}

static ampc_status store_word(const parser *p, const option *row, const char *value, void *field)
{
    int v;
    if (!pass_find_word(row->words, value, &v)) return unknown_word(p, row, value);
    memcpy(field, &v, sizeof v); /* an int or an enum */
    return AMPC_OK;
}

static ampc_status store_once(const parser *p, const option *row, const char *value, const char **field)
{
    if (*field && strcmp(*field, row->initial) != 0 && strcmp(*field, value) != 0)
        return diag_error(p->diag, AMPC_USAGE, here(p), "--%s: conflicting values '%s' and '%s'", row->name, *field,
                          value);
    *field = value;
    return AMPC_OK;
}

/* General options apply to every command. */
bool option_compiles(const option *row, const command *c)
{
    if (row->of_compiled & c->bit) return false;
    const size_t first = offsetof(tool_options, pass), end = first + sizeof(compile_options);
    const bool is_pass_option = row->field >= first && row->field < end && row->group != GROUP_GENERAL;
    return row->group == GROUP_PRECISION || row->group == GROUP_TRAINING || is_pass_option;
}

static ampc_status store(const parser *p, const option *row, const char *value)
{
    void *field = (char *)p->o + row->field;
    p->o->given[row - option_table] = p->argv ? GIVEN_BY_USER : GIVEN_BY_RECIPE;
    if (option_compiles(row, p->command) && !p->o->compile_option) p->o->compile_option = row->name;
    switch (row->kind) {
    case OPTION_SET: *(bool *)field = true; break;
    case OPTION_CLEAR: *(bool *)field = false; break;
    case OPTION_TEXT: *(const char **)field = value; break;
    case OPTION_ONCE: return store_once(p, row, value, field);
    case OPTION_WORD: return store_word(p, row, value, field);
    case OPTION_INT:
    case OPTION_SEED: return store_int(p, row, value, field);
    case OPTION_REAL: return store_real(p, row, value, field);
    case OPTION_TEXTS:
    case OPTION_ARRAY: add_text(p->o, field, value); break;
    case OPTION_LIST: return store_list(p, row, value, field);
    }
    return AMPC_OK;
}

/* ---- arguments ------------------------------------------------------------------------------- */

static bool has_value(const option *row) { return row->kind != OPTION_SET && row->kind != OPTION_CLEAR; }

/* `attached`: the text after the name in the same argument; NULL: none. */
static ampc_status parse_option(parser *p, const char *name, const char *attached)
{
    const option *row = option_find(name, p->command->bit);
    if (!row) return unknown_option(p, name);
    if (!has_value(row) && attached)
        return diag_error(p->diag, AMPC_USAGE, here(p), "%s%s does not accept a value", dashes(name), name);
    if (attached) return store(p, row, attached);
    if (row->implied || !has_value(row)) return store(p, row, row->implied);
    if (p->at == p->argc)
        return diag_error(p->diag, AMPC_USAGE, here(p), "%s%s requires a value: %s", dashes(name), name,
                          option_value(row, p->o->arena));
    return store(p, row, p->argv[p->at++]);
}

static ampc_status parse_argument(parser *p, bool *operands_only)
{
    char *text = p->argv[p->at++];
    if (*operands_only || text[0] != '-' || !text[1]) {
        add_text(p->o, &p->o->operands, text);
        return AMPC_OK;
    }
    if (strcmp(text, "--") == 0) {
        *operands_only = true;
        return AMPC_OK;
    }
    if (text[1] == '-') {
        size_t length = strcspn(text + 2, "=");
        return parse_option(p, arena_strndup(p->o->arena, text + 2, length),
                            text[2 + length] ? text + 2 + length + 1 : NULL);
    }
    return parse_option(p, arena_strndup(p->o->arena, text + 1, 1), text[2] ? text + 2 : NULL);
}

int options_first_operand(unsigned commands, int argc, char **argv)
{
    int at = 0;
    for (; at < argc && argv[at][0] == '-' && argv[at][1]; at++) {
        const char *name = argv[at] + 1 + (argv[at][1] == '-');
        char plain[64];
        snprintf(plain, sizeof plain, "%.*s", (int)strcspn(name, "="), name);
        const option *row = option_find(plain, commands);
        at += row && has_value(row) && !row->implied && !strchr(name, '=');
    }
    return at;
}

bool options_only_print(const tool_options *o) { return o->help || o->version || o->list_passes || o->print_ops; }

ampc_status options_parse(tool_options *o, const command *c, int argc, char **argv, diag *d)
{
    parser p = {.o = o, .command = c, .diag = d, .argc = argc, .argv = argv};
    const int expected = c->operands != NULL;
    bool operands_only = false;
    while (p.at < argc) TRY(parse_argument(&p, &operands_only));
    if (options_only_print(o)) return AMPC_OK;
    if (o->operands.count < expected)
        return diag_error(d, AMPC_USAGE, here(&p), "no model specified; see '%s --help'", c->name);
    if (o->operands.count > expected)
        return diag_error(d, AMPC_USAGE, here(&p), "unexpected operand '%s'", o->operands.items[expected]);
    return AMPC_OK;
}

/* ---- a recipe -------------------------------------------------------------------------------- */

/* Whether the text is one of the literal words of a placeholder, "gpu|cpu|FILE". */
static bool is_word_of(const char *placeholder, const char *text)
{
    const size_t length = strlen(text);
    for (const char *at = placeholder; at; at = strchr(at, '|')) {
        at += *at == '|';
        if (strncmp(at, text, length) == 0 && (at[length] == '|' || !at[length]) && islower((unsigned char)*text))
            return true;
    }
    return false;
}

/* A file is relative to the recipe, `from`, and must be in its folder. */
static ampc_status find_file(const parser *p, const option *row, const char *from, const char **value)
{
    const char *name = *value, *why;
    if (row->in_recipe == RECIPE_DESCRIBES || !name) return AMPC_OK;
    if (row->in_recipe == RECIPE_READS_OR_DEVICE && is_word_of(row->value, name)) return AMPC_OK;
    if (beneath_find(from, name, p->o->arena, value, &why) == AMPC_OK) return AMPC_OK;
    return diag_error(p->diag, AMPC_USAGE, here(p), "--%s: '%s' %s; the files of a recipe must be in its folder",
                      row->name, name, why);
}

/* `from`: the recipe. */
static ampc_status parse_word(parser *p, const char *from, const char *word)
{
    const size_t length = strncmp(word, "--", 2) == 0 ? strcspn(word + 2, "=") : 0;
    const char *name = length ? arena_strndup(p->o->arena, word + 2, length) : word;
    const option *row = length > 1 ? option_find(name, ~0u) : NULL;
    if (!row && length) return unknown_option(p, name);
    if (!row) return diag_error(p->diag, AMPC_USAGE, here(p), "'%s' is not an option, --NAME or --NAME=VALUE", word);
    if (row->in_recipe == RECIPE_NEVER)
        return diag_error(p->diag, AMPC_USAGE, here(p),
                          "--%s is not an option of recipes, because it does not describe the network or the training",
                          name);
    if (!option_applies(row, p->command->bit)) return AMPC_OK;
    const char *value = word[2 + length] ? word + 2 + length + 1 : NULL;
    TRY(find_file(p, row, from, &value));
    TRY(parse_option(p, name, value));
    p->o->pass.confined_lists = p->o->pass.lists.count;
    return AMPC_OK;
}

ampc_status options_of_recipe(tool_options *o, const command *c, const char *path, diag *d)
{
    parser p = {.o = o, .command = c, .diag = d};
    recipe_options words = {0};
    TRY(recipe_read_options(path, o->arena, d, &words));
    for (size_t i = 0; i < words.count; i++)
        if (parse_word(&p, path, words.items[i].text) != AMPC_OK) {
            diag_note(d, (diag_loc){.file = path, .line = words.items[i].line}, "this is the option");
            return diag_status(d);
        }
    return AMPC_OK;
}

ampc_status options_split(const char *text, const char *what, arena *a, diag *d, const char **name, const char **value)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1])
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "%s: '%s' does not have the form NAME=VALUE", what, text);
    *name = arena_strndup(a, text, (size_t)(equals - text));
    *value = equals + 1;
    return AMPC_OK;
}
