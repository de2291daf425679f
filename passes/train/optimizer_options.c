/* optimizer_options.c - parses --optimizer and --group. */
#include "passes/train/optimizer_options.h"
#include "passes/train/trainers.h"

#include "ir/ops/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_OPS = 3, MAX_IMPLIED = 3 };

/* A setting that is not an attribute of an op. */
typedef struct optimizer_setting {
    const char *key;
    double initial, low, high;
    const char *words; /* of the values 0, 1, .., separated by '|'; NULL: it is a number */
    bool whole;
} optimizer_setting;

/* The optimizers. An option is an attribute of the op, or a setting; of several ops, the first one with all attributes
 * that are given and are not 0 is used. */
typedef struct optimizer_kind {
    const char *name;
    double lr;
    ir_op op[MAX_OPS]; /* in order of their memory; IR_OP_COUNT: none */
    struct {
        const char *attr;
        double value;
    } implied[MAX_IMPLIED]; /* differ from the op's defaults; the first `fixed` of them cannot be set */
    int fixed;
    ir_op finish; /* see optimizer, also stage */
    optimizer_stage stage;
    double trust_factor; /* default of the attribute coefficient of trust_ratio, whose attributes are options; 0: not */
    const optimizer_setting *settings; /* NULL: none */
    const char *rest;                  /* the optimizer of other parameters, a prefix of its options; NULL: none */
} optimizer_kind;

/* tests/docs/list-optimizers writes the table of docs/optimizers.md from these rows and the comments before them. */
/* clang-format off */
#define SMALLEST 1e-38
#define LARGEST 1e6
static const optimizer_setting adafactor_settings[] = {
    [ADAFACTOR_BETA2_DECAY] = {"beta2_decay", -0.8, -LARGEST, 0, NULL, false},
    [ADAFACTOR_EPS1] = {"eps1", NAN, SMALLEST, 1, NULL, false},
    [ADAFACTOR_EPS2] = {"eps2", 1e-3, 0, LARGEST, NULL, false},
    [ADAFACTOR_D] = {"d", 1, 1, LARGEST, NULL, false},
    {NULL, 0, 0, 0, NULL, false},
};
static const optimizer_setting muon_settings[] = {
    [MUON_WEIGHT_DECAY] = {"weight_decay", 0.1, LIMITS_WEIGHT_DECAY, NULL, false},
    [MUON_NS_STEPS] = {"ns_steps", 5, 0, 99, NULL, true},
    [MUON_NS_A] = {"ns_a", 3.4445, -LARGEST, LARGEST, NULL, false},
    [MUON_NS_B] = {"ns_b", -4.7750, -LARGEST, LARGEST, NULL, false},
    [MUON_NS_C] = {"ns_c", 2.0315, -LARGEST, LARGEST, NULL, false},
    [MUON_EPS] = {"eps", 1e-7, SMALLEST, 1, NULL, false},
    [MUON_ADJUST] = {"adjust", MUON_ORIGINAL, 0, 0, "original|match_rms_adamw|spectral_unclamped", false},
    {NULL, 0, 0, 0, NULL, false},
};

