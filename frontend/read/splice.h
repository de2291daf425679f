/* splice.h - a message written anew out of pieces of an old one.
 *
 * A list of pieces says what a message will consist of before any of it is written: ranges of the
 * old file, bytes of our own, element values to be converted. Its size is known, so lists
 * nest, and writing is one walk that holds no more than a small buffer. What is brief is copied behind
 * the bytes that the list has of its own: most messages are one piece. */
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
    size_t size;                 /* as written */
    ir_dtype from, to;           /* elements converted on the way; the same: as they are */
    const splice_source *source; /* where the elements are read from instead; NULL: `bytes` */
    size_t *infinities;          /* NULL: not counted */
} splice_piece;

typedef struct splice {
    VEC(splice_piece) pieces;
    size_t size;   /* of all pieces */
    uint8_t *free; /* room for more bytes of our own */
    size_t room;
} splice;

typedef ampc_status splice_write_fn(void *user, const void *bytes, size_t n);

/* The bytes stay the caller's while the splice lives, here and below. */
void splice_add(arena *a, splice *s, const void *bytes, size_t n);
/* `count` elements of type `from` at `bytes`, to be written as type `to`. */
void splice_add_elements(arena *a, splice *s, ir_dtype to, ir_dtype from, const void *bytes, size_t count);
/* The same for elements that lie in a file, from `source`, which stays the caller's. */
void splice_add_source(arena *a, splice *s, ir_dtype to, ir_dtype from, const splice_source *source,
                       size_t count);
/* While the piece added last is written, numbers that its conversion makes infinite are counted. */
void splice_count_infinities(splice *s, size_t *count);
/* A field as it stood; neighbours are one piece. */
void splice_add_field(arena *a, splice *s, const wire_field *f);
void splice_add_int(arena *a, splice *s, uint32_t number, uint64_t value);
void splice_add_float(arena *a, splice *s, uint32_t number, float value);
/* The tag and length that come before a value of `size` bytes. */
void splice_add_header(arena *a, splice *s, uint32_t number, size_t size);
void splice_add_text(arena *a, splice *s, uint32_t number, const char *text); /* copied */
void splice_add_message(arena *a, splice *s, uint32_t number, const splice *message);
/* All pieces of another list, without a header. */
void splice_add_pieces(arena *a, splice *s, const splice *pieces);

/* AMPC_IO when a source cannot be read to the end; otherwise what `write` returns. */
ampc_status splice_write(const splice *s, splice_write_fn *write, void *user);

#endif
