/* emit_value.c - names of operands: values of the graph, initializers, constants. */
#include "frontend/emit/emit.h"
#include "ir/graph/exported.h"
#include "ir/ops/shape_text.h"

#include <stdio.h>
#include <string.h>

/* ---- storage --------------------------------------------------------------------------------- */

enum { COPIED_MAX = 1 << 16 }; /* bytes; for a consumer, a smaller tensor that is read in two types is stored in both */

static void share(emitter *e, const char *key, const char *name)
{
    const emit_scope *model = e->scope;
    while (model->outer) model = model->outer;
    strmap_put(model->made, key, (void *)(uintptr_t)name);
}

/* A weight that is only read in one type is stored in that type. */
static ir_dtype stored_type(const emit_storage *s, ir_dtype own)
{
    bool single = (s->read_types & (s->read_types - 1)) == 0;
    return single ? (ir_dtype)__builtin_ctz(s->read_types) : own;
}

static const emit_storage *read_storage(emitter *e, const ir_storage *s, ir_dtype as)
{
    if (e->own) as = s->type.dtype; /* an input of the step */
    emit_storage *read = &e->storage[s->id];
    if (!(read->read_types >> as & 1)) {
        read->read_types |= 1u << as;
        e->changed = true;
    }
    if (read->name) return read;
    read->name = emit_name(e, s->name);
    read->dtype = stored_type(read, s->type.dtype);
    emit_add_storage(e, s, read->name, read->dtype);
    return read;
}

/* ---- values ---------------------------------------------------------------------------------- */

const char *emit_value(emitter *e, const ir_value *v) { return emit_value_as(e, v, v->type.dtype); }

static const char *cast_value(emitter *e, const ir_value *v, const char *name, ir_dtype to)
{
    const char *key = arena_printf(e->arena, "cast %d %s", to, name);
    const bool is_new = !emit_made(e, key);
    name = emit_cast_of(e, v->def, name, to);
    ir_type type = v->type;
    type.dtype = to;
    if (is_new) emit_declare(e, name, &type);
    return name;
}

/* The storage in a type other than the one in which it has its name. */
static const char *storage_as(emitter *e, const ir_value *v, const char *name, ir_dtype as)
{
    const ir_storage *s = v->storage;
    if (!ir_meta_get(e->module, IR_CONSUMER) || ir_storage_bytes(s) > COPIED_MAX) return cast_value(e, v, name, as);
    const char *key = arena_printf(e->arena, "copy %d %s", as, name), *shared = emit_made(e, key);
    if (shared) return shared;
    shared = emit_name(e, arena_printf(e->arena, "%s.%s", name, ir_dtype_name(as)));
    emit_add_storage(e, s, shared, as);
    share(e, key, shared);
    return shared;
}

const char *emit_value_as(emitter *e, const ir_value *v, ir_dtype as)
{
    if (emit_loses(v->type.dtype, as)) emit_inexact(e);
    if (v->kind == IR_VALUE_STORAGE) {
        const emit_storage *s = read_storage(e, v->storage, as);
        return s->dtype == as ? s->name : storage_as(e, v, s->name, as);
    }
    const char *name = e->scope->value[v->id] ? e->scope->value[v->id] : v->name; /* rejected node: no name */
    return v->type.dtype == as ? name : cast_value(e, v, name, as);
}

void emit_operand(emit_op *op, int i)
{
    const ir_value *v = ir_in(op->n, i);
    emit_in(op, v ? emit_value(op->e, v) : NULL);
}

void emit_operands(emit_op *op)
{
    int count = op->n->n_in;
    while (count && !ir_in(op->n, count - 1)) count--;
    for (int i = 0; i < count; i++) emit_operand(op, i);
}

void emit_define(emitter *e, const ir_node *n, int i, const char *name, ir_dtype is)
{
    const ir_value *v = n->out[i];
    if (is == v->type.dtype && !e->scope->output_of[v->id]) {
        e->scope->value[v->id] = name;
        return;
    }
    emit_op op = emit_begin(e, n, is == v->type.dtype ? "Identity" : "Cast");
    emit_in(&op, name);
    if (is != v->type.dtype) emit_int(&op, "to", onnx_type_of(v->type.dtype));
    emit_result(&op, i, v->type.dtype);
    emit_end(&op);
}

/* ---- constants ------------------------------------------------------------------------------- */

static int64_t count_of(const ir_type *t)
{
    int64_t count = 1;
    for (int i = 0; i < t->rank; i++) count *= t->dims[i];
    return count;
}

/* Encodes type and bytes as text. */
static const char *constant_key(emitter *e, const ir_type *type, const void *bytes, size_t size)
{
    const unsigned char *b = bytes;
    text_buffer key = {.arena = e->arena};
    text_put(&key, "constant ");
    ir_shape_add(&key, ir_dtype_name(type->dtype), NULL, type->rank, type->dims);
    for (size_t i = 0; i < size; i++) text_add(&key, "%02x", b[i]);
    return text_finish(&key);
}

const char *emit_constant(emitter *e, const ir_type *type, const void *bytes)
{
    size_t size = (size_t)count_of(type) * ir_dtype_size(type->dtype);
    const char *key = constant_key(e, type, bytes, size), *shared = emit_made(e, key);
    if (shared) return shared;
    const char *base = arena_printf(e->arena, "constant_%lld", (long long)e->made_count++);
    emit_tensor t = {.name = emit_name(e, base), .type = *type, .size = size};
    void *copy = arena_alloc(e->arena, size + 1);
    if (size) memcpy(copy, bytes, size);
    t.bytes = copy;
    vec_push(e->arena, &e->tensors, t);
    share(e, key, t.name);
    return t.name;
}

const char *emit_i64s(emitter *e, const int64_t *items, int count)
{
    ir_type type = ir_type_make(IR_i64, 1, (const int64_t[]){count});
    return emit_constant(e, &type, items);
}

const char *emit_i64(emitter *e, int64_t v)
{
    ir_type type = ir_type_scalar(IR_i64);
    return emit_constant(e, &type, &v);
}
