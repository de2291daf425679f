/* parse_attrs.c - parses the attributes of a node by their slots in ops.def. */
#include "ir/text/parser.h"

static ampc_status parse_int_list(ir_parser *p, ir_int_list *out)
{
    TRY(ir_need_mark(p, "["));
    if (ir_accept_mark(p, "]")) return AMPC_OK;
    do {
        int64_t v;
        TRY(ir_need_int(p, &v));
        vec_push(p->scratch, out, v);
    } while (ir_accept_mark(p, ","));
    return ir_need_mark(p, "]");
}

static ampc_status parse_list(ir_parser *p, ir_node *n, int index, bool dims)
{
    ir_int_list list = {0};
    if (dims && !ir_is_mark(p, "[")) return ir_fail_expected(p, "'['");
    if (dims) TRY(ir_parse_dims(p, &list, INT32_MAX));
    else TRY(parse_int_list(p, &list));
    ir_set_list(n, index, list.items, (int)list.count);
    return AMPC_OK;
}

static ampc_status parse_number(ir_parser *p, double *out)
{
    const bool literal = p->lex.token.kind == IR_TOKEN_WORD || p->lex.token.kind == IR_TOKEN_NUMBER;
    if (!literal || !ir_float_parse(p->lex.token.text, out)) return ir_fail_expected(p, "a number");
    ir_lexer_next(&p->lex);
    return AMPC_OK;
}

/* ---- fields ---- */

static ampc_status parse_float_list(ir_parser *p, ir_field *out)
{
    VEC(float) list = {0};
    TRY(ir_need_mark(p, "["));
    if (!ir_accept_mark(p, "]")) {
        do {
            double v;
            TRY(parse_number(p, &v));
            vec_push(p->scratch, &list, (float)v);
        } while (ir_accept_mark(p, ","));
        TRY(ir_need_mark(p, "]"));
    }
    out->floats = list.items;
    out->count = (int)list.count;
    return AMPC_OK;
}

static ampc_status parse_field_list(ir_parser *p, ir_field *out)
{
    ir_int_list list = {0};
    if (out->kind == 'F') return parse_float_list(p, out);
    TRY(parse_int_list(p, &list));
    out->ints = list.items;
    out->count = (int)list.count;
    return AMPC_OK;
}

/* Parses i64 "axis"=1, f32 "scales"=[1,2] or "mode"="linear". */
static ampc_status parse_field(ir_parser *p, ir_field *out)
{
    out->kind = ir_accept_word(p, "i64") ? 'i' : ir_accept_word(p, "f32") ? 'f' : 's';
    TRY(ir_need(p, IR_TOKEN_STRING, out->kind == 's' ? "i64, f32 or a name in quotes" : "a string", &out->name));
    TRY(ir_need_mark(p, "="));
    if (out->kind == 's') return ir_need(p, IR_TOKEN_STRING, "a string", &out->s);
    if (ir_is_mark(p, "[")) {
        out->kind = out->kind == 'i' ? 'I' : 'F';
        return parse_field_list(p, out);
    }
    if (out->kind == 'i') return ir_need_int(p, &out->i);
    TRY(parse_number(p, &out->f));
    out->f = (double)(float)out->f;
    return AMPC_OK;
}

static ampc_status parse_fields(ir_parser *p, ir_node *n, int index)
{
    VEC(ir_field) list = {0};
    TRY(ir_need_mark(p, "{"));
    if (ir_accept_mark(p, "}")) return AMPC_OK;
    do {
        ir_field field = {0};
        TRY(parse_field(p, &field));
        vec_push(p->scratch, &list, field);
    } while (ir_accept_mark(p, ","));
    ir_set_fields(n, index, list.items, (int)list.count);
    return ir_need_mark(p, "}");
}

/* ---- attributes ---- */

/* Parses an attribute value that is one word or number. */
static ampc_status parse_simple(ir_parser *p, ir_node *n, int index, ir_slot_kind kind)
{
    const char *text = p->lex.token.text;
    bool literal = p->lex.token.kind == IR_TOKEN_WORD || p->lex.token.kind == IR_TOKEN_NUMBER;
    ir_attr *attr = &n->attr[index];
    if (kind == IR_SLOT_FLOAT || kind == IR_SLOT_DOUBLE) {
        double v;
        TRY(parse_number(p, &v));
        ir_set_float(n, index, v);
        return AMPC_OK;
    }
    if (kind == IR_SLOT_BOOL) {
        attr->i = strcmp(text, "true") == 0;
        if (!literal || (!attr->i && strcmp(text, "false") != 0)) return ir_fail_expected(p, "true or false");
    } else {
        attr->dtype = ir_dtype_parse(text);
        bool same = strcmp(text, ir_dtype_name(IR_NO_DTYPE)) == 0;
        if (!literal || (attr->dtype == IR_NO_DTYPE && !same)) return ir_fail_expected(p, "an element type");
    }
    ir_lexer_next(&p->lex);
    return AMPC_OK;
}

static ampc_status parse_word(ir_parser *p, const ir_slot *slot, ir_attr *out)
{
    const ir_token t = p->lex.token;
    const char *word, *known = "";
    TRY(ir_need(p, IR_TOKEN_STRING, "a string", &word));
    out->i = ir_words_find(slot->words, word);
    for (int i = 0; slot->words[i]; i++) known = arena_printf(p->module->arena, "%s %s", known, slot->words[i]);
    return out->i >= 0 ? AMPC_OK : FAIL_AT(p, &t, "%s \"%s\" is not one of%s", slot->name, word, known);
}

static ampc_status parse_attr(ir_parser *p, ir_node *n, int index)
{
    ir_slot_kind kind = ir_op_get(n->op)->attr[index].kind;
    const char *text;
    switch (kind) {
    case IR_SLOT_INT: return ir_need_int(p, &n->attr[index].i);
    case IR_SLOT_INTS:
    case IR_SLOT_DIMS: return parse_list(p, n, index, kind == IR_SLOT_DIMS);
    case IR_SLOT_STR:
        TRY(ir_need(p, IR_TOKEN_STRING, "a string", &text));
        n->attr[index].s = ir_parser_strdup(p, text);
        return AMPC_OK;
    case IR_SLOT_FIELDS: return parse_fields(p, n, index);
    case IR_SLOT_ONE_OF: return parse_word(p, &ir_op_get(n->op)->attr[index], &n->attr[index]);
    default: return parse_simple(p, n, index, kind);
    }
}

ampc_status ir_parse_attrs(ir_parser *p, ir_node *n)
{
    const ir_op_info *info = ir_op_get(n->op);
    uint64_t seen = 0;
    if (!ir_accept_mark(p, "{") || ir_accept_mark(p, "}")) return AMPC_OK;
    do {
        const ir_token t = p->lex.token;
        const char *name;
        TRY(ir_need(p, IR_TOKEN_WORD, "an attribute", &name));
        int index = ir_op_find_attr(n->op, name);
        if (index < 0 && ir_v2_has_attr(p, n, name)) {
            TRY(ir_v2_parse_attr(p, n, name));
            continue;
        }
        if (index < 0) return FAIL_AT(p, &t, "%s has no attribute '%s'", info->name, name);
        if (seen >> index & 1) return FAIL_AT(p, &t, "attribute '%s' is duplicated", name);
        seen |= (uint64_t)1 << index;
        TRY(ir_need_mark(p, "="));
        TRY(parse_attr(p, n, index));
    } while (ir_accept_mark(p, ","));
    return ir_need_mark(p, "}");
}
