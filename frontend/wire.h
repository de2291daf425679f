/* wire.h - the one primitive of the protobuf wire format that reading needs in several places. */
#ifndef AMPC_FRONTEND_WIRE_H
#define AMPC_FRONTEND_WIRE_H

#include <stdbool.h>
#include <stdint.h>

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* Reads a varint from [*p, end) and steps over it. False: cut short, or more than 64 bits. */
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

#endif
