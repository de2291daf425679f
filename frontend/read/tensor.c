/* tensor.c - checks a TensorProto and finds or decodes its values.
 *
 * Type and shape determine the number of bytes; exactly one field may contain values; that field must have exactly
 * that many. Values encoded as little-endian elements (raw_data, float_data, double_data) are "plain": they can stay
 * in the file. The integer fields contain varints, which are checked and narrowed. */
#include "frontend/read/tensor.h"

#include "frontend/read/external.h"
#include "frontend/read/fields.h"
#include "ir/base/wire.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are copied as they are in the file");

typedef struct type_row {
    const char *name;
    int bits;
    ir_dtype dtype;
    tensor_field field;
    int64_t min, max;
} type_row;

static const type_row types[ONNX_TYPE_COUNT] = {{"undefined", 0, IR_NO_DTYPE, TENSOR_NO_FIELD, 0, 0},
#define TYPE_ROW(code, name, bits, dtype, field, min, max) [code] = {#name, bits, dtype, field, min, max},
                                                ONNX_TYPE_MAP(TYPE_ROW)
#undef TYPE_ROW
};

/* The state of one call of onnx_tensor_describe. */
typedef struct work {
    arena *a;
    onnx_file *f;
    const Onnx__TensorProto *t;
    diag *d;
    onnx_tensor *out;
} work;

static bool is_valid_type(int64_t code) { return code > ONNX_UNDEFINED && code < ONNX_TYPE_COUNT; }

ir_dtype onnx_type_dtype(int64_t code) { return is_valid_type(code) ? types[code].dtype : IR_NO_DTYPE; }

int onnx_type_bits(int64_t code) { return is_valid_type(code) ? types[code].bits : 0; }

size_t onnx_type_size(int64_t code) { return (size_t)onnx_type_bits(code) / 8; }

ir_dtype onnx_type_holder(int64_t code)
{
    switch (code) {
    case ONNX_uint4:
    case ONNX_uint2: return IR_u8;
    case ONNX_int4:
    case ONNX_int2: return IR_i8;
    default: return onnx_type_dtype(code);
    }
}

const char *onnx_type_name(int64_t code) { return is_valid_type(code) ? types[code].name : "unknown"; }

onnx_type onnx_type_of(ir_dtype t)
{
    assert(t != IR_NO_DTYPE);
    int code = ONNX_UNDEFINED + 1;
    while (types[code].dtype != t) code++;
    return (onnx_type)code;
}

static __attribute__((format(printf, 3, 4))) ampc_status refuse(const work *w, ampc_status code, const char *format,
                                                                ...)
{
    char message[256];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return diag_error(w->d, code, DIAG_FILE(w->f->path), "tensor '%.128s': %s", w->t->name, message);
}

/* ---- type and shape -------------------------------------------------------------------------- */

static ampc_status read_shape(const work *w)
{
    const Onnx__TensorProto *t = w->t;
    onnx_tensor *out = w->out;
    if (t->n_dims > ONNX_MAX_RANK)
        return refuse(w, AMPC_UNSUPPORTED, "rank %zu is not supported (at most %d)", t->n_dims, ONNX_MAX_RANK);
    out->rank = (int)t->n_dims;
    out->count = 1;
    const int bits = types[out->type].bits;
    int64_t bytes = bits < 8 ? bits != 0 : bits / 8;
    bool empty = false, fits = true;
    for (int i = 0; i < out->rank; i++) {
        out->dims[i] = t->dims[i];
        if (t->dims[i] < 0)
            return refuse(w, AMPC_REJECTED, "dimension %d is negative (%lld)", i, (long long)t->dims[i]);
        empty |= t->dims[i] == 0;
        if (t->dims[i]) fits = fits && checked_mul(out->count, t->dims[i], &out->count);
        if (t->dims[i]) fits = fits && checked_mul(bytes, t->dims[i], &bytes);
    }
    if (!fits) return refuse(w, AMPC_REJECTED, "the number of elements exceeds 64 bits");
    out->count = empty ? 0 : out->count;
    out->size = empty ? 0 : (size_t)bytes;
    if (bits < 8) out->size = (out->size * (size_t)bits + 7) / 8;
    return AMPC_OK;
}

static ampc_status read_header(const work *w)
{
    const Onnx__TensorProto *t = w->t;
    if (!t->has_data_type || !is_valid_type(t->data_type))
        return refuse(w, AMPC_REJECTED, "data type %d is unknown", t->data_type);
    if (t->segment) return refuse(w, AMPC_UNSUPPORTED, "segmented tensors are not supported");
    w->out->name = arena_strdup(w->a, t->name);
    w->out->type = (onnx_type)t->data_type;
    w->out->dtype = types[t->data_type].dtype;
    return read_shape(w);
}

