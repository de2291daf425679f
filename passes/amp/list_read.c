/* list_read.c - reads list files (.amplist) and the lists of the command line into layers.
 *
 * An INI library would not do: lines such as "+Op", "-Op" and "Op if COND and COND" are not key = value, and every
 * error message has to include the line. */
#include "passes/amp/list.h"

#include "ir/base/beneath.h"
#include "ir/base/input_file.h"
#include "ir/base/limits.h"
#include "ir/ops/number.h"
#include "passes/builtin_profiles.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum section { META, WHITE, BLACK, GRAY, CLEAR, NODES, TENSORS, RULES, NO_SECTION } section;
static const char *const section_names[] = {"meta", "white", "black", "gray", "clear", "nodes", "tensors", "rules"};

typedef struct reader {
    amp_list *list;
    list_layer *layer;
    const compile_options *options;
    bool confined; /* the list is of a recipe */
    diag *diag;
    const char *file; /* for messages */
    bool builtin;
    int line;
    const char *text; /* the line, for the caret */
    section section;
} reader;

/* The location of the current line, with the caret at `at` if that is in r->text, else at the start. */
static diag_loc here(const reader *r, const char *at)
{
    int column = at && at >= r->text && at <= r->text + strlen(r->text) ? (int)(at - r->text) + 1 : 1;
    return (diag_loc){
        .file = r->file, .line = r->line, .column = r->line ? column : 0, .text = r->line ? r->text : NULL};
}

static ampc_status complain(const reader *r, ampc_status code, const char *at, const char *format, const char *a)
{
    char message[256];
    snprintf(message, sizeof message, format, a);
    return diag_error(r->diag, code, here(r, at), "%s", message);
}

/* Removes blanks at both ends, in place. */
static char *trim(char *s)
{
    while (isspace((unsigned char)*s)) s++;
    char *end = s + strlen(s);
    while (end > s && isspace((unsigned char)end[-1])) *--end = '\0';
    return s;
}

/* Removes the quotes around a name, in which \" and \\ are escapes. In place. Returns NULL if the closing quote is
 * missing or is followed by text. */
static char *unquote(char *s)
{
    if (*s != '"') return s;
    char *to = s;
    const char *from = s + 1;
    while (*from && *from != '"') {
        from += from[0] == '\\' && (from[1] == '"' || from[1] == '\\');
        *to++ = *from++;
    }
    bool closed = from[0] == '"' && !from[1];
    *to = '\0';
    return closed ? s : NULL;
}

/* A comment starts with a '#' outside quotes, at the start of the line or after a blank. */
static char *find_comment(char *s)
{
    bool quoted = false;
    for (char *p = s; *p; p++) {
        if (*p == '\\' && quoted && p[1]) p++;
        else if (*p == '"') quoted = !quoted;
        else if (*p == '#' && !quoted && (p == s || isspace((unsigned char)p[-1]))) return p;
    }
    return NULL;
}

/* ---- conditions ------------------------------------------------------------------------------ */

/* Operands are named by position: "A".."H". */
static bool parse_operand(const char *s, size_t n, int64_t *position)
{
    if (n != 1 || *s < 'A' || *s > 'H') return false;
    *position = *s - 'A';
    return true;
}

static bool parse_call(const char *s, const char *name, int64_t *position, const char **rest)
{
    size_t n = strlen(name);
    const char *close = strchr(s, ')');
    if (strncmp(s, name, n) != 0 || s[n] != '(' || !close) return false;
    *rest = close + 1;
    return parse_operand(s + n + 1, (size_t)(close - s) - n - 1, position);
}

static bool parse_number(const char *s, int64_t *value)
{
    char *end;
    *value = strtoll(s, &end, 10);
    return end != s && *end == '\0';
}

static bool parse_same(const char *s, list_condition *c)
{
    c->test = LIST_SAME;
    return strlen(s) == 9 && s[6] == ',' && s[8] == ')' && parse_operand(s + 5, 1, &c->argument) &&
           parse_operand(s + 7, 1, &c->value);
}

static bool parse_level(const char *s, list_condition *c)
{
    int level = 0;
    c->test = LIST_LEVEL;
    bool found = pass_find_word(pass_levels, s, &level);
    c->value = level;
    return found;
}

static size_t word_length(const char *s)
{
    size_t n = 0;
    while (isalpha((unsigned char)s[n]) || (n && (s[n] == '_' || isdigit((unsigned char)s[n])))) n++;
    return n;
}

