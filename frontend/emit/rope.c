/* rope.c - lists of pieces. Ranges that are adjacent in memory become one piece. Short ranges are copied, because a
 * piece needs more memory than they do. */
#include "frontend/emit/rope.h"
#include "frontend/read/fields.h"
#include "frontend/read/onnx_schema.pb-c.h"
#include "ir/base/input_file.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { BRIEF = 256, FIRST_CAPACITY = 64, MAX_CAPACITY = 1 << 16 }; /* bytes */

static void add(arena *a, rope *s, rope_piece p)
{
    if (!p.size) return;
    s->size += p.size;
    rope_piece *last = s->pieces.count ? &s->pieces.items[s->pieces.count - 1] : NULL;
    if (last && !last->source && !p.source && last->from == last->to && p.from == p.to &&
        last->bytes + last->size == p.bytes)
        last->size += p.size;
    else vec_push(a, &s->pieces, p);
}

/* Appends n uninitialized bytes and returns them; the capacity grows with the message. */
static uint8_t *reserve_space(arena *a, rope *s, size_t n)
{
    if (n > s->capacity) {
        s->capacity = s->size < FIRST_CAPACITY ? FIRST_CAPACITY : s->size < MAX_CAPACITY ? s->size : MAX_CAPACITY;
        if (s->capacity < n) s->capacity = n;
        s->space = arena_alloc(a, s->capacity);
    }
    uint8_t *bytes = s->space;
    s->space += n;
    s->capacity -= n;
    add(a, s, (rope_piece){.bytes = bytes, .size = n});
    return bytes;
}

void rope_add(arena *a, rope *s, const void *bytes, size_t n)
{
    if (n > BRIEF) add(a, s, (rope_piece){.bytes = bytes, .size = n});
    else if (n) memcpy(reserve_space(a, s, n), bytes, n);
}

void rope_add_elements(arena *a, rope *s, ir_dtype to, ir_dtype from, const void *bytes, size_t count)
{
    add(a, s, (rope_piece){.bytes = bytes, .size = count * ir_dtype_size(to), .from = from, .to = to});
}

void rope_add_source(arena *a, rope *s, ir_dtype to, ir_dtype from, const rope_source *source, size_t count)
{
    add(a, s, (rope_piece){.size = count * ir_dtype_size(to), .from = from, .to = to, .source = source});
}

void rope_count_infinities(rope *s, size_t *count)
{
    rope_piece *last = s->pieces.count ? &s->pieces.items[s->pieces.count - 1] : NULL;
    if (last && last->from != last->to) last->infinities = count;
}

void rope_add_field(arena *a, rope *s, const wire_field *f)
{
    add(a, s, (rope_piece){.bytes = f->start, .size = (size_t)(f->end - f->start)});
}

static void add_pair(arena *a, rope *s, uint64_t tag, uint64_t value)
{
    uint8_t bytes[2 * WIRE_VARINT_MAX];
    size_t n = wire_write_varint(bytes, tag);
    rope_add(a, s, bytes, n + wire_write_varint(bytes + n, value));
}

void rope_add_int(arena *a, rope *s, uint32_t number, uint64_t value)
{
    add_pair(a, s, (uint64_t)number << 3 | WIRE_VARINT, value);
}

void rope_add_float(arena *a, rope *s, uint32_t number, float value)
{
    uint8_t bytes[WIRE_VARINT_MAX + sizeof value];
    size_t n = wire_write_varint(bytes, (uint64_t)number << 3 | WIRE_FIXED32);
    memcpy(bytes + n, &value, sizeof value);
    rope_add(a, s, bytes, n + sizeof value);
}

void rope_add_header(arena *a, rope *s, uint32_t number, size_t size)
{
    add_pair(a, s, (uint64_t)number << 3 | WIRE_BYTES, size);
}

void rope_add_text(arena *a, rope *s, uint32_t number, const char *text)
{
    size_t n = strlen(text);
    rope_add_header(a, s, number, n);
    memcpy(reserve_space(a, s, n), text, n);
}

void rope_add_message(arena *a, rope *s, uint32_t number, const rope *message)
{
    rope_add_header(a, s, number, message->size);
    rope_add_pieces(a, s, message);
}

