/* params.c - selects the parameters to train and their initial values.
 *
 * One rule of ir/graph/decisions.def decides about each tensor, by the facts that the importer has recorded and by the
 * options. The rules about facts come first; they hold a tensor constant in a graph that trains, a few of them in every
 * graph. A glob of --train does not release it, or --train='*' would train causal masks: --train has to state the full
 * name. Otherwise --train GLOB trains only the matches, --freeze GLOB excludes them; a name that matches both is an
 * error.
 *
 * --init=kaiming draws every weight (rank 2 and more) uniformly from +-sqrt(6 / fan_in) (He et al. 2015, for ReLU),
 * xavier from +-sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010); vectors keep their values from the file. --seed
 * is the key of these draws and of those of Dropout. */
#include "passes/train/params.h"
#include "passes/train/optimizer_options.h"
#include "passes/train/trainers.h"

#include "ir/base/philox.h"

#include <math.h>
#include <string.h>

/* ---- the options ------------------------------------------------------------------------------ */

typedef struct decider {
    ir_module *m;
    const compile_options *o;
    const trainer_list *trainers; /* NULL: the graph does not train */
    bool training;                /* decide as for a graph that trains */
    diag *diag;
} decider;

static bool is_named(const pass_strings *names, const char *name)
{
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->items[i], name) == 0) return true;
    return false;
}

static ir_rule rule_of_options(const decider *x, const ir_storage *s, bool held)
{
    const bool train = pass_match(&x->o->train, s->name), freeze = pass_match(&x->o->freeze, s->name);
    const bool in_group = optimizer_group_of(s, x->o, x->m->arena).frozen;
    if (train && (freeze || in_group) && !held)
        diag_error(x->diag, AMPC_USAGE, DIAG_NOWHERE, "parameter '%s' is matched by %s and by %s", s->name,
                   diag_option_name(x->diag, OPTION_train),
                   in_group ? "a group that freezes it" : diag_option_name(x->diag, OPTION_freeze));
    if (in_group) return IR_RULE_group;
    if (freeze) return IR_RULE_freeze;
    if (x->o->train.count && !train) return IR_RULE_unmatched;
    if (x->trainers && trainers_owner(x->trainers, s) < 0) return IR_RULE_owner;
    if (!s->frozen || train) return IR_RULE_default;
    return ir_rules[s->rule].outcome == IR_FROZEN ? s->rule : IR_RULE_module;
}

static ir_rule decide(const decider *x, const ir_storage *s)
{
    const params_rule *r = params_fact_rule(s);
    const bool named = x->training && r && !r->firm && is_named(&x->o->train, s->name);
    if (r && !named && (x->training || params_rule_is_general(s, r))) return r->rule;
    if (s->kind == IR_CONST && !named) return s->rule;
    const ir_rule rule = rule_of_options(x, s, r && !named);
    return rule == IR_RULE_default && named ? IR_RULE_named : rule;
}

static ampc_status decide_all(const decider *x)
{
    for (size_t i = 0; i < x->m->storage.count; i++) {
        ir_storage *s = x->m->storage.items[i];
        if (s->kind != IR_STATE) s->rule = decide(x, s);
    }
    return diag_status(x->diag);
}

/* Sets of each tensor the kind that its rule says; what has led to it is no longer needed. Returns whether a parameter
 * has become a constant. */
static bool apply(ir_module *m)
{
    bool any = false;
    for (size_t i = 0; i < m->storage.count; i++) {
        ir_storage *s = m->storage.items[i];
        const ir_outcome outcome = ir_rules[s->rule].outcome;
        const bool constant = outcome == IR_HELD || outcome == IR_CONSTANT;
        any |= constant && s->kind == IR_PARAM;
        if (constant) s->kind = IR_CONST;
        if (s->rule == IR_RULE_named) s->kind = IR_PARAM;
        s->frozen = outcome == IR_FROZEN;
        s->facts = 0;
    }
    return any;
}

/* ---- checks of the options --------------------------------------------------------------------- */

static bool is_selectable(const ir_storage *s) { return s->kind != IR_CONST || s->facts; }

static bool occurs(const ir_module *m, const char *glob)
{
    const pass_strings one = {&glob, 1};
    for (size_t i = 0; i < m->storage.count; i++)
        if (is_selectable(m->storage.items[i]) && pass_match(&one, m->storage.items[i]->name)) return true;
    return ir_storage_find(m, glob) != NULL;
}

static void check_globs(const ir_module *m, const pass_strings *globs, diag_loc option, diag *d)
{
    for (int i = 0; i < globs->count; i++)
        if (!occurs(m, globs->items[i])) diag_warning(d, option, "'%s' matches no parameter", globs->items[i]);
}

/* Reports names of parameters to train that no gradient can update. */
static void check_trainable(const ir_module *m, const compile_options *o, diag *d)
{
    for (int i = 0; i < o->train.count; i++) {
        const ir_storage *s = ir_storage_find(m, o->train.items[i]);
        const params_rule *r = s ? params_fact_rule(s) : NULL;
        if (!s || (r ? !r->firm : s->kind == IR_PARAM)) continue;
        const char *why = !ir_dtype_is_float(s->type.dtype) ? "it is not a float tensor"
                          : s->kind == IR_STATE             ? "it is a buffer that the graph updates"
                                                            : ir_rules[r ? r->rule : IR_RULE_apart].sentence;
        diag_error(d, AMPC_USAGE, DIAG_OPTION(train), "'%s' cannot be trained: %s", s->name, why);
    }
}

