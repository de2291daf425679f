/* splice.h - a message written anew out of pieces of an old one.
 *
 * A list of pieces says what a message will consist of before any of it is written: ranges of the
 * old file, a few bytes of our own, element values to be converted. Its size is known, so lists
 * nest, and writing is one walk that holds no more than a small buffer. */
#ifndef AMPC_FRONTEND_SPLICE_H
#define AMPC_FRONTEND_SPLICE_H

#include "frontend/wire.h"
#include "ir/arena.h"
#include "ir/diag.h"
#include "ir/dtype.h"

typedef struct splice_piece {
    const uint8_t *bytes; /* not copied */
    size_t size;          /* as written */
    ir_dtype from, to;    /* elements converted on the way; the same: written as they are */
} splice_piece;

typedef struct splice {
    VEC(splice_piece) pieces;
    size_t size; /* of all pieces */
} splice;

typedef ampc_status splice_write_fn(void *user, const void *bytes, size_t n);

void splice_add(arena *a, splice *s, const void *bytes, size_t n);
/* `count` elements of type `from` at `bytes`, to be written as type `to`. */
void splice_add_elements(arena *a, splice *s, ir_dtype to, ir_dtype from, const void *bytes,
                         size_t count);
/* A field as it stood. */
void splice_add_field(arena *a, splice *s, const wire_field *f);
void splice_add_int(arena *a, splice *s, uint32_t number, uint64_t value);
/* The tag and length that come before a value of `size` bytes. */
void splice_add_header(arena *a, splice *s, uint32_t number, size_t size);
void splice_add_text(arena *a, splice *s, uint32_t number, const char *text); /* copied */
void splice_add_message(arena *a, splice *s, uint32_t number, const splice *message);

ampc_status splice_write(const splice *s, splice_write_fn *write, void *user);

#endif
