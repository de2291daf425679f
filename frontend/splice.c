/* splice.c - lists of pieces; ranges that lie one behind the other in memory become one piece. */
#include "frontend/splice.h"

#include <string.h>

static void add(arena *a, splice *s, splice_piece p)
{
    if (!p.size) return;
    s->size += p.size;
    splice_piece *last = s->pieces.count ? &s->pieces.items[s->pieces.count - 1] : NULL;
    if (last && last->from == last->to && p.from == p.to && last->bytes + last->size == p.bytes)
        last->size += p.size;
    else
        vec_push(a, &s->pieces, p);
}

void splice_add(arena *a, splice *s, const void *bytes, size_t n)
{
    add(a, s, (splice_piece){.bytes = bytes, .size = n});
}

void splice_add_elements(arena *a, splice *s, ir_dtype to, ir_dtype from, const void *bytes,
                         size_t count)
{
    add(a, s,
        (splice_piece){.bytes = bytes, .size = count * ir_dtype_size(to), .from = from, .to = to});
}

void splice_add_field(arena *a, splice *s, const wire_field *f)
{
    splice_add(a, s, f->start, (size_t)(f->end - f->start));
}

static void add_pair(arena *a, splice *s, uint64_t tag, uint64_t value)
{
    uint8_t *bytes = arena_alloc(a, 2 * WIRE_VARINT_MAX);
    size_t n = wire_write_varint(bytes, tag);
    splice_add(a, s, bytes, n + wire_write_varint(bytes + n, value));
}

void splice_add_int(arena *a, splice *s, uint32_t number, uint64_t value)
{
    add_pair(a, s, (uint64_t)number << 3 | WIRE_VARINT, value);
}

void splice_add_header(arena *a, splice *s, uint32_t number, size_t size)
{
    add_pair(a, s, (uint64_t)number << 3 | WIRE_BYTES, size);
}

void splice_add_text(arena *a, splice *s, uint32_t number, const char *text)
{
    splice_add_header(a, s, number, strlen(text));
    splice_add(a, s, arena_strdup(a, text), strlen(text));
}

void splice_add_message(arena *a, splice *s, uint32_t number, const splice *message)
{
    splice_add_header(a, s, number, message->size);
    for (size_t i = 0; i < message->pieces.count; i++) add(a, s, message->pieces.items[i]);
}

/* ---- writing --------------------------------------------------------------------------------- */

static ampc_status write_converted(const splice_piece *p, splice_write_fn *write, void *user)
{
    enum { CHUNK = 4096, WIDEST = 8 };
    uint8_t buffer[CHUNK * WIDEST];
    size_t from = ir_dtype_size(p->from), to = ir_dtype_size(p->to);
    for (size_t done = 0, count = p->size / to, n; done < count; done += n) {
        n = count - done < CHUNK ? count - done : CHUNK;
        ir_convert(p->to, buffer, p->from, p->bytes + done * from, n);
        TRY(write(user, buffer, n * to));
    }
    return AMPC_OK;
}

ampc_status splice_write(const splice *s, splice_write_fn *write, void *user)
{
    for (size_t i = 0; i < s->pieces.count; i++) {
        const splice_piece *p = &s->pieces.items[i];
        TRY(p->from == p->to ? write(user, p->bytes, p->size) : write_converted(p, write, user));
    }
    return AMPC_OK;
}