/* ---- initial weights --------------------------------------------------------------------------- */

/* Random streams from this number on are used for initialisation, one for each parameter. */
#define INIT_STREAM ((uint64_t)1 << 40)

/* The number of products summed per result element, and the number of results that a weight element contributes to. */
typedef struct fan {
    double in, out;
} fan;

static bool fan_of(const ir_graph *g, const ir_storage *s, fan *f)
{
    const int64_t *dims = s->type.dims;
    for (const ir_node *n = g->first; n; n = n->next)
        for (int i = 0; i < n->n_in; i++) {
            const ir_value *v = ir_in(n, i);
            if (!v || v->kind != IR_VALUE_STORAGE || v->storage != s) continue;
            double field = 1;
            for (int k = 2; k < s->type.rank; k++) field *= (double)dims[k];
            bool rows_in = n->op == IR_OP_matmul && i == 1 && !n->attr[IR_ATTR(matmul, trans_b)].i;
            *f = rows_in ? (fan){(double)dims[s->type.rank - 2], (double)dims[s->type.rank - 1]}
                         : (fan){(double)dims[1] * field, (double)dims[0] * field};
            return true;
        }
    return false;
}

static void draw(ir_module *m, ir_storage *s, double bound, uint64_t seed)
{
    int64_t count = ir_storage_bytes(s) / (int64_t)ir_dtype_size(s->type.dtype);
    char *bytes = arena_alloc(m->arena, (size_t)ir_storage_bytes(s) + 1);
    for (int64_t i = 0; i < count; i++) {
        uint32_t word = philox_word(seed, INIT_STREAM + s->id, (uint64_t)i);
        double uniform = ((double)word + 0.5) * 0x1p-32;
        ir_store_f64(s->type.dtype, bytes + (size_t)i * ir_dtype_size(s->type.dtype), (2 * uniform - 1) * bound);
    }
    s->data = (ir_data){.kind = IR_DATA_INLINE, .bytes = bytes};
}

static ampc_status initialise(ir_module *m, const compile_options *o, diag *d)
{
    if (!o->init || strcmp(o->init, "file") == 0) return AMPC_OK;
    bool kaiming = strcmp(o->init, "kaiming") == 0;
    if (!kaiming && strcmp(o->init, "xavier") != 0)
        return diag_error(d, AMPC_USAGE, DIAG_OPTION(init), "'%s' is not file, kaiming or xavier", o->init);
    for (size_t i = 0; i < m->storage.count; i++) {
        ir_storage *s = m->storage.items[i];
        fan f;
        if (s->kind != IR_PARAM || s->frozen || s->type.rank < 2) continue;
        if (!fan_of(m->graphs.items[0], s, &f) || f.in <= 0) continue;
        draw(m, s, sqrt(6.0 / (kaiming ? f.in : f.in + f.out)), o->seed);
    }
    return AMPC_OK;
}

/* Dropout uses the seed of the options as its key; without one, the key from the importer. */
static void seed_dropout(ir_module *m, const compile_options *o)
{
    ir_storage *rng = ir_state_by_role(m, IR_STATE_rng);
    if (rng && o->seed) ir_storage_set(m, rng, (int64_t[]){(int64_t)o->seed, 0});
}

/* Decides, reports and applies the decisions. --explain=params explains a training also where there is none. */
static ampc_status choose(ir_module *m, const compile *c, const trainer_list *trainers, arena *scratch, bool *folds)
{
    const compile_options *o = c->options;
    const bool explains = pass_explains(o) == EXPLAINS_PARAMS;
    decider x = {m, o, trainers, .training = trainers || explains, .diag = c->diag};
    if (x.training) params_find_masks(m, c, scratch);
    TRY(decide_all(&x));
    if (explains) params_explain(m, c, scratch);
    if (trainers) params_note(m, c->diag, scratch);
    if (trainers) TRY(params_check_export(m, c->diag, scratch));
    x.training = trainers != NULL;
    if (explains) TRY(decide_all(&x)); /* as it is */
    *folds = apply(m) && trainers;
    return AMPC_OK;
}

static ampc_status choose_params(ir_module *m, const compile *c, arena *scratch)
{
    const compile_options *o = c->options;
    diag *d = c->diag;
    ir_node *found;
    trainer_list trainers;
    bool training = pass_trains(m, o, &found) && !o->plain_runtime, folds;
    check_globs(m, &o->train, DIAG_OPTION(train), d);
    check_globs(m, &o->freeze, DIAG_OPTION(freeze), d);
    check_trainable(m, o, d);
    TRY(optimizer_check_groups(m, o, d));
    if (training) TRY(trainers_find(m, o, d, &trainers));
    if (training) TRY(trainers_check(m, &trainers, d));
    TRY(choose(m, c, training ? &trainers : NULL, scratch, &folds));
    if (m->graphs.count) TRY(initialise(m, o, d));
    seed_dropout(m, o);
    if (folds) params_fold(m, c, scratch);
    return diag_status(d);
}

ampc_status pass_params(ir_module *m, compile *c)
{
    arena *scratch = pass_scratch_new(m);
    ampc_status status = choose_params(m, c, scratch);
    arena_free(scratch);
    return status;
}
