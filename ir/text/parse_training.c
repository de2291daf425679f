/* parse_training.c - parses what a module knows of its training (docs/ir.md). */
#include "ir/graph/exported.h"
#include "ir/text/parser.h"

#include <math.h>
#include <string.h>

static ampc_status parse_facts(ir_parser *p, ir_storage *s)
{
    TRY(ir_need_mark(p, "("));
    do {
        int i = 0;
        while (i < IR_TENSOR_FACT_COUNT && !ir_accept_word(p, ir_tensor_facts[i])) i++;
        if (i == IR_TENSOR_FACT_COUNT) return ir_fail_expected(p, "a fact, such as read");
        s->facts |= 1U << i;
    } while (ir_accept_mark(p, ","));
    return ir_need_mark(p, ")");
}

ampc_status ir_parse_decision(ir_parser *p, ir_storage *s)
{
    if (p->version < 3) return ir_parse_held(p, s);
    if (ir_accept_word(p, "facts")) TRY(parse_facts(p, s));
    if (!ir_accept_word(p, "by")) return AMPC_OK;
    for (int i = 0; i < IR_RULE_COUNT; i++)
        if (ir_accept_word(p, ir_rules[i].word)) {
            s->rule = (ir_rule)i;
            return AMPC_OK;
        }
    return ir_fail_expected(p, "a rule, such as freeze");
}

/* ---- statements at the head ------------------------------------------------------------------------------ */

enum { MAX_STATEMENTS = 4096 };

static ampc_status need_string(ir_parser *p, const char *what, const char **out)
{
    TRY(ir_need(p, IR_TOKEN_STRING, what, out));
    *out = ir_parser_strdup(p, *out);
    return AMPC_OK;
}

static ampc_status need_result(ir_parser *p, const char **out)
{
    TRY(ir_need(p, IR_TOKEN_RESULT, "%NAME", out));
    *out = ir_parser_strdup(p, *out);
    return AMPC_OK;
}

/* Parses an integer from `low` to `high`. */
static ampc_status need_within(ir_parser *p, int64_t low, int64_t high, int64_t *out)
{
    const ir_token at = p->lex.token;
    TRY(ir_need_int(p, out));
    return *out >= low && *out <= high ? AMPC_OK : FAIL_AT(p, &at, "%s is not possible here", at.text);
}

static ampc_status need_float(ir_parser *p, double *out)
{
    const ir_token at = p->lex.token;
    const char *text;
    TRY(ir_need(p, IR_TOKEN_NUMBER, "a number", &text));
    return ir_float_parse(text, out) && isfinite(*out) ? AMPC_OK : FAIL_AT(p, &at, "'%s' is not a number", at.text);
}

static ampc_status parse_names(ir_parser *p, const char *what, ir_names *out)
{
    VEC(const char *) items = {0};
    const char *name;
    do {
        TRY(need_string(p, what, &name));
        vec_push(p->module->arena, &items, name);
    } while (ir_accept_mark(p, ","));
    *out = (ir_names){items.items, (int)items.count};
    return AMPC_OK;
}

/* Parses NAME(KEY=VALUE,..) and joins it as NAME,KEY=VALUE,... */
static ampc_status parse_call(ir_parser *p, const char *what, const char **name, const char **options)
{
    const char *key;
    TRY(ir_need(p, IR_TOKEN_WORD, what, name));
    *name = ir_parser_strdup(p, *name);
    *options = "";
    if (!ir_accept_mark(p, "(")) return AMPC_OK;
    do {
        TRY(ir_need(p, IR_TOKEN_WORD, "an option", &key));
        TRY(ir_need_mark(p, "="));
        const ir_token v = p->lex.token;
        if (v.kind != IR_TOKEN_WORD && v.kind != IR_TOKEN_NUMBER && v.kind != IR_TOKEN_STRING)
            return ir_fail_expected(p, "a value");
        if (strchr(v.text, ',')) return FAIL(p, "the value of an option cannot contain a comma");
        if (strlen(*options) > MAX_STATEMENTS) return FAIL(p, "too many options");
        *options = arena_printf(p->module->arena, "%s%s%s=%s", *options, **options ? "," : "", key, v.text);
        ir_lexer_next(&p->lex);
    } while (ir_accept_mark(p, ","));
    return ir_need_mark(p, ")");
}

static ampc_status parse_line(ir_parser *p, int *line)
{
    int64_t number;
    if (!ir_accept_word(p, "line")) return AMPC_OK;
    TRY(need_within(p, 1, INT32_MAX, &number));
    *line = (int)number;
    return AMPC_OK;
}

