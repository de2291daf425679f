/* loss_spec.c - parses the text of --loss.
 *
 *   LOSS = TERM {+ TERM}     TERM = KIND {,KEY=VALUE} [:OUTPUT[,LABEL]]
 *
 * A term starts with a letter, so that a name or a number may contain a plus sign elsewhere. */
#include "passes/train/loss.h"

#include "ir/ops/number.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <ctype.h>
#include <string.h>

/* Numbers that every kind, or those that list the key in their options, accept. */
static const struct loss_number {
    const char *key;
    size_t at;
    bool whole;
    double low, high;
} numbers[] = {
    {"weight", offsetof(loss_spec, weight), false, LIMITS_LOSS_WEIGHT},
    {"axis", offsetof(loss_spec, axis), true, LIMITS_AXIS},
    {"ignore_index", offsetof(loss_spec, ignore_index), true, LIMITS_LABEL},
    {"label_smoothing", offsetof(loss_spec, label_smoothing), false, LIMITS_SHARE},
    {"z_loss", offsetof(loss_spec, z_loss), false, LIMITS_NOT_NEGATIVE},
    {"delta", offsetof(loss_spec, delta), false, LIMITS_POSITIVE},
    {"beta", offsetof(loss_spec, beta), false, LIMITS_POSITIVE},
    {"gamma", offsetof(loss_spec, gamma), false, LIMITS_NOT_NEGATIVE},
    {"alpha", offsetof(loss_spec, alpha), false, LIMITS_OPTIONAL_SHARE},
    {"temperature", offsetof(loss_spec, temperature), false, LIMITS_POSITIVE},
    {"blank", offsetof(loss_spec, blank), true, LIMITS_CLASS},
    {"batch_axis", offsetof(loss_spec, batch_axis), true, LIMITS_SHARE},
    {"zero_infinity", offsetof(loss_spec, zero_infinity), true, LIMITS_SHARE},
};

static bool has_option(const loss_kind *kind, const char *key)
{
    if (strcmp(key, "weight") == 0 || strcmp(key, "name") == 0) return true;
    for (size_t i = 0; i < sizeof kind->options / sizeof *kind->options; i++)
        if (kind->options[i] && strcmp(kind->options[i], key) == 0) return true;
    return false;
}

static ampc_status set_number(loss_spec *s, const struct loss_number *number, const char *text, diag *d)
{
    double v;
    if (!ir_float_parse(text, &v) || !isfinite(v) || (number->whole && v != floor(v)))
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--loss: '%s' needs %s, not '%s'", number->key,
                          number->whole ? "an integer" : "a number", text);
    if (!is_within(v, number->low, number->high))
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--loss: %s=%g is not within %g and %g", number->key, v,
                          number->low, number->high);
    *(double *)((char *)s + number->at) = v;
    return AMPC_OK;
}

/* Parses "W/W/..", a weight for each class. */
static ampc_status set_class_weights(loss_spec *s, const char *text, arena *a, diag *d)
{
    size_t count = 1, n = 0;
    double sum = 0;
    for (const char *c = text; *c; c++) count += *c == '/';
    double *weights = arena_array(a, count, sizeof *weights);
    for (const char *at = text; n < count; n++) {
        size_t length = strcspn(at, "/");
        const char *item = arena_strndup(a, at, length);
        if (!ir_float_parse(item, &weights[n]) || !is_within(weights[n], LIMITS_NOT_NEGATIVE))
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                              "--loss: class_weights: '%s' is not a number within 0 and 1e+06", item);
        sum += weights[n];
        at += length + (at[length] == '/');
    }
    if (sum == 0) return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--loss: class_weights: all weights are 0");
    s->class_weights = weights;
    s->class_count = count;
    return AMPC_OK;
}

static ampc_status set_option(loss_spec *s, const char *key, const char *text, arena *a, diag *d)
{
    if (!has_option(s->kind, key))
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--loss: %s has no option '%s'", s->kind->name, key);
    if (!text || !*text) return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--loss: '%s' needs a value", key);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(numbers[i].key, key) == 0) return set_number(s, &numbers[i], text, d);
    if (strcmp(key, "class_weights") == 0) return set_class_weights(s, text, a, d);
    if (strcmp(key, "lengths") == 0) s->lengths = text;
    else s->name = text;
    return AMPC_OK;
}

/* ---- terms ----------------------------------------------------------------------------------- */

/* What others call the kinds, without '_', 'nn.' and 'loss', in lower case. */
static const char *const other_names[][2] = {{"crossentropy", "ce"},
                                             {"softmaxcrossentropy", "ce"},
                                             {"categoricalcrossentropy", "soft_ce"},
                                             {"sparsecategoricalcrossentropy", "ce"},
                                             {"xent", "ce"},
                                             {"meansquarederror", "mse"},
                                             {"l2", "mse"},
                                             {"mae", "l1"},
                                             {"meanabsoluteerror", "l1"},
                                             {"bcewithlogits", "bce_logits"},
                                             {"binarycrossentropy", "bce"},
                                             {"sigmoidfocal", "focal"},
                                             {"kldiv", "kl"},
                                             {"kldivergence", "kl"},
                                             {"cosinesimilarity", "cosine"},
                                             {"infonce", "contrastive"},
                                             {"clip", "contrastive"}};

