/* parse_node.c - parses graphs: their inputs and lines, which are nodes, statements and labels.
 *
 * A node is created through the builder after its operands are parsed, and inferred at the end of its line. Inferred
 * types are compared with the types in the text, and errors of inference are reported at the position of the op. */
#include "ir/text/parser.h"

#include <assert.h>
#include <string.h>

/* Repeats a message of ir_infer as an error at the node's position in the text. */
void ir_repeat_message(void *user, diag_level level, const char *message)
{
    ir_parser *p = user;
    if (level == DIAG_ERROR) FAIL_AT(p, &p->statement, "%s", diag_message_text(message));
    else if (level == DIAG_NOTE) diag_note(p->diag, DIAG_NOWHERE, "%s", message);
}

typedef VEC(ir_value *) value_list;

/* ---- nodes ----------------------------------------------------------------------------------------------- */

/* The value named by a token; *out is NULL for "_". */
static ampc_status parse_operand(ir_parser *p, ir_value **out)
{
    const ir_token t = p->lex.token;
    *out = NULL;
    if (ir_accept_word(p, "_")) return AMPC_OK;
    if (t.kind == IR_TOKEN_RESULT) {
        *out = strmap_get(p->results, t.text);
    } else if (t.kind == IR_TOKEN_GLOBAL) {
        ir_storage *s = ir_storage_find(p->module, t.text);
        *out = strmap_get(p->inputs, t.text);
        if (!*out && s) *out = ir_graph_storage(p->graph, s);
    } else {
        return ir_fail_expected(p, "an operand");
    }
    if (!*out) return FAIL(p, "%s is not defined here", ir_describe(p, &t));
    ir_lexer_next(&p->lex);
    return AMPC_OK;
}

static bool begins_operand(const ir_parser *p)
{
    ir_token_kind kind = p->lex.token.kind;
    return kind == IR_TOKEN_RESULT || kind == IR_TOKEN_GLOBAL || ir_is_word(p, "_");
}

static ampc_status parse_operands(ir_parser *p, value_list *out)
{
    do {
        ir_value *v;
        TRY(parse_operand(p, &v));
        vec_push(p->scratch, out, v);
    } while (ir_accept_mark(p, ","));
    return AMPC_OK;
}

/* Checks that the op accepts the number of operands and that no mandatory one is absent. */
static ampc_status check_operands(ir_parser *p, ir_op op, const value_list *in)
{
    const ir_op_info *info = ir_op_get(op);
    bool variadic = info->variadic_in >= 0;
    int n = (int)in->count, min = variadic ? info->n_in - 1 : 0;
    if (n < min || (!variadic && n > info->n_in))
        return FAIL_AT(p, &p->statement, "%s expects %s%d operands, not %d", info->name, variadic ? "at least " : "",
                       variadic ? min : info->n_in, n);
    for (int i = 0; i < (variadic ? n : info->n_in); i++) {
        const ir_slot *slot = ir_op_in_slot(op, i, variadic ? n : info->n_in);
        if (slot->kind != IR_SLOT_OPT && (i >= n || !in->items[i]))
            return FAIL_AT(p, &p->statement, "operand '%s' of %s is missing", slot->name, info->name);
    }
    return AMPC_OK;
}

static ampc_status check_result_count(ir_parser *p, ir_op op, size_t count)
{
    const ir_op_info *info = ir_op_get(op);
    bool variadic = info->variadic_out >= 0;
    size_t min = (size_t)info->n_out - variadic;
    if (count >= min && (variadic || count == min)) return AMPC_OK;
    return FAIL_AT(p, &p->statement, "%s has %s%zu results, not %zu", info->name, variadic ? "at least " : "", min,
                   count);
}

/* Parses `MatMul "fc/MatMul"`. */
static ampc_status parse_origin(ir_parser *p, const char **op, const char **node)
{
    ir_token_kind kind = p->lex.token.kind;
    if (kind != IR_TOKEN_WORD && kind != IR_TOKEN_STRING && kind != IR_TOKEN_NUMBER)
        return ir_fail_expected(p, "an operator type");
    *op = ir_parser_strdup(p, p->lex.token.text);
    ir_lexer_next(&p->lex);
    TRY(ir_need(p, IR_TOKEN_STRING, "the name of a model node", node));
    *node = ir_parser_strdup(p, *node);
    return AMPC_OK;
}