/* transB -> trans_b: the op table uses snake case. */
static const char *snake_case(arena *a, const char *name, size_t n)
{
    char *text = arena_alloc(a, 2 * n + 1), *to = text;
    for (size_t i = 0; i < n; i++) {
        if (isupper((unsigned char)name[i])) *to++ = '_';
        *to++ = (char)tolower((unsigned char)name[i]);
    }
    return text;
}

/* ATTRIBUTE==NUMBER or with != < <= > >=; a word supports only == and !=. */
static bool parse_attribute(arena *a, const char *s, list_condition *c)
{
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">"}; /* by list_comparison */
    size_t length = word_length(s), sign = 0;
    const char *at = s + length + strspn(s + length, " ");
    while (sign < 6 && strncmp(at, signs[sign], strlen(signs[sign])) != 0) sign++;
    if (!length || sign == 6) return false;
    at += strlen(signs[sign]);
    at += strspn(at, " ");
    c->test = LIST_ATTRIBUTE;
    c->attribute = snake_case(a, s, length);
    c->comparison = (list_comparison)sign;
    if (ir_float_parse(at, &c->number)) return true;
    c->word = arena_strdup(a, at);
    return *at && !at[word_length(at)] && sign <= LIST_NE;
}

static bool parse_condition(arena *a, const char *s, list_condition *c)
{
    const char *rest;
    *c = (list_condition){0};
    if (strncmp(s, "not ", 4) == 0) {
        c->negated = true;
        s += 4;
    }
    if (strcmp(s, "depthwise") == 0) return c->test = LIST_DEPTHWISE, true;
    if (strcmp(s, "strided") == 0) return c->test = LIST_STRIDED, true;
    if (strncmp(s, "dtype==", 7) == 0) {
        c->test = LIST_DTYPE;
        c->value = ir_dtype_parse(strcmp(s + 7, "fp16") == 0 ? "f16" : s + 7);
        return c->value != IR_NO_DTYPE;
    }
    if (strncmp(s, "level==", 7) == 0) return parse_level(s + 7, c);
    if (strncmp(s, "outputs==", 9) == 0) return c->test = LIST_OUTPUTS, parse_number(s + 9, &c->value);
    if (strncmp(s, "same(", 5) == 0) return parse_same(s, c);
    if (parse_call(s, "rank", &c->argument, &rest))
        return c->test = LIST_RANK, strncmp(rest, "==", 2) == 0 && parse_number(rest + 2, &c->value);
    if (parse_call(s, "value", &c->argument, &rest))
        return c->test = LIST_VALUE, strncmp(rest, "==", 2) == 0 && ir_float_parse(rest + 2, &c->number);
    if (parse_call(s, "scalar", &c->argument, &rest)) return c->test = LIST_SCALAR, *rest == '\0';
    if (parse_call(s, "param", &c->argument, &rest)) return c->test = LIST_PARAM, *rest == '\0';
    return parse_attribute(a, s, c);
}

