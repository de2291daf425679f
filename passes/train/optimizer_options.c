/* optimizer_options.c - parses --optimizer and --group. */
#include "passes/train/optimizer_options.h"

#include "ir/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_OPS = 3, MAX_IMPLIED = 3 };

/* The optimizers. An option is an attribute of the op; of several ops, the first one with all attributes that are given
 * and are not 0 is used. */
typedef struct optimizer_kind {
    const char *name;
    double lr;
    ir_op op[MAX_OPS]; /* in order of their memory; IR_OP_COUNT: none */
    struct {
        const char *attr;
        double value;
    } implied[MAX_IMPLIED]; /* differ from the op's defaults; the first `fixed` of them cannot be set */
    int fixed;
    ir_op finish;        /* see optimizer */
    bool has_trust;      /* has the options of trust_ratio, too */
    double trust_factor; /* default of its attribute coefficient */
} optimizer_kind;

#define ONE(op) \
    { \
        IR_OP_##op, IR_OP_COUNT, IR_OP_COUNT \
    }
#define NO_FINISH IR_OP_COUNT, false, 1

/* clang-format off */
static const optimizer_kind optimizer_kinds[] = {
    {"sgd", 0.01, ONE(sgd), {{0}}, 0, NO_FINISH},
    {"momentum", 0.01, ONE(momentum), {{"nesterov", 0}}, 1, NO_FINISH},
    {"nesterov", 0.01, ONE(momentum), {{"nesterov", 1}}, 1, NO_FINISH},
    {"adam", 1e-3, ONE(adamw), {{"decoupled", 0}, {"weight_decay", 0}}, 1, NO_FINISH},
    {"adamw", 1e-3, ONE(adamw), {{"decoupled", 1}}, 1, NO_FINISH},
    {"adagrad", 0.01, ONE(adagrad), {{0}}, 0, NO_FINISH},
    {"adadelta", 1, ONE(adadelta), {{0}}, 0, NO_FINISH},
    {"rmsprop", 0.01, {IR_OP_rmsprop, IR_OP_rmsprop_momentum, IR_OP_rmsprop_centered}, {{"centered", 0}}, 0, NO_FINISH},
    {"adamax", 2e-3, ONE(adamax), {{0}}, 0, NO_FINISH},
    {"nadam", 2e-3, ONE(nadam), {{0}}, 0, NO_FINISH},
    {"lion", 1e-4, ONE(lion), {{0}}, 0, NO_FINISH},
    {"lamb", 1e-3, ONE(lamb_direction), {{0}}, 0, IR_OP_scaled_step, false, 1},
    {"lars", 0.1, ONE(lars), {{0}}, 0, IR_OP_COUNT, true, 1e-3},
};
/* clang-format on */
enum { KINDS = sizeof optimizer_kinds / sizeof *optimizer_kinds };

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

/* Reads the number of an option. */
static ampc_status read_number(const char *option, const char *key, const char *text, diag *d, double *v)
{
    if (!text || !ir_float_parse(text, v) || !isfinite(*v))
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--%s: '%s' needs a number", option, key);
    for (size_t i = 0; i < sizeof option_limits / sizeof *option_limits; i++) {
        const struct option_limit *l = &option_limits[i];
        if (strcmp(l->key, key) == 0 && !is_within(*v, l->low, l->high))
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--%s: %s=%g is not within %g and %g", option, key, *v,
                              l->low, l->high);
    }
    return AMPC_OK;
}

/* ---- --optimizer -------------------------------------------------------------------------------- */

/* The attribute that an option sets, or -1. */
static int find_attribute(ir_op op, const char *key)
{
    const ir_op_info *info = ir_op_get(op);
    static const char *const renamed[] = {"momentum", "mu"}; /* the option and the attribute */
    const char *name = strcmp(key, renamed[0]) == 0 ? renamed[1] : key;
    for (int i = 0; i < info->n_attr; i++)
        if (strcmp(info->attr[i].name, name) == 0) return i;
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
    const int at = kind->has_trust ? find_attribute(IR_OP_trust_ratio, key) : -1;
    return at < 0 ? NULL : &ir_op_get(IR_OP_trust_ratio)->attr[at];
}