static ampc_status parse_opset(ir_parser *p)
{
    ir_training *t = &p->module->training;
    const char *domain = "";
    int64_t version;
    if (p->lex.token.kind == IR_TOKEN_STRING) TRY(need_string(p, "a domain", &domain));
    TRY(need_within(p, *domain ? INT32_MIN : 1, INT32_MAX, &version));
    if (ir_training_opset(t, domain))
        return FAIL_AT(p, &p->item, "the opset of %s is stated twice", *domain ? domain : "ONNX");
    ir_training_set_opset(t, p->module->arena, domain, version);
    return AMPC_OK;
}

static ampc_status parse_codes(ir_parser *p) { return need_string(p, "JSON", &p->module->training.codes); }

static ampc_status parse_exporter(ir_parser *p)
{
    for (int i = 0; i < IR_EXPORTER_COUNT; i++)
        if (ir_accept_word(p, ir_exporters[i].word)) {
            p->module->training.exported.exporter = (ir_exporter)i;
            return AMPC_OK;
        }
    return ir_fail_expected(p, "an exporter, such as dynamo");
}

static ampc_status parse_batch(ir_parser *p)
{
    return need_within(p, 1, INT32_MAX, &p->module->training.exported.batch);
}

static ampc_status parse_untied(ir_parser *p)
{
    p->module->training.exported.untied = true;
    return AMPC_OK;
}

static ampc_status parse_exported(ir_parser *p)
{
    for (int i = 0; i < IR_FACT_COUNT; i++)
        if (ir_accept_word(p, ir_facts[i].word))
            return parse_names(p, "a name", &p->module->training.exported.facts[i]);
    return ir_fail_expected(p, "what has happened, such as folded");
}

static ampc_status parse_precision(ir_parser *p)
{
    ir_training *t = &p->module->training;
    TRY(ir_need(p, IR_TOKEN_WORD, "a level, such as O1", &t->level));
    t->level = ir_parser_strdup(p, t->level);
    if (strlen(t->level) > IR_PRECISION_TEXT / 2) return FAIL(p, "the level is too long");
    t->low = p->lex.token.kind == IR_TOKEN_WORD ? ir_dtype_parse(p->lex.token.text) : IR_NO_DTYPE;
    if (t->low != IR_NO_DTYPE) ir_lexer_next(&p->lex);
    return ir_accept_word(p, "profile") ? need_string(p, "the name of a profile", &t->profile) : AMPC_OK;
}

static ampc_status parse_unfused(ir_parser *p)
{
    p->module->training.unfused = true;
    return AMPC_OK;
}

static ampc_status parse_window(ir_parser *p) { return need_within(p, 1, INT32_MAX, &p->module->training.window); }

static ampc_status parse_floats(ir_parser *p, float **out, int *count)
{
    VEC(float) values = {0};
    TRY(ir_need_mark(p, "["));
    do {
        double v;
        TRY(need_float(p, &v));
        vec_push(p->module->arena, &values, (float)v);
    } while (ir_accept_mark(p, ","));
    *out = values.items;
    *count = (int)values.count;
    return ir_need_mark(p, "]");
}

static ampc_status parse_normalize(ir_parser *p)
{
    ir_normalization n = {0};
    int count;
    int64_t after;
    TRY(ir_need(p, IR_TOKEN_GLOBAL, "@NAME", &n.input));
    n.input = ir_parser_strdup(p, n.input);
    if (!ir_accept_word(p, "shift")) return ir_fail_expected(p, "shift");
    TRY(parse_floats(p, &n.shift, &n.count));
    if (!ir_accept_word(p, "scale")) return ir_fail_expected(p, "scale");
    TRY(parse_floats(p, &n.scale, &count));
    if (count != n.count) return FAIL(p, "%d shifts, but %d scales", n.count, count);
    if (!ir_accept_word(p, "after")) return ir_fail_expected(p, "after");
    TRY(need_within(p, 0, IR_MAX_RANK - 1, &after));
    n.after = (int)after;
    p->module->training.normalization = n;
    return AMPC_OK;
}

static ampc_status parse_recipe(ir_parser *p) { return need_string(p, "a file name", &p->module->training.recipe); }

static ampc_status parse_model(ir_parser *p)
{
    ir_model_file f;
    TRY(need_string(p, "the name of a model", &f.name));
    if (!ir_accept_word(p, "from")) return ir_fail_expected(p, "from");
    TRY(need_string(p, "a file name", &f.path));
    vec_push(p->module->arena, &p->module->training.models, f);
    return AMPC_OK;
}