/* Parses ` !MatMul "fc/MatMul"`, with the matched nodes of a pattern in brackets, or nothing. */
static ampc_status parse_location(ir_parser *p, ir_node *n)
{
    n->loc.file = p->source;
    if (!ir_accept_mark(p, "!")) return AMPC_OK;
    TRY(parse_origin(p, &n->loc.op, &n->loc.node));
    if (!ir_accept_mark(p, "(")) return AMPC_OK;
    VEC(ir_origin) parts = {0};
    do {
        ir_origin part;
        TRY(parse_origin(p, &part.op, &part.node));
        vec_push(p->module->arena, &parts, part);
    } while (ir_accept_mark(p, ","));
    vec_push(p->module->arena, &parts, ((ir_origin){0}));
    n->loc.fused_from = parts.items;
    return ir_need_mark(p, ")");
}

static ampc_status parse_op(ir_parser *p, ir_op *op)
{
    if (p->lex.token.kind != IR_TOKEN_WORD) return ir_fail_expected(p, "an operation");
    p->derived = IR_OP_COUNT;
    if (p->version < 3 && ir_find_v2_slope(p)) *op = IR_OP_slope;
    else if (!ir_op_find(p->lex.token.text, op) && !ir_v2_op(p, p->lex.token.text, op))
        return FAIL(p, "unknown operation '%s'", p->lex.token.text);
    p->statement = p->lex.token;
    ir_lexer_next(&p->lex);
    return AMPC_OK;
}

static ampc_status parse_captures(ir_parser *p, ir_graph *g)
{
    const ir_token at = p->lex.token;
    value_list list = {0};
    if (!ir_accept_word(p, "captures")) return AMPC_OK;
    TRY(parse_operands(p, &list));
    if (list.count > g->inputs.count)
        return FAIL_AT(p, &at, "%zu captures for %zu inputs of the graph", list.count, g->inputs.count);
    for (size_t i = 0; i < list.count; i++) {
        if (!list.items[i]) return FAIL_AT(p, &at, "a capture needs a value");
        ir_capture_bind(g, g->inputs.count - list.count + i, list.items[i]);
    }
    return AMPC_OK;
}

/* Parses "body: graph(@x : f32[4]) { .. } captures %x". */
static ampc_status parse_region(ir_parser *p, ir_node *n)
{
    const ir_token at = p->lex.token;
    const char *name;
    TRY(ir_need(p, at.kind == IR_TOKEN_STRING ? IR_TOKEN_STRING : IR_TOKEN_WORD, "the name of a region", &name));
    if (ir_region_find(n, name)) return FAIL_AT(p, &at, "region '%s' is duplicated", name);
    if (p->depth == IR_MAX_NESTING) return FAIL_AT(p, &at, "regions are nested more than %d deep", IR_MAX_NESTING);
    TRY(ir_need_mark(p, ":"));
    if (!ir_accept_word(p, "graph")) return ir_fail_expected(p, "graph");
    ir_parser outer = *p;
    ir_graph *g = ir_body_new(p->module);
    p->depth++;
    TRY(ir_parse_graph(p, g));
    outer.lex = p->lex;
    *p = outer;
    ir_region_add(n, name, g);
    return parse_captures(p, g);
}

static ampc_status parse_regions(ir_parser *p, ir_node *n)
{
    if (!ir_accept_mark(p, "(")) return AMPC_OK;
    if (!ir_op_has(n->op, IR_BODIES)) return FAIL_AT(p, &p->statement, "%s has no regions", ir_op_get(n->op)->name);
    if (n->n_in != ir_declared_operands(n))
        return FAIL_AT(p, &p->statement, "%d operands, but %d in the layout", n->n_in, ir_declared_operands(n));
    while (!ir_accept_mark(p, ")")) TRY(parse_region(p, n));
    return AMPC_OK;
}

static ampc_status parse_marks(ir_parser *p, const char **out)
{
    const ir_token at = p->lex.token;
    *out = "";
    if (at.kind != IR_TOKEN_WORD) return AMPC_OK;
    ir_lexer_next(&p->lex);
    *out = at.text;
    return at.text[strspn(at.text, IR_MARKS)] ? FAIL_AT(p, &at, "a mark is one of " IR_MARKS) : AMPC_OK;
}

