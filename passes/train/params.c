/* params.c - selects the parameters to train and their initial values.
 *
 * --train GLOB trains only the matches, --freeze GLOB excludes them; a name that matches both is an error. Parameters
 * that the importer or params_mark_masks marked as held become constants in graphs that train. A glob does not release
 * them, or --train='*' would train causal masks: --train has to give the full name.
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

static bool is_selectable(const ir_storage *s) { return s->kind != IR_CONST || s->held; }

static bool occurs(const ir_module *m, const char *glob)
{
    const pass_strings one = {&glob, 1};
    for (size_t i = 0; i < m->storage.count; i++)
        if (is_selectable(m->storage.items[i]) && pass_match(&one, m->storage.items[i]->name)) return true;
    return ir_storage_find(m, glob) != NULL;
}

static void check_globs(const ir_module *m, const pass_strings *globs, const char *option, diag *d)
{
    for (int i = 0; i < globs->count; i++)
        if (!occurs(m, globs->items[i]))
            diag_warning(d, DIAG_NOWHERE, "%s '%s' matches no parameter", option, globs->items[i]);
}

/* Reports names given to --train that no gradient can update. */
static void check_trainable(const ir_module *m, const compile_options *o, diag *d)
{
    for (int i = 0; i < o->train.count; i++) {
        const ir_storage *s = ir_storage_find(m, o->train.items[i]);
        if (!s || (s->kind == IR_PARAM && s->held != IR_HELD_APART)) continue;
        if (s->kind == IR_CONST && params_releases(s)) continue;
        const char *why = !ir_dtype_is_float(s->type.dtype) ? "it is not a float tensor"
                          : s->kind == IR_STATE             ? "it is a buffer that the graph updates"
                          : s->held == IR_HELD_READ         ? "an operator needs its value at compile time"
                                                            : "no output has a derivative with respect to it";
        diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--train '%s': cannot be trained: %s", s->name, why);
    }
}

static bool is_named(const pass_strings *names, const char *name)
{
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->items[i], name) == 0) return true;
    return false;
}

static void release_named(ir_module *m, const compile_options *o)
{
    for (size_t i = 0; i < m->storage.count; i++) {
        ir_storage *s = m->storage.items[i];
        if (!params_releases(s) || !is_named(&o->train, s->name)) continue;
        s->held = IR_NOT_HELD;
        s->kind = IR_PARAM;
    }
}

static void select_trained(ir_module *m, const compile_options *o, diag *d)
{
    for (size_t i = 0; i < m->storage.count; i++) {
        ir_storage *s = m->storage.items[i];
        if (s->kind != IR_PARAM) continue;
        bool train = pass_match(&o->train, s->name);
        bool in_group = optimizer_group_of(s, o, m->arena).frozen;
        bool freeze = pass_match(&o->freeze, s->name) || in_group;
        if (train && freeze && !s->held)
            diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "parameter '%s' is matched by --train and by %s", s->name,
                       in_group ? "a --group that freezes it" : "--freeze");
        if (freeze || (o->train.count && !train)) s->frozen = true;
        else if (train) s->frozen = false;
    }
}

/* ---- held parameters --------------------------------------------------------------------------- */

/* Makes held parameters constants if the module trains. Returns whether there were any. */
static bool hold_constant(ir_module *m, bool training)
{
    bool any = false;
    for (size_t i = 0; i < m->storage.count; i++) {
        ir_storage *s = m->storage.items[i];
        if (training && s->held && s->kind == IR_PARAM) {
            s->kind = IR_CONST;
            s->frozen = false;
            any = true;
        }
        s->held = IR_NOT_HELD;
    }
    return any;
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
        return diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "--init=%s: expected file, kaiming or xavier", o->init);
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

static ampc_status choose_params(ir_module *m, const compile *c, arena *scratch)
{
    const compile_options *o = c->options;
    diag *d = c->diag;
    ir_node *found;
    trainer_list trainers;
    bool training = pass_trains(m, o, &found) && !o->plain_runtime;
    check_globs(m, &o->train, "--train", d);
    check_globs(m, &o->freeze, "--freeze", d);
    check_trainable(m, o, d);
    TRY(optimizer_check_groups(m, o, d));
    if (training || pass_explains_params(o)) {
        params_mark_masks(m, c, scratch);
        release_named(m, o);
    }
    select_trained(m, o, d);
    TRY(diag_status(d));
    if (training) TRY(trainers_find(m, o, d, &trainers));
    if (training) TRY(trainers_check(m, &trainers, d));
    if (pass_explains_params(o)) params_explain(m, c, scratch);
    if (training) params_note(m, d, scratch);
    if (training) TRY(params_check_export(m, d, scratch));
    bool held = hold_constant(m, training);
    if (m->graphs.count) TRY(initialise(m, o, d));
    seed_dropout(m, o);
    if (held) params_fold(m, c, scratch);
    return diag_status(d);
}

ampc_status pass_params(ir_module *m, compile *c)
{
    arena *scratch = pass_scratch_new(m);
    ampc_status status = choose_params(m, c, scratch);
    arena_free(scratch);
    return status;
}
