/* params.c - which parameters train, and what they start from.
 *
 * --train GLOB trains only what matches, --freeze GLOB excludes; a name matched by both is an error. --init=kaiming
 * draws every weight (rank 2 and more) uniformly from +-sqrt(6 / fan_in) (He et al. 2015, for ReLU), xavier from
 * +-sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010); vectors keep the values of the file. */
#include "passes/pass.h"

#include "ir/philox.h"

#include <math.h>
#include <string.h>

static bool occurs(const ir_module *m, const char *glob)
{
    const pass_strings one = {&glob, 1};
    for (size_t i = 0; i < m->storage.count; i++)
        if (m->storage.items[i]->kind != IR_CONST && pass_match(&one, m->storage.items[i]->name)) return true;
    return false;
}

static void check_globs(const ir_module *m, const pass_strings *globs, const char *option, diag *d)
{
    for (int i = 0; i < globs->count; i++)
        if (!occurs(m, globs->items[i]))
            diag_warning(d, DIAG_NOWHERE, "%s '%s' matches no parameter", option, globs->items[i]);
}

static void select_trained(ir_module *m, const pass_options *o, diag *d)
{
    for (size_t i = 0; i < m->storage.count; i++) {
        ir_storage *s = m->storage.items[i];
        if (s->kind != IR_PARAM) continue;
        bool train = pass_match(&o->train, s->name), freeze = pass_match(&o->freeze, s->name);
        if (train && freeze)
            diag_error(d, AMPC_USAGE, DIAG_NOWHERE, "parameter '%s' is matched by --train and by --freeze", s->name);
        if (freeze || (o->train.count && !train)) s->frozen = true;
        else if (train) s->frozen = false;
    }
}

/* Streams of the generator from here on belong to initialisation, one a parameter. */
#define INIT_STREAM ((uint64_t)1 << 40)

/* How many products a result element sums, and to how many results a weight element contributes. */
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

static ampc_status initialise(ir_module *m, const pass_options *o, diag *d)
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

ampc_status pass_params(ir_module *m, const pass_options *o, diag *d)
{
    check_globs(m, &o->train, "--train", d);
    check_globs(m, &o->freeze, "--freeze", d);
    select_trained(m, o, d);
    TRY(diag_status(d));
    return m->graphs.count ? initialise(m, o, d) : AMPC_OK;
}