/* Parses "[t_x:tx]", or nothing. */
static ampc_status parse_layout(ir_parser *p, ir_node *n)
{
    const char *operands, *results;
    if (!ir_op_has_layout(n->op) || !ir_accept_mark(p, "[")) return AMPC_OK;
    TRY(parse_marks(p, &operands));
    TRY(ir_need_mark(p, ":"));
    TRY(parse_marks(p, &results));
    ir_layout_set(n, operands, results);
    return ir_need_mark(p, "]");
}

/* Parses operands, layout, attributes and regions of an op into a node that is not yet in the graph. */
static ampc_status parse_operation(ir_parser *p, ir_op op, size_t n_out, ir_node **out)
{
    value_list in = {0};
    if (begins_operand(p)) TRY(parse_operands(p, &in));
    TRY(check_operands(p, op, &in));
    TRY(check_result_count(p, op, n_out));
    *out = ir_new_array(&p->builder, op, (int)in.count, in.items, (int)n_out);
    assert(*out); /* check_operands rejected absent ones */
    if (p->derived != IR_OP_COUNT) return ir_parse_v2_slope(p, *out);
    TRY(parse_layout(p, *out));
    TRY(ir_parse_attrs(p, *out));
    return parse_regions(p, *out);
}

/* Infers and inserts the node and sets its note. */
static ampc_status finish_node(ir_parser *p, ir_node *n)
{
    n->note = ir_accept_note(p);
    ir_regions_name(n);
    size_t errors = diag_count(p->diag, DIAG_ERROR);
    if (ir_done_all(&p->builder, n)) return AMPC_OK;
    if (diag_count(p->diag, DIAG_ERROR) == errors) FAIL_AT(p, &p->statement, "the node is not valid");
    return AMPC_REJECTED;
}

typedef struct written_type {
    ir_token at;
    ir_type type;
} written_type;
typedef VEC(written_type) written_types;

static ampc_status parse_types(ir_parser *p, size_t count, written_types *out)
{
    TRY(ir_need_mark(p, ":"));
    do {
        written_type w = {.at = p->lex.token};
        TRY(ir_parse_type(p, &w.type));
        vec_push(p->scratch, out, w);
    } while (ir_accept_mark(p, ","));
    if (out->count == count) return AMPC_OK;
    return FAIL_AT(p, &out->items[0].at, "%zu types for %zu results", out->count, count);
}

static ampc_status check_types(ir_parser *p, const ir_node *n, const written_types *written)
{
    for (int i = 0; i < n->n_out; i++) {
        const written_type *w = &written->items[i];
        if (ir_type_equal(&w->type, &n->out[i]->type)) continue;
        return FAIL_AT(p, &w->at, "the type of '%%%s' is %s, not %s", n->out[i]->name,
                       ir_type_print(p->module, &n->out[i]->type, p->scratch),
                       ir_type_print(p->module, &w->type, p->scratch));
    }
    return AMPC_OK;
}

typedef VEC(ir_token) token_list;

static ampc_status parse_results(ir_parser *p, token_list *out)
{
    do {
        if (p->lex.token.kind != IR_TOKEN_RESULT) return ir_fail_expected(p, "%NAME");
        vec_push(p->scratch, out, p->lex.token);
        ir_lexer_next(&p->lex);
    } while (ir_accept_mark(p, ","));
    return ir_need_mark(p, "=");
}

static ampc_status name_results(ir_parser *p, ir_node *n, const token_list *names)
{
    for (int i = 0; i < n->n_out; i++) {
        const ir_token *t = &names->items[i];
        if (strmap_get(p->results, t->text)) return FAIL_AT(p, t, "'%%%s' is defined twice", t->text);
        if (strmap_get(p->inputs, t->text)) return FAIL_AT(p, t, "'%%%s' has the name of a graph input", t->text);
        ir_value_rename(n->out[i], t->text);
        strmap_put(p->results, t->text, n->out[i]);
    }
    return AMPC_OK;
}

/* Parses "%y = op %a, %b {attributes} : types !Op "node" # note". */
static ampc_status parse_node(ir_parser *p)
{
    token_list names = {0};
    written_types types = {0};
    ir_op op;
    ir_node *n;
    TRY(parse_results(p, &names));
    TRY(parse_op(p, &op));
    TRY(parse_operation(p, op, names.count, &n));
    TRY(parse_types(p, names.count, &types));
    for (int i = 0; i < n->n_out && ir_op_has(op, IR_DECLARED); i++) n->out[i]->type = types.items[i].type;
    TRY(parse_location(p, n));
    TRY(name_results(p, n, &names));
    TRY(finish_node(p, n));
    return check_types(p, n, &types);
}

