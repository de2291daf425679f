/* operators.c - the table of all operators and its queries. */
#include "frontend/lower/lower.h"

#include <string.h>

const onnx_operator onnx_operators[] = {
#define OPERATOR(name, since, bf16, types, colour, operands) {#name, since, bf16, types},
#define OPAQUE(name, since, bf16, types, colour) {#name, since, bf16, types},
#include "frontend/onnx.def"
    {0},
};

const onnx_operator *onnx_operator_find(const char *name)
{
    size_t low = 0, high = sizeof onnx_operators / sizeof *onnx_operators - 1;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(name, onnx_operators[middle].name);
        if (order == 0) return &onnx_operators[middle];
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

/* is_suffix: characters that may follow a letter. is_any: suffixes that allow repetition. */
static bool is_suffix(char c) { return c == '?' || c == '*' || c == '+'; }
static bool is_any(char c) { return c == '*' || c == '+'; }

/* The letter of the i-th operand or result in the list that starts at `at`; NULL: none. */
static const char *find_letter(const char *at, int i)
{
    for (; *at && *at != '>'; at += 1 + is_suffix(at[1])) {
        if (i == 0 || is_any(at[1])) return at;
        i--;
    }
    return NULL;
}

static char letter(const char *list, int i)
{
    const char *at = find_letter(list, i);
    return at ? *at : 'x';
}

/* ---- numbers of operands and results ----------------------------------------------------------- */

static int max_count(const char *at)
{
    int count = 0;
    for (; *at && *at != '>'; at += 1 + is_suffix(at[1])) {
        if (is_any(at[1])) return ONNX_ANY;
        count++;
    }
    return count;
}

static onnx_arity arity_of(const char *letters)
{
    onnx_arity a = {.max = max_count(letters), .results = max_count(strchr(letters, '>') + 1)};
    for (const char *at = letters; *at != '>'; at += 1 + is_suffix(at[1])) {
        if (!is_any(at[1])) a.single++;
        if (!is_suffix(at[1]) || at[1] == '+') a.required = is_any(at[1]) ? a.single + 1 : a.single;
    }
    return a;
}

onnx_arity onnx_schema_arity(const onnx_operator *op) { return arity_of(op->types); }

static const onnx_operator *schema_of(const onnx_node *n)
{
    return onnx_is_default_domain(n->proto->domain) ? onnx_operator_find(n->proto->op_type) : NULL;
}

bool onnx_is_optional(const onnx_node *n, int i)
{
    const char *at = n->letters;
    for (; at && *at != '>'; at += 1 + is_suffix(at[1]))
        if (i-- == 0) return at[1] == '?';
    return false;
}

onnx_arity onnx_arity_of(const onnx_node *n)
{
    const onnx_row *row = n->row;
    const int single = row->sequences ? ONNX_ANY : row->max_in == ONNX_ANY ? 0 : row->max_in;
    if (n->letters) return arity_of(n->letters);
    if (*row->op) return (onnx_arity){row->min_in, single, row->max_in, row->max_out};
    const onnx_operator *op = schema_of(n);
    return op ? onnx_schema_arity(op) : (onnx_arity){0, ONNX_ANY, ONNX_ANY, ONNX_ANY};
}

bool onnx_is_required_result(const onnx_operator *op, int i)
{
    const char *at = find_letter(strchr(op->types, '>') + 1, i);
    return at && !is_suffix(at[1]);
}

/* ---- element types ----------------------------------------------------------------------------- */

onnx_types onnx_types_of(const onnx_node *n)
{
    const onnx_operator *op = schema_of(n);
    if (n->letters) return (onnx_types){n->letters, 'h'};
    if (!op) return (onnx_types){">", 'x'};
    int written = n->opset > ONNX_OPSET_BF16 ? n->opset : ONNX_OPSET_BF16;
    return (onnx_types){op->types, op->bf16 && op->bf16 <= written ? 't' : 'h'};
}

char onnx_operand_mark(const onnx_types *t, int i) { return letter(t->letters, i) == 't' ? t->mark : 'x'; }

char onnx_result_mark(const onnx_types *t, int i)
{
    return letter(strchr(t->letters, '>') + 1, i) == 't' ? t->mark : 'x';
}

bool onnx_is_default_domain(const char *domain) { return !*domain || strcmp(domain, "ai.onnx") == 0; }