/* Parses "%OUTPUT", with "@INPUT", "%VALUE" or a number after a comma. */
static ampc_status parse_operands(ir_parser *p, ir_loss *l)
{
    TRY(need_result(p, &l->output));
    if (!ir_accept_mark(p, ",")) return AMPC_OK;
    const ir_token_kind kind = p->lex.token.kind;
    if (kind != IR_TOKEN_GLOBAL && kind != IR_TOKEN_RESULT && kind != IR_TOKEN_NUMBER)
        return ir_fail_expected(p, "@NAME, %NAME or a number");
    l->target = ir_parser_strdup(p, p->lex.token.text);
    ir_lexer_next(&p->lex);
    return AMPC_OK;
}

static ampc_status parse_compared(ir_parser *p, ir_loss *l)
{
    int64_t axis;
    for (int i = 0; ir_compared_words[i]; i++)
        if (ir_accept_word(p, ir_compared_words[i])) l->compared = (ir_compared)i;
    if (!ir_accept_word(p, "axis")) return AMPC_OK;
    TRY(need_within(p, 0, IR_MAX_RANK - 1, &axis));
    l->axis = (int)axis;
    return AMPC_OK;
}

static ampc_status parse_loss(ir_parser *p)
{
    ir_loss l = {.weight = 1, .axis = 1};
    TRY(need_string(p, "the name of a loss", &l.name));
    if (ir_accept_word(p, "of")) TRY(parse_operands(p, &l));
    TRY(ir_need_mark(p, ":"));
    TRY(parse_call(p, "a kind of loss, such as ce", &l.kind, &l.options));
    if (ir_accept_word(p, "weight")) TRY(need_float(p, &l.weight));
    TRY(parse_compared(p, &l));
    TRY(parse_line(p, &l.line));
    vec_push(p->module->arena, &p->module->training.losses, l);
    return AMPC_OK;
}

static ampc_status parse_train(ir_parser *p)
{
    ir_trainer t = {0};
    const char *name, *options;
    TRY(parse_names(p, "a glob over parameters", &t.globs));
    if (!ir_accept_word(p, "by")) return ir_fail_expected(p, "by");
    TRY(parse_call(p, "an optimizer, such as adamw", &name, &options));
    t.optimizer = *options ? arena_printf(p->module->arena, "%s,%s", name, options) : name;
    if (!ir_accept_word(p, "on")) return ir_fail_expected(p, "on");
    TRY(parse_names(p, "the name of a loss", &t.losses));
    TRY(parse_line(p, &t.line));
    vec_push(p->module->arena, &p->module->training.trainers, t);
    return AMPC_OK;
}

static ampc_status parse_mean(ir_parser *p)
{
    ir_mean mean;
    VEC(ir_addend) addends = {0};
    TRY(need_result(p, &mean.output));
    if (!ir_accept_word(p, "of")) return ir_fail_expected(p, "of");
    do {
        ir_addend a = {0};
        TRY(need_float(p, &a.factor));
        TRY(ir_need_mark(p, "*"));
        a.sum = ir_accept_word(p, "sum");
        TRY(need_result(p, &a.value));
        if (!a.sum && ir_accept_word(p, "per")) TRY(need_result(p, &a.weight));
        vec_push(p->module->arena, &addends, a);
    } while (ir_accept_mark(p, ","));
    mean.addends = addends.items;
    mean.count = (int)addends.count;
    vec_push(p->module->arena, &p->module->training.means, mean);
    return AMPC_OK;
}

/* The statements; of those that may occur once, whether the module has it already. */
static const struct statement {
    const char *word;
    ampc_status (*parse)(ir_parser *p);
    bool many;
} statements[] = {{"opset", parse_opset, true},
                  {"codes", parse_codes, false},
                  {"exporter", parse_exporter, false},
                  {"batch", parse_batch, false},
                  {"untied", parse_untied, false},
                  {"exported", parse_exported, true},
                  {"precision", parse_precision, false},
                  {"unfused", parse_unfused, false},
                  {"window", parse_window, false},
                  {"normalize", parse_normalize, false},
                  {"recipe", parse_recipe, false},
                  {"model", parse_model, true},
                  {"loss", parse_loss, true},
                  {"train", parse_train, true},
                  {"mean", parse_mean, true}};

ampc_status ir_parse_training(ir_parser *p, bool *found)
{
    *found = false;
    for (size_t i = 0; i < sizeof statements / sizeof *statements && p->version >= 3; i++) {
        if (!ir_accept_word(p, statements[i].word)) continue;
        if (p->statements & 1U << i && !statements[i].many)
            return FAIL_AT(p, &p->item, "'%s' is stated twice", statements[i].word);
        if (++p->statement_count > MAX_STATEMENTS) return FAIL_AT(p, &p->item, "too many statements");
        p->statements |= 1U << i;
        *found = true;
        return statements[i].parse(p);
    }
    return AMPC_OK;
}