static const char *plain_name(const char *name, arena *a)
{
    char *plain = arena_alloc(a, strlen(name) + 1), *to = plain;
    if (strncmp(name, "nn.", 3) == 0) name += 3;
    for (; *name; name++)
        if (isalnum((unsigned char)*name)) *to++ = (char)tolower((unsigned char)*name);
    *to = 0;
    if (to - plain > 4 && strcmp(to - 4, "loss") == 0) to[-4] = 0;
    return plain;
}

/* The kind that another program calls by this name; NULL: none. */
static const char *kind_elsewhere(const char *name, arena *a)
{
    const char *plain = plain_name(name, a);
    for (size_t i = 0; i < sizeof other_names / sizeof *other_names; i++)
        if (strcmp(other_names[i][0], plain) == 0) return other_names[i][1];
    for (int i = 0; i < loss_kind_count; i++)
        if (strcmp(plain_name(loss_kinds[i].name, a), plain) == 0) return loss_kinds[i].name;
    return NULL;
}

static ampc_status report_kind(const char *kind, arena *a, diag *d)
{
    const char *names = loss_kinds[0].name;
    for (int i = 1; i < loss_kind_count; i++)
        names = arena_printf(a, "%s%s%s", names, i + 1 < loss_kind_count ? ", " : " or ", loss_kinds[i].name);
    const char *known = kind_elsewhere(kind, a);
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "unknown loss '%s': expected %s%s%s", kind, names,
                      known ? "; here it is " : "", known ? known : "");
}

/* Splits "OUTPUT[,LABEL]"; a loss without labels reads the whole text as the name of its output. */
static void set_operands(loss_spec *s, char *output)
{
    char *target = s->kind->target == LOSS_NONE ? NULL : strrchr(output, ',');
    if (target) *target++ = '\0';
    s->output = *output ? output : NULL;
    s->target = target && *target ? target : NULL;
}

/* Parses "KIND{,KEY=VALUE}". */
static ampc_status parse_kind(const char *options, arena *a, diag *d, loss_spec *s)
{
    const char *key, *value;
    if (!pass_next_option(&options, a, &key, &value)) key = "";
    *s = (loss_spec){.name = key, .weight = 1, .axis = NAN, .ignore_index = NAN, .batch_axis = NAN};
    s->delta = s->beta = 1;
    s->gamma = 2;
    s->alpha = 0.25;
    s->temperature = 0.07;
    for (int i = 0; i < loss_kind_count; i++)
        if (strcmp(loss_kinds[i].name, key) == 0 && !value) s->kind = &loss_kinds[i];
    if (!s->kind) return report_kind(key, a, d);
    while (pass_next_option(&options, a, &key, &value)) TRY(set_option(s, key, value, a, d));
    return AMPC_OK;
}

static ampc_status check_output(const loss_spec *s, diag *d)
{
    if (s->kind->target == LOSS_NONE && !s->output)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--loss: %s needs the name of a value: %s:NAME", s->kind->name,
                          s->kind->name);
    return AMPC_OK;
}

static ampc_status parse_term(char *text, arena *a, diag *d, loss_spec *s)
{
    char *output = strchr(text, ':');
    if (output) *output++ = '\0';
    TRY(parse_kind(text, a, d, s));
    if (output) set_operands(s, output);
    return check_output(s, d);
}

ampc_status loss_of_term(ir_module *m, const ir_loss *l, diag *d, loss_spec *out)
{
    const char *text = arena_printf(m->arena, "%s%s%s", l->kind, *l->options ? "," : "", l->options);
    char weight[IR_NUMBER_SIZE];
    ir_float_print(weight, IR_f64, l->weight);
    if (l->weight != 1) text = arena_printf(m->arena, "%s,weight=%s", text, weight);
    TRY(parse_kind(text, m->arena, d, out));
    out->output = l->output;
    out->target = l->target;
    return check_output(out, d);
}

/* The plus sign that starts the next term, or the end of the text. */
static const char *end_of_term(const char *text)
{
    while (*text && !(*text == '+' && isalpha((unsigned char)text[1]))) text++;
    return text;
}

ampc_status loss_parse(ir_module *m, const char *text, diag *d, loss_specs *out)
{
    do {
        const char *end = end_of_term(text);
        loss_spec s;
        TRY(parse_term(arena_strndup(m->arena, text, (size_t)(end - text)), m->arena, d, &s));
        vec_push(m->arena, out, s);
        text = *end ? end + 1 : end;
    } while (*text);
    return AMPC_OK;
}
