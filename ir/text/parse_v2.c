/* parse_v2.c - IR text versions 1 and 2. A storage is `held` for one reason. A module lists the graphs of its nodes as
 * `body @NAME`. An attribute `bodies` of a node has one line "REGION=NAME" for each, and `captures` a name for each of
 * its last operands, which an input of that name reads. `layout` is the layout, `types` repeats the types of the
 * results, `node` the location. `values` has a line "NAME=VALUE" for each field and, of custom operators, `kinds` the
 * letter of each. */
#include "ir/text/parser.h"

#include <stddef.h>
#include <string.h>

ampc_status ir_parse_held(ir_parser *p, ir_storage *s)
{
    static const struct {
        const char *word;
        uint32_t facts;
    } reasons[] = {{"node", IR_TENSOR(node)}, {"name", IR_TENSOR(generated)}, {"declared", IR_TENSOR(buffer)},
                   {"mask", IR_TENSOR(mask)}, {"scale", IR_TENSOR(scale)},    {"setting", IR_TENSOR(setting)},
                   {"read", IR_TENSOR(read)}, {"apart", IR_TENSOR(apart)}};
    if (!ir_accept_word(p, "held")) return AMPC_OK;
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (ir_accept_word(p, reasons[i].word)) {
            s->facts = reasons[i].facts;
            return AMPC_OK;
        }
    return ir_fail_expected(p, "node, name, declared, mask, read or apart");
}

/* A node with such attributes. */
typedef struct old_node {
    ir_node *node;
    ir_token at;
    const char *bodies, *captures, *values, *kinds; /* NULL: none */
} old_node;

struct ir_v2 {
    VEC(old_node) nodes;
    VEC(ir_token) places; /* of bodies */
    VEC(ir_graph *) bodies;
    strmap *names; /* of bodies -> ir_graph * */
};

void ir_v2_start(ir_parser *p)
{
    p->v2 = arena_alloc(p->scratch, sizeof *p->v2);
    *p->v2 = (struct ir_v2){.names = strmap_new(p->scratch)};
}

/* Not a text, in which tools/words wants the name of version 3. */
#define WORD(word) #word

bool ir_v2_op(const ir_parser *p, const char *word, ir_op *op)
{
    *op = IR_OP_opaque;
    return p->v2 && strcmp(word, WORD(foreign)) == 0;
}

/* Where the text of an attribute goes. The layout is set at once; the rest is not needed. */
enum { LAYOUT = -1, REST = -2 };
static const struct old_attr {
    const char *name;
    int field; /* of old_node */
} old_attrs[] = {{"bodies", offsetof(old_node, bodies)},
                 {"captures", offsetof(old_node, captures)},
                 {"values", offsetof(old_node, values)},
                 {"kinds", offsetof(old_node, kinds)},
                 {"layout", LAYOUT},
                 {"types", REST},
                 {"node", REST}};

static const struct old_attr *find_attr(const char *name)
{
    for (size_t i = 0; i < sizeof old_attrs / sizeof *old_attrs; i++)
        if (strcmp(old_attrs[i].name, name) == 0) return &old_attrs[i];
    return NULL;
}

bool ir_v2_has_attr(const ir_parser *p, const ir_node *n, const char *name)
{
    return p->v2 && ir_op_has_layout(n->op) && find_attr(name);
}

static ampc_status set_layout(const ir_parser *p, ir_node *n, const ir_token *at)
{
    const size_t length = strcspn(at->text, ">");
    const char *results = at->text + length + 1;
    if (!at->text[length] || strspn(at->text, IR_MARKS) != length || results[strspn(results, IR_MARKS)])
        return FAIL_AT(p, at, "layout \"%s\" is malformed", at->text);
    ir_layout_set(n, arena_strndup(p->scratch, at->text, length), results);
    return AMPC_OK;
}

