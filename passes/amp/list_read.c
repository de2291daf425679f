/* list_read.c - reads list files (.amplist) and the lists of the command line into layers.
 *
 * An INI library would not do: lines such as "+Op", "-Op" and "Op if COND and COND" are not key = value, and every
 * error message has to include the line. */
#include "passes/amp/list.h"

#include "passes/amp/mixlist.h"

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

typedef enum section { META, WHITE, BLACK, GRAY, CLEAR, NODES, TENSORS, OPERANDS, RULES, NO_SECTION } section;
static const char *const section_names[] = {"meta",  "white",   "black",    "gray", "clear",
                                            "nodes", "tensors", "operands", "rules"};

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
        .file = r->file, .line = r->line, .column = r->line ? column : 0, .text = r->line && *r->text ? r->text : NULL};
}

/* Reads a value at `at` of the current line. */
static ampc_status read_value(const reader *r, const setting *row, const char *at, const char *value, void *of)
{
    const settings s = {.line = here(r, at), .rows = row, .count = 1};
    return settings_value(&s, row, value, (char *)of + row->at, r->diag);
}

static ampc_status complain(const reader *r, const char *at, const char *format, const char *a)
{
    char message[256];
    snprintf(message, sizeof message, format, a);
    return diag_error(r->diag, r->line ? AMPC_REJECTED : AMPC_USAGE, here(r, at), "%s", message);
}

/* Removes blanks at both ends, in place. */
static char *trim(char *s)
{
    while (isspace((unsigned char)*s)) s++;
    char *end = s + strlen(s);
    while (end > s && isspace((unsigned char)end[-1])) *--end = '\0';
    return s;
}

/* The byte that \xHH means, or 0 if s is something else. */
static char hex_byte(const char *s)
{
    if (s[0] != '\\' || s[1] != 'x' || !isxdigit((unsigned char)s[2]) || !isxdigit((unsigned char)s[3])) return 0;
    return (char)strtoul((char[]){s[2], s[3], '\0'}, NULL, 16);
}

/* Removes the quotes around a name, in which \", \\ and \xHH (a byte other than zero) are escapes. In place. Returns
 * NULL if the closing quote is missing or is followed by text. */
