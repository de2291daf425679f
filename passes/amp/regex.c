/* regex.c - see regex.h: reads an expression into a tree, makes states of the tree, and follows all of them at once. */
#include "passes/amp/regex.h"

#include <ctype.h>
#include <string.h>

enum { MAX_LENGTH = 1000, MAX_DEPTH = 50, MAX_STATES = 5000, MAX_COUNT = 1000, ENDLESS = -1 };

typedef enum kind { EMPTY, BYTES, SEQUENCE, CHOICE, REPEAT, AT_START, AT_END, FOUND } kind;

typedef struct byte_set {
    bool has[256];
} byte_set;

typedef struct tree {
    kind kind;
    byte_set *bytes;
    const struct tree *left, *right;
    int low, high; /* of REPEAT */
} tree;

typedef struct state {
    kind kind;
    const byte_set *bytes;
    int next, other; /* other: of CHOICE */
} state;

struct regex {
    VEC(state) states;
    int first;
    int *marks, *now, *soon, *pending; /* for regex_match */
};

typedef struct parser {
    arena *arena;
    const char *text, *at, *why;
    int depth;
} parser;

/* ---- the tree -------------------------------------------------------------------------------- */

static const tree *fail(parser *p, const char *why)
{
    if (!p->why) p->why = why;
    return NULL;
}

static tree *make(parser *p, kind k, const tree *left, const tree *right)
{
    tree *t = arena_alloc(p->arena, sizeof *t);
    *t = (tree){.kind = k, .left = left, .right = right};
    return t;
}

static tree *make_bytes(parser *p)
{
    tree *t = make(p, BYTES, NULL, NULL);
    t->bytes = arena_alloc(p->arena, sizeof *t->bytes);
    return t;
}

/* The classes \d \w \s, and in capitals what is not in them. */
static bool is_in_class(char name, int c)
{
    switch (name) {
    case 'd': return isdigit(c);
    case 'w': return isalnum(c) || c == '_';
    default: return isspace(c);
    }
}

/* Reads what follows a backslash. Returns false if that is a class, which is added to `set`. */
static bool read_escape(parser *p, byte_set *set, unsigned char *byte)
{
    const char c = *p->at;
    *byte = (unsigned char)c;
    if (!c) fail(p, "nothing follows the last '\\'");
    else if (!isalnum((unsigned char)c)) p->at++;
    else if (!strchr("dDwWsS", c))
        fail(p, "only \\d, \\w and \\s, their capitals, and \\ before punctuation are known");
    else {
        for (int k = 1; k < 256; k++) set->has[k] |= is_in_class((char)tolower(c), k) == !isupper((unsigned char)c);
        p->at++;
        return false;
    }
    return true;
}

/* [abc], [^a-z], [\d.]: the first character may be ]. */
static const tree *read_brackets(parser *p)
{
    tree *t = make_bytes(p);
    const bool inverted = *p->at == '^';
    p->at += inverted;
    for (const char *first = p->at; *p->at != ']' || p->at == first;) {
        unsigned char from = (unsigned char)*p->at;
        if (!from) return fail(p, "']' is missing");
        if (from == '[' && strchr(":.=", p->at[1]) && p->at[1])
            return fail(p, "classes such as [:alpha:] are not known");
        p->at++;
        if (from == '\\' && !read_escape(p, t->bytes, &from)) continue;
        unsigned char to = from;
        if (p->at[0] == '-' && p->at[1] && p->at[1] != ']') {
            to = (unsigned char)p->at[1];
            p->at += 2;
            if (to == '\\' && !read_escape(p, t->bytes, &to)) return fail(p, "a class cannot end a range");
        }
        if (p->why) return NULL;
        if (to < from) return fail(p, "a range ends before it starts");
        for (int c = from; c <= to; c++) t->bytes->has[c] = true;
    }
    p->at++;
    for (int c = 1; c < 256 && inverted; c++) t->bytes->has[c] = !t->bytes->has[c];
    return t;
}