#define ONE(op) {IR_OP_##op, IR_OP_COUNT, IR_OP_COUNT}
#define ELEMENTWISE IR_OP_COUNT, OPTIMIZER_NO_STAGE, 0, NULL, NULL
static const optimizer_kind optimizer_kinds[] = {
    /* PyTorch SGD */
    {"sgd", 0.01, ONE(sgd), {{0}}, 0, ELEMENTWISE},
    /* PyTorch SGD */
    {"momentum", 0.01, ONE(momentum), {{"nesterov", 0}}, 1, ELEMENTWISE},
    /* PyTorch SGD with nesterov=True */
    {"nesterov", 0.01, ONE(momentum), {{"nesterov", 1}}, 1, ELEMENTWISE},
    /* PyTorch Adam */
    {"adam", 1e-3, ONE(adamw), {{"decoupled", 0}, {"weight_decay", 0}}, 1, ELEMENTWISE},
    /* PyTorch AdamW */
    {"adamw", 1e-3, ONE(adamw), {{"decoupled", 1}}, 1, ELEMENTWISE},
    /* PyTorch Adagrad; `initial` is its initial_accumulator_value */
    {"adagrad", 0.01, ONE(adagrad), {{0}}, 0, ELEMENTWISE},
    /* PyTorch Adadelta */
    {"adadelta", 1, ONE(adadelta), {{0}}, 0, ELEMENTWISE},
    /* PyTorch RMSprop */
    {"rmsprop", 0.01, {IR_OP_rmsprop, IR_OP_rmsprop_momentum, IR_OP_rmsprop_centered}, {{"centered", 0}}, 0,
     ELEMENTWISE},
    /* PyTorch Adamax */
    {"adamax", 2e-3, ONE(adamax), {{0}}, 0, ELEMENTWISE},
    /* PyTorch NAdam */
    {"nadam", 2e-3, ONE(nadam), {{0}}, 0, ELEMENTWISE},
    /* Chen et al. 2023, algorithm 2 */
    {"lion", 1e-4, ONE(lion), {{0}}, 0, ELEMENTWISE},
    /* You et al. 2020, algorithm 2, phi(z) = z */
    {"lamb", 1e-3, ONE(lamb_direction), {{0}}, 0, IR_OP_scaled_step, OPTIMIZER_RATIOS, 0, NULL, NULL},
    /* You et al. 2017, algorithm 1 */
    {"lars", 0.1, ONE(lars), {{0}}, 0, IR_OP_COUNT, OPTIMIZER_RATIOS, 1e-3, NULL, NULL},
    /* PyTorch Adafactor */
    {"adafactor", 0.01, ONE(adafactor), {{0}}, 0, IR_OP_COUNT, OPTIMIZER_ADAFACTOR, 0, adafactor_settings, NULL},
    /* PyTorch Muon */
    {"muon", 1e-3, ONE(muon_direction), {{0}}, 0, IR_OP_scaled_step, OPTIMIZER_MUON, 0, muon_settings, "adamw"},
};
/* clang-format on */
enum { KINDS = sizeof optimizer_kinds / sizeof *optimizer_kinds };

const char *pass_optimizer_name(int index) { return index < KINDS ? optimizer_kinds[index].name : NULL; }

static const struct option_limit {
    const char *key;
    double low, high;
} option_limits[] = {
    {"lr", LIMITS_RATE},
    {"momentum", LIMITS_MOMENTUM},
    {"weight_decay", LIMITS_WEIGHT_DECAY},
    {"beta1", LIMITS_BETA},
    {"beta2", LIMITS_BETA},
    {"eps", LIMITS_EPS},
    {"alpha", LIMITS_BETA},
    {"rho", LIMITS_BETA},
    {"lr_decay", LIMITS_LR_DECAY},
    {"initial", LIMITS_EPS},
    {"momentum_decay", LIMITS_MOMENTUM},
    {"lr_factor", LIMITS_RATE},
    {"coefficient", LIMITS_RATE},
};

static ampc_status check_limits(const char *option, const char *key, double v, double low, double high, diag *d)
{
    if (is_within(v, low, high)) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--%s: %s=%g is not within %g and %g", option, key, v, low, high);
}

/* Reads the number of an option. */
static ampc_status read_number(const char *option, const char *key, const char *text, diag *d, double *v)
{
    if (!text || !ir_float_parse(text, v) || !isfinite(*v))
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--%s: '%s' needs a number", option, key);
    for (size_t i = 0; i < sizeof option_limits / sizeof *option_limits; i++)
        if (strcmp(option_limits[i].key, key) == 0)
            return check_limits(option, key, *v, option_limits[i].low, option_limits[i].high, d);
    return AMPC_OK;
}

/* ---- --optimizer -------------------------------------------------------------------------------- */

static const optimizer_kind *find_kind(const char *name)
{
    for (int i = 0; i < KINDS; i++)
        if (strcmp(optimizer_kinds[i].name, name) == 0) return &optimizer_kinds[i];
    return NULL;
}