ampc_status ir_v2_parse_attr(ir_parser *p, ir_node *n, const char *name)
{
    const int field = find_attr(name)->field;
    const char *text;
    struct ir_v2 *v2 = p->v2;
    TRY(ir_need_mark(p, "="));
    const ir_token at = p->lex.token;
    TRY(ir_need(p, IR_TOKEN_STRING, "a string", &text));
    if (field == LAYOUT) return set_layout(p, n, &at);
    if (field == REST) return AMPC_OK;
    if (!v2->nodes.count || v2->nodes.items[v2->nodes.count - 1].node != n)
        vec_push(p->scratch, &v2->nodes, ((old_node){.node = n, .at = p->statement}));
    old_node *old = &v2->nodes.items[v2->nodes.count - 1];
    const char **to = (const char **)(void *)((char *)old + field);
    if (*to) return FAIL(p, "attribute '%s' is duplicated", name);
    *to = text;
    return AMPC_OK;
}

ampc_status ir_v2_add_body(ir_parser *p, ir_graph **out)
{
    const ir_token at = p->lex.token;
    const char *name;
    TRY(ir_need(p, IR_TOKEN_GLOBAL, "@NAME", &name));
    *out = ir_body_new(p->module);
    if (ir_graph_find(p->module, name) || !strmap_enter(p->v2->names, name, *out))
        return FAIL_AT(p, &at, "graph '@%s' is defined twice", name);
    vec_push(p->scratch, &p->v2->places, at);
    vec_push(p->scratch, &p->v2->bodies, *out);
    return AMPC_OK;
}

/* Splits a line off *text. */
static const char *next_line(ir_parser *p, const char **text)
{
    const size_t length = strcspn(*text, "\n");
    const char *line = arena_strndup(p->scratch, *text, length);
    *text += length + ((*text)[length] == '\n');
    return line;
}

/* ---- fields ---- */

/* Reverses the escapes of a text of a custom operator: \\ and \n. */
static const char *unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++)
        if (from[0] == '\\' && from[1]) *to++ = *++from == 'n' ? '\n' : *from;
        else *to++ = *from;
    *to = '\0';
    return text;
}

static bool read_list(ir_parser *p, char *text, ir_field *out)
{
    const size_t most = strlen(text) / 2 + 1;
    int64_t *ints = arena_array(p->scratch, most, sizeof *ints);
    float *floats = arena_array(p->scratch, most, sizeof *floats);
    out->count = 0;
    for (char *item, *rest = *text ? text : NULL; (item = strsep(&rest, ",")); out->count++) {
        double number = 0;
        const bool ok = out->kind == 'I' ? ir_int_parse(item, &ints[out->count]) : ir_float_parse(item, &number);
        if (!ok) return false;
        if (out->kind == 'F') floats[out->count] = (float)number;
    }
    if (out->kind == 'I') out->ints = ints;
    else out->floats = floats;
    return true;
}

static bool read_field(ir_parser *p, char *value, ir_field *out)
{
    switch (out->kind) {
    case 'i': return ir_int_parse(value, &out->i);
    case 'f':
        if (!ir_float_parse(value, &out->f)) return false;
        out->f = (double)(float)out->f;
        return true;
    case 's': out->s = unescape(value); return true;
    case 'I':
    case 'F': return read_list(p, value, out);
    default: return false;
    }
}

/* Only custom operators have kinds; otherwise the value tells. */
static bool guess_field(ir_parser *p, char *value, ir_field *out)
{
    static const char kinds[] = "ifI";
    for (size_t i = 0; kinds[i] && *value; i++) {
        out->kind = kinds[i];
        if (read_field(p, arena_strdup(p->scratch, value), out)) return true;
    }
    out->kind = 's';
    out->s = value;
    return true;
}