static const tree *read_choice(parser *p);

static const tree *read_group(parser *p)
{
    if (*p->at == '?' && p->at[1] != ':') return fail(p, "of the groups that begin with (?, only (?:..) is known");
    if (*p->at == '?') p->at += 2;
    if (++p->depth > MAX_DEPTH) return fail(p, "groups are nested too deeply");
    const tree *t = read_choice(p);
    p->depth--;
    if (!t) return NULL;
    if (*p->at != ')') return fail(p, "')' is missing");
    p->at++;
    return t;
}

static const tree *read_atom(parser *p)
{
    unsigned char c = (unsigned char)*p->at++;
    switch (c) {
    case '(': return read_group(p);
    case '[': return read_brackets(p);
    case '^': return make(p, AT_START, NULL, NULL);
    case '$': return make(p, AT_END, NULL, NULL);
    case '*':
    case '+':
    case '?':
    case '{': p->at--; return fail(p, "there is nothing to repeat");
    default: break;
    }
    tree *t = make_bytes(p);
    for (int k = 1; k < 256 && c == '.'; k++) t->bytes->has[k] = true;
    if (c != '\\' || read_escape(p, t->bytes, &c)) t->bytes->has[c] = true;
    return p->why ? NULL : t;
}

static bool read_count(parser *p, int *count)
{
    const char *start = p->at;
    for (*count = 0; isdigit((unsigned char)*p->at) && *count <= MAX_COUNT; p->at++)
        *count = *count * 10 + *p->at - '0';
    return p->at > start;
}

/* {M}, {M,}, {,N} or {M,N}, after the brace */
static bool read_counts(parser *p, int *low, int *high)
{
    const bool has_low = read_count(p, low);
    *high = *low;
    if (*p->at == ',') {
        p->at++;
        if (!read_count(p, high)) *high = ENDLESS;
        if (!has_low && *high == ENDLESS) fail(p, "a number is missing in {}");
    } else if (!has_low) fail(p, "a number is missing in {}");
    if (!p->why && *p->at != '}') fail(p, "'}' is missing");
    if (!p->why && *high != ENDLESS && *low > *high) fail(p, "the first number in {} is above the second");
    if (!p->why && (*low > MAX_COUNT || *high > MAX_COUNT)) fail(p, "at most 1000 repetitions can be counted");
    if (!p->why) p->at++;
    return !p->why;
}

static const tree *read_repeated(parser *p)
{
    const tree *t = read_atom(p);
    if (!t || !*p->at || !strchr("*+?{", *p->at)) return t;
    tree *r = make(p, REPEAT, t, NULL);
    const char sign = *p->at++;
    r->low = sign == '+';
    r->high = sign == '?' ? 1 : ENDLESS;
    if (sign == '{' && !read_counts(p, &r->low, &r->high)) return NULL;
    if (*p->at == '?') p->at++; /* how much it reads does not change whether there is a match */
    return *p->at && strchr("*+?{", *p->at) ? fail(p, "two repetitions follow each other") : r;
}

static const tree *read_sequence(parser *p)
{
    const tree *t = make(p, EMPTY, NULL, NULL);
    while (t && *p->at && *p->at != '|' && *p->at != ')') {
        const tree *next = read_repeated(p);
        t = next ? make(p, SEQUENCE, t, next) : NULL;
    }
    return t;
}

static const tree *read_choice(parser *p)
{
    const tree *t = read_sequence(p);
    while (t && *p->at == '|') {
        p->at++;
        const tree *next = read_sequence(p);
        t = next ? make(p, CHOICE, t, next) : NULL;
    }
    return t;
}

/* ---- states ---------------------------------------------------------------------------------- */

/* Returns the new state, or any one if there are too many, of which regex_compile checks the number. */
static int add_state(regex *r, arena *a, kind k, int next, int other)
{
    if (r->states.count > MAX_STATES) return 0;
    const state s = {.kind = k, .next = next, .other = other};
    vec_push(a, &r->states, s);
    return (int)r->states.count - 1;
}