/* Parses the value in "gradient @w". */
static ampc_status parse_of(ir_parser *p, ir_owner of, ir_value **out)
{
    const ir_token at = p->lex.token;
    const char *name;
    if (of == IR_OF_ALONE || of == IR_OF_SEVERAL) return AMPC_OK;
    TRY(ir_need(p, IR_TOKEN_GLOBAL, "@NAME", &name));
    ir_storage *s = of == IR_OF_INPUT ? NULL : ir_storage_find(p->module, name);
    *out = of == IR_OF_INPUT ? strmap_get(p->inputs, name) : s ? ir_graph_storage(p->graph, s) : NULL;
    return *out ? AMPC_OK : FAIL_AT(p, &at, "there is no %s '@%s'", of == IR_OF_INPUT ? "input" : "storage", name);
}

/* Parses `"fc" = %z as logits` after the word output. */
static ampc_status parse_output(ir_parser *p)
{
    const char *name;
    ir_value *v, *of = NULL;
    int role;
    TRY(ir_need(p, IR_TOKEN_STRING, "the name of the output", &name));
    TRY(ir_need_mark(p, "="));
    const ir_token at = p->lex.token;
    TRY(parse_operand(p, &v));
    if (!v) return FAIL_AT(p, &at, "an output needs a value");
    TRY(ir_parse_role(p, ir_output_words, IR_OUTPUT_ROLE_COUNT, &role));
    TRY(parse_of(p, ir_output_roles[role].of, &of));
    ir_node *n = ir_new(&p->builder, IR_OP_output, 1, v);
    n->attr[IR_ATTR(output, name)].s = ir_parser_strdup(p, name);
    n->role = (ir_output_role)role;
    n->of = of;
    TRY(parse_location(p, n));
    return finish_node(p, n);
}

/* Parses the label of a phase, or an op without results. */
static ampc_status parse_statement(ir_parser *p)
{
    for (int i = 0; i < IR_PHASE_COUNT; i++)
        if (ir_accept_word(p, ir_phase_names[i])) {
            p->builder.phase = (ir_phase)i;
            return ir_need_mark(p, ":");
        }
    ir_op op;
    ir_node *n;
    TRY(parse_op(p, &op));
    if (ir_op_has(op, IR_NAMED)) return parse_output(p);
    TRY(parse_operation(p, op, 0, &n));
    TRY(parse_location(p, n));
    return finish_node(p, n);
}

/* ---- graphs ---------------------------------------------------------------------------------------------- */

static ampc_status parse_input(ir_parser *p)
{
    const ir_token at = p->lex.token;
    const char *name;
    ir_type type;
    TRY(ir_need(p, IR_TOKEN_GLOBAL, "@NAME", &name));
    TRY(ir_parse_declared_type(p, true, &type));
    if (strmap_get(p->inputs, name)) return FAIL_AT(p, &at, "input '@%s' is declared twice", name);
    ir_value *v = ir_graph_input(p->graph, name, &type);
    strmap_put(p->inputs, name, v);
    int role;
    TRY(ir_parse_role(p, ir_input_words, IR_INPUT_ROLE_COUNT, &role));
    v->role = (ir_input_role)role;
    return AMPC_OK;
}

static ampc_status parse_inputs(ir_parser *p)
{
    TRY(ir_need_mark(p, "("));
    if (ir_accept_mark(p, ")")) return AMPC_OK;
    do TRY(parse_input(p));
    while (ir_accept_mark(p, ","));
    return ir_need_mark(p, ")");
}

ampc_status ir_parse_graph(ir_parser *p, ir_graph *g)
{
    p->graph = g;
    p->builder = ir_builder_at_end(p->graph, p->inner);
    p->results = strmap_new(p->scratch);
    p->inputs = strmap_new(p->scratch);
    int role;
    TRY(parse_inputs(p));
    TRY(ir_parse_role(p, ir_graph_words, IR_GRAPH_ROLE_COUNT, &role));
    p->graph->role = (ir_graph_role)role;
    TRY(ir_need_mark(p, "{"));
    while (!ir_is_mark(p, "}")) {
        ir_token_kind kind = p->lex.token.kind;
        if (kind == IR_TOKEN_RESULT) TRY(parse_node(p));
        else if (kind == IR_TOKEN_WORD) TRY(parse_statement(p));
        else return ir_fail_expected(p, "a node, a statement or '}'");
    }
    return ir_need_mark(p, "}");
}
