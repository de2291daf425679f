/* emit_tensor.c - initializers: values of storage, inline or in the data part, converted while they are copied; also
 * the types of graph inputs and outputs. */
#include "frontend/emit/emit.h"
#include "frontend/read/fields.h"
#include "frontend/read/prescan.h"
#include "ir/base/input_file.h"

#include <string.h>
#include <unistd.h>

enum { INLINE_MAX = 1024 }; /* bytes; smaller tensors are never external */

/* ---- sources of values ----------------------------------------------------------------------- */

void emit_add_storage(emitter *e, const ir_storage *s, const char *name, ir_dtype as)
{
    emit_tensor t = {.name = name, .type = s->type, .storage = s};
    t.type.dtype = as;
    t.size = (size_t)ir_storage_bytes(s) / ir_dtype_size(s->type.dtype) * ir_dtype_size(as);
    vec_push(e->arena, &e->tensors, t);
}

static ampc_status open_file(emitter *e, const char *path, int *fd)
{
    for (size_t i = 0; i < e->files.count; i++)
        if (strcmp(e->files.items[i].path, path) == 0) {
            *fd = e->files.items[i].fd;
            return AMPC_OK;
        }
    uint64_t size;
    TRY(input_open(path, e->diag, fd, &size));
    vec_push(e->arena, &e->files, ((emit_file){path, *fd}));
    return AMPC_OK;
}

static ampc_status open_source(emitter *e, emit_tensor *t)
{
    const ir_data *data = &t->storage->data;
    switch (data->kind) {
    case IR_DATA_ZERO:
    case IR_DATA_INLINE: return AMPC_OK;
    case IR_DATA_FILE:
        t->source = arena_alloc(e->arena, sizeof *t->source);
        t->source->offset = data->offset;
        if (ir_data_in_image(e->module, data)) {
            t->source->bytes = e->module->image.bytes;
            return AMPC_OK;
        }
        return open_file(e, data->path, &t->source->fd);
    case IR_DATA_SIDECAR: break;
    }
    return diag_error(e->diag, AMPC_UNSUPPORTED, DIAG_FILE(ir_module_source(e->module)),
                      "the values of @%s are in a weights file, not in the model", t->storage->name);
}

ampc_status emit_open_sources(emitter *e)
{
    for (size_t i = 0; i < e->tensors.count; i++)
        if (e->tensors.items[i].storage) TRY(open_source(e, &e->tensors.items[i]));
    return AMPC_OK;
}

void emit_close_files(emitter *e)
{
    for (size_t i = 0; i < e->files.count; i++) close(e->files.items[i].fd);
}

static void put_values(emitter *e, rope *out, emit_tensor *t)
{
    ir_dtype to = t->type.dtype, from = t->storage ? t->storage->type.dtype : to;
    size_t count = t->size / ir_dtype_size(to);
    if (t->storage && t->storage->data.kind == IR_DATA_ZERO) {
        for (size_t left = t->size, n; left; left -= n) {
            static const char zeros[1 << 16];
            n = left < sizeof zeros ? left : sizeof zeros;
            rope_add(e->arena, out, zeros, n);
        }
        return;
    }
    bool in_place = t->storage && t->storage->data.kind == IR_DATA_INLINE;
    if (t->source) rope_add_source(e->arena, out, to, from, t->source, count);
    else rope_add_elements(e->arena, out, to, from, in_place ? t->storage->data.bytes : t->bytes, count);
    if (t->storage) rope_count_infinities(out, &t->infinities);
}

/* ---- TensorProto ----------------------------------------------------------------------------- */

static void put_tensor(emitter *e, rope *graph, emit_tensor *t, bool external)
{
    rope tensor = {0};
    for (int i = 0; i < t->type.rank; i++) rope_add_int(e->arena, &tensor, TENSOR_DIMS, (uint64_t)t->type.dims[i]);
    rope_add_int(e->arena, &tensor, TENSOR_DATA_TYPE, onnx_type_of(t->type.dtype));
    rope_add_text(e->arena, &tensor, TENSOR_NAME, t->name);
    if (external && t->size > INLINE_MAX) {
        rope_add_external(e->arena, &tensor, e->options->data_name, t->offset, t->size);
    } else {
        rope_add_header(e->arena, &tensor, TENSOR_RAW_DATA, t->size);
        put_values(e, &tensor, t);
    }
    rope_add_message(e->arena, graph, GRAPH_INITIALIZER, &tensor);
}

