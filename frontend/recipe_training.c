/* recipe_training.c - the statements of a recipe about losses and optimizers, which become meta entries.
 *
 *   "loss" NAME "=" TERM {"+" TERM}      TERM = KIND "(" SUM ["," (NUMBER | NAME)] {"," KEY "=" VALUE} ")"
 *   "train" WHAT {"," WHAT} "by" OPTIMIZER "on" NAME {"+" NAME}
 *       WHAT: a model, or a glob over names of parameters, which is quoted if it has other characters than names
 *
 * A term is written as for --loss, KIND,KEY=VALUE:VALUE,LABEL. */
#include "frontend/recipe_reader.h"

#include <string.h>

enum { MAX_ITEMS = 256 }; /* of one kind in a statement, because texts are put together piece by piece */

/* Counts an item at the current token. */
static ampc_status count_item(recipe *r, int *count, const char *what)
{
    return ++*count <= MAX_ITEMS ? AMPC_OK : FAIL(&r->p, "more than %d %s", MAX_ITEMS, what);
}

/* ---- loss -------------------------------------------------------------------------------------- */

typedef struct term {
    const char *kind, *options, *value, *label;
} term;

/* Reads the value of an option: a word, number or string that --loss can hold. */
static ampc_status read_option(recipe *r, term *t, const char *key)
{
    const ir_token v = r->p.lex.token;
    const bool text = v.kind == IR_TOKEN_STRING || v.kind == IR_TOKEN_WORD || v.kind == IR_TOKEN_NUMBER;
    if (!text) return ir_fail_expected(&r->p, "a value");
    if (v.kind != IR_TOKEN_NUMBER && (!*v.text || strpbrk(v.text, ",:+=")))
        return FAIL(&r->p, "'%s' cannot be the value of an option", v.text);
    t->options = arena_printf(r->p.scratch, "%s,%s=%s", t->options, key, v.text);
    ir_lexer_next(&r->p.lex);
    return AMPC_OK;
}

static ampc_status read_label(recipe *r, term *t)
{
    recipe_name *n;
    const ir_token at = r->p.lex.token;
    if (t->label) return FAIL(&r->p, "%s has one value and one label, found another: expected KEY=VALUE", t->kind);
    t->label = at.text;
    if (at.kind != IR_TOKEN_NUMBER) return recipe_find(r, "a value, an input or a number", RECIPE_VALUES, &n);
    double number;
    if (!ir_float_parse(at.text, &number)) return FAIL(&r->p, "'%s' is not a number", at.text);
    ir_lexer_next(&r->p.lex);
    return AMPC_OK;
}

/* Reads a label, or an option, which begins with a word that "=" follows. */
static ampc_status read_item(recipe *r, term *t)
{
    const ir_lexer before = r->p.lex;
    ir_lexer_next(&r->p.lex);
    if (before.token.kind == IR_TOKEN_WORD && ir_accept_mark(&r->p, "=")) return read_option(r, t, before.token.text);
    r->p.lex = before;
    return read_label(r, t);
}

/* Reads the value of a term; a sum becomes an output LOSS.value, with a number from the second one on. */
static ampc_status read_scores(recipe *r, const recipe_name *loss, int number, const char **name)
{
    ir_value *v;
    recipe_name *value, sum;
    TRY(recipe_read_sum(r, &v, &value));
    if (!value) {
        const char *suffix = number > 1 ? arena_printf(r->p.scratch, "%d", number) : "";
        sum.name = arena_printf(r->p.module->arena, "%s.value%s", loss->name, suffix);
        recipe_bind(r, value = &sum, v);
    }
    *name = value->name;
    return AMPC_OK;
}

static ampc_status read_term(recipe *r, const recipe_name *loss, int number, const char **text)
{
    term t = {.options = ""};
    int items = 0;
    TRY(ir_need(&r->p, IR_TOKEN_WORD, "a kind of loss, such as bce_logits", &t.kind));
    TRY(ir_need_mark(&r->p, "("));
    TRY(read_scores(r, loss, number, &t.value));
    while (ir_accept_mark(&r->p, ",")) {
        TRY(count_item(r, &items, "options"));
        TRY(read_item(r, &t));
    }
    TRY(ir_need_mark(&r->p, ")"));
    *text = arena_printf(r->p.scratch, "%s%s:%s%s%s", t.kind, t.options, t.value, t.label ? "," : "",
                         t.label ? t.label : "");
    return AMPC_OK;
}

