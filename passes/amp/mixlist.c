/* mixlist.c - see mixlist.h. */
#include "passes/amp/mixlist.h"

#include <ctype.h>
#include <string.h>

static const char *const names[][2] = {
#define NAME(theirs, onnx) {#theirs, #onnx},
#include "passes/amp/mixlist_names.def"
};

static const char *known_name(const char *op)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(op, names[i][0]) == 0) return names[i][1];
    return NULL;
}

/* Cuts versions off the name, in place: MatMulV2. */
static const char *onnx_name(char *op)
{
    for (size_t n = strlen(op);; n -= 2) {
        op[n] = '\0';
        if (known_name(op)) return known_name(op);
        if (n <= 2 || op[n - 2] != 'V' || !isdigit((unsigned char)op[n - 1])) return op;
    }
}

const char *mixlist_name(const char *op, int index)
{
    static const char *const rows[][2] = {
#define NAME(theirs, onnx)
#define CANN(theirs, onnx) {#theirs, #onnx},
#include "passes/amp/mixlist_names.def"
    };
    int known = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(op, rows[i][1]) == 0 && known++ == index) return rows[i][0];
    return known || index ? NULL : op;
}

typedef struct parser {
    arena *arena;
    mixlist *out;
    const char *at;
    int line;
} parser;

static bool fail(parser *p, const char *error)
{
    if (!p->out->error) p->out->error_line = p->line;
    if (!p->out->error) p->out->error = error;
    return false;
}

static void add(parser *p, const char *op, size_t length, ir_colour colour, bool remove)
{
    const mixlist_line l = {onnx_name(arena_strndup(p->arena, op, length)), colour, remove, p->line};
    vec_push(p->arena, &p->out->lines, l);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static bool accept(parser *p, char c)
{
    for (; isspace((unsigned char)*p->at); p->at++) p->line += *p->at == '\n';
    if (*p->at != c) return false;
    p->at++;
    return true;
}

static bool expect(parser *p, char c)
{
    if (accept(p, c)) return true;
    const char *found = *p->at ? arena_printf(p->arena, "'%c'", *p->at) : "the end";
    return fail(p, arena_printf(p->arena, "expected '%c', found %s", c, found));
}

/* Names of lists and operators have no escapes. */
static bool read_string(parser *p, const char **text, size_t *length)
{
    if (!expect(p, '"')) return false;
    *text = p->at;
    *length = strcspn(p->at, "\"\\\n");
    p->at += *length;
    return *p->at == '"' ? p->at++, true : fail(p, "a name is not closed, or has an escape");
}

/* Reads {"WORD": .., ..}: a word of `words`, which must each occur once at most, and its value by `value`. */
static bool read_object(parser *p, const char *const *words, int count, const char *what, int outer,
                        bool (*value)(parser *p, int outer, int word))
{
    unsigned seen = 0;
    if (!expect(p, '{')) return false;
    if (accept(p, '}')) return true;
    do {
        const char *key;
        size_t length;
        int word = 0;
        if (!read_string(p, &key, &length)) return false;
        while (word < count && (strlen(words[word]) != length || memcmp(words[word], key, length) != 0)) word++;
        const char *shown = arena_strndup(p->arena, key, length);
        if (word == count) return fail(p, arena_printf(p->arena, "unknown key '%s': expected %s", shown, what));
        if (seen & 1u << word) return fail(p, arena_printf(p->arena, "'%s' occurs twice", shown));
        seen |= 1u << word;
        if (!expect(p, ':') || !value(p, outer, word)) return false;
    } while (accept(p, ','));
    return expect(p, '}');
}

static bool read_operators(parser *p, int colour, int remove)
{
    if (!expect(p, '[')) return false;
    if (accept(p, ']')) return true;
    do {
        const char *op;
        size_t length;
        if (!read_string(p, &op, &length)) return false;
        add(p, op, length, (ir_colour[]){IR_BLACK, IR_WHITE, IR_GRAY}[colour], remove);
    } while (accept(p, ','));
    return expect(p, ']');
}

static bool read_list(parser *p, int outer, int list)
{
    static const char *const words[] = {"to-add", "to-remove"};
    (void)outer;
    return read_object(p, words, 2, "to-add or to-remove", list, read_operators);
}

static void read_json(parser *p)
{
    static const char *const words[] = {"black-list", "white-list", "gray-list"};
    if (!read_object(p, words, 3, "black-list, white-list or gray-list", 0, read_list)) return;
    if (!accept(p, '\0')) fail(p, "text follows the closing brace");
}

/* ---- variables ------------------------------------------------------------------------------- */

#define PREFIX "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_"

/* The names of the lists, also those of before version 2.4, when CLEARLIST was the same and GRAYLIST was INFERLIST. */
static const struct {
    const char *name;
    ir_colour colour;
} variables[] = {{"ALLOWLIST", IR_WHITE}, {"DENYLIST", IR_BLACK},  {"INFERLIST", IR_GRAY}, {"CLEARLIST", IR_CLEAR},
                 {"WHITELIST", IR_WHITE}, {"BLACKLIST", IR_BLACK}, {"GRAYLIST", IR_GRAY}};

static void read_variable(parser *p, const char *line, const char *end)
{
    if (strncmp(line, "export ", 7) == 0) line += 7;
    const char *equals = memchr(line, '=', (size_t)(end - line));
    const size_t prefix = strlen(PREFIX);
    if (strncmp(line, PREFIX, prefix) != 0 || !equals) {
        fail(p, "expected " PREFIX "LIST_ADD=Op,.. or _REMOVE");
        return;
    }
    line += prefix;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const size_t n = strlen(variables[i].name), rest = (size_t)(equals - line);
        if (rest < n || strncmp(line, variables[i].name, n) != 0) continue;
        const bool adds = rest == n + 4 && strncmp(line + n, "_ADD", 4) == 0;
        if (!adds && (rest != n + 7 || strncmp(line + n, "_REMOVE", 7) != 0)) continue;
        for (const char *op = equals + 1; op < end;) {
            const size_t length = strcspn(op, ",\"' \t\r\n");
            if (length) add(p, op, length, variables[i].colour, !adds);
            op += length ? length : 1;
        }
        return;
    }
    fail(p, "expected ALLOWLIST, DENYLIST, INFERLIST or CLEARLIST, with _ADD or _REMOVE, after " PREFIX);
}

static void read_variables(parser *p)
{
    for (; *p->at && !p->out->error; p->line++) {
        const char *line = p->at + strspn(p->at, " \t"), *end = line + strcspn(line, "\n");
        if (!strchr("#\r\n", *line)) read_variable(p, line, end);
        p->at = *end ? end + 1 : end;
    }
}

bool mixlist_is(const char *text)
{
    for (; *text && strchr("# \t\r\n", *text); text += strcspn(text, "\n")) /* comments */
        if (text += strspn(text, " \t\r\n"), *text != '#') break;
    if (strncmp(text, "export ", 7) == 0) text += 7;
    return *text == '{' || strncmp(text, "TF_AUTO_MIXED_PRECISION", 23) == 0;
}

void mixlist_read(const char *text, arena *a, mixlist *out)
{
    *out = (mixlist){0};
    parser p = {.arena = a, .out = out, .at = text, .line = 1};
    if (text[strspn(text, " \t\r\n")] == '{') read_json(&p);
    else read_variables(&p);
}