static ampc_status check_options(const optimizer_kind *kind, const char *text, arena *a, diag *d)
{
    const char *key, *value;
    double v;
    while (pass_next_option(&text, a, &key, &value)) {
        const ir_slot *attr = find_settable(kind, key);
        TRY(read_number("optimizer", key, value, d, &v));
        if (!attr && strcmp(key, "lr") != 0)
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--optimizer: %s has no option '%s'", kind->name, key);
        if (attr && attr->kind == IR_SLOT_BOOL && v != 0 && v != 1)
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--optimizer: %s=%g is neither 0 nor 1", key, v);
    }
    return AMPC_OK;
}

/* Sets the options on the op; false: it lacks one that is not 0. */
static bool apply_options(const optimizer_kind *kind, const char *text, arena *a, optimizer *opt)
{
    const char *key, *value;
    double v;
    set_defaults(kind, opt);
    while (pass_next_option(&text, a, &key, &value)) {
        const int at = find_attribute(opt->op, key);
        const int trust = kind->has_trust ? find_attribute(IR_OP_trust_ratio, key) : -1;
        ir_float_parse(value, &v);
        if (strcmp(key, "lr") == 0) opt->lr = v;
        else if (at >= 0) opt->attr[at] = v;
        else if (trust >= 0) opt->trust[trust] = v;
        else if (v != 0) return false;
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

ampc_status optimizer_parse(const compile_options *o, arena *a, diag *d, optimizer *out)
{
    const char *text = o->optimizer, *name, *value;
    const optimizer_kind *kind = NULL;
    if (!text || !pass_next_option(&text, a, &name, &value)) name = "sgd";
    for (int i = 0; i < KINDS; i++)
        if (strcmp(optimizer_kinds[i].name, name) == 0) kind = &optimizer_kinds[i];
    if (!kind)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "unknown optimizer '%s': expected %s", name, list_kinds(a));
    TRY(check_options(kind, text, a, d));
    *out = (optimizer){.lr = kind->lr, .finish = kind->finish};
    out->trust[IR_ATTR(trust_ratio, coefficient)] = kind->trust_factor;
    for (int i = 0; i < MAX_OPS && kind->op[i] != IR_OP_COUNT; i++) {
        out->op = kind->op[i];
        if (apply_options(kind, text, a, out)) break;
    }
    return AMPC_OK;
}

/* ---- --group ------------------------------------------------------------------------------------ */

static ampc_status check_group(const char *text, arena *a, diag *d)
{
    const char *glob, *key, *value;
    double v;
    if (!pass_next_option(&text, a, &glob, &value) || value || !*glob)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--group must begin with a glob: expected GLOB,KEY=VALUE,...");
    if (!*text)
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                          "--group '%s' changes nothing: expected lr_factor=X, weight_decay=X or freeze", glob);
    while (pass_next_option(&text, a, &key, &value)) {
        if (strcmp(key, "freeze") == 0 && !value) continue;
        if (strcmp(key, "lr_factor") != 0 && strcmp(key, "weight_decay") != 0)
            return diag_error(d, AMPC_USAGE, DIAG_NOWHERE,
                              "--group: unknown key '%s': expected lr_factor=X, weight_decay=X or freeze", key);
        TRY(read_number("group", key, value, d, &v));
    }
    return AMPC_OK;
}

static bool matches_any(const ir_module *m, const char *glob)
{
    const pass_strings one = {&glob, 1};
    for (size_t i = 0; i < m->storage.count; i++)
        if (m->storage.items[i]->kind == IR_PARAM && pass_match(&one, m->storage.items[i]->name)) return true;
    return false;
}

ampc_status optimizer_check_groups(const ir_module *m, const compile_options *o, diag *d)
{
    for (int i = 0; i < o->groups.count; i++) {
        const char *text = o->groups.items[i], *glob, *value;
        TRY(check_group(text, m->arena, d));
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
    while (pass_next_option(&text, a, &key, &value)) {
        if (!value) g->frozen = true;
        else ir_float_parse(value, key[0] == 'l' ? &g->lr_factor : &g->weight_decay);
    }
}

optimizer_group optimizer_group_of(const ir_storage *param, const compile_options *o, double weight_decay, arena *a)
{
    optimizer_group g = {.lr_factor = 1, .weight_decay = weight_decay};
    if (o->no_decay && is_norm_or_bias(param)) g.weight_decay = 0;
    for (int i = 0; i < o->groups.count; i++) {
        const char *text = o->groups.items[i], *glob, *value;
        pass_next_option(&text, a, &glob, &value);
        if (pass_match(&(pass_strings){&glob, 1}, param->name)) apply_group(text, a, &g);
    }
    return g;
}
