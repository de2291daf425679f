/* prescan.c - an iterative walk over a message, driven by the generated descriptors.
 *
 * A stack of at most ONNX_MAX_DEPTH frames represents the messages that enclose the current byte. Each field is
 * checked and copied to the output. Copying a message opens a frame and reserves five bytes for its length, which is
 * filled in when the frame closes. A frame counts its fields by number, to detect duplicate singular fields and to
 * provide the indices in error paths.
 *
 * `cost` is what the generated parser will allocate for the copied fields (see protobuf-c.c: one block per message,
 * string and array, 32 bytes of bookkeeping per field), so an excessive total is rejected before parsing. */
#include "frontend/read/prescan.h"

#include "frontend/read/fields.h"
#include "frontend/read/onnx_schema.pb-c.h"
#include "ir/base/text_buffer.h"
#include "ir/base/utf8.h"
#include "ir/base/wire.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_FIELDS = 24,        /* of one message type of the schema */
    MAX_ONNX_FIELD = 10000, /* larger numbers are private and never come from a file */
    LENGTH_BYTES = 5,
    PARSER_RECORD = 32 * 2, /* bookkeeping per field; its arrays grow by doubling */
    PARSER_FREE_RECORDS = 32,
    BLOCK = 16 /* allocations are rounded up to this */
};

typedef struct frame {
    const ProtobufCMessageDescriptor *type;
    const ProtobufCFieldDescriptor *field; /* the field of the enclosing message that contains this one */
    uint32_t index;                        /* among the fields with that number */
    const uint8_t *end;
    size_t length_at; /* in the output */
    const char *name; /* name of the message, once seen; not terminated */
    int name_length;
    bool oneof_seen, lifted;
    uint32_t fields;
    uint32_t count[MAX_FIELDS];
} frame;

typedef struct scan {
    onnx_bytes in;
    const uint8_t *p;
    const char *what;
    diag *d;
    arena *a;
    uint8_t *out;
    size_t out_size, out_capacity;
    uint64_t cost, left_out; /* bytes of input that were not copied */
    uint64_t nodes, repeated;
    int depth;
    frame stack[ONNX_MAX_DEPTH];
} scan;

/* ---- messages -------------------------------------------------------------------------------- */

/* Prints a path such as "graph.node[12].attribute[3]", truncated to the buffer. */
static void print_path(const scan *s, char *text, size_t capacity)
{
    text_buffer t = text_in(text, capacity);
    for (int i = 1; i < s->depth; i++) {
        const frame *f = &s->stack[i];
        text_add_item(&t, ".", f->field->name);
        if (f->field->label == PROTOBUF_C_LABEL_REPEATED) text_add(&t, "[%u]", f->index);
    }
    if (t.failed) memcpy(text + capacity - 4, "...", 4);
}

static __attribute__((format(printf, 2, 3))) ampc_status refuse(const scan *s, const char *format, ...)
{
    char message[256], path[256], node[ONNX_MAX_NAME + 1] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    print_path(s, path, sizeof path);
    for (int i = s->depth - 1; i >= 0 && !node[0]; i--) {
        const frame *f = &s->stack[i];
        if (f->type == &onnx__node_proto__descriptor && f->name)
            snprintf(node, sizeof node, "%.*s", f->name_length, f->name);
    }
    const diag_loc loc = diag_node(s->what, node, NULL);
    return diag_error(s->d, AMPC_REJECTED, loc, "%s%sbyte %zu: %s", path, path[0] ? ", " : "",
                      (size_t)(s->p - s->in.data), message);
}

/* ---- the copy -------------------------------------------------------------------------------- */

static void emit(scan *s, const void *bytes, size_t n)
{
    if (s->out_capacity - s->out_size < n) {
        size_t capacity = (s->out_size + n) * 2 + 4096;
        uint8_t *larger = arena_alloc(s->a, capacity);
        if (s->out_size) memcpy(larger, s->out, s->out_size);
        s->out = larger;
        s->out_capacity = capacity;
    }
    if (!n) return;
    memcpy(s->out + s->out_size, bytes, n);
    s->out_size += n;
}

static void emit_varint(scan *s, uint64_t v)
{
    uint8_t bytes[WIRE_VARINT_MAX];
    emit(s, bytes, wire_write_varint(bytes, v));
}

