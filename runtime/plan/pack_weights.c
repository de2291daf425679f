/* pack_weights.c - brings weights into the formats of their kernels once.
 *
 *     %h = cast @w : bf16             pack @w -> %h' (packed)         hoisted
 *     %y = matmul %x, %h              %y = matmul %x, %h'
 *
 * An operand that is invariant (hoist_invariants.c) is packed if its kernel has a format for it. A pack that is made
 * from storage, also through a cast, is determined by the storage, the type and the format. All plans of all sessions
 * that want the same share it (session_shared.c). The packs of other hoisted values are kept like these values
 * themselves. What only packs have read is removed. */
#include "runtime/plan/stages.h"

typedef struct packing {
    rt_plan *p;
    rt_step **made; /* the packs so far */
    int n_made;
    rt_step *last;  /* the last pack of a storage, or NULL */
    rt_step *first; /* the first step that is not hoisted */
} packing;

/* Returns the storage that the value is a cast of, or the value itself. From f64 a cast to f16 would round twice. */
static uint32_t source_of(const rt_plan *p, uint32_t value)
{
    const rt_step *def = rt_def(p, value);
    if (!def || def->kind != RT_STEP_OP || !rt_step_has(def, IR_CONVERTS)) return value;
    const k_view *x = &def->in[0];
    const bool is_float = ir_dtype_is_float(x->dtype) && x->dtype != IR_f64;
    return is_float && rt_is_storage(p, def->in_value[0]) ? def->in_value[0] : value;
}

/* Asks the kernel of the step; *format is NULL if the operand stays plain. */
static ampc_status find_format(const rt_plan *p, const rt_step *s, int operand, const k_format **format)
{
    *format = NULL;
    for (int j = 0; j < s->n_in; j++) s->in[j].data = k_present(&s->in[j]) ? rt_placeholder : NULL;
    for (int k = 0; k < s->n_out; k++) s->out[k].data = k_present(&s->out[k]) ? rt_placeholder : NULL;
    const k_args args = rt_step_args(p, s);
    ampc_status status = s->kernel->pack_format(&args, operand, format);
    if (status == AMPC_OK && *format) {
        s->in[operand].packed = *format;
        status = k_prepares(s->kernel, &args); /* libraries keep what this makes for prepare_kernels */
        s->in[operand].packed = NULL;
    }
    if (status != AMPC_OK) *format = NULL;
    return status == AMPC_UNSUPPORTED ? AMPC_OK : status; /* if it is so without the pack, prepare_kernels reports it */
}

static rt_step *find_pack(const packing *k, uint32_t source, ir_dtype type, const k_format *format)
{
    for (int i = 0; i < k->n_made; i++) {
        const rt_step *s = k->made[i];
        if (s->in_value[0] == source && s->out[0].dtype == type && s->out[0].packed == format) return k->made[i];
    }
    return NULL;
}

static size_t bytes_read(const rt_step *pack) { return k_bytes(&pack->in[0]); }

/* Numbers the packs of storage in the order of their steps. */
static void number_packs(packing *k)
{
    rt_plan *p = k->p;
    p->n_packs = 0;
    for (rt_step *s = k->last ? p->first_step : NULL; s; s = s == k->last ? NULL : s->next) {
        s->pack = p->n_packs;
        p->packs[p->n_packs++] = (rt_pack){.storage = p->values[s->in_value[0]].value->storage->id,
                                           .type = s->out[0].dtype,
                                           .format = s->out[0].packed};
    }
}

static void insert(packing *k, rt_step *s, uint32_t source)
{
    rt_plan *p = k->p;
    s->hoisted = true;
    k->made[k->n_made++] = s;
    if (!rt_is_storage(p, source)) {
        rt_step_insert_before(p, s, k->first);
        return;
    }
    rt_step *before = k->last;
    while (before && bytes_read(before) < bytes_read(s)) before = before->prev;
    if (before) rt_step_insert_after(p, s, before);
    else rt_step_insert_before(p, s, p->first_step);
    if (before == k->last) k->last = s;
}

/* Makes the step that packs `source` for that operand; NULL: out of memory. */
static rt_step *make_pack(packing *k, const rt_step *reader, int operand, uint32_t source, const k_format *format)
{
    rt_plan *p = k->p;
    k_view view = reader->in[operand];
    view.packed = format;
    rt_step *s = rt_step_new(p, reader->node, reader->op, 1, 1);
    const uint32_t packed = rt_plan_new_value(p, source, &view);
    if (!s || packed == RT_NO_VALUE) return NULL;
    p->values[packed].channels_last = view.channels_last;
    s->kind = RT_STEP_PACK;
    s->kernel = format->pack;
    rt_step_redirect(p, s, 0, source);
    rt_step_write(p, s, 0, packed);
    s->in[0] = reader->in[operand];
    s->in[0].dtype = p->values[rt_root(p, source)].view.dtype;
    insert(k, s, source);
    return s;
}

static ampc_status pack_operand(packing *k, rt_step *s, int j)
{
    const k_format *format;
    const uint32_t source = rt_root(k->p, source_of(k->p, s->in_value[j]));
    TRY(find_format(k->p, s, j, &format));
    if (!format) return AMPC_OK;
    rt_step *pack = find_pack(k, source, s->in[j].dtype, format);
    if (!pack) pack = make_pack(k, s, j, source, format);
    if (!pack) return AMPC_NO_MEMORY;
    rt_step_redirect(k->p, s, j, pack->out_value[0]);
    s->in[j].packed = format;
    return AMPC_OK;
}

static bool can_pack(const rt_plan *p, const rt_step *s, int j)
{
    return rt_step_reads(s, j) && rt_is_invariant(p, s->in_value[j]) && s->in[j].as == IR_NO_DTYPE;
}

static bool is_read(const rt_plan *p, const rt_step *s)
{
    for (int k = 0; k < s->n_out; k++)
        if (rt_step_writes(s, k) && rt_uses(p, s->out_value[k])) return true;
    return false;
}

/* Removes hoisted steps whose readers have become readers of packs. */
static void remove_unread(rt_plan *p)
{
    for (int i = p->n_hoisted - 1; i >= 0; i--)
        if (!is_read(p, p->steps[i])) rt_step_remove(p, p->steps[i]);
}

static bool reserve_space(packing *k)
{
    size_t operands = 0;
    for (int i = k->p->n_hoisted; i < k->p->n_steps; i++)
        if (k->p->steps[i]->kernel->pack_format) operands += (size_t)k->p->steps[i]->n_in;
    k->made = rt_plan_alloc(k->p, operands, sizeof *k->made);
    k->p->packs = rt_plan_alloc(k->p, operands, sizeof *k->p->packs);
    return k->made && k->p->packs;
}

ampc_status rt_stage_pack_weights(rt_plan *p, diag *d)
{
    (void)d;
    if (p->nested || p->no_pack || p->n_hoisted == p->n_steps) return AMPC_OK;
    packing k = {.p = p, .first = p->steps[p->n_hoisted]};
    if (!reserve_space(&k)) return AMPC_NO_MEMORY;
    for (int i = p->n_hoisted; i < p->n_steps; i++) {
        rt_step *s = p->steps[i];
        if (s->kind != RT_STEP_OP || !s->kernel->pack_format) continue;
        for (int j = 0; j < s->n_in; j++)
            if (can_pack(p, s, j)) TRY(pack_operand(&k, s, j));
    }
    number_packs(&k);
    if (k.n_made) remove_unread(p);
    return AMPC_OK;
}
