/* recipe_reader.c - what the statements of a recipe share: names and the file. */
#include "frontend/recipe_reader.h"
#include "ir/base/input_file.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 4096, RECIPE_TERMS = 256 };

ampc_status recipe_read_file(const char *path, char **text, size_t *length, diag *d)
{
    enum { LONGEST = 1 << 20 };
    return input_read(path, LONGEST, "a recipe has at most 1048576 bytes", d, text, length);
}

static const char *const reserved[] = {"model", "input", "loss", "train", "option", "detach"};

static const char *const kind_names[] = {"a model", "a value", "an input", "a loss"};

static bool is_name(const char *text)
{
    if (!isalpha((unsigned char)*text) && *text != '_') return false;
    while (isalnum((unsigned char)*text) || *text == '_') text++;
    return !*text;
}

static ampc_status need_name(recipe *r, const char *what, const char **name)
{
    const ir_token t = r->p.lex.token;
    TRY(ir_need(&r->p, IR_TOKEN_WORD, what, name));
    if (!is_name(*name)) return FAIL_AT(&r->p, &t, "'%s' is not a name: use letters, digits and '_'", *name);
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (strcmp(*name, reserved[i]) == 0)
            return FAIL_AT(&r->p, &t, "'%s' is a word of the language, not a name", *name);
    return AMPC_OK;
}

ampc_status recipe_define(recipe *r, const char *what, recipe_kind kind, recipe_name **out)
{
    const ir_token t = r->p.lex.token;
    const char *name;
    TRY(need_name(r, what, &name));
    const recipe_name *earlier = strmap_get(r->names, name);
    if (earlier)
        return FAIL_AT(&r->p, &t, "'%s' is already defined in line %d, as %s", name, earlier->at.line,
                       kind_names[earlier->kind]);
    if (r->defined.count == MAX_NAMES) return FAIL_AT(&r->p, &t, "more than %d names", MAX_NAMES);
    *out = arena_alloc(r->p.scratch, sizeof **out);
    **out = (recipe_name){.kind = kind, .name = arena_strdup(r->p.module->arena, name), .at = t};
    strmap_put(r->names, name, *out);
    vec_push(r->p.scratch, &r->defined, *out);
    return AMPC_OK;
}

ampc_status recipe_find(recipe *r, const char *what, unsigned kinds, recipe_name **out)
{
    const ir_token t = r->p.lex.token;
    const char *name;
    TRY(need_name(r, what, &name));
    *out = strmap_get(r->names, name);
    if (!*out) return FAIL_AT(&r->p, &t, "'%s' is not defined: expected %s", name, what);
    if (!(RECIPE_KIND((*out)->kind) & kinds))
        return FAIL_AT(&r->p, &t, "'%s' is %s: expected %s", name, kind_names[(*out)->kind], what);
    (*out)->used = true;
    return AMPC_OK;
}

char recipe_accept_sign(recipe *r, const char *signs)
{
    ir_lexer *l = &r->p.lex;
    const char sign = l->token.kind == IR_TOKEN_NUMBER ? l->token.text[0] : '\0';
    if (!sign || !strchr(signs, sign)) return '\0';
    l->at = l->token.start + 1;
    ir_lexer_next(l);
    return sign;
}

/* Reads [NUMBER "*"] NAME. */
static ampc_status read_factor(recipe *r, double *factor, recipe_name **n)
{
    const ir_token t = r->p.lex.token;
    *factor = 1;
    if (t.kind == IR_TOKEN_NUMBER) {
        if (!ir_float_parse(t.text, factor)) return FAIL_AT(&r->p, &t, "'%s' is not a number", t.text);
        ir_lexer_next(&r->p.lex);
        TRY(ir_need_mark(&r->p, "*"));
    }
    const ir_token at = r->p.lex.token;
    TRY(recipe_find(r, "a value", RECIPE_VALUES, n));
    if ((*n)->value) return AMPC_OK;
    return FAIL_AT(&r->p, &at, "no model reads input '%s': its type is not known", (*n)->name);
}

/* Whether values with these types can be added. Reports it otherwise. */
static ampc_status check_sum(recipe *r, const ir_token *at, const recipe_name *n, const ir_value *sum)
{
    if (!ir_dtype_is_float(n->value->type.dtype)) return FAIL_AT(&r->p, at, "'%s' is not of a float type", n->name);
    if (!sum || ir_type_equal(&sum->type, &n->value->type)) return AMPC_OK;
    ir_module *m = r->p.module;
    return FAIL_AT(&r->p, at, "'%s' is %s, but the values before it are %s", n->name,
                   ir_type_print(m, &n->value->type, r->p.scratch), ir_type_print(m, &sum->type, r->p.scratch));
}

ampc_status recipe_read_sum(recipe *r, ir_value **out, recipe_name **name)
{
    ir_builder b = ir_builder_at_end(r->linker.graph, r->p.diag);
    char sign = recipe_accept_sign(r, "+-");
    const bool begins_with_sign = sign;
    int terms = 0;
    *out = NULL;
    do {
        double factor;
        const ir_token at = r->p.lex.token;
        TRY(read_factor(r, &factor, name));
        TRY(check_sum(r, &at, *name, *out));
        if (++terms > RECIPE_TERMS) return FAIL_AT(&r->p, &at, "more than %d terms", RECIPE_TERMS);
        ir_value *v = (*name)->value;
        const bool alone = !begins_with_sign && at.kind == IR_TOKEN_WORD;
        if (sign == '-' && !*out) factor = -factor;
        if (factor > 1 || factor < 1) v = ir_binary(&b, IR_OP_mul, v, ir_scalar_like(&b, v, factor));
        *out = !*out ? v : ir_binary(&b, sign == '-' ? IR_OP_sub : IR_OP_add, *out, v);
        if (!*out) return diag_status(r->p.diag);
        sign = recipe_accept_sign(r, "+-");
        if (terms == 1 && !sign && alone) return AMPC_OK;
    } while (sign);
    *name = NULL;
    return AMPC_OK;
}

void recipe_bind(recipe *r, recipe_name *n, ir_value *v)
{
    ir_builder b = ir_builder_at_end(r->linker.graph, r->p.diag);
    n->value = v;
    if (v->kind == IR_VALUE_RESULT) ir_value_rename(v, n->name);
    ir_output(&b, n->name, v);
}

ampc_status recipe_check_used(recipe *r)
{
    for (size_t i = 0; i < r->defined.count; i++) {
        const recipe_name *n = r->defined.items[i];
        if (!n->used && n->kind != RECIPE_VALUE)
            FAIL_AT(&r->p, &n->at, "%s '%s' is not used", strchr(kind_names[n->kind], ' ') + 1, n->name);
    }
    return diag_status(r->p.diag);
}