static void emit_tag(scan *s, uint32_t number, unsigned wire) { emit_varint(s, (uint64_t)number << 3 | wire); }

static void emit_uint(scan *s, uint32_t number, uint64_t v)
{
    emit_tag(s, number, WIRE_VARINT);
    emit_varint(s, v);
}

static void charge(scan *s, uint64_t bytes) { s->cost += (bytes + 1 + BLOCK - 1) / BLOCK * BLOCK; }

/* ---- frames ---------------------------------------------------------------------------------- */

static ampc_status open_message(scan *s, const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *field,
                                uint32_t index, size_t length)
{
    assert(type->n_fields <= MAX_FIELDS);
    if (s->depth == ONNX_MAX_DEPTH) return refuse(s, "messages are nested more than %d deep", ONNX_MAX_DEPTH);
    if (type == &onnx__node_proto__descriptor && ++s->nodes > ONNX_MAX_NODES)
        return refuse(s, "more than %d nodes", ONNX_MAX_NODES);
    frame *f = &s->stack[s->depth++];
    *f = (frame){.type = type, .field = field, .index = index, .end = s->p + length};
    charge(s, type->sizeof_message);
    if (!field) return AMPC_OK;
    emit_tag(s, field->id, WIRE_BYTES);
    f->length_at = s->out_size;
    emit(s, (const uint8_t[LENGTH_BYTES]){0}, LENGTH_BYTES);
    return AMPC_OK;
}

static void close_message(scan *s)
{
    frame *f = &s->stack[--s->depth];
    if (f->fields > PARSER_FREE_RECORDS) charge(s, (uint64_t)f->fields * PARSER_RECORD);
    for (unsigned i = 0; i < f->type->n_fields; i++)
        if (f->count[i] && f->type->fields[i].label == PROTOBUF_C_LABEL_REPEATED)
            charge(s, (uint64_t)f->count[i] * sizeof(void *) * 2); /* pointer, or a bytes field */
    if (!f->field) return;
    size_t length = s->out_size - f->length_at - LENGTH_BYTES;
    uint8_t *at = s->out + f->length_at;
    for (int i = 0; i < LENGTH_BYTES; i++, length >>= 7)
        at[i] = (uint8_t)((length & 0x7f) | (i + 1 < LENGTH_BYTES ? 0x80 : 0));
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The wire type of a single value of a field. */
static unsigned wire_of(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_FLOAT: return WIRE_FIXED32;
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE: return WIRE_FIXED64;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE: return WIRE_BYTES;
    default: return WIRE_VARINT;
    }
}

static ampc_status check_varint(const scan *s, const ProtobufCFieldDescriptor *field, uint64_t v)
{
    bool is_enum = field->type == PROTOBUF_C_TYPE_ENUM;
    int64_t i = (int64_t)v;
    if ((is_enum || field->type == PROTOBUF_C_TYPE_INT32) && (i < INT32_MIN || i > INT32_MAX))
        return refuse(s, "%s is not a 32-bit integer", field->name);
    if (is_enum && !protobuf_c_enum_descriptor_get_value(field->descriptor, (int)i))
        return refuse(s, "%s has the unknown value %lld", field->name, (long long)i);
    return AMPC_OK;
}

static bool is_name(const ProtobufCFieldDescriptor *field)
{
    return strcmp(field->name, "doc_string") != 0 && strcmp(field->name, "value") != 0;
}

static ampc_status check_text(const scan *s, const ProtobufCFieldDescriptor *field, const uint8_t *p, size_t n)
{
    for (size_t i = 0, length; i < n; i += length) {
        uint32_t code;
        length = utf8_decode(p + i, n - i, &code);
        if (!length) return refuse(s, "%s is not valid UTF-8", field->name);
        if (!code) return refuse(s, "%s contains a NUL byte", field->name);
        if ((code < 0x20 || (code >= 0x7f && code < 0xa0)) && is_name(field))
            return refuse(s, "%s contains the control character 0x%02x", field->name, code);
    }
    if (n > ONNX_MAX_NAME && is_name(field)) return refuse(s, "%s is longer than %d bytes", field->name, ONNX_MAX_NAME);
    return AMPC_OK;
}