static char *unquote(char *s)
{
    if (*s != '"') return s;
    char *to = s;
    const char *from = s + 1;
    while (*from && *from != '"') {
        const char byte = hex_byte(from);
        from += byte ? 3 : from[0] == '\\' && (from[1] == '"' || from[1] == '\\');
        *to++ = byte ? byte : *from;
        from++;
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

/* Accepts "(A,..)", so many operands, which are named by position: "A".."H". */
static bool accept_operands(const char **s, int count, int64_t *const positions[2])
{
    const char *at = *s;
    for (int i = 0; i < count; i++, at += 2) {
        if (at[0] != (i ? ',' : '(') || at[1] < 'A' || at[1] > 'H') return false;
        *positions[i] = at[1] - 'A';
    }
    *s = at + (count > 0);
    return !count || *at == ')';
}

#define TYPES "fp32|fp16|bf16"
static const int types[] = {IR_f32, IR_f16, IR_bf16, IR_NO_DTYPE}; /* the last one is "keep" */

/* NAME, NAME(OPERAND,..) or one of them and ==VALUE. */
static const struct condition_form {
    const char *name;
    list_test test;
    int operands;
    setting value; /* key NULL: none */
} condition_forms[] = {
    {"depthwise", LIST_DEPTHWISE, 0, {0}},
    {"strided", LIST_STRIDED, 0, {0}},
    {"dtype", LIST_DTYPE, 0, SETTING_WORDS(list_condition, "dtype", choice, TYPES, NULL)},
    {"level", LIST_LEVEL, 0, SETTING_WORDS(list_condition, "level", choice, "O0|O1|O2|OD", NULL)}, /* by pass_level */
    {"outputs", LIST_OUTPUTS, 0, SETTING(list_condition, "outputs", value, COUNT, NULL, 0, DBL_MAX)},
    {"rank", LIST_RANK, 1, SETTING(list_condition, "the rank", value, COUNT, NULL, 0, IR_MAX_RANK)},
    {"value", LIST_VALUE, 1, SETTING(list_condition, "the value", number, REAL, NULL, -DBL_MAX, DBL_MAX)},
    {"scalar", LIST_SCALAR, 1, {0}},
    {"param", LIST_PARAM, 1, {0}},
    {"same", LIST_SAME, 2, {0}},
};

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

/* Reads a condition, which is at `at` of the line. */
static ampc_status read_condition(reader *r, const char *at, const char *s, list_condition *c)
{
    const char *whole = s;
    *c = (list_condition){.negated = strncmp(s, "not ", 4) == 0};
    if (c->negated) s += 4;
    for (size_t i = 0; i < sizeof condition_forms / sizeof *condition_forms; i++) {
        const struct condition_form *f = &condition_forms[i];
        const char *rest = s + strlen(f->name);
        if (strncmp(s, f->name, strlen(f->name)) != 0) continue;
        if (!accept_operands(&rest, f->operands, (int64_t *const[]){&c->argument, &c->value})) continue;
        c->test = f->test;
        if (!f->value.key && !*rest) return AMPC_OK;
        rest += strspn(rest, " ");
        if (!f->value.key || strncmp(rest, "==", 2) != 0) continue;
        rest += 2;
        TRY(read_value(r, &f->value, at, rest + strspn(rest, " "), c));
        if (f->test == LIST_DTYPE) c->choice = types[c->choice];
        return AMPC_OK;
    }
    if (parse_attribute(r->list->arena, s, c)) return AMPC_OK;
    return complain(r, at, "'%s' is not a condition", whole);
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
        TRY(read_condition(r, strstr(r->text, s), s, &c));
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
    if (!is_operator_name(s)) return complain(r, NULL, "'%s' is not an operator name", s);
    e.op = arena_intern(a, s);
    if (condition && e.remove) return complain(r, NULL, "-%s cannot have a condition", s);
    if (condition) TRY(parse_conditions(r, condition, &e));
    TRY(check_twice(r, &e));
    if (r->builtin) strmap_put(r->list->known, e.op, (void *)e.op);
    vec_push(a, &r->layer->entries, e);
    return AMPC_OK;
}

/* The only name that the glob matches, or NULL. */
static const char *plain_glob(const char *glob, arena *a)
{
    char *plain = arena_strdup(a, glob), *to = plain;
    for (; *glob; glob++) {
        if (strchr("*?[", *glob)) return NULL;
        if (*glob == '\\' && !*++glob) return NULL;
        *to++ = *glob;
    }
    *to = '\0';
    return plain;
}

/* Adds a line of [nodes] with a glob or a regular expression, which is at `at` of the line. */
static ampc_status add_node(reader *r, const char *at, const char *glob, ir_dtype dtype)
{
    arena *a = r->list->arena;
    const size_t length = strlen(LIST_REGEX);
    list_pattern p = {.glob = arena_strdup(a, glob), .dtype = dtype, .place = {r->file, r->line}};
    if (strncmp(glob, LIST_REGEX, length) == 0) {
        const char *why;
        size_t fault;
        p.regex = regex_compile(glob + length, a, &why, &fault);
        if (at && strncmp(at, glob, length) == 0) at += length + fault;
        if (!p.regex)
            return diag_error(r->diag, r->line ? AMPC_REJECTED : AMPC_USAGE, here(r, at),
                              "the regular expression '%s' cannot be read: %s", glob + length, why);
    } else p.plain = plain_glob(glob, a);
    vec_push(a, &r->layer->nodes, p);
    return AMPC_OK;
}

/* Reads a type, which is at `at` of the line. */
static ampc_status read_precision(reader *r, const char *words, const char *at, const char *value, ir_dtype *out)
{
    const setting precision = {.key = "the precision", .kind = SETTING_WORD, .words = words};
    int type;
    TRY(read_value(r, &precision, at, value, &type));
    *out = (ir_dtype)types[type];
    if (!ir_dtype_is_low(*out) || *out == r->options->low) return AMPC_OK;
    return diag_error(r->diag, AMPC_UNSUPPORTED, DIAG_USE(here(r, at), OPTION_dtype, .value = value),
                      "precision '%s' is not the low-precision type of the model, which has only one", value);
}

static ampc_status read_node(reader *r, char *key, char *value)
{
    ir_dtype dtype;
    const char *glob = unquote(key), *at = strstr(r->text, value);
    if (!glob) return complain(r, strchr(r->text, '"'), "unterminated name in quotes%s", "");
    if (!*key) return complain(r, NULL, "a node name or glob is missing before '= %s'", value);
    TRY(read_precision(r, TYPES, at, value, &dtype));
    return add_node(r, r->text + strspn(r->text, " \t"), glob, dtype);
}

static ampc_status read_tensor(reader *r, char *s)
{
    const char *name = unquote(s);
    if (!name) return complain(r, strchr(r->text, '"'), "unterminated name in quotes%s", "");
    list_pattern p = {.glob = arena_strdup(r->list->arena, name), .dtype = IR_f32, .place = {r->file, r->line}};
    vec_push(r->list->arena, &r->layer->tensors, p);
    return AMPC_OK;
}

/* Reads TYPE,.. after `at` of the line. */
static ampc_status read_types(reader *r, const char *at, char *s, list_types *out)
{
    for (char *part; (part = strsep(&s, ","));) {
        ir_dtype dtype;
        at = strstr(at, part = trim(part));
        TRY(read_precision(r, TYPES "|keep", at, part, &dtype));
        vec_push(r->list->arena, out, dtype);
        at += strlen(part);
    }
    return AMPC_OK;
}

/* Op = TYPE,.. -> TYPE,..; without an arrow, one type for operands and results. */
static ampc_status read_operands(reader *r, const char *op, char *value)
{
    arena *a = r->list->arena;
    list_operands o = {.op = arena_strdup(a, op), .text = arena_strdup(a, value), .place = {r->file, r->line}};
    const char *at = strchr(r->text, '=');
    if (!is_operator_name(op)) return complain(r, NULL, "'%s' is not an operator name", op);
    for (size_t i = 0; i < r->layer->operands.count; i++)
        if (strcmp(r->layer->operands.items[i].op, op) == 0)
            return diag_error(r->diag, AMPC_REJECTED, here(r, NULL), "operator '%s' is also in line %d", op,
                              r->layer->operands.items[i].place.line);
    char *arrow = strstr(value, "->");
    if (arrow) *arrow = '\0';
    TRY(read_types(r, at, value, &o.operands));
    if (arrow) TRY(read_types(r, strstr(at, "->"), arrow + 2, &o.results));
    else if (o.operands.count == 1) o.results = o.operands;
    else return complain(r, at, "'%s' lacks '-> TYPE, ..' for the results", o.text);
    vec_push(a, &r->layer->operands, o);
    return AMPC_OK;
}

static ampc_status check_scaling(reader *r, const char **value)
{
    static const setting numbers[] = {
        SETTING(scaling_rules, "the initial scale", init, REAL, NULL, LIMITS_LOSS_SCALE),
        SETTING(scaling_rules, "the number of good steps", incr_every, COUNT, NULL, LIMITS_EVERY_N),
        SETTING(scaling_rules, "the number of bad steps", decr_every, COUNT, NULL, LIMITS_EVERY_N),
        SETTING(scaling_rules, "the growth factor", incr_ratio, REAL, NULL, LIMITS_INCR_RATIO),
        SETTING(scaling_rules, "the shrink factor", decr_ratio, REAL, NULL, LIMITS_DECR_RATIO),
    };
    const char *at = strstr(r->text, *value);
    char *next = arena_strdup(r->list->arena, *value);
    r->list->scaling = (scaling_rules){.min = 1};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char *part = strsep(&next, ",");
        TRY(read_value(r, &numbers[i], at, part ? trim(part) : NULL, &r->list->scaling));
    }
    return next ? complain(r, at, "'%s' follows the five numbers of scaling", trim(next)) : AMPC_OK;
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
    const settings s = {.line = here(r, NULL), .rows = rules_rows, .count = RULE_COUNT, .of = "[rules]"};
    const setting *row;
    TRY(settings_key(&s, key, r->diag, &row));
    const rule_id id = (rule_id)(row - rules_rows);
    if (r->builtin && l->set[id]) return AMPC_OK;
    if (checks[id]) TRY(checks[id](r, &value));
    const char *copy = arena_strdup(l->arena, value);
    if (row->kind == SETTING_TEXT) *(const char **)((char *)&l->rule + row->at) = copy; /* may be empty */
    else TRY(read_value(r, row, strstr(r->text, value), copy, &l->rule));
    l->set[id] = !r->builtin;
    return AMPC_OK;
}

typedef struct profile {
    const char *name, *text, *end;
} profile;

#define PROFILE(name, id) {name, pass_profile_##id, pass_profile_##id##_end},
#define PROFILE_WORD(name, id) "|" name
#define PROFILE_WORDS "empty" PASS_BUILTIN_PROFILE_MAP(PROFILE_WORD)
static const profile profiles[] = {
    {"empty", pass_profile_ampc, pass_profile_ampc_end}, /* the rules of ampc without its operators */
    PASS_BUILTIN_PROFILE_MAP(PROFILE)};

/* Sets the profile that a file modifies; all files and --profile have to agree. */
static ampc_status read_base(reader *r, const char *value)
{
    if (!r->list->base) r->list->base = arena_strdup(r->list->arena, value);
    if (strcmp(r->list->base, value) == 0) return AMPC_OK;
    return diag_error(r->diag, AMPC_USAGE, here(r, strstr(r->text, value)),
                      "base '%s' differs from the profile '%s' in use", value, r->list->base);
}

static ampc_status read_meta(reader *r, const char *key, const char *value)
{
    static const setting rows[] = {
        {.key = "version", .kind = SETTING_WORD, .words = "1"},
        {.key = "base", .kind = SETTING_WORD, .words = PROFILE_WORDS},
    };
    const settings s = {.line = here(r, NULL), .rows = rows, .count = 2, .of = "[meta]"};
    const setting *row;
    int word;
    TRY(settings_key(&s, key, r->diag, &row));
    TRY(read_value(r, row, strstr(r->text, value), value, &word));
    return r->builtin || row == rows ? AMPC_OK : read_base(r, value);
}

static ampc_status read_pair(reader *r, char *s)
{
    char *equals = strrchr(s, '=');
    if (r->section != NODES && equals) equals = strchr(s, '=');
    if (!equals) return complain(r, NULL, "expected 'key = value', found '%s'", s);
    *equals = '\0';
    char *key = trim(s), *value = trim(equals + 1);
    if (r->section == NODES) return read_node(r, key, value);
    if (r->section == OPERANDS) return read_operands(r, key, value);
    return r->section == META ? read_meta(r, key, value) : read_rule(r, key, value);
}

static ampc_status read_section(reader *r, char *s)
{
    char *close = strchr(s, ']');
    if (!close || close[1]) return complain(r, NULL, "malformed section '%s'", s);
    *close = '\0';
    for (section i = META; i < NO_SECTION; i++)
        if (strcmp(section_names[i], s + 1) == 0) {
            r->section = i;
            return AMPC_OK;
        }
    return complain(r, NULL, "unknown section '%s'", s + 1);
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
    case NO_SECTION: return complain(r, NULL, "'%s' precedes the first section", s);
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
    static const setting row = {.key = "the profile", .kind = SETTING_WORD, .words = PROFILE_WORDS};
    const settings s = {.option = OPTION_profile};
    int word;
    TRY(settings_value(&s, &row, name, &word, r->diag));
    const profile *p = &profiles[word];
    r->builtin = true;
    r->file = arena_printf(r->list->arena, "profile %s", name);
    r->layer = &r->list->layers.items[0];
    ampc_status status = read_text(r, p->text, (size_t)(p->end - p->text));
    if (strcmp(name, "empty") == 0) r->layer->entries.count = 0;
    return status;
}

/* Reads a list in the format of another compiler. */
static ampc_status read_mixlist(reader *r, const char *text)
{
    arena *a = r->list->arena;
    mixlist lists;
    ampc_status first = AMPC_OK;
    mixlist_read(text, a, &lists);
    r->text = "";
    for (size_t i = 0; i < lists.lines.count; i++) {
        const mixlist_line *l = &lists.lines.items[i];
        r->line = l->line;
        ampc_status s = is_operator_name(l->op)
                            ? read_operator(r, arena_printf(a, "%s%s", l->remove ? "-" : "", l->op), l->colour)
                            : complain(r, NULL, "'%s' is not an operator name", l->op);
        if (first == AMPC_OK) first = s;
    }
    r->line = lists.error_line;
    return lists.error ? complain(r, NULL, "%s", lists.error) : first;
}

static ampc_status read_file(reader *r, const char *path)
{
    enum { LIMIT = 1 << 24 };
    char *text;
    size_t n;
    TRY(read_text_file(r, path, LIMIT, "a list file", r->diag, &text, &n));
    r->file = path;
    add_layer(r);
    if (mixlist_is(text)) return read_mixlist(r, text);
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
    const pass_strings *nodes[] = {&o->low_nodes, &o->fp32_nodes}; /* the first match decides */
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < nodes[i]->count; k++) {
            ampc_status s = add_node(r, NULL, nodes[i]->items[k], i ? IR_f32 : o->low);
            if (first == AMPC_OK) first = s;
        }
    for (int i = 0; i < o->rules.count; i++) {
        r->section = RULES;
        ampc_status s = read_pair(r, arena_strdup(r->list->arena, o->rules.items[i]));
        if (first == AMPC_OK) first = s;
    }
    for (int i = 0; i < o->black_vars.count; i++) {
        list_pattern p = {.glob = o->black_vars.items[i], .dtype = IR_f32, .place = {r->file, 0}};
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
    if (o->list_text) {
        r.confined = false;
        r.file = "list";
        add_layer(&r);
        ampc_status status = read_text(&r, o->list_text, strlen(o->list_text));
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
