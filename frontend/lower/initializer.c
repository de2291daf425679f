/* initializer.c - tensors of the model -> storage of the module.
 *
 * ONNX does not say which float initializers are parameters. Each is imported as one, and pass params decides,
 * because it knows the options and whether there is a training step, and can read values. What only the importer
 * knows are the facts that it records here (ir/graph/decisions.def): what the exporter declares, what the name looks
 * like, whether an operator has read the value (the ratio of a Dropout), and how outputs depend on it: through a
 * derivative, only through integers (a cast or a comparison is in between), or only as an operand that controls an
 * operator (FIXED in ops.def: bounds of Clip, class weights ...), also if the tensor is only reshaped or cast
 * before. Running statistics have already become states when BatchNormalization was lowered. */
#include "frontend/lower/lower.h"

#include <ctype.h>
#include <string.h>

enum { LOADED_CONSTANT = 1 << 20 }; /* bytes; smaller constants are loaded so that they fold */

ir_value *onnx_tensor_value(onnx_importer *im, ir_storage_kind kind, const char *name, onnx_tensor *t, diag_loc loc)
{
    const bool narrow = t->dtype == IR_NO_DTYPE && onnx_type_holder(t->type) != IR_NO_DTYPE;
    if (onnx_tensor_unpack(im->arena, im->file, t, im->diag) != AMPC_OK) return NULL;
    if (t->dtype == IR_NO_DTYPE) {
        diag_error(im->diag, AMPC_UNSUPPORTED, loc, "tensor '%s' has element type %s, which is not supported", name,
                   onnx_type_name(t->type));
        return NULL;
    }
    ir_data data = {.kind = IR_DATA_FILE, .path = t->path, .offset = t->offset, .length = (int64_t)t->size};
    if (kind == IR_CONST && t->size <= LOADED_CONSTANT && onnx_tensor_load(im->arena, im->file, t, im->diag) != AMPC_OK)
        return NULL;
    ir_type type = ir_type_make(t->dtype, t->rank, t->dims);
    ir_storage *s = ir_storage_new(im->module, kind, name, &type);
    if (!t->path) data.kind = IR_DATA_INLINE, data.bytes = t->bytes;
    s->data = data;
    if (narrow && !im->narrow) im->narrow = strmap_new(im->scratch);
    if (narrow) strmap_put(im->narrow, s->name, (void *)(intptr_t)onnx_type_bits(t->type));
    return ir_graph_storage(im->graph, s);
}

int onnx_narrow_bits(const onnx_importer *im, const ir_value *v)
{
    if (!v || v->kind != IR_VALUE_STORAGE || !im->narrow) return 0;
    return (int)(intptr_t)strmap_get(im->narrow, v->storage->name);
}

ampc_status onnx_initializers_bind(onnx_importer *im, onnx_scope *scope)
{
    const Onnx__GraphProto *g = scope->graph;
    for (size_t i = 0; i < g->n_initializer; i++) {
        onnx_binding *b = arena_alloc(im->scratch, sizeof *b);
        b->initializer = arena_alloc(im->scratch, sizeof *b->initializer);
        TRY(onnx_tensor_describe(im->arena, im->file, g->initializer[i], im->diag, b->initializer));
        strmap_put(scope->bindings, g->initializer[i]->name, b);
    }
    return AMPC_OK;
}

/* ---- facts for pass params -------------------------------------------------------------------- */

/* How graph outputs depend on a value: through a derivative, only through integers, or only as a setting. */
typedef enum reach { REACH_NONE, REACH_SETTING, REACH_VALUE, REACH_DERIVATIVE } reach;

static bool carries(const ir_value *v, reach how) { return how == REACH_VALUE || ir_dtype_is_float(v->type.dtype); }

/* Whether the results are elements of the operands, if need be in another type: the model's tensor itself. */
static bool only_moves(const ir_node *n)
{
    return ir_op_has(n->op, IR_CONVERTS) ||
           (ir_op_get(n->op)->colour == IR_CLEAR && ir_op_has(n->op, IR_MASKS) && !ir_op_has(n->op, IR_ELEMENTWISE));
}