/* Checks packed scalars that stay in the message. */
static ampc_status check_packed(scan *s, const ProtobufCFieldDescriptor *field, const uint8_t *p, size_t n)
{
    unsigned wire = wire_of(field->type);
    size_t width = wire == WIRE_FIXED32 ? 4 : wire == WIRE_FIXED64 ? 8 : 0, count = 0;
    if (width && n % width) return refuse(s, "%s ends within a value", field->name);
    for (const uint8_t *at = p, *end = p + n; !width && at < end; count++) {
        uint64_t v;
        if (!wire_read_varint(&at, end, &v)) return refuse(s, "%s ends within a value", field->name);
        TRY(check_varint(s, field, v));
    }
    count = width ? n / width : count;
    s->repeated += count;
    charge(s, count * 8);
    return AMPC_OK;
}

/* ---- fields ---------------------------------------------------------------------------------- */

static bool is_payload(const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *field)
{
    return type == &onnx__tensor_proto__descriptor &&
           (field->id == TENSOR_RAW_DATA || (field->flags & PROTOBUF_C_FIELD_FLAG_PACKED));
}

/* Replaces a payload by a reference to its range of the input. */
static ampc_status lift(scan *s, frame *f, const ProtobufCFieldDescriptor *field, size_t length)
{
    if (f->lifted) return refuse(s, "the tensor has a second value field, %s", field->name);
    f->lifted = true;
    f->fields += 3;
    emit_uint(s, TENSOR_LIFTED_FIELD, field->id);
    emit_uint(s, TENSOR_LIFTED_OFFSET, (uint64_t)(s->p - s->in.data));
    emit_uint(s, TENSOR_LIFTED_LENGTH, length);
    s->left_out += length;
    s->p += length;
    return AMPC_OK;
}

static void note_name(frame *f, const ProtobufCFieldDescriptor *field, const uint8_t *p, size_t n)
{
    if (field->type != PROTOBUF_C_TYPE_STRING || strcmp(field->name, "name") != 0) return;
    f->name = (const char *)p;
    f->name_length = (int)n;
}

/* Scans a length-delimited field. */
static ampc_status scan_bytes(scan *s, frame *f, const ProtobufCFieldDescriptor *field, uint32_t index)
{
    uint64_t length;
    if (!wire_read_varint(&s->p, f->end, &length)) return refuse(s, "the length of %s is truncated", field->name);
    if (length > (uint64_t)(f->end - s->p))
        return refuse(s, "%s has a length of %llu bytes, but only %zu are left", field->name,
                      (unsigned long long)length, (size_t)(f->end - s->p));
    size_t n = (size_t)length;
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) return open_message(s, field->descriptor, field, index, n);
    if (n > ONNX_INLINE_MAX && is_payload(f->type, field)) return lift(s, f, field, n);
    TRY(onnx_bytes_need(&s->in, s->p, n, s->d));
    if (field->type == PROTOBUF_C_TYPE_STRING) TRY(check_text(s, field, s->p, n));
    else if (field->type != PROTOBUF_C_TYPE_BYTES) TRY(check_packed(s, field, s->p, n));
    note_name(f, field, s->p, n);
    charge(s, n);
    emit_tag(s, field->id, WIRE_BYTES);
    emit_varint(s, n);
    emit(s, s->p, n);
    s->p += n;
    return AMPC_OK;
}

static ampc_status scan_scalar(scan *s, frame *f, const ProtobufCFieldDescriptor *field, unsigned wire)
{
    emit_tag(s, field->id, wire);
    if (wire == WIRE_VARINT) {
        uint64_t v;
        if (!wire_read_varint(&s->p, f->end, &v)) return refuse(s, "%s is not a valid varint", field->name);
        TRY(check_varint(s, field, v));
        emit_varint(s, v);
        return AMPC_OK;
    }
    size_t width = wire == WIRE_FIXED32 ? 4 : 8;
    if ((size_t)(f->end - s->p) < width) return refuse(s, "%s is truncated", field->name);
    emit(s, s->p, width);
    s->p += width;
    return AMPC_OK;
}

