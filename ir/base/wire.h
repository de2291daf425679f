/* wire.h - primitives of the protobuf wire format. */
#ifndef AMPC_WIRE_H
#define AMPC_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };
enum { WIRE_VARINT_MAX = 10, WIRE_HEADER_MAX = 2 * WIRE_VARINT_MAX }; /* bytes; header: tag and length */

/* Reads a varint from [*p, end) and advances *p. False: truncated, or more than 64 bits. */
static inline bool wire_read_varint(const uint8_t **p, const uint8_t *end, uint64_t *out)
{
    uint64_t value = 0;
    const uint8_t *at = *p;
    for (unsigned shift = 0; at < end && shift < 64; shift += 7) {
        uint64_t byte = *at++;
        if (shift == 63 && byte > 1) return false;
        value |= (byte & 0x7f) << shift;
        if (byte & 0x80) continue;
        *p = at;
        *out = value;
        return true;
    }
    return false;
}

/* Writes a varint of at most WIRE_VARINT_MAX bytes and returns its size. */
static inline size_t wire_write_varint(uint8_t *at, uint64_t value)
{
    size_t n = 0;
    for (; value >= 0x80; value >>= 7) at[n++] = (uint8_t)(value | 0x80);
    at[n++] = (uint8_t)value;
    return n;
}

/* A field of a message: [start, end) is the whole field, [value, end) its value without tag and length. */
typedef struct wire_field {
    uint64_t number;
    const uint8_t *start, *value, *end;
} wire_field;

/* Reads the field at *p and advances *p. False: not a field, or truncated. */
static inline bool wire_read_field(const uint8_t **p, const uint8_t *end, wire_field *f)
{
    uint64_t tag, size = 0;
    f->start = f->value = *p;
    if (!wire_read_varint(&f->value, end, &tag)) return false;
    f->number = tag >> 3;
    const uint8_t *rest = f->value;
    switch (tag & 7) {
    case WIRE_VARINT:
        if (!wire_read_varint(&rest, end, &size)) return false;
        size = (uint64_t)(rest - f->value);
        break;
    case WIRE_FIXED64: size = 8; break;
    case WIRE_FIXED32: size = 4; break;
    case WIRE_BYTES:
        if (!wire_read_varint(&f->value, end, &size)) return false;
        break;
    default: return false;
    }
    if (size > (uint64_t)(end - f->value)) return false;
    f->end = *p = f->value + size;
    return true;
}

/* Reads the field at in->value and advances it. False: the end of a message that the pre-scan has checked. */
static inline bool wire_next_field(wire_field *in, wire_field *f)
{
    return in->value < in->end && wire_read_field(&in->value, in->end, f);
}

#endif
