/* scope.c - names of the model and the values they refer to in the current graph.
 *
 * A captured value becomes an input of the subgraph, and of every graph in between, when it is first read. Storage
 * belongs to the module and is read directly. A value known at compile time is also known in subgraphs. */
#include "frontend/lower/lower.h"

#include <string.h>

/* ---- captured values --------------------------------------------------------------------------- */

static ir_value *find_capture(const onnx_subgraph *b, const ir_value *outer)
{
    for (size_t i = 0; i < b->captures.count; i++)
        if (b->captures.items[i].outer == outer) return b->captures.items[i].inner;
    return NULL;
}

/* A view of the input, which folding replaces by its value. */
static ir_value *make_const(onnx_importer *im, const onnx_subgraph *b, ir_value *input, const ir_const_value *value)
{
    ir_builder at = ir_builder_at_end(b->graph, im->diag);
    at.before = b->graph->first;
    at.nameless = true;
    ir_node *view = ir_new(&at, IR_OP_reshape, 1, input);
    ir_set_list(view, IR_ATTR(reshape, shape), input->type.dims, input->type.rank);
    ir_value *v = ir_done(&at, view);
    if (!v) return NULL;
    ir_value_rename(v, input->name);
    ir_const_set(b->consts, v, value);
    return v;
}

static ir_value *capture(onnx_importer *im, onnx_subgraph *b, ir_value *v)
{
    if (v->graph == b->graph) return v;
    ir_value *outer = capture(im, b->outer, v), *inner = outer ? find_capture(b, outer) : NULL;
    if (inner || !outer) return inner;
    const ir_const_value *value = ir_const_get(b->outer->consts, outer);
    ir_value *input = ir_graph_input(b->graph, outer->name, &outer->type);
    inner = value ? make_const(im, b, input, value) : input;
    vec_push(im->scratch, &b->captures, ((onnx_capture){outer, input, inner}));
    return inner;
}

/* The value in the current graph, captured if necessary. */
static ir_value *current_value(onnx_importer *im, ir_value *v)
{
    if (v->graph == im->graph) return v;
    return v->kind == IR_VALUE_STORAGE ? ir_graph_storage(im->graph, v->storage) : capture(im, im->subgraph, v);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* A sequence whose items are values of the current graph. */
static const onnx_sequence *current_sequence(onnx_importer *im, const onnx_sequence *s)
{
    onnx_sequence *copy = NULL;
    for (int i = 0; i < s->count; i++) {
        onnx_item item = s->items[i];
        if (item.value) item.value = current_value(im, item.value);
        if (item.sequence) item.sequence = current_sequence(im, item.sequence);
        if (!item.value && !item.sequence) return NULL;
        if (!copy && item.value == s->items[i].value && item.sequence == s->items[i].sequence) continue;
        if (!copy) {
            copy = arena_alloc(im->scratch, sizeof *copy);
            *copy = (onnx_sequence){s->is_optional, s->count, arena_array(im->scratch, (size_t)s->count, sizeof item)};
            memcpy(copy->items, s->items, (size_t)s->count * sizeof item);
        }
        copy->items[i] = item;
    }
    return copy ? copy : s;
}

onnx_binding *onnx_find(const onnx_scope *scope, const char *name)
{
    for (; scope; scope = scope->outer) {
        onnx_binding *b = strmap_get(scope->bindings, name);
        if (b) return b;
    }
    return NULL;
}

ir_value *onnx_value(onnx_importer *im, const onnx_scope *scope, const char *name)
{
    onnx_binding *b = onnx_find(scope, name);
    if (!b || b->value || b->failed) return b && b->value ? current_value(im, b->value) : NULL;
    if (b->sequence || b->absent) {
        diag_error(im->diag, AMPC_UNSUPPORTED, DIAG_FILE(im->path), "'%s' is %s, not a tensor", name,
                   b->absent ? "an input without an operand" : "a sequence or optional");
        return NULL;
    }
    ir_storage_kind kind = ir_dtype_is_float(b->initializer->dtype) ? IR_PARAM : IR_CONST;
    b->value = onnx_tensor_value(im, kind, name, b->initializer, DIAG_FILE(im->path));
    b->failed = !b->value;
    if (b->value && b->merged) {
        b->value->storage->merged = arena_strdup(im->arena, b->merged);
        if (!im->options->tied) im->module->training.exported.untied = true;
    }
    return b->value;
}

onnx_item onnx_item_of(onnx_importer *im, const onnx_scope *scope, const char *name)
{
    const onnx_binding *b = onnx_find(scope, name);
    if (b && b->sequence) return (onnx_item){.sequence = current_sequence(im, b->sequence)};
    return (onnx_item){.value = onnx_value(im, scope, name)};
}

void onnx_bind(onnx_importer *im, onnx_scope *scope, const char *name, onnx_item item)
{
    onnx_binding *b = arena_alloc(im->scratch, sizeof *b);
    b->value = item.value;
    b->sequence = item.sequence;
    b->failed = !item.value && !item.sequence;
    strmap_put(scope->bindings, name, b);
}
