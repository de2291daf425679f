/* wire_writer.h - writes protobuf messages byte by byte, including malformed ones.
 *
 * A buffer is a plain struct on the stack; wire_free frees its allocations. Write a submessage into a buffer of its
 * own, then append it with wire_message. */
#ifndef AMPC_TESTS_WIRE_WRITER_H
#define AMPC_TESTS_WIRE_WRITER_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct wire {
    uint8_t *bytes;
    size_t size, capacity;
} wire;

static inline void wire_raw(wire *w, const void *bytes, size_t n)
{
    if (w->size + n > w->capacity) {
        w->capacity = (w->size + n) * 2 + 64;
        w->bytes = realloc(w->bytes, w->capacity);
        if (!w->bytes) abort();
    }
    if (n) memcpy(w->bytes + w->size, bytes, n);
    w->size += n;
}

static inline void wire_varint(wire *w, uint64_t v)
{
    for (; v >= 0x80; v >>= 7) wire_raw(w, &(uint8_t){(uint8_t)(v | 0x80)}, 1);
    wire_raw(w, &(uint8_t){(uint8_t)v}, 1);
}

static inline void wire_tag(wire *w, uint32_t field, unsigned type) { wire_varint(w, (uint64_t)field << 3 | type); }

static inline void wire_int(wire *w, uint32_t field, int64_t v)
{
    wire_tag(w, field, 0);
    wire_varint(w, (uint64_t)v);
}

static inline void wire_float(wire *w, uint32_t field, float v)
{
    wire_tag(w, field, 5);
    wire_raw(w, &v, 4);
}

static inline void wire_bytes(wire *w, uint32_t field, const void *bytes, size_t n)
{
    wire_tag(w, field, 2);
    wire_varint(w, n);
    wire_raw(w, bytes, n);
}

static inline void wire_text(wire *w, uint32_t field, const char *text) { wire_bytes(w, field, text, strlen(text)); }

static inline void wire_free(wire *w)
{
    free(w->bytes);
    *w = (wire){0};
}

/* Appends `inner` as a length-delimited field and frees it. */
static inline void wire_message(wire *w, uint32_t field, wire *inner)
{
    wire_bytes(w, field, inner->bytes, inner->size);
    wire_free(inner);
}

#endif
