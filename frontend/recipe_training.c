/* recipe_training.c - the statements of a recipe about losses and optimizers, which become data of the module.
 *
 *   "loss" NAME "=" TERM {"+" TERM}      TERM = KIND "(" SUM ["," (NUMBER | NAME)] {"," KEY "=" VALUE} ")"
 *   "train" WHAT {"," WHAT} "by" OPTIMIZER "on" NAME {"+" NAME}
 *       WHAT: a model, or a glob over names of parameters, which is quoted if it has other characters than names */
#include "frontend/recipe_reader.h"

#include "ir/base/limits.h"
#include "ir/ops/settings.h"

#include <math.h>
#include <string.h>

enum { MAX_ITEMS = 256 }; /* of one kind in a statement, because texts are put together piece by piece */

/* Counts an item at the current token. */
static ampc_status count_item(recipe *r, int *count, const char *what)
{
    return ++*count <= MAX_ITEMS ? AMPC_OK : FAIL(&r->p, "more than %d %s", MAX_ITEMS, what);
}

/* ---- loss -------------------------------------------------------------------------------------- */

/* Reads the value of an option: a word, number or string that --loss can hold. */
static ampc_status read_option(recipe *r, ir_loss *t, const char *key)
{
    const ir_token v = r->p.lex.token;
    const bool text = v.kind == IR_TOKEN_STRING || v.kind == IR_TOKEN_WORD || v.kind == IR_TOKEN_NUMBER;
    if (!text) return ir_fail_expected(&r->p, "a value");
    if (v.kind != IR_TOKEN_NUMBER && (!*v.text || strpbrk(v.text, ",:+=")))
        return FAIL(&r->p, "'%s' cannot be the value of an option", v.text);
    if (strcmp(key, "weight") == 0) {
        static const setting weight = SETTING(ir_loss, "weight", weight, REAL, NULL, LIMITS_LOSS_WEIGHT);
        const settings s = {.line = ir_place(&r->p, &v)};
        if (!isnan(t->weight)) return FAIL(&r->p, "weight is given twice");
        TRY(settings_value(&s, &weight, v.text, &t->weight, r->p.diag));
    } else t->options = arena_printf(r->p.module->arena, "%s%s%s=%s", t->options, *t->options ? "," : "", key, v.text);
    ir_lexer_next(&r->p.lex);
    return AMPC_OK;
}

static ampc_status read_label(recipe *r, ir_loss *t)
{
    recipe_name *n;
    const ir_token at = r->p.lex.token;
    if (t->target) return FAIL(&r->p, "%s has one value and one label, found another: expected KEY=VALUE", t->kind);
    t->target = at.text;
    if (at.kind != IR_TOKEN_NUMBER) return recipe_find(r, "a value, an input or a number", RECIPE_VALUES, &n);
    double number;
    if (!ir_float_parse(at.text, &number)) return FAIL(&r->p, "'%s' is not a number", at.text);
    ir_lexer_next(&r->p.lex);
    return AMPC_OK;
}

/* Reads a label, or an option, which begins with a word that "=" follows. */
static ampc_status read_item(recipe *r, ir_loss *t)
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

static ampc_status read_term(recipe *r, const recipe_name *loss, int number)
{
    arena *a = r->p.module->arena;
    ir_loss t = {.name = arena_strdup(a, loss->name), .options = "", .weight = NAN, .axis = 1, .line = loss->at.line};
    int items = 0;
    TRY(ir_need(&r->p, IR_TOKEN_WORD, "a kind of loss, such as bce_logits", &t.kind));
    t.kind = arena_strdup(a, t.kind);
    TRY(ir_need_mark(&r->p, "("));
    TRY(read_scores(r, loss, number, &t.output));
    while (ir_accept_mark(&r->p, ",")) {
        TRY(count_item(r, &items, "options"));
        TRY(read_item(r, &t));
    }
    if (t.target) t.target = arena_strdup(a, t.target);
    if (isnan(t.weight)) t.weight = 1;
    vec_push(a, &r->p.module->training.losses, t);
    return ir_need_mark(&r->p, ")");
}

ampc_status recipe_read_loss(recipe *r)
{
    recipe_name *n;
    int terms = 1;
    TRY(recipe_define(r, "the name of a loss", RECIPE_LOSS, &n));
    TRY(ir_need_mark(&r->p, "="));
    TRY(read_term(r, n, 1));
    while (recipe_accept_sign(r, "+")) {
        TRY(count_item(r, &terms, "terms"));
        TRY(read_term(r, n, terms));
    }
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

static ampc_status read_losses(recipe *r, ir_names *out)
{
    recipe_name *n;
    VEC(const char *) losses = {0};
    do {
        TRY(recipe_find(r, "a loss", RECIPE_KIND(RECIPE_LOSS), &n));
        vec_push(r->p.module->arena, &losses, arena_strdup(r->p.module->arena, n->name));
    } while (recipe_accept_sign(r, "+"));
    *out = (ir_names){losses.items, (int)losses.count};
    return AMPC_OK;
}

ampc_status recipe_read_train(recipe *r)
{
    VEC(const char *) globs = {0};
    arena *a = r->p.module->arena;
    ir_trainer t = {.line = r->p.lex.token.line};
    const char *glob = NULL, *optimizer;
    do {
        TRY(read_owned(r, &glob));
        vec_push(a, &globs, arena_strdup(a, glob));
    } while (ir_accept_mark(&r->p, ","));
    t.globs = (ir_names){globs.items, (int)globs.count};
    if (!ir_accept_word(&r->p, "by")) return ir_fail_expected(&r->p, "'by' and an optimizer");
    TRY(read_optimizer(r, &optimizer));
    t.optimizer = arena_strdup(a, optimizer);
    ir_accept_word(&r->p, "on");
    TRY(read_losses(r, &t.losses));
    vec_push(a, &r->p.module->training.trainers, t);
    return AMPC_OK;
}
