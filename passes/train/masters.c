/* masters.c - makes f32 master weights of parameters that the model stores in a low type.
 *
 * In f16 most updates would be lost, because they are smaller than half a unit in the last place. The parameter becomes
 * f32 with the same values, and every graph reads it through a cast to the model's type. Gradients, optimizer slots and
 * checkpoints belong to the f32 parameter; export writes the type of the model's tensor.
 *   param @w : f16[4]       param @w : f32[4]
 *   %y = exp @w             %w.low = cast @w {to=f16}
 *                           %y = exp %w.low */
#include "passes/amp/range.h"

static bool needs_master(const ir_storage *s)
{
    return s->kind == IR_PARAM && !s->frozen && ir_dtype_is_low(s->type.dtype);
}

/* Converts the storage and its values to f32; false: its bytes are unavailable. */
static bool widen(ir_module *m, ir_storage *s, const compile *c, arena *scratch)
{
    const ir_dtype low = s->type.dtype;
    const size_t count = (size_t)ir_storage_bytes(s) / ir_dtype_size(low);
    const void *bytes = s->data.kind == IR_DATA_ZERO ? NULL : range_read(s, c, scratch);
    if (!bytes && s->data.kind != IR_DATA_ZERO) return false;
    s->type.dtype = IR_f32;
    if (!bytes) return true;
    void *wide = arena_array(m->arena, count + 1, ir_dtype_size(IR_f32));
    ir_convert(IR_f32, wide, low, bytes, count);
    s->data = (ir_data){.kind = IR_DATA_INLINE, .bytes = wide};
    return true;
}

/* Inserts a cast before the first node of the graph and lets all users of the parameter read that. */
static void read_through_cast(ir_graph *g, ir_storage *s, ir_dtype low, diag *d)
{
    ir_value *v = ir_graph_storage(g, s);
    v->type.dtype = IR_f32;
    if (!ir_value_used(v)) return;
    ir_builder b = {.graph = g, .before = g->first, .phase = IR_FORWARD, .diag = d};
    ir_value *cast = ir_cast(&b, v, low);
    if (!cast) return;
    ir_value_rename(cast, arena_printf(g->module->arena, "%s.low", s->name));
    ir_value_replace(v, cast);
    ir_node_set_input(cast->def, 0, v);
    cast->def->note = "the parameter in the type of the model";
}

static ampc_status make_masters(ir_module *m, const compile *c, arena *scratch)
{
    diag *d = c->diag;
    for (size_t i = m->storage.count; i-- > 0;) { /* each cast is inserted first, so the casts are in parameter order */
        ir_storage *s = m->storage.items[i];
        const ir_dtype low = s->type.dtype;
        if (!needs_master(s)) continue;
        if (!widen(m, s, c, scratch))
            return diag_error(d, AMPC_UNSUPPORTED, DIAG_NOWHERE,
                              "parameter '%s' is %s, and the values for its f32 master copy are not available", s->name,
                              ir_dtype_name(low));
        for (ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g)) read_through_cast(g, s, low, d);
    }
    return diag_status(d);
}

ampc_status pass_masters(ir_module *m, compile *c)
{
    if (!ir_graph_by_role(m, IR_GRAPH_train)) return AMPC_OK;
    arena *scratch = pass_scratch_new(m);
    ampc_status status = make_masters(m, c, scratch);
    arena_free(scratch);
    return status;
}