/* Returns the kind, or NULL, and its name, and moves *text to its options. */
static const optimizer_kind *kind_of(const char **text, arena *a, const char **name)
{
    const char *value;
    if (!*text || !pass_next_option(text, a, name, &value)) *name = "sgd";
    return find_kind(*name);
}

/* The key of an option of this optimizer, or (rest) of the optimizer of other parameters; NULL: of the other one. */
static const char *key_of(const optimizer_kind *kind, bool rest, const char *key)
{
    const size_t n = kind->rest ? strlen(kind->rest) : 0;
    const bool is_rest = n && strncmp(key, kind->rest, n) == 0 && key[n] == '_';
    if (is_rest != rest) return NULL;
    return rest ? key + n + 1 : key;
}

/* The attribute that an option sets, or -1. */
static int find_attribute(ir_op op, const char *key)
{
    static const char *const renamed[] = {"momentum", "mu"}; /* the option and the attribute */
    return ir_op_find_attr(op, strcmp(key, renamed[0]) == 0 ? renamed[1] : key);
}

static int find_setting(const optimizer_kind *kind, const char *key)
{
    for (int i = 0; kind->settings && kind->settings[i].key; i++)
        if (strcmp(kind->settings[i].key, key) == 0) return i;
    return -1;
}

/* The position of a word in a list separated by '|', or -1. */
static int find_word(const char *words, const char *text)
{
    for (int i = 0; words; i++) {
        const size_t length = strcspn(words, "|");
        if (strlen(text) == length && strncmp(text, words, length) == 0) return i;
        words = words[length] ? words + length + 1 : NULL;
    }
    return -1;
}

static ampc_status read_setting(const optimizer_setting *s, const char *text, diag *d, double *v)
{
    if (s->words) {
        *v = text ? find_word(s->words, text) : -1;
        if (*v >= 0) return AMPC_OK;
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--optimizer: '%s' is not one of %s", s->key, s->words);
    }
    TRY(read_number("optimizer", s->key, text, d, v));
    if (s->whole && *v != floor(*v))
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--optimizer: %s=%g is not a whole number", s->key, *v);
    return check_limits("optimizer", s->key, *v, s->low, s->high, d);
}

static void set_defaults(const optimizer_kind *kind, optimizer *opt)
{
    const ir_op_info *info = ir_op_get(opt->op);
    for (int i = 0; i < info->n_attr; i++)
        opt->attr[i] = info->attr[i].kind == IR_SLOT_DOUBLE ? info->attr[i].initial.f : (double)info->attr[i].initial.i;
    for (int i = 0; i < MAX_IMPLIED && kind->implied[i].attr; i++) {
        const int at = find_attribute(opt->op, kind->implied[i].attr);
        if (at >= 0) opt->attr[at] = kind->implied[i].value;
    }
    for (int i = 0; kind->settings && kind->settings[i].key; i++) opt->setting[i] = kind->settings[i].initial;
}

/* The attribute of one of the ops that the option sets, or NULL. */
static const ir_slot *find_settable(const optimizer_kind *kind, const char *key)
{
    for (int i = 0; i < kind->fixed; i++)
        if (strcmp(kind->implied[i].attr, key) == 0) return NULL;
    for (int i = 0; i < MAX_OPS && kind->op[i] != IR_OP_COUNT; i++) {
        const int at = find_attribute(kind->op[i], key);
        if (at >= 0) return &ir_op_get(kind->op[i])->attr[at];
    }
    const int at = kind->trust_factor != 0 ? find_attribute(IR_OP_trust_ratio, key) : -1;
    return at < 0 ? NULL : &ir_op_get(IR_OP_trust_ratio)->attr[at];
}

static ampc_status check_option(const optimizer_kind *kind, const char *key, const char *value, diag *d)
{
    const int setting = find_setting(kind, key);
    const ir_slot *attr = find_settable(kind, key);
    double v;
    if (setting >= 0) return read_setting(&kind->settings[setting], value, d, &v);
    TRY(read_number("optimizer", key, value, d, &v));
    if (!attr && strcmp(key, "lr") != 0)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--optimizer: %s has no option '%s'", kind->name, key);
    if (attr && attr->kind == IR_SLOT_BOOL && v != 0 && v != 1)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--optimizer: %s=%g is neither 0 nor 1", key, v);
    return AMPC_OK;
}