/* Skips a field that the schema does not list. */
static ampc_status skip_field(scan *s, const frame *f, uint64_t number, unsigned wire)
{
    const uint8_t *start = s->p;
    uint64_t length = wire == WIRE_FIXED32 ? 4 : wire == WIRE_FIXED64 ? 8 : 0;
    bool complete = (wire != WIRE_VARINT && wire != WIRE_BYTES) || wire_read_varint(&s->p, f->end, &length);
    if (wire == WIRE_VARINT) length = 0;
    if (!complete || length > (uint64_t)(f->end - s->p))
        return refuse(s, "field %llu is truncated", (unsigned long long)number);
    TRY(onnx_bytes_need(&s->in, s->p, length, s->d));
    s->p += length;
    s->left_out += (uint64_t)(s->p - start);
    return AMPC_OK;
}

/* Counts a field of the schema, checks the limits, and returns its position in *index. */
static ampc_status count_field(scan *s, frame *f, const ProtobufCFieldDescriptor *field, uint32_t *index)
{
    *index = f->count[field - f->type->fields]++;
    f->fields++;
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        s->repeated++;
        bool dims = f->type == &onnx__tensor_proto__descriptor && field->id == TENSOR_DIMS;
        if (dims && *index == ONNX_MAX_DIMS) return refuse(s, "more than %d dims", ONNX_MAX_DIMS);
        return AMPC_OK;
    }
    bool oneof = field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
    if (*index || (oneof && f->oneof_seen)) return refuse(s, "%s is set twice", field->name);
    f->oneof_seen |= oneof;
    return AMPC_OK;
}

static ampc_status check_limits(const scan *s)
{
    if (s->repeated > ONNX_MAX_REPEATED)
        return refuse(s, "the model has more than %d list elements", ONNX_MAX_REPEATED);
    if (s->out_size > ONNX_MAX_STRIPPED)
        return refuse(s, "the model has more than %d MiB apart from tensor values", ONNX_MAX_STRIPPED >> 20);
    return AMPC_OK;
}

static ampc_status scan_field(scan *s, frame *f)
{
    uint64_t tag;
    size_t left = (size_t)(f->end - s->p);
    TRY(onnx_bytes_need(&s->in, s->p, left < WIRE_HEADER_MAX ? left : WIRE_HEADER_MAX, s->d));
    if (!wire_read_varint(&s->p, f->end, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
        return refuse(s, "not a field of a protobuf message");
    unsigned wire = tag & 7;
    if (wire != WIRE_VARINT && wire != WIRE_FIXED64 && wire != WIRE_BYTES && wire != WIRE_FIXED32)
        return refuse(s, "field %u has the unsupported wire type %u", (unsigned)(tag >> 3), wire);
    const ProtobufCFieldDescriptor *field = tag >> 3 < MAX_ONNX_FIELD
                                                ? protobuf_c_message_descriptor_get_field(f->type, (unsigned)(tag >> 3))
                                                : NULL;
    if (!field) return skip_field(s, f, tag >> 3, wire);
    unsigned expected = wire_of(field->type);
    bool packed = wire == WIRE_BYTES && field->label == PROTOBUF_C_LABEL_REPEATED;
    if (wire != expected && !packed)
        return refuse(s, "%s has the wire type %u instead of %u", field->name, wire, expected);
    uint32_t index;
    TRY(count_field(s, f, field, &index));
    TRY(wire == WIRE_BYTES ? scan_bytes(s, f, field, index) : scan_scalar(s, f, field, wire));
    return check_limits(s);
}

ampc_status onnx_prescan(arena *a, const ProtobufCMessageDescriptor *root, onnx_bytes in, const char *what, diag *d,
                         onnx_stripped *out)
{
    scan *s = arena_alloc(a, sizeof *s);
    s->in = in;
    s->p = in.data;
    s->what = what;
    s->d = d;
    s->a = a;
    TRY(open_message(s, root, NULL, 0, in.size));
    while (s->depth) {
        frame *f = &s->stack[s->depth - 1];
        if (s->p < f->end) TRY(scan_field(s, f));
        else close_message(s);
    }
    uint64_t budget = ONNX_FREE_BUDGET + ONNX_BUDGET_FACTOR * (in.size - s->left_out);
    if (s->cost > budget)
        return refuse(s, "decoding needs %llu MiB, more than the limit of %llu MiB for %zu bytes of structure",
                      (unsigned long long)(s->cost >> 20), (unsigned long long)(budget >> 20),
                      (size_t)(in.size - s->left_out));
    *out = (onnx_stripped){.bytes = s->out, .size = s->out_size};
    return AMPC_OK;
}