ampc_status recipe_read_loss(recipe *r)
{
    recipe_name *n;
    const char *text, *more;
    int terms = 1;
    ir_module *m = r->p.module;
    TRY(recipe_define(r, "the name of a loss", RECIPE_LOSS, &n));
    TRY(ir_need_mark(&r->p, "="));
    TRY(read_term(r, n, 1, &text));
    while (recipe_accept_sign(r, "+")) {
        TRY(count_item(r, &terms, "terms"));
        TRY(read_term(r, n, terms, &more));
        text = arena_printf(r->p.scratch, "%s+%s", text, more);
    }
    ir_meta_set(m, arena_printf(m->arena, "loss.%s", n->name), arena_printf(r->p.scratch, "%d %s", n->at.line, text));
    return AMPC_OK;
}

/* ---- train ------------------------------------------------------------------------------------- */

/* Reads the name of a model or a glob that begins with one. */
static ampc_status read_owned(recipe *r, const char **glob)
{
    const ir_token t = r->p.lex.token;
    if (t.kind != IR_TOKEN_WORD && t.kind != IR_TOKEN_STRING) return ir_fail_expected(&r->p, "a model or parameters");
    const size_t length = strcspn(t.text, ".");
    const recipe_name *n = strmap_get(r->names, arena_strndup(r->p.scratch, t.text, length));
    if (!n || n->kind != RECIPE_MODEL || strpbrk(t.text, " ,"))
        return FAIL(&r->p, "'%s' is neither a model nor MODEL.GLOB", t.text);
    *glob = t.text[length] ? t.text : arena_printf(r->p.scratch, "%s.*", t.text);
    ir_lexer_next(&r->p.lex);
    return AMPC_OK;
}

/* Reads the tokens before the word `on`, joined. */
static ampc_status read_optimizer(recipe *r, const char **text)
{
    int tokens = 0;
    *text = "";
    while (!ir_is_word(&r->p, "on")) {
        TRY(count_item(r, &tokens, "words of an optimizer"));
        const ir_token t = r->p.lex.token;
        const bool fits = t.kind == IR_TOKEN_WORD || t.kind == IR_TOKEN_NUMBER || ir_is_mark(&r->p, ",") ||
                          ir_is_mark(&r->p, "=");
        if (!fits) return ir_fail_expected(&r->p, "an optimizer, such as adam,lr=1e-3, and 'on'");
        *text = arena_printf(r->p.scratch, "%s%s", *text, t.text);
        ir_lexer_next(&r->p.lex);
    }
    return **text ? AMPC_OK : ir_fail_expected(&r->p, "an optimizer, such as adam,lr=1e-3");
}

static ampc_status read_losses(recipe *r, const char **text)
{
    recipe_name *n;
    int losses = 0;
    *text = "";
    do {
        TRY(count_item(r, &losses, "losses"));
        TRY(recipe_find(r, "a loss", RECIPE_KIND(RECIPE_LOSS), &n));
        *text = arena_printf(r->p.scratch, "%s%s%s", *text, **text ? "+" : "", n->name);
    } while (recipe_accept_sign(r, "+"));
    return AMPC_OK;
}

ampc_status recipe_read_train(recipe *r)
{
    const char *globs = "", *glob = NULL, *optimizer, *losses;
    const int line = r->p.lex.token.line;
    int count = 0;
    ir_module *m = r->p.module;
    do {
        TRY(count_item(r, &count, "models or globs"));
        TRY(read_owned(r, &glob));
        globs = arena_printf(r->p.scratch, "%s%s%s", globs, *globs ? "," : "", glob);
    } while (ir_accept_mark(&r->p, ","));
    if (!ir_accept_word(&r->p, "by")) return ir_fail_expected(&r->p, "'by' and an optimizer");
    TRY(read_optimizer(r, &optimizer));
    ir_accept_word(&r->p, "on");
    TRY(read_losses(r, &losses));
    ir_meta_set(m, arena_printf(m->arena, "train.%d", ++r->trainers),
                arena_printf(r->p.scratch, "%d %s by %s on %s", line, globs, optimizer, losses));
    return AMPC_OK;
}
