/* loss_spec.c - parses the text of --loss.
 *
 *   LOSS = TERM {+ TERM}     TERM = KIND {,KEY=VALUE} [:OUTPUT[,LABEL]]
 *
 * A term starts with a letter, so that a name or a number may contain a plus sign elsewhere. */
#include "passes/train/loss.h"

#include "ir/ops/number.h"
#include "ir/ops/settings.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* clang-format off */
#define NUMBER(key, kind, initial, help, ...) SETTING_FROM(loss_spec, #key, key, kind, initial, help, __VA_ARGS__)
#define TEXT(key, help) SETTING_OTHER(loss_spec, #key, key, TEXT, help)
static const setting keys[] = {
    NUMBER(weight, REAL, "1", "the term is multiplied by X", LIMITS_LOSS_WEIGHT),
    TEXT(name, "the term in logs and evaluations, instead of its kind"),
    NUMBER(axis, WHOLE, NULL, "the axis of the classes", LIMITS_AXIS),
    NUMBER(ignore_index, WHOLE, NULL, "the label of items that are not counted; ctc: of the padding",
           LIMITS_LABEL),
    NUMBER(class_weights, REALS, NULL, "a weight for each class", LIMITS_NOT_NEGATIVE),
    NUMBER(label_smoothing, REAL, "0", "the share of the target that all classes divide evenly", LIMITS_SHARE),
    NUMBER(z_loss, REAL, "0", "adds X times the square of the logarithm of the sum of exp(scores)",
           LIMITS_NOT_NEGATIVE),
    NUMBER(delta, REAL, "1", "the distance from which on huber is linear", LIMITS_POSITIVE),
    NUMBER(beta, REAL, "1", "the distance from which on smooth_l1 is linear", LIMITS_POSITIVE),
    NUMBER(gamma, REAL, "2", "the exponent of focal", LIMITS_NOT_NEGATIVE),
    NUMBER(alpha, REAL, "0.25", "the weight of label 1; that of label 0 is 1-X; negative: none", LIMITS_OPTIONAL_SHARE),
    NUMBER(temperature, REAL, "0.07", "the divisor of the scores of contrastive", LIMITS_POSITIVE),
    NUMBER(blank, WHOLE, "0", "the class that stands for no label", LIMITS_CLASS),
    NUMBER(batch_axis, WHOLE, NULL, "the axis of the samples in the scores", LIMITS_SHARE),
    TEXT(lengths, "the input with the number of time steps of each sample"),
    NUMBER(zero_infinity, WHOLE, "0", "1: the loss of a sample that has no alignment is 0", LIMITS_SHARE),
};
/* clang-format on */
enum { KEYS = sizeof keys / sizeof *keys };

const setting *pass_loss_key(int index) { return index < KEYS ? &keys[index] : NULL; }

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

/* Splits "OUTPUT[,LABEL]"; a loss without labels reads the whole text as the name of its output. */
static void set_operands(loss_spec *s, char *output)
{
    char *target = s->kind->target == LOSS_NONE ? NULL : strrchr(output, ',');
    if (target) *target++ = '\0';
    s->output = *output ? output : NULL;
    s->target = target && *target ? target : NULL;
}

static ampc_status check_weights(const loss_spec *s, diag *d)
{
    double sum = 0;
    for (size_t i = 0; i < s->class_count; i++) sum += s->weights[i];
    if (!s->class_count || sum > 0) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_OPTION(loss), "class_weights: all weights are 0");
}

/* Parses "KIND{,KEY=VALUE}". Modifies the text. */
static ampc_status parse_kind(char *text, arena *a, diag *d, loss_spec *s)
{
    const char *name = strsep(&text, ",");
    *s = (loss_spec){.name = name, .axis = NAN, .ignore_index = NAN, .batch_axis = NAN};
    settings_defaults(keys, KEYS, s);
    for (int i = 0; i < loss_kind_count; i++)
        if (strcmp(loss_kinds[i].name, name) == 0) s->kind = &loss_kinds[i];
    if (!s->kind) return settings_unknown(OPTION_loss, "loss", name, pass_loss_name, kind_elsewhere(name, a), d);
    settings read = {.option = OPTION_loss, .rows = keys, .count = KEYS, .of = name};
    read.keys = arena_printf(a, "weight name %s", s->kind->keys);
    TRY(settings_read(&read, text, s, d));
    s->class_count = settings_numbers(s->class_weights, NULL, 0);
    double *weights = arena_array(a, s->class_count, sizeof *weights);
    settings_numbers(s->class_weights, weights, s->class_count);
    s->weights = weights;
    return check_weights(s, d);
}

static ampc_status check_output(const loss_spec *s, diag *d)
{
    if (s->kind->target == LOSS_NONE && !s->output)
        return diag_error(d, AMPC_USAGE, DIAG_OPTION(loss), "%s needs the name of a value: %s:NAME", s->kind->name,
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
    char weight[IR_NUMBER_SIZE];
    ir_float_print(weight, IR_f64, l->weight);
    char *text = arena_printf(m->arena, "%s,weight=%s%s%s", l->kind, weight, *l->options ? "," : "", l->options);
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