/* How the node needs its operands if its results are needed in way `how` or a stricter one. */
static reach reach_of_operands(const ir_node *n, reach how, const reach *reached)
{
    reach most = ir_op_has(n->op, IR_NAMED) ? how : REACH_NONE;
    for (int i = 0; i < n->n_out; i++) {
        const reach of = reached[n->out[i]->id], as = of == REACH_SETTING && !only_moves(n) ? how : of;
        if (as > most && carries(n->out[i], how)) most = as;
    }
    return most > how ? how : most;
}

/* Marks, by value id, the values that the graph's outputs depend on in way `how` or a stricter one. */
static void mark_reached(const ir_graph *g, reach how, reach *reached)
{
    for (const ir_node *n = g->last; n; n = n->prev) {
        const reach needed = reach_of_operands(n, how, reached);
        for (int i = 0; i < n->n_in && needed; i++) {
            const ir_value *v = n->in[i].value;
            const reach as = ir_op_fixes(n->op, i) ? REACH_SETTING : needed;
            if (v && carries(v, how) && !ir_node_stops(n, i) && reached[v->id] < as) reached[v->id] = as;
        }
    }
}

/* "onnx::Mul_123", "217" */
static bool is_numbered(const char *name)
{
    if (strncmp(name, "onnx::", 6) == 0) return true;
    while (isdigit((unsigned char)*name)) name++;
    return !*name;
}

/* Marks, by storage id, how the outputs of any graph depend on a storage. */
static void mark_storage(onnx_importer *im, const ir_graph *g, reach *reached)
{
    reach *values = arena_array(im->scratch, g->value_ids + 1, sizeof *values);
    mark_reached(g, REACH_DERIVATIVE, values);
    mark_reached(g, REACH_VALUE, values);
    for (const ir_node *n = g->first; n; n = n->next)
        for (int i = 0; i < n->n_in; i++) {
            const ir_value *v = n->in[i].value;
            if (v && v->kind == IR_VALUE_STORAGE && values[v->id] > reached[v->storage->id] && !ir_is_scalar(v))
                reached[v->storage->id] = values[v->id];
        }
}

static uint32_t facts_of_declaration(const onnx_importer *im, const char *name)
{
    const onnx_declared *d = strmap_get(im->declarations, name);
    return !d ? 0 : *d == ONNX_DECLARED_CONSTANT ? IR_TENSOR(buffer) : IR_TENSOR(parameter);
}

/* Initializers reach this function as parameters; a float constant comes from a node of the graph. */
static uint32_t facts_of(const onnx_importer *im, const ir_storage *s, reach reached)
{
    static const uint32_t by_reach[] = {[REACH_NONE] = IR_TENSOR(apart) | IR_TENSOR(unused),
                                        [REACH_SETTING] = IR_TENSOR(setting),
                                        [REACH_VALUE] = IR_TENSOR(apart),
                                        [REACH_DERIVATIVE] = 0};
    if (s->kind == IR_CONST) return reached == REACH_DERIVATIVE ? IR_TENSOR(node) : 0;
    return by_reach[reached] | facts_of_declaration(im, s->name) |
           (onnx_is_generated(s->name) ? IR_TENSOR(generated) : 0) | (is_numbered(s->name) ? IR_TENSOR(numbered) : 0);
}

void onnx_record_facts(onnx_importer *im)
{
    ir_module *m = im->module;
    reach *reached = arena_array(im->scratch, m->storage.count + 1, sizeof *reached);
    for (const ir_graph *g = ir_first_graph(m); g; g = ir_next_graph(g)) mark_storage(im, g, reached);
    for (size_t i = 0; i < m->storage.count; i++) {
        ir_storage *s = m->storage.items[i];
        if (s->kind != IR_STATE && ir_dtype_is_float(s->type.dtype)) s->facts |= facts_of(im, s, reached[s->id]);
    }
}