void emit_put_tensors(emitter *e, rope *graph, bool external)
{
    size_t offset = 0;
    for (size_t i = 0; i < e->tensors.count; i++) {
        emit_tensor *t = &e->tensors.items[i];
        if (external && t->size > INLINE_MAX) {
            t->offset = rope_align(offset);
            offset = t->offset + t->size;
        }
        put_tensor(e, graph, t, external);
    }
}

ampc_status emit_write_data(emitter *e)
{
    const onnx_emit_options *o = e->options;
    static const char zeros[ROPE_ALIGNMENT];
    size_t written = 0;
    for (size_t i = 0; i < e->tensors.count; i++) {
        emit_tensor *t = &e->tensors.items[i];
        if (t->size <= INLINE_MAX) continue;
        rope values = {0};
        put_values(e, &values, t);
        TRY(o->write(o->user, ONNX_PART_DATA, zeros, t->offset - written));
        TRY(rope_write(&values, ONNX_PART_DATA, o->write, o->user));
        written = t->offset + t->size;
    }
    return AMPC_OK;
}

ampc_status emit_report_overflow(emitter *e)
{
    for (size_t i = 0; i < e->tensors.count; i++) {
        const emit_tensor *t = &e->tensors.items[i];
        if (t->infinities)
            TRY(diag_warning(e->diag, DIAG_FILE(ir_module_source(e->module)),
                             "initializer '%s': %zu of %zu values are too large for %s and became "
                             "infinite",
                             t->name, t->infinities, t->size / ir_dtype_size(t->type.dtype),
                             ir_dtype_name(t->type.dtype)));
    }
    return AMPC_OK;
}

/* ---- ValueInfoProto -------------------------------------------------------------------------- */

/* A dimension whose text is too long for a name is left unspecified. */
static void put_dim(emitter *e, rope *shape, ir_dim d)
{
    rope dim = {0};
    const char *text = ir_dim_print(e->module->dims, d, e->arena);
    if (!ir_dim_is_symbolic(d)) rope_add_int(e->arena, &dim, DIM_VALUE, (uint64_t)d);
    else if (strlen(text) <= ONNX_MAX_NAME) rope_add_text(e->arena, &dim, DIM_PARAM, text);
    rope_add_message(e->arena, shape, SHAPE_DIM, &dim);
}

void emit_put_value_info(emitter *e, rope *out, uint32_t number, const char *name, const ir_type *t, const char *doc)
{
    rope info = {0}, type = {0}, tensor = {0}, shape = {0};
    for (int i = 0; i < t->rank; i++) put_dim(e, &shape, t->dims[i]);
    rope_add_int(e->arena, &tensor, TENSOR_TYPE_ELEM, onnx_type_of(t->dtype));
    rope_add_message(e->arena, &tensor, TENSOR_TYPE_SHAPE, &shape);
    rope_add_message(e->arena, &type, TYPE_TENSOR, &tensor);
    rope_add_text(e->arena, &info, INFO_NAME, name);
    rope_add_message(e->arena, &info, INFO_TYPE, &type);
    if (doc) rope_add_text(e->arena, &info, INFO_DOC, doc);
    rope_add_message(e->arena, out, number, &info);
}

void emit_declare(emitter *e, const char *name, const ir_type *type)
{
    if (e->own) emit_put_value_info(e, &e->scope->infos, GRAPH_VALUE_INFO, name, type, NULL);
}

void emit_declare_sizes(emitter *e, const char *name, int count)
{
    const ir_type type = ir_type_make(IR_i64, 1, (const int64_t[]){count});
    emit_declare(e, name, &type);
}
