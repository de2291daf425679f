/* rope.h - builds a message from pieces of an old one.
 *
 * A list of pieces describes a message before any of it is written: ranges of the old file, new bytes, and element
 * values to convert. The size of a list is known, so lists nest, and writing is one pass with a small buffer. Short
 * ranges are copied next to the new bytes, so most messages consist of one piece. */
#ifndef AMPC_FRONTEND_ROPE_H
#define AMPC_FRONTEND_ROPE_H

#include "frontend/onnx.h"
#include "ir/base/wire.h"

/* A range of a file, read while the message is written. */
typedef struct rope_source {
    const uint8_t *bytes; /* the file, in memory and not aligned; NULL: it is open as fd */
    int fd;
    int64_t offset;
} rope_source;

typedef struct rope_piece {
    const uint8_t *bytes;
    size_t size;               /* in the message */
    ir_dtype from, to;         /* element types; converted while writing if they differ */
    const rope_source *source; /* file to read the elements from; NULL: `bytes` */
    size_t *infinities;        /* counter for rope_count_infinities; NULL: not counted */
} rope_piece;

typedef struct rope {
    VEC(rope_piece) pieces;
    size_t size;    /* sum over all pieces */
    uint8_t *space; /* unused capacity for new bytes */
    size_t capacity;
} rope;

/* Appends bytes. Here and below, the caller keeps ownership and the bytes must outlive the rope. */
void rope_add(arena *a, rope *s, const void *bytes, size_t n);
/* Appends `count` elements of type `from`, to be converted to type `to`. */
void rope_add_elements(arena *a, rope *s, ir_dtype to, ir_dtype from, const void *bytes, size_t count);
/* Like rope_add_elements for elements in a file. The caller keeps ownership of `source`. */
void rope_add_source(arena *a, rope *s, ir_dtype to, ir_dtype from, const rope_source *source, size_t count);
/* While the last piece is written, adds to *count the numbers that its conversion turns into infinity. */
void rope_count_infinities(rope *s, size_t *count);
/* Appends an unchanged field; adjacent fields become one piece. */
void rope_add_field(arena *a, rope *s, const wire_field *f);
void rope_add_int(arena *a, rope *s, uint32_t number, uint64_t value);
void rope_add_float(arena *a, rope *s, uint32_t number, float value);
/* Appends the tag and length of a field whose value has `size` bytes. */
void rope_add_header(arena *a, rope *s, uint32_t number, size_t size);
void rope_add_text(arena *a, rope *s, uint32_t number, const char *text); /* copied */
void rope_add_message(arena *a, rope *s, uint32_t number, const rope *message);
/* Appends all pieces of another list, without a header. */
void rope_add_pieces(arena *a, rope *s, const rope *pieces);
/* Appends the fields of a TensorProto whose `size` bytes of values are at `offset` of the file `name`. */
/* A pair of texts: StringStringEntryProto. */
void rope_add_entry(arena *a, rope *s, uint32_t number, const char *key, const char *value);
void rope_add_external(arena *a, rope *tensor, const char *name, size_t offset, size_t size);

enum { ROPE_ALIGNMENT = 64 }; /* of tensors in the data part */
static inline size_t rope_align(size_t offset) { return (offset + ROPE_ALIGNMENT - 1) & -(size_t)ROPE_ALIGNMENT; }

/* Writes all pieces in order. AMPC_IO if a source cannot be read completely; otherwise the status of `write`. */
ampc_status rope_write(const rope *s, onnx_part part, onnx_write_fn *write, void *user);

#endif
