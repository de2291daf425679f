/* guard.c - copies and examines the storage that a training step changes; see the header. */
#include "runtime/train/guard.h"

#include "runtime/backend/alloc.h"
#include "runtime/inspect/numbers.h"

#include <string.h>

static bool is_role(const ir_storage *s, ir_state_role role) { return s->kind == IR_STATE && s->role == role; }

/* Read by forward and backward, so that a step cannot be repeated without its values. */
static bool is_input(const ir_storage *s)
{
    return s->kind == IR_PARAM || is_role(s, IR_STATE_buffer) || ir_storage_is_derived(s);
}

static bool is_examined(const ir_storage *s)
{
    const bool is_state = is_role(s, IR_STATE_slot) || is_role(s, IR_STATE_average);
    return ir_dtype_is_float(s->type.dtype) && (is_input(s) || is_state);
}

static const ir_storage *changed_by(const ir_node *store) { return ir_in(store, 0)->storage; }

/* All exponent bits are set in a NaN or an infinity. Compilers vectorise this loop. */
static bool is_finite_f32(const char *x, int64_t n)
{
    const uint32_t exponent = 0x7f800000;
    uint32_t bad = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + (size_t)i * sizeof bits, sizeof bits);
        bad |= (bits & exponent) == exponent;
    }
    return !bad;
}

static ampc_status is_finite(const rt_guard *g, const ir_storage *s, diag *d, bool *out)
{
    rt_tensor t;
    TRY(rt_session_read(g->session, (int)s->id, d, &t));
    if (t.dtype == IR_f32) *out = is_finite_f32(t.data, rt_tensor_count(&t));
    else {
        const rt_numbers numbers = rt_numbers_of(&t);
        *out = rt_numbers_finite(&numbers);
    }
    return AMPC_OK;
}

void rt_guard_clear(rt_guard *g)
{
    for (int i = 0; g->kept && i < rt_session_storage_count(g->session); i++) rt_free(g->kept[i]);
    rt_free(g->kept);
    g->kept = NULL;
}

/* Sets *enough to false, without an error, if memory is short. */
static ampc_status keep_one(rt_guard *g, const ir_storage *s, diag *d, bool *enough)
{
    rt_tensor t;
    const size_t bytes = (size_t)ir_storage_bytes(s);
    TRY(rt_session_read(g->session, (int)s->id, d, &t));
    g->kept[s->id] = rt_alloc_block(bytes);
    *enough = g->kept[s->id] != NULL;
    if (*enough) memcpy(g->kept[s->id], t.data, bytes);
    return AMPC_OK;
}

ampc_status rt_guard_keep(rt_guard *g, diag *d)
{
    if (!g->step) return AMPC_OK;
    rt_guard_clear(g);
    g->kept = rt_alloc((size_t)rt_session_storage_count(g->session) + 1, sizeof *g->kept);
    bool enough = g->kept != NULL;
    ampc_status status = AMPC_OK;
    for (const ir_node *n = ir_first_store(g->step); n && enough && status == AMPC_OK; n = ir_next_store(n))
        if (is_input(changed_by(n)) && !g->kept[changed_by(n)->id]) status = keep_one(g, changed_by(n), d, &enough);
    if (!enough || status != AMPC_OK) rt_guard_clear(g);
    return status;
}

ampc_status rt_guard_examine(const rt_guard *g, diag *d, const ir_storage **found)
{
    *found = NULL;
    for (const ir_node *n = g->step ? ir_first_store(g->step) : NULL; n && !*found; n = ir_next_store(n)) {
        bool finite = true;
        if (is_examined(changed_by(n))) TRY(is_finite(g, changed_by(n), d, &finite));
        if (!finite) *found = changed_by(n);
    }
    return AMPC_OK;
}

static ampc_status clear_state(const rt_guard *g, const ir_storage *s, diag *d)
{
    bool finite;
    TRY(is_finite(g, s, d, &finite));
    void *zero = finite ? NULL : rt_alloc(1, (size_t)ir_storage_bytes(s));
    ampc_status status = zero ? rt_session_write(g->session, (int)s->id, zero, d) : AMPC_OK;
    rt_free(zero);
    return status;
}

static bool is_sum(const ir_storage *s) { return is_role(s, IR_STATE_grad_sum) || is_role(s, IR_STATE_partial); }

ampc_status rt_guard_restore(rt_guard *g, diag *d)
{
    const ir_module *m = g->step->module;
    for (size_t i = 0; g->kept && i < m->storage.count; i++) {
        const ir_storage *s = m->storage.items[i];
        if (g->kept[i]) TRY(rt_session_write(g->session, (int)i, g->kept[i], d));
        else if (!is_input(s) && (is_examined(s) || is_sum(s))) TRY(clear_state(g, s, d));
    }
    return AMPC_OK;
}
