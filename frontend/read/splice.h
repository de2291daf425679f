/* splice.h - builds a message from pieces of an old one.
 *
 * A list of pieces describes a message before any of it is written: ranges of the old file, new bytes, and element
 * values to convert. The size of a list is known, so lists nest, and writing is one pass with a small buffer. Short
 * ranges are copied next to the new bytes, so most messages consist of one piece. */
#ifndef AMPC_FRONTEND_SPLICE_H
#define AMPC_FRONTEND_SPLICE_H

#include "frontend/read/wire.h"
#include "ir/arena.h"
#include "ir/diag.h"
#include "ir/dtype.h"

/* A range of an open file, read while the message is written. */
typedef struct splice_source {
    int fd;
    int64_t offset;
} splice_source;

typedef struct splice_piece {
    const uint8_t *bytes;
    size_t size;                 /* in the message */
    ir_dtype from, to;           /* element types; converted while writing if they differ */
    const splice_source *source; /* file to read the elements from; NULL: `bytes` */
    size_t *infinities;          /* counter for splice_count_infinities; NULL: not counted */
} splice_piece;

typedef struct splice {
    VEC(splice_piece) pieces;
    size_t size;   /* sum over all pieces */
    uint8_t *free; /* unused capacity for new bytes */
    size_t room;
} splice;

typedef ampc_status splice_write_fn(void *user, const void *bytes, size_t n);

/* Appends bytes. Here and below, the caller keeps ownership and the bytes must outlive the splice. */
void splice_add(arena *a, splice *s, const void *bytes, size_t n);
/* Appends `count` elements of type `from`, to be converted to type `to`. */
void splice_add_elements(arena *a, splice *s, ir_dtype to, ir_dtype from, const void *bytes, size_t count);
/* Like splice_add_elements for elements in a file. The caller keeps ownership of `source`. */
void splice_add_source(arena *a, splice *s, ir_dtype to, ir_dtype from, const splice_source *source,
                       size_t count);
/* While the last piece is written, adds to *count the numbers that its conversion turns into infinity. */
void splice_count_infinities(splice *s, size_t *count);
/* Appends an unchanged field; adjacent fields become one piece. */
void splice_add_field(arena *a, splice *s, const wire_field *f);
void splice_add_int(arena *a, splice *s, uint32_t number, uint64_t value);
void splice_add_float(arena *a, splice *s, uint32_t number, float value);
/* Appends the tag and length of a field whose value has `size` bytes. */
void splice_add_header(arena *a, splice *s, uint32_t number, size_t size);
void splice_add_text(arena *a, splice *s, uint32_t number, const char *text); /* copied */
void splice_add_message(arena *a, splice *s, uint32_t number, const splice *message);
/* Appends all pieces of another list, without a header. */
void splice_add_pieces(arena *a, splice *s, const splice *pieces);

/* Writes all pieces in order. AMPC_IO if a source cannot be read completely; otherwise the status of `write`. */
ampc_status splice_write(const splice *s, splice_write_fn *write, void *user);

#endif