/* Finds the only field with values. */
static ampc_status find_values(const work *w, tensor_field *field)
{
    const Onnx__TensorProto *t = w->t;
    const struct {
        tensor_field field;
        bool used;
    } places[] = {
        {TENSOR_FLOAT_DATA, t->n_float_data},        {TENSOR_INT32_DATA, t->n_int32_data},
        {TENSOR_STRING_DATA, t->n_string_data},      {TENSOR_INT64_DATA, t->n_int64_data},
        {TENSOR_RAW_DATA, t->raw_data.len},          {TENSOR_DOUBLE_DATA, t->n_double_data},
        {TENSOR_UINT64_DATA, t->n_uint64_data},      {(tensor_field)t->lifted_field, t->has_lifted_field},
        {TENSOR_EXTERNAL_DATA, onnx_is_external(t)},
    };
    *field = TENSOR_NO_FIELD;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (!places[i].used) continue;
        if (*field) return refuse(w, AMPC_REJECTED, "more than one field has values");
        *field = places[i].field;
    }
    tensor_field typed = types[w->out->type].field;
    if (*field && *field != TENSOR_RAW_DATA && *field != TENSOR_EXTERNAL_DATA && *field != typed)
        return refuse(w, AMPC_REJECTED, "%s values are in a field of the wrong type", types[w->out->type].name);
    return AMPC_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool is_packed(const work *w) { return types[w->out->type].bits < 8; }

/* Numbers of an integer field: elements, or bytes. */
static size_t count_numbers(const work *w) { return is_packed(w) ? w->out->size : (size_t)w->out->count; }

static ampc_status refuse_count(const work *w, size_t found, const char *unit)
{
    bool elements = !strcmp(unit, "values") && !is_packed(w);
    unsigned long long wanted = elements ? (unsigned long long)w->out->count : (unsigned long long)w->out->size;
    return refuse(w, AMPC_REJECTED, "%zu %s, but type and shape require %llu", found, unit, wanted);
}

/* Uses values that are elements already: `n` bytes at `p`, or a lifted payload. */
static ampc_status read_plain(const work *w, const void *p, size_t n)
{
    onnx_tensor *out = w->out;
    bool lifted = w->t->has_lifted_field;
    if (n != out->size) return refuse_count(w, n, "bytes");
    if (lifted && (!w->f->in_memory || w->f->refers) && out->dtype != IR_bool) {
        out->path = arena_strdup(w->a, w->f->path);
        out->offset = (int64_t)w->t->lifted_offset;
        return AMPC_OK;
    }
    void *copy = arena_alloc(w->a, n);
    if (lifted) TRY(onnx_bytes_copy(&w->f->bytes, w->t->lifted_offset, n, w->d, copy));
    else if (n) memcpy(copy, p, n);
    out->bytes = copy;
    return AMPC_OK;
}

/* Stores a value of an integer field as element i of the output. */
static ampc_status store_integer(const work *w, void *elements, size_t i, uint64_t value)
{
    const type_row *type = &types[w->out->type];
    int64_t v = (int64_t)value;
    if (v < type->min || v > type->max)
        return refuse(w, AMPC_REJECTED, "value %lld at element %zu is not a valid %s", (long long)v, i, type->name);
    const size_t width = is_packed(w) ? 1 : (size_t)type->bits / 8;
    memcpy((char *)elements + i * width, &value, width);
    return AMPC_OK;
}

/* Value i of an integer field that stayed in the message. */
static uint64_t inline_integer(const Onnx__TensorProto *t, tensor_field field, size_t i)
{
    if (field == TENSOR_INT32_DATA) return (uint64_t)(int64_t)t->int32_data[i];
    if (field == TENSOR_INT64_DATA) return (uint64_t)t->int64_data[i];
    return t->uint64_data[i];
}

static ampc_status read_inline_integers(const work *w, tensor_field field)
{
    const Onnx__TensorProto *t = w->t;
    size_t n = t->n_int32_data + t->n_int64_data + t->n_uint64_data; /* find_values: one of them is not 0 */
    if (n != count_numbers(w)) return refuse_count(w, n, "values");
    void *elements = arena_alloc(w->a, w->out->size);
    for (size_t i = 0; i < n; i++) TRY(store_integer(w, elements, i, inline_integer(t, field, i)));
    w->out->bytes = elements;
    return AMPC_OK;
}

static ampc_status read_lifted_integers(const work *w)
{
    const uint8_t *p = w->f->bytes.data + w->t->lifted_offset, *end = p + w->t->lifted_length;
    size_t n = 0;
    TRY(onnx_bytes_need(&w->f->bytes, p, w->t->lifted_length, w->d));
    for (const uint8_t *at = p; at < end; at++) n += *at < 0x80; /* the last byte of each varint */
    if (n != count_numbers(w)) return refuse_count(w, n, "values");
    void *elements = arena_alloc(w->a, w->out->size);
    for (size_t i = 0; p < end; i++) {
        uint64_t value;
        if (!wire_read_varint(&p, end, &value)) return refuse(w, AMPC_REJECTED, "element %zu is not a valid varint", i);
        TRY(store_integer(w, elements, i, value));
    }
    w->out->bytes = elements;
    return AMPC_OK;
}