static ampc_status check_options(const optimizer_kind *kind, const char *text, arena *a, diag *d)
{
    const char *key, *value;
    while (pass_next_option(&text, a, &key, &value)) {
        const char *own = key_of(kind, false, key);
        TRY(own ? check_option(kind, own, value, d)
                : check_option(find_kind(kind->rest), key_of(kind, true, key), value, d));
    }
    return AMPC_OK;
}

/* Sets one option; false: the op lacks it, and it is not 0. */
static bool apply_option(const optimizer_kind *kind, const char *key, const char *value, diag *d, optimizer *opt)
{
    const int at = find_attribute(opt->op, key), setting = find_setting(kind, key);
    const int trust = kind->trust_factor != 0 ? find_attribute(IR_OP_trust_ratio, key) : -1;
    double v = 0;
    if (setting >= 0) read_setting(&kind->settings[setting], value, d, &v);
    else ir_float_parse(value, &v);
    if (strcmp(key, "lr") == 0) opt->lr = v;
    else if (setting >= 0) opt->setting[setting] = v;
    else if (at >= 0) opt->attr[at] = v;
    else if (trust >= 0) opt->trust[trust] = v;
    else return v == 0;
    return true;
}

/* Sets the options of `kind` (rest: those for the other parameters) on the op; false: it lacks one that is not 0. */
static bool apply_options(const optimizer_kind *kind, bool rest, const char *text, arena *a, diag *d, optimizer *opt)
{
    const optimizer_kind *own = rest ? find_kind(kind->rest) : kind;
    const char *key, *value;
    set_defaults(own, opt);
    while (pass_next_option(&text, a, &key, &value)) {
        key = key_of(kind, rest, key);
        if (key && !apply_option(own, key, value, d, opt)) return false;
    }
    return true;
}

static const char *list_kinds(arena *a)
{
    const char *text = optimizer_kinds[0].name;
    for (int i = 1; i < KINDS; i++)
        text = arena_printf(a, "%s%s%s", text, i + 1 < KINDS ? ", " : " or ", optimizer_kinds[i].name);
    return text;
}

/* `text` has been checked. */
static void build(const optimizer_kind *kind, bool rest, const char *text, arena *a, diag *d, optimizer *out)
{
    const optimizer_kind *own = rest ? find_kind(kind->rest) : kind;
    *out = (optimizer){.lr = own->lr, .lr_factor = 1, .finish = own->finish, .stage = own->stage};
    if (rest) out->lr = NAN;
    out->trust[IR_ATTR(trust_ratio, coefficient)] = own->trust_factor != 0 ? own->trust_factor : 1;
    for (int i = 0; i < MAX_OPS && own->op[i] != IR_OP_COUNT; i++) {
        out->op = own->op[i];
        if (apply_options(kind, rest, text, a, d, out)) break;
    }
    const int attr = find_attribute(out->op, "weight_decay"), setting = find_setting(own, "weight_decay");
    out->weight_decay = attr >= 0 ? out->attr[attr] : setting >= 0 ? out->setting[setting] : 0;
}

ampc_status optimizer_parse(const char *text, arena *a, diag *d, optimizer *out)
{
    const char *name;
    const optimizer_kind *kind = kind_of(&text, a, &name);
    if (!kind)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "unknown optimizer '%s': expected %s", name, list_kinds(a));
    TRY(check_options(kind, text, a, d));
    build(kind, false, text, a, d, out);
    if (!kind->rest) return AMPC_OK;
    optimizer *rest = arena_array(a, 1, sizeof *rest);
    build(kind, true, text, a, d, rest);
    out->rest = rest;
    if (isnan(rest->lr)) return AMPC_OK;
    rest->lr_factor = rest->lr / out->lr;
    if (isfinite(rest->lr_factor)) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--optimizer: %s_lr needs an lr above 0, which it is a multiple of",
                      kind->rest);
}

/* ---- --group ------------------------------------------------------------------------------------ */