static int add_tree(regex *r, arena *a, const tree *t, int next)
{
    if (t->kind == EMPTY || r->states.count > MAX_STATES) return next;
    if (t->kind == SEQUENCE) return add_tree(r, a, t->left, add_tree(r, a, t->right, next));
    if (t->kind == CHOICE) {
        const int other = add_tree(r, a, t->right, next);
        return add_state(r, a, CHOICE, add_tree(r, a, t->left, next), other);
    }
    if (t->kind != REPEAT) {
        const int s = add_state(r, a, t->kind, next, 0);
        r->states.items[s].bytes = t->bytes;
        return s;
    }
    int first = next;
    if (t->high == ENDLESS) {
        first = add_state(r, a, CHOICE, next, next);
        const int again = add_tree(r, a, t->left, first);
        r->states.items[first].next = again;
    }
    for (int i = t->low; i < t->high; i++) first = add_state(r, a, CHOICE, add_tree(r, a, t->left, first), next);
    size_t before = 0; /* nothing repeated is nothing */
    for (int i = 0; i < t->low && before < r->states.count; i++) {
        before = r->states.count;
        first = add_tree(r, a, t->left, first);
    }
    return first;
}

const regex *regex_compile(const char *text, arena *a, const char **why, size_t *at)
{
    parser p = {.arena = a, .text = text, .at = text};
    const tree *t = NULL;
    if (!*text) fail(&p, "it is empty");
    else if (strlen(text) > MAX_LENGTH) fail(&p, "it is longer than 1000 characters");
    else t = read_choice(&p);
    if (t && *p.at) t = fail(&p, "'(' is missing");
    regex *r = arena_alloc(a, sizeof *r);
    if (t) r->first = add_tree(r, a, t, add_state(r, a, FOUND, 0, 0));
    const size_t n = r->states.count;
    if (n > MAX_STATES) fail(&p, "its repetitions are too long when written out");
    *why = p.why;
    *at = (size_t)(p.at - text);
    if (p.why) return NULL;
    r->marks = arena_array(a, n, sizeof *r->marks);
    r->now = arena_array(a, n, sizeof *r->now);
    r->soon = arena_array(a, n, sizeof *r->soon);
    r->pending = arena_array(a, 2 * n + 1, sizeof *r->pending);
    return r;
}

/* ---- matching -------------------------------------------------------------------------------- */

/* Adds to list `to`, which has `count` states, those that are reached from s in front of byte i. Sets *found at the
 * end of the expression. */
static int follow(const regex *r, int s, size_t i, bool at_end, int *to, int count, bool *found)
{
    int pending = 0;
    r->pending[pending++] = s;
    while (pending) {
        s = r->pending[--pending];
        if (r->marks[s] == (int)i + 1) continue;
        r->marks[s] = (int)i + 1;
        const state *x = &r->states.items[s];
        if (x->kind == FOUND) *found = true;
        else if (x->kind == BYTES) to[count++] = s;
        else if (x->kind == CHOICE || (x->kind == AT_START && i == 0) || (x->kind == AT_END && at_end))
            r->pending[pending++] = x->next;
        if (x->kind == CHOICE) r->pending[pending++] = x->other;
    }
    return count;
}

bool regex_match(const regex *r, const char *name)
{
    bool found = false;
    int *now = r->now, *soon = r->soon;
    memset(r->marks, 0, r->states.count * sizeof *r->marks);
    int count = follow(r, r->first, 0, !*name, now, 0, &found);
    for (size_t i = 0; name[i] && count && !found; i++) {
        int next = 0;
        for (int k = 0; k < count; k++) {
            const state *x = &r->states.items[now[k]];
            if (x->bytes->has[(unsigned char)name[i]])
                next = follow(r, x->next, i + 1, !name[i + 1], soon, next, &found);
        }
        int *other = now;
        now = soon;
        soon = other;
        count = next;
    }
    return found;
}