static ampc_status set_fields(ir_parser *p, const old_node *old)
{
    VEC(ir_field) fields = {0};
    const char *kinds = old->kinds ? old->kinds : "", *at = old->values ? old->values : "";
    const bool known = ir_op_find_attr(old->node->op, "gradients") >= 0;
    bool good = known || !old->kinds;
    for (size_t i = 0; good && (known ? kinds[i] : *at); i++) {
        const char *line = next_line(p, &at);
        char *value = strchr(line, '=');
        ir_field field = {.kind = known ? kinds[i] : 's'};
        good = value && (known ? read_field(p, value + 1, &field) : guess_field(p, value + 1, &field));
        if (good) field.name = arena_strndup(p->scratch, line, (size_t)(value - line));
        vec_push(p->scratch, &fields, field);
    }
    if (!good || *at) return FAIL_AT(p, &old->at, "the attributes of the operator are malformed");
    const int attr = ir_op_find_attr(old->node->op, "fields");
    if (fields.count) ir_set_fields(old->node, attr, fields.items, (int)fields.count);
    return AMPC_OK;
}

/* ---- graphs ---- */

/* Operands by the names under which bodies capture them, plus 1. */
static strmap *captured(ir_parser *p, const old_node *old)
{
    strmap *operands = strmap_new(p->scratch);
    int i = ir_declared_operands(old->node);
    for (const char *at = old->captures ? old->captures : ""; *at; i++)
        strmap_put(operands, next_line(p, &at), (void *)(uintptr_t)(i + 1));
    return i > old->node->n_in ? NULL : operands;
}

/* Puts the inputs that the operator passes before the captures. */
static void add_region(ir_parser *p, ir_node *n, const char *name, ir_graph *g, const strmap *operands)
{
    VEC(ir_value *) inputs = {0};
    ir_region_add(n, name, g);
    for (int capture = 0; capture < 2; capture++)
        for (size_t i = 0; i < g->inputs.count; i++) {
            ir_value *v = g->inputs.items[i];
            const int operand = (int)(uintptr_t)strmap_get(operands, v->name) - 1;
            if ((operand >= 0) != capture) continue;
            if (capture) ir_capture_set(&n->regions[n->n_regions - 1], inputs.count, operand);
            vec_push(p->scratch, &inputs, v);
        }
    for (size_t i = 0; i < inputs.count; i++) g->inputs.items[i] = inputs.items[i];
}

static ampc_status convert(ir_parser *p, const old_node *old)
{
    const strmap *operands = captured(p, old);
    if (!operands) return FAIL_AT(p, &old->at, "the node has more captures than operands");
    TRY(set_fields(p, old));
    for (const char *at = old->bodies ? old->bodies : ""; *at;) {
        const char *line = next_line(p, &at), *body = strchr(line, '=');
        ir_graph *g = body ? strmap_get(p->v2->names, body + 1) : NULL;
        if (!g) return FAIL_AT(p, &old->at, "the module has no body for '%s'", line);
        if (g->owner) return FAIL_AT(p, &old->at, "two nodes have the body '@%s'", body + 1);
        add_region(p, old->node, arena_strndup(p->scratch, line, (size_t)(body - line)), g, operands);
    }
    return AMPC_OK;
}

/* A body that contains its own node belongs to no graph of the module. */
static bool is_reached(const ir_graph *g)
{
    int depth = 0;
    while (g->owner && depth++ <= IR_MAX_NESTING) g = g->owner->graph;
    return !g->owner && depth <= IR_MAX_NESTING;
}

ampc_status ir_v2_finish(ir_parser *p)
{
    struct ir_v2 *v2 = p->v2;
    for (size_t i = 0; i < v2->nodes.count; i++) TRY(convert(p, &v2->nodes.items[i]));
    for (size_t i = 0; i < v2->bodies.count; i++) {
        const ir_graph *g = v2->bodies.items[i];
        if (!g->owner) return FAIL_AT(p, &v2->places.items[i], "no node has the body '@%s'", v2->places.items[i].text);
        if (!is_reached(g))
            return FAIL_AT(p, &v2->places.items[i], "bodies are nested more than %d deep", IR_MAX_NESTING);
    }
    for (ir_graph *g = ir_first_graph(p->module); g; g = ir_next_graph(g)) ir_captures_order(g);
    return AMPC_OK;
}
