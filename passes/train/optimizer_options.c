/* optimizer_options.c - parses --optimizer and --group. */
#include "passes/train/optimizer_options.h"
#include "passes/train/trainers.h"

#include "ir/ops/settings.h"

#include <math.h>
#include <string.h>

enum { MAX_OPS = 3, MAX_IMPLIED = 3, MAX_KEYS = 64 };

/* A setting that is not an attribute of an op. */
typedef struct optimizer_setting {
    setting row;
    double initial;
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
#define WEIGHT_DECAY "decay of the parameters"
#define EPS "added to a divisor"
#define OWN(key, initial, kind, help, ...) {{key, 0, SETTING_##kind, __VA_ARGS__, NULL, help, NULL}, initial}
#define OWN_WORD(key, initial, words, help) {{key, 0, SETTING_WORD, 0, 0, words, help, NULL}, initial}
static const optimizer_setting adafactor_settings[] = {
    [ADAFACTOR_BETA2_DECAY] = OWN("beta2_decay", -0.8, REAL, "the exponent of the step in 1 - beta2", -LARGEST, 0),
    [ADAFACTOR_EPS1] = OWN("eps1", NAN, REAL, "the lower bound of second moments", SMALLEST, 1),
    [ADAFACTOR_EPS2] = OWN("eps2", 1e-3, REAL, "the lower bound of the RMS of a parameter", 0, LARGEST),
    [ADAFACTOR_D] = OWN("d", 1, REAL, "the largest RMS of an update", 1, LARGEST),
    {.row = {.key = NULL}},
};
static const optimizer_setting muon_settings[] = {
    [MUON_WEIGHT_DECAY] = OWN("weight_decay", 0.1, REAL, WEIGHT_DECAY, LIMITS_WEIGHT_DECAY),
    [MUON_NS_STEPS] = OWN("ns_steps", 5, WHOLE, "steps of the Newton-Schulz iteration", 0, 99),
    [MUON_NS_A] = OWN("ns_a", 3.4445, REAL, "its coefficient of the matrix", -LARGEST, LARGEST),
    [MUON_NS_B] = OWN("ns_b", -4.7750, REAL, "its coefficient of the third power", -LARGEST, LARGEST),
    [MUON_NS_C] = OWN("ns_c", 2.0315, REAL, "its coefficient of the fifth power", -LARGEST, LARGEST),
    [MUON_EPS] = OWN("eps", 1e-7, REAL, EPS, SMALLEST, 1),
    [MUON_ADJUST] = OWN_WORD("adjust", MUON_ORIGINAL, "original|match_rms_adamw|spectral_unclamped",
                             "how the rate depends on the sizes of a matrix"),
    {.row = {.key = NULL}},
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

const char *optimizer_mixing(const ir_graph *g)
{
    for (const ir_node *n = g->first; n; n = n->next)
        for (int i = 0; i < KINDS; i++)
            if (optimizer_kinds[i].stage > OPTIMIZER_RATIOS && optimizer_kinds[i].op[0] == n->op)
                return optimizer_kinds[i].name;
    return NULL;
}

/* The keys that are attributes of ops. */
/* clang-format off */
#define KEY(key, kind, help, ...) {key, 0, SETTING_##kind, __VA_ARGS__, NULL, help, NULL}
static const setting keys[] = {
    KEY("lr", REAL, "the learning rate", LIMITS_RATE),
    KEY("weight_decay", REAL, WEIGHT_DECAY, LIMITS_WEIGHT_DECAY),
    KEY("momentum", REAL, "the share of the earlier updates", LIMITS_MOMENTUM),
    KEY("nesterov", WHOLE, "1: Nesterov's momentum", LIMITS_SHARE),
    KEY("beta1", REAL, "the decay of the mean of gradients", LIMITS_BETA),
    KEY("beta2", REAL, "the decay of the mean of their squares", LIMITS_BETA),
    KEY("eps", REAL, EPS, LIMITS_EPS),
    KEY("alpha", REAL, "the decay of the mean of squares of rmsprop", LIMITS_BETA),
    KEY("centered", WHOLE, "1: subtract the square of the mean", LIMITS_SHARE),
    KEY("rho", REAL, "the decay of the means of adadelta", LIMITS_BETA),
    KEY("lr_decay", REAL, "the rate is divided by 1 + X times the step", LIMITS_LR_DECAY),
    KEY("initial", REAL, "the initial sum of squares", LIMITS_EPS),
    KEY("momentum_decay", REAL, "the decay of the momentum of nadam", LIMITS_MOMENTUM),
    KEY("decoupled", WHOLE, "1: weight_decay is not added to the gradient", LIMITS_SHARE),
    KEY("coefficient", REAL, "the factor of the ratio of norms of lars", LIMITS_RATE),
};
static const setting group_keys[] = {
    SETTING(optimizer_group, "lr_factor", lr_factor, REAL, "the learning rate, whatever its schedule, times X",
            LIMITS_RATE),
    SETTING(optimizer_group, "weight_decay", weight_decay, REAL, "instead of that of the optimizer",
            LIMITS_WEIGHT_DECAY),
    SETTING_WORDS(optimizer_group, "muon", muon, "0|1", "with Muon: 1 if Muon updates it, 0 if AdamW does"),
    SETTING_OTHER(optimizer_group, "freeze", frozen, FLAG, "not trained"),
};
/* clang-format on */
enum { KEYS = sizeof keys / sizeof *keys, GROUP_KEYS = sizeof group_keys / sizeof *group_keys };

const setting *pass_group_key(int index) { return index < GROUP_KEYS ? &group_keys[index] : NULL; }

/* ---- --optimizer -------------------------------------------------------------------------------- */

static const optimizer_kind *find_kind(const char *name)
{
    for (int i = 0; i < KINDS; i++)
        if (strcmp(optimizer_kinds[i].name, name) == 0) return &optimizer_kinds[i];
    return NULL;
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
    for (int i = 0; kind->settings && kind->settings[i].row.key; i++)
        if (strcmp(kind->settings[i].row.key, key) == 0) return i;
    return -1;
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
    for (int i = 0; kind->settings && kind->settings[i].row.key; i++) opt->setting[i] = kind->settings[i].initial;
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

/* What is given. */
typedef struct given {
    settings read;
    setting rows[MAX_KEYS];
    union {
        double real;
        int word;
    } value[MAX_KEYS];
} given;

static void add_key(given *g, const setting *row, const char *prefix, arena *a)
{
    setting *copy = &g->rows[g->read.count];
    *copy = *row;
    if (prefix) copy->key = arena_printf(a, "%s_%s", prefix, row->key);
    copy->at = g->read.count++ * sizeof *g->value;
}

/* Adds the keys of an optimizer. */
static void add_keys(given *g, const optimizer_kind *kind, const char *prefix, arena *a)
{
    for (int i = 0; i < KEYS; i++)
        if (find_setting(kind, keys[i].key) < 0 && (i == 0 || find_settable(kind, keys[i].key)))
            add_key(g, &keys[i], prefix, a);
    for (int i = 0; kind->settings && kind->settings[i].row.key; i++) add_key(g, &kind->settings[i].row, prefix, a);
}

/* Sets one option; false: the op lacks it, and it is not 0. */
static bool apply_option(const optimizer_kind *kind, const char *key, double v, optimizer *opt)
{
    const int at = find_attribute(opt->op, key), own = find_setting(kind, key);
    const int trust = kind->trust_factor != 0 ? find_attribute(IR_OP_trust_ratio, key) : -1;
    if (strcmp(key, "lr") == 0) opt->lr = v;
    else if (own >= 0) opt->setting[own] = v;
    else if (at >= 0) opt->attr[at] = v;
    else if (trust >= 0) opt->trust[trust] = v;
    else return v == 0;
    return true;
}

/* Sets the options of `kind` (rest: those for the other parameters) on the op; false: it lacks one that is not 0. */
static bool apply_options(const optimizer_kind *kind, bool rest, const given *g, optimizer *opt)
{
    const optimizer_kind *own = rest ? find_kind(kind->rest) : kind;
    set_defaults(own, opt);
    for (size_t i = 0; i < g->read.count; i++) {
        const char *key = g->read.given >> i & 1 ? key_of(kind, rest, g->rows[i].key) : NULL;
        const double v = g->rows[i].kind == SETTING_WORD ? g->value[i].word : g->value[i].real;
        if (key && !apply_option(own, key, v, opt)) return false;
    }
    return true;
}

static void build(const optimizer_kind *kind, bool rest, const given *g, optimizer *out)
{
    const optimizer_kind *own = rest ? find_kind(kind->rest) : kind;
    *out = (optimizer){.lr = own->lr, .lr_factor = 1, .finish = own->finish, .stage = own->stage};
    if (rest) out->lr = NAN;
    out->trust[IR_ATTR(trust_ratio, coefficient)] = own->trust_factor != 0 ? own->trust_factor : 1;
    for (int i = 0; i < MAX_OPS && own->op[i] != IR_OP_COUNT; i++) {
        out->op = own->op[i];
        if (apply_options(kind, rest, g, out)) break;
    }
    const int attr = find_attribute(out->op, "weight_decay"), decay = find_setting(own, "weight_decay");
    out->weight_decay = attr >= 0 ? out->attr[attr] : decay >= 0 ? out->setting[decay] : 0;
}

ampc_status optimizer_parse(const char *text, arena *a, diag *d, optimizer *out)
{
    char *options = arena_strdup(a, text ? text : "sgd"), *name = strsep(&options, ",");
    const optimizer_kind *kind = find_kind(name);
    if (!kind) return settings_unknown(OPTION_optimizer, "optimizer", name, pass_optimizer_name, NULL, d);
    given *g = arena_alloc(a, sizeof *g);
    g->read = (settings){.option = OPTION_optimizer, .rows = g->rows, .of = name};
    add_keys(g, kind, NULL, a);
    if (kind->rest) add_keys(g, find_kind(kind->rest), kind->rest, a);
    TRY(settings_read(&g->read, options, g->value, d));
    build(kind, false, g, out);
    if (!kind->rest) return AMPC_OK;
    optimizer *rest = arena_array(a, 1, sizeof *rest);
    build(kind, true, g, rest);
    out->rest = rest;
    if (isnan(rest->lr)) return AMPC_OK;
    rest->lr_factor = rest->lr / out->lr;
    if (isfinite(rest->lr_factor)) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_OPTION(optimizer), "%s_lr needs an lr above 0, which it is a multiple of",
                      kind->rest);
}

/* By index, those of all optimizers. */
const setting *pass_optimizer_key(int index)
{
    int left = index - KEYS;
    if (left < 0) return &keys[index];
    for (int k = 0; k < KINDS; k++)
        for (const optimizer_setting *s = optimizer_kinds[k].settings; s && s->row.key; s++) {
            const settings all = {.rows = keys, .count = KEYS};
            if (!settings_find(&all, s->row.key) && left-- == 0) return &s->row;
        }
    return NULL;
}

/* ---- groups --------------------------------------------------------------------------------------- */

/* Reads KEY=VALUE,.. of a group. */
static ampc_status read_group(char *text, diag *d, optimizer_group *g)
{
    settings read = {.option = OPTION_groups, .rows = group_keys, .count = GROUP_KEYS};
    return settings_read(&read, text, g, d);
}

static ampc_status check_group(char *text, bool has_muon, diag *d, const char **glob)
{
    optimizer_group g = {.muon = -1};
    *glob = strsep(&text, ",");
    if (!**glob || strchr(*glob, '='))
        return diag_error(d, AMPC_USAGE, DIAG_OPTION(groups), "expected GLOB,KEY=VALUE,... with a glob first");
    if (!text) return diag_error(d, AMPC_USAGE, DIAG_OPTION(groups), "'%s' changes nothing", *glob);
    TRY(read_group(text, d, &g));
    if (g.muon < 0 || has_muon) return AMPC_OK;
    return diag_error(d, AMPC_USAGE, DIAG_USE(DIAG_OPTION(groups), OPTION_optimizer, .value = "muon"),
                      "muon=%d needs the optimizer muon", g.muon);
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
        const char *text = trainers.items[k].optimizer;
        const optimizer_kind *kind = text ? find_kind(arena_strndup(m->arena, text, strcspn(text, ","))) : NULL;
        *out |= kind && kind->rest;
    }
    return AMPC_OK;
}

ampc_status optimizer_check_groups(const ir_module *m, const compile_options *o, diag *d)
{
    bool has_muon;
    TRY(takes_muon(m, o, d, &has_muon));
    for (int i = 0; i < o->groups.count; i++) {
        const char *glob;
        TRY(check_group(arena_strdup(m->arena, o->groups.items[i]), has_muon, d, &glob));
        if (!matches_any(m, glob)) diag_warning(d, DIAG_OPTION(groups), "'%s' matches no parameter", glob);
    }
    return AMPC_OK;
}

/* As timm decides: everything of rank 1 or 0, and what is named a bias. */
static bool is_norm_or_bias(const ir_storage *param)
{
    const char *last = strrchr(param->name, '.');
    return param->type.rank <= 1 || (last && strcmp(last, ".bias") == 0);
}

optimizer_group optimizer_group_of(const ir_storage *param, const compile_options *o, arena *a)
{
    optimizer_group g = {.lr_factor = 1, .weight_decay = NAN, .muon = -1};
    if (o->no_decay && is_norm_or_bias(param)) g.weight_decay = 0;
    for (int i = 0; i < o->groups.count; i++) {
        char *text = arena_strdup(a, o->groups.items[i]);
        const char *glob = strsep(&text, ",");
        if (pass_match(&(pass_strings){&glob, 1}, param->name)) read_group(text, NULL, &g);
    }
    return g;
}