#define GROUP_KEYS "lr_factor=X, weight_decay=X, muon=X or freeze"

static ampc_status check_group_key(const char *key, const char *value, bool has_muon, diag *d)
{
    double v;
    const bool muon = strcmp(key, "muon") == 0;
    if (strcmp(key, "freeze") == 0 && !value) return AMPC_OK;
    if (strcmp(key, "lr_factor") != 0 && strcmp(key, "weight_decay") != 0 && !muon)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--group: unknown key '%s': expected " GROUP_KEYS, key);
    TRY(read_number("group", key, value, d, &v));
    if (muon && v != 0 && v != 1)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--group: muon=%g is neither 0 nor 1", v);
    if (muon && !has_muon) return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--group: muon=%g needs --optimizer=muon", v);
    return AMPC_OK;
}

static ampc_status check_group(const char *text, bool has_muon, arena *a, diag *d)
{
    const char *glob, *key, *value;
    if (!pass_next_option(&text, a, &glob, &value) || value || !*glob)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--group must begin with a glob: expected GLOB,KEY=VALUE,...");
    if (!*text)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--group '%s' changes nothing: expected " GROUP_KEYS, glob);
    while (pass_next_option(&text, a, &key, &value)) TRY(check_group_key(key, value, has_muon, d));
    return AMPC_OK;
}

static bool matches_any(const ir_module *m, const char *glob)
{
    const pass_strings one = {&glob, 1};
    for (size_t i = 0; i < m->storage.count; i++)
        if (m->storage.items[i]->kind == IR_PARAM && pass_match(&one, m->storage.items[i]->name)) return true;
    return false;
}

/* Whether one of the optimizers leaves some parameters to another one, as Muon does. */
static ampc_status takes_muon(const ir_module *m, const compile_options *o, diag *d, bool *out)
{
    trainer_list trainers;
    *out = false;
    TRY(trainers_find(m, o, d, &trainers));
    for (size_t k = 0; k < trainers.count; k++) {
        const char *name, *text = trainers.items[k].optimizer;
        const optimizer_kind *kind = kind_of(&text, m->arena, &name);
        *out |= kind && kind->rest;
    }
    return AMPC_OK;
}

ampc_status optimizer_check_groups(const ir_module *m, const compile_options *o, diag *d)
{
    bool has_muon;
    TRY(takes_muon(m, o, d, &has_muon));
    for (int i = 0; i < o->groups.count; i++) {
        const char *text = o->groups.items[i], *glob, *value;
        TRY(check_group(text, has_muon, m->arena, d));
        pass_next_option(&text, m->arena, &glob, &value);
        if (!matches_any(m, glob)) diag_warning(d, DIAG_NOWHERE, "--group '%s' matches no parameter", glob);
    }
    return AMPC_OK;
}

/* As timm decides: everything of rank 1 or 0, and what is named a bias. */
static bool is_norm_or_bias(const ir_storage *param)
{
    const char *last = strrchr(param->name, '.');
    return param->type.rank <= 1 || (last && strcmp(last, ".bias") == 0);
}

static void apply_group(const char *text, arena *a, optimizer_group *g)
{
    const char *key, *value;
    double v = 0;
    while (pass_next_option(&text, a, &key, &value)) {
        if (value) ir_float_parse(value, &v);
        if (!value) g->frozen = true;
        else if (strcmp(key, "lr_factor") == 0) g->lr_factor = v;
        else if (strcmp(key, "muon") == 0) g->muon = v != 0;
        else g->weight_decay = v;
    }
}

optimizer_group optimizer_group_of(const ir_storage *param, const compile_options *o, arena *a)
{
    optimizer_group g = {.lr_factor = 1, .weight_decay = NAN, .muon = -1};
    if (o->no_decay && is_norm_or_bias(param)) g.weight_decay = 0;
    for (int i = 0; i < o->groups.count; i++) {
        const char *text = o->groups.items[i], *glob, *value;
        pass_next_option(&text, a, &glob, &value);
        if (pass_match(&(pass_strings){&glob, 1}, param->name)) apply_group(text, a, &g);
    }
    return g;
}