static ampc_status locate_external(const work *w)
{
    onnx_range range;
    TRY(onnx_external_locate(w->f, w->t, (int64_t)w->out->size, w->d, &range));
    w->out->path = arena_strdup(w->a, range.path);
    w->out->offset = range.offset;
    return w->out->dtype == IR_bool || !w->out->size ? onnx_tensor_load(w->a, w->f, w->out, w->d) : AMPC_OK;
}

/* Bools from bytes may have any value; those from int32_data have been checked. */
static ampc_status check_bools(const work *w)
{
    const uint8_t *p = w->out->bytes;
    for (size_t i = 0; i < w->out->size; i++)
        if (p[i] > 1) return refuse(w, AMPC_REJECTED, "value %d at element %zu is not a valid bool", p[i], i);
    return AMPC_OK;
}

static ampc_status read_values(const work *w, tensor_field field)
{
    const Onnx__TensorProto *t = w->t;
    bool lifted = t->has_lifted_field;
    switch (field) {
    case TENSOR_EXTERNAL_DATA: return locate_external(w);
    case TENSOR_RAW_DATA: return read_plain(w, t->raw_data.data, lifted ? t->lifted_length : t->raw_data.len);
    case TENSOR_FLOAT_DATA: return read_plain(w, t->float_data, lifted ? t->lifted_length : t->n_float_data * 4);
    case TENSOR_DOUBLE_DATA: return read_plain(w, t->double_data, lifted ? t->lifted_length : t->n_double_data * 8);
    case TENSOR_INT32_DATA:
    case TENSOR_INT64_DATA:
    case TENSOR_UINT64_DATA: return lifted ? read_lifted_integers(w) : read_inline_integers(w, field);
    default: return read_plain(w, NULL, 0);
    }
}

ampc_status onnx_tensor_describe(arena *a, onnx_file *f, const Onnx__TensorProto *t, diag *d, onnx_tensor *out)
{
    memset(out, 0, sizeof *out);
    const work w = {a, f, t, d, out};
    tensor_field field;
    TRY(read_header(&w));
    TRY(find_values(&w, &field));
    if (out->type == ONNX_string && t->n_string_data != (size_t)out->count)
        return refuse_count(&w, t->n_string_data, "values");
    if (out->type == ONNX_string) return AMPC_OK;
    TRY(read_values(&w, field));
    return out->dtype == IR_bool ? check_bools(&w) : AMPC_OK;
}

/* ---- loading --------------------------------------------------------------------------------- */

ampc_status onnx_tensor_load(arena *a, onnx_file *f, onnx_tensor *t, diag *d)
{
    if (!t->path) return AMPC_OK;
    void *bytes = arena_alloc(a, t->size);
    if (!strcmp(t->path, f->path)) {
        TRY(onnx_bytes_copy(&f->bytes, (size_t)t->offset, t->size, d, bytes));
    } else {
        TRY(onnx_external_read(f, (onnx_range){t->path, t->offset}, t->size, d, bytes));
    }
    t->bytes = bytes;
    t->path = NULL;
    t->offset = 0;
    return AMPC_OK;
}

ampc_status onnx_tensor_unpack(arena *a, onnx_file *f, onnx_tensor *t, diag *d)
{
    const int bits = types[t->type].bits, per_byte = bits ? 8 / bits : 0;
    if (t->dtype != IR_NO_DTYPE || onnx_type_holder(t->type) == IR_NO_DTYPE) return AMPC_OK;
    TRY(onnx_tensor_load(a, f, t, d));
    const uint8_t *packed = t->bytes;
    t->dtype = onnx_type_holder(t->type);
    t->size = (size_t)t->count;
    int8_t *out = arena_alloc(a, t->size);
    const int sign = t->dtype == IR_i8 ? 1 << (bits - 1) : 0;
    for (size_t i = 0; i < t->size; i++) {
        const size_t at = i / (size_t)per_byte, shift = i % (size_t)per_byte * (size_t)bits;
        const int value = packed[at] >> shift & ((1 << bits) - 1);
        out[i] = (int8_t)((value ^ sign) - sign);
    }
    t->bytes = out;
    return AMPC_OK;
}

ampc_status onnx_tensor_read_file(arena *a, const char *path, diag *d, onnx_tensor *out)
{
    onnx_file f = {.path = path, .in_memory = true};
    ProtobufCMessage *t;
    TRY(onnx_bytes_load(a, path, false, d, &f.bytes));
    TRY(onnx_decode(a, &onnx__tensor_proto__descriptor, f.bytes, path, d, &t));
    return onnx_tensor_describe(a, &f, (const Onnx__TensorProto *)t, d, out);
}