static ampc_status parse_conditions(reader *r, char *s, list_entry *e)
{
    for (char *next; s; s = next) {
        next = strstr(s, " and ");
        if (next) {
            *next = '\0';
            next += 5;
        }
        list_condition c;
        s = trim(s);
        if (!parse_condition(r->list->arena, s, &c))
            return complain(r, AMPC_REJECTED, strstr(r->text, s), "'%s' is not a condition", s);
        vec_push(r->list->arena, &e->conditions, c);
    }
    return AMPC_OK;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* NAME or DOMAIN::NAME */
static bool is_operator_name(const char *s)
{
    const char *scope = strstr(s, "::");
    for (; scope && s < scope; s++)
        if (!isalnum((unsigned char)*s) && !strchr("_.-", *s)) return false;
    if (scope) s = scope + 2;
    if (!isalpha((unsigned char)*s)) return false;
    while (isalnum((unsigned char)*s) || *s == '_' || *s == '.') s++;
    return *s == '\0';
}

/* Rejects an operator that is in two lists of one layer, both times without conditions. */
static ampc_status check_twice(reader *r, const list_entry *e)
{
    if (e->remove || e->conditions.count) return AMPC_OK;
    const list_entry *other = strmap_get(r->layer->unconditional, e->op);
    if (!other) {
        list_entry *copy = arena_alloc(r->list->arena, sizeof *copy);
        *copy = *e;
        strmap_put(r->layer->unconditional, e->op, copy);
    }
    if (!other || other->colour == e->colour) return AMPC_OK;
    const char *now = ir_colour_name(e->colour), *before = ir_colour_name(other->colour);
    if (!r->line)
        return diag_error(r->diag, AMPC_USAGE, DIAG_NOWHERE, "the options name operator '%s' as %s and as %s", e->op,
                          before, now);
    return diag_error(r->diag, AMPC_REJECTED, here(r, NULL), "operator '%s' is %s here and %s in line %d", e->op, now,
                      before, other->place.line);
}

static ampc_status read_operator(reader *r, char *s, ir_colour colour)
{
    arena *a = r->list->arena;
    list_entry e = {.colour = colour, .place = {r->file, r->line}};
    if (*s == '+' || *s == '-') e.remove = *s++ == '-';
    s = trim(s);
    e.text = arena_strdup(a, s);
    char *condition = strstr(s, " if ");
    if (condition) {
        *condition = '\0';
        condition += 4;
    }
    s = trim(s);
    if (!is_operator_name(s)) return complain(r, AMPC_REJECTED, NULL, "'%s' is not an operator name", s);
    e.op = arena_intern(a, s);
    if (condition && e.remove) return complain(r, AMPC_REJECTED, NULL, "-%s cannot have a condition", s);
    if (condition) TRY(parse_conditions(r, condition, &e));
    TRY(check_twice(r, &e));
    if (r->builtin) strmap_put(r->list->known, e.op, (void *)e.op);
    vec_push(a, &r->layer->entries, e);
    return AMPC_OK;
}

static ir_dtype parse_precision(const char *s)
{
    return strcmp(s, "fp32") == 0   ? IR_f32
           : strcmp(s, "fp16") == 0 ? IR_f16
           : strcmp(s, "bf16") == 0 ? IR_bf16
                                    : IR_NO_DTYPE;
}

static ampc_status read_node(reader *r, char *key, char *value)
{
    const char *glob = unquote(key);
    list_pattern p = {arena_strdup(r->list->arena, glob ? glob : ""), parse_precision(value), {r->file, r->line}};
    if (!glob) return complain(r, AMPC_REJECTED, strchr(r->text, '"'), "unterminated name in quotes%s", "");
    if (!*key) return complain(r, AMPC_REJECTED, NULL, "a node name or glob is missing before '= %s'", value);
    if (p.dtype == IR_NO_DTYPE)
        return complain(r, AMPC_REJECTED, strstr(r->text, value),
                        "'%s' is not a precision: expected fp32, fp16 or bf16", value);
    if (p.dtype != IR_f32 && p.dtype != r->options->low)
        return diag_error(r->diag, AMPC_UNSUPPORTED,
                          DIAG_USE(here(r, strstr(r->text, value)), OPTION_dtype, .value = value),
                          "precision '%s' is not the low-precision type of the model, which has only one", value);
    vec_push(r->list->arena, &r->layer->nodes, p);
    return AMPC_OK;
}

static ampc_status read_tensor(reader *r, char *s)
{
    const char *name = unquote(s);
    if (!name) return complain(r, AMPC_REJECTED, strchr(r->text, '"'), "unterminated name in quotes%s", "");
    list_pattern p = {arena_strdup(r->list->arena, name), IR_f32, {r->file, r->line}};
    vec_push(r->list->arena, &r->layer->tensors, p);
    return AMPC_OK;
}

/* init, incr_every, decr_every, incr_ratio, decr_ratio */
static bool parse_scaling(arena *a, const char *text, scaling_rules *s)
{
    double v[5];
    char *next = arena_strdup(a, text);
    for (int i = 0; i < 5; i++) {
        char *part = strsep(&next, ",");
        if (!part || !ir_float_parse(trim(part), &v[i])) return false;
    }
    bool within = is_within(v[3], LIMITS_INCR_RATIO) && v[3] > 1 && is_within(v[4], LIMITS_DECR_RATIO) && v[4] < 1;
    for (int i = 1; i < 3; i++) within &= is_within(v[i], LIMITS_EVERY_N);
    if (next || !within || !is_within(v[0], LIMITS_LOSS_SCALE)) return false;
    *s = (scaling_rules){.init = v[0],
                         .incr_every = (int64_t)v[1],
                         .decr_every = (int64_t)v[2],
                         .incr_ratio = v[3],
                         .decr_ratio = v[4],
                         .min = 1};
    return true;
}

static ampc_status check_scaling(reader *r, const char **value)
{
    if (parse_scaling(r->list->arena, *value, &r->list->scaling)) return AMPC_OK;
    static const double init[] = {LIMITS_LOSS_SCALE};
    const char *why = arena_printf(r->list->arena,
                                   "scaling = '%s': expected init from %g to %g, incr_every >= 1, decr_every >= 1, "
                                   "incr_ratio > 1, 0 < decr_ratio < 1",
                                   *value, init[0], init[1]);
    return complain(r, AMPC_REJECTED, strstr(r->text, *value), "%s", why);
}

static ampc_status check_text(reader *r, const char **value)
{
    (void)r, (void)value;
    return AMPC_OK;
}

/* *text belongs to the arena of the list. Messages about the file itself go to `d`. */
static ampc_status read_text_file(reader *r, const char *path, size_t limit, const char *what, diag *d, char **text,
                                  size_t *length)
{
    char *all;
    TRY(input_read(path, limit, NULL, d, &all, length));
    const bool is_text = *length <= limit && !memchr(all, '\0', *length);
    if (is_text) *text = arena_strndup(r->list->arena, all, *length);
    free(all);
    return is_text ? AMPC_OK : diag_error(r->diag, AMPC_REJECTED, DIAG_FILE(path), "not %s", what);
}

/* Reads the operators named in the list, whose line is at fault if the file cannot be read. */
static ampc_status read_operator_file(reader *r, const char *path, diag_loc named, char **text)
{
    enum { LIMIT = 1 << 16 };
    size_t n;
    diag *quiet = diag_new(NULL, NULL);
    if (!quiet) return diag_error(r->diag, AMPC_NO_MEMORY, named, "out of memory");
    const ampc_status s = read_text_file(r, path, LIMIT, "a list of operators", quiet, text, &n);
    const int error = errno;
    const bool unread = diag_status(quiet) != AMPC_OK;
    diag_free(quiet);
    if (!unread) return s;
    errno = error;
    if (error) return diag_errno(r->diag, named, arena_printf(r->list->arena, "cannot read '%s'", path));
    return diag_error(r->diag, s, named, "'%s' is not a regular file", path);
}

/* `unsupported = FILE`: one operator per line, with comments as in a list. A relative path starts at the folder of the
 * list. *value becomes the absolute path. */
static ampc_status check_operator_file(reader *r, const char **value)
{
    arena *a = r->list->arena;
    const char *name = *value;
    r->list->unsupported = strmap_new(a);
    if (strcmp(name, "none") == 0) return AMPC_OK;
    const char *slash = *name == '/' || r->builtin ? NULL : strrchr(r->file, '/');
    const char *path = slash ? arena_printf(a, "%.*s%s", (int)(slash + 1 - r->file), r->file, name) : name;
    const char *beneath, *why;
    if (r->confined && beneath_find(r->file, name, a, &beneath, &why) != AMPC_OK)
        return diag_error(r->diag, AMPC_REJECTED, here(r, strstr(r->text, name)),
                          "'%s' %s; the files of a recipe must be in its folder", name, why);
    char *absolute = realpath(path, NULL); /* because an emitted list may be in another folder */
    if (absolute) *value = arena_strdup(a, absolute);
    free(absolute);
    char *text;
    TRY(read_operator_file(r, path, here(r, strstr(r->text, name)), &text));
    int line = 0;
    for (char *op; (op = strsep(&text, "\n"));) {
        line++;
        op[strcspn(op, "#")] = '\0';
        op = trim(op);
        if (!*op) continue;
        diag_loc loc = {.file = path, .line = line, .column = 1};
        if (!is_operator_name(op)) return diag_error(r->diag, AMPC_REJECTED, loc, "'%s' is not an operator name", op);
        strmap_put(r->list->unsupported, op, r->list);
    }
    return AMPC_OK;
}

/* By rule; may replace *value for the effective list. */
typedef ampc_status rule_check(reader *r, const char **value);
static rule_check *const checks[RULE_COUNT] = {
#define TEXT(key, check, values, meaning) [RULE_##key] = check_##check,
#include "passes/amp/rules.def"
};

/* The profile is read last and sets only the rules that the files have not set. */
static ampc_status read_rule(reader *r, const char *key, const char *value)
{
    amp_list *l = r->list;
    rule_id id = rules_find(key);
    if (id == RULE_COUNT) return complain(r, AMPC_REJECTED, NULL, "unknown rule '%s'", key);
    if (r->builtin && l->set[id]) return AMPC_OK;
    if (checks[id]) TRY(checks[id](r, &value));
    if (!rules_set(&l->rule, id, arena_strdup(l->arena, value)))
        return diag_error(r->diag, AMPC_REJECTED, here(r, strstr(r->text, value)),
                          "'%s' is not a value of this rule: expected %s", value, rules_values(id, l->arena));
    l->set[id] = true;
    return AMPC_OK;
}

typedef struct profile {
    const char *name, *text, *end;
} profile;

/* Returns NULL if there is no such profile. */
static const profile *find_profile(const char *name)
{
    static const profile profiles[] = {
        {"empty", pass_profile_ampc, pass_profile_ampc_end}, /* the rules of ampc without its operators */
#define PROFILE(name, id) {name, pass_profile_##id, pass_profile_##id##_end},
        PASS_BUILTIN_PROFILE_MAP(PROFILE)
#undef PROFILE
    };
    for (size_t i = 0; i < sizeof profiles / sizeof *profiles; i++)
        if (strcmp(profiles[i].name, name) == 0) return &profiles[i];
    return NULL;
}

/* Sets the profile that a file modifies; all files and --profile have to agree. */
static ampc_status read_base(reader *r, const char *value)
{
    if (!find_profile(value)) return complain(r, AMPC_REJECTED, strstr(r->text, value), "unknown base '%s'", value);
    if (!r->list->base) r->list->base = arena_strdup(r->list->arena, value);
    if (strcmp(r->list->base, value) == 0) return AMPC_OK;
    return diag_error(r->diag, AMPC_USAGE, here(r, strstr(r->text, value)),
                      "base '%s' differs from the profile '%s' in use", value, r->list->base);
}

static ampc_status read_meta(reader *r, const char *key, const char *value)
{
    if (strcmp(key, "version") == 0)
        return strcmp(value, "1") == 0 ? AMPC_OK : complain(r, AMPC_REJECTED, NULL, "unknown list version '%s'", value);
    if (strcmp(key, "base") != 0) return complain(r, AMPC_REJECTED, NULL, "unknown key '%s' in [meta]", key);
    return r->builtin ? AMPC_OK : read_base(r, value);
}

static ampc_status read_pair(reader *r, char *s)
{
    char *equals = strrchr(s, '=');
    if (r->section != NODES && equals) equals = strchr(s, '=');
    if (!equals) return complain(r, AMPC_REJECTED, NULL, "expected 'key = value', found '%s'", s);
    *equals = '\0';
    char *key = trim(s), *value = trim(equals + 1);
    if (r->section == NODES) return read_node(r, key, value);
    return r->section == META ? read_meta(r, key, value) : read_rule(r, key, value);
}

static ampc_status read_section(reader *r, char *s)
{
    char *close = strchr(s, ']');
    if (!close || close[1]) return complain(r, AMPC_REJECTED, NULL, "malformed section '%s'", s);
    *close = '\0';
    for (section i = META; i < NO_SECTION; i++)
        if (strcmp(section_names[i], s + 1) == 0) {
            r->section = i;
            return AMPC_OK;
        }
    return complain(r, AMPC_REJECTED, NULL, "unknown section '%s'", s + 1);
}

static ampc_status read_line(reader *r, char *s)
{
    static const ir_colour colours[] = {[WHITE] = IR_WHITE, [BLACK] = IR_BLACK, [GRAY] = IR_GRAY, [CLEAR] = IR_CLEAR};
    char *comment = find_comment(s);
    if (comment) *comment = '\0';
    s = trim(s);
    if (!*s) return AMPC_OK;
    if (*s == '[' && !(r->section == NODES && strchr(s, '='))) return read_section(r, s); /* else it is a glob */
    switch (r->section) {
    case NO_SECTION: return complain(r, AMPC_REJECTED, NULL, "'%s' precedes the first section", s);
    case TENSORS: return read_tensor(r, s);
    case WHITE:
    case BLACK:
    case GRAY:
    case CLEAR: return read_operator(r, s, colours[r->section]);
    default: return read_pair(r, s);
    }
}

static void add_layer(reader *r)
{
    const list_layer empty = {.unconditional = strmap_new(r->list->arena)};
    vec_push(r->list->arena, &r->list->layers, empty);
    r->layer = &r->list->layers.items[r->list->layers.count - 1];
}

/* Reads all lines and reports every error; returns the code of the first. */
static ampc_status read_text(reader *r, const char *text, size_t length)
{
    ampc_status first = AMPC_OK;
    r->section = NO_SECTION;
    r->line = 1;
    for (const char *end = text + length; text < end; r->line++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t n = newline ? (size_t)(newline - text) : (size_t)(end - text);
        r->text = arena_strndup(r->list->arena, text, n && text[n - 1] == '\r' ? n - 1 : n);
        ampc_status status = read_line(r, arena_strdup(r->list->arena, r->text));
        if (first == AMPC_OK) first = status;
        text += n + 1;
    }
    return first;
}

/* ---- sources --------------------------------------------------------------------------------- */

/* Has to run after the files, which may name the profile and override its rules. */
static ampc_status read_profile(reader *r, const char *name)
{
    const profile *p = find_profile(name);
    if (!p) return diag_error(r->diag, AMPC_USAGE, DIAG_NOWHERE, "unknown profile '%s'", name);
    r->builtin = true;
    r->file = arena_printf(r->list->arena, "profile %s", name);
    r->layer = &r->list->layers.items[0];
    ampc_status status = read_text(r, p->text, (size_t)(p->end - p->text));
    if (strcmp(name, "empty") == 0) r->layer->entries.count = 0;
    return status;
}

static ampc_status read_file(reader *r, const char *path)
{
    enum { LIMIT = 1 << 20 };
    char *text;
    size_t n;
    TRY(read_text_file(r, path, LIMIT, "a list file", r->diag, &text, &n));
    r->file = path;
    add_layer(r);
    return read_text(r, text, n);
}

static ampc_status read_command_line(reader *r, const compile_options *o)
{
    const struct {
        const pass_strings *names;
        ir_colour colour;
    } lists[] = {{&o->white, IR_WHITE}, {&o->black, IR_BLACK}, {&o->gray, IR_GRAY}};
    ampc_status first = AMPC_OK;
    r->file = "command line";
    r->line = 0;
    add_layer(r);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (int k = 0; k < lists[i].names->count; k++) {
            ampc_status s = read_operator(r, arena_strdup(r->list->arena, lists[i].names->items[k]), lists[i].colour);
            if (first == AMPC_OK) first = s;
        }
    for (int i = 0; i < o->fp32_nodes.count; i++) {
        list_pattern p = {o->fp32_nodes.items[i], IR_f32, {r->file, 0}};
        vec_push(r->list->arena, &r->layer->nodes, p);
    }
    for (int i = 0; i < o->black_vars.count; i++) {
        list_pattern p = {o->black_vars.items[i], IR_f32, {r->file, 0}};
        vec_push(r->list->arena, &r->layer->tensors, p);
    }
    return first;
}

ampc_status amp_list_load(const compile_options *o, arena *a, diag *d, amp_list **out)
{
    amp_list *l = arena_alloc(a, sizeof *l);
    l->arena = a;
    l->known = strmap_new(a);
    l->unsupported = strmap_new(a);
    l->rule = rules_default;
    l->level = o->level;
    l->plain_runtime = o->plain_runtime;
    l->base = o->profile;
    reader r = {.list = l, .options = o, .diag = d, .text = ""};
    ampc_status first = AMPC_OK;
    add_layer(&r);
    for (int i = 0; i < o->lists.count; i++) {
        r.confined = i < o->confined_lists;
        ampc_status status = read_file(&r, o->lists.items[i]);
        if (first == AMPC_OK) first = status;
    }
    ampc_status status = read_command_line(&r, o);
    if (first == AMPC_OK) first = status;
    if (first == AMPC_OK) first = read_profile(&r, l->base ? l->base : "ampc");
    for (size_t i = 1; i < l->layers.count && l->rule.od == OD_STRICT && o->level == PASS_OD; i++)
        l->layers.items[i].entries.count = l->layers.items[i].tensors.count = 0;
    l->scaling.late = l->rule.counters == COUNTERS_N_PLUS_1;
    *out = l;
    return first;
}