void rope_add_pieces(arena *a, rope *s, const rope *pieces)
{
    for (size_t i = 0; i < pieces->pieces.count; i++) {
        const rope_piece *p = &pieces->pieces.items[i];
        if (p->source || p->from != p->to) add(a, s, *p);
        else rope_add(a, s, p->bytes, p->size);
    }
}

void rope_add_entry(arena *a, rope *s, uint32_t number, const char *key, const char *value)
{
    rope entry = {0};
    rope_add_text(a, &entry, ENTRY_KEY, key);
    rope_add_text(a, &entry, ENTRY_VALUE, value);
    rope_add_message(a, s, number, &entry);
}

void rope_add_external(arena *a, rope *tensor, const char *name, size_t offset, size_t size)
{
    rope_add_entry(a, tensor, TENSOR_EXTERNAL_DATA, "location", name);
    rope_add_entry(a, tensor, TENSOR_EXTERNAL_DATA, "offset", arena_printf(a, "%zu", offset));
    rope_add_entry(a, tensor, TENSOR_EXTERNAL_DATA, "length", arena_printf(a, "%zu", size));
    rope_add_int(a, tensor, TENSOR_DATA_LOCATION, ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL);
}

/* ---- writing --------------------------------------------------------------------------------- */

enum { CHUNK = 1 << 13, WIDEST = 8 }; /* elements per chunk, bytes of the widest */

static bool read_fully(const rope_source *from, size_t done, void *out, size_t n)
{
    if (from->bytes) {
        memcpy(out, from->bytes + from->offset + done, n);
        return true;
    }
    return input_read_at(from->fd, out, n, (uint64_t)from->offset + done);
}

/* Counts the numbers that the conversion turned into infinity. */
static size_t count_infinities(ir_dtype to, const uint8_t *converted, ir_dtype from, const uint8_t *original, size_t n)
{
    size_t count = 0, to_size = ir_dtype_size(to), from_size = ir_dtype_size(from);
    for (size_t i = 0; i < n; i++)
        count += isinf(ir_load_f64(to, converted + i * to_size)) && !isinf(ir_load_f64(from, original + i * from_size));
    return count;
}

static bool holds_infinity(const uint8_t *elements, size_t n, ir_dtype t)
{
    uint16_t infinity = t == IR_f16 ? 0x7c00 : 0x7f80, found = 0, element;
    for (size_t i = 0; i < n; i++) {
        memcpy(&element, elements + 2 * i, 2);
        found |= (element & 0x7fff) == infinity;
    }
    return found;
}

/* Writes elements in chunks: reads them if they are in a file and converts them if their type changes. */
static ampc_status write_elements(const rope_piece *p, onnx_part part, onnx_write_fn *write, void *user)
{
    uint8_t read[CHUNK * WIDEST], converted[CHUNK * WIDEST];
    bool same = p->from == p->to;
    size_t from = same ? 1 : ir_dtype_size(p->from), to = same ? 1 : ir_dtype_size(p->to);
    for (size_t done = 0, count = p->size / to, n; done < count; done += n) {
        n = same ? sizeof read : CHUNK;
        if (n > count - done) n = count - done;
        const uint8_t *elements = p->source ? read : p->bytes + done * from;
        if (p->source && !read_fully(p->source, done * from, read, n * from)) return AMPC_IO;
        if (!same) ir_convert(p->to, converted, p->from, elements, n);
        if (p->infinities && ir_dtype_is_low(p->to) && holds_infinity(converted, n, p->to))
            *p->infinities += count_infinities(p->to, converted, p->from, elements, n);
        TRY(write(user, part, same ? elements : converted, n * to));
    }
    return AMPC_OK;
}

ampc_status rope_write(const rope *s, onnx_part part, onnx_write_fn *write, void *user)
{
    for (size_t i = 0; i < s->pieces.count; i++) {
        const rope_piece *p = &s->pieces.items[i];
        bool plain = p->from == p->to && !p->source;
        TRY(plain ? write(user, part, p->bytes, p->size) : write_elements(p, part, write, user));
    }
    return AMPC_OK;
}
