/* arena.h - memory that is freed as a whole.
 *
 * The compiler (frontend, ir, passes) allocates only from arenas. A failed allocation does not return: it jumps to the
 * guard set by the outermost call (ARENA_GUARD), because everything that would have to be undone is in the arena
 * anyway. The runtime side (kernels, runtime) uses plain allocation and status codes instead. */
#ifndef AMPC_ARENA_H
#define AMPC_ARENA_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct arena arena;

/* Creates an empty arena of at most `limit` bytes (0: no limit). Returns NULL if out of memory. */
arena *arena_new(size_t limit);
/* Creates one with the guard of another arena; never NULL: see ARENA_GUARD. */
arena *arena_new_guarded(arena *other);
void arena_free(arena *a); /* NULL allowed */
/* Empties the arena but keeps part of its memory for reuse. The guard stays set. */
void arena_clear(arena *a);

/* Returns zeroed memory, 16-byte aligned; never NULL: see ARENA_GUARD. */
void *arena_alloc(arena *a, size_t size);
/* Allocates count * size bytes; an overflow counts as out of memory. */
void *arena_array(arena *a, size_t count, size_t size);
char *arena_strdup(arena *a, const char *s);
char *arena_strndup(arena *a, const char *s, size_t n);
char *arena_printf(arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
size_t arena_used(const arena *a); /* bytes allocated */

/* Sets the jump target for failed allocations and returns the previous one. Use:
 *     jmp_buf guard;
 *     if (setjmp(guard)) { clean up; return AMPC_NO_MEMORY; }
 *     arena_set_guard(a, &guard);
 * An allocation that fails without a guard aborts the process, as that is a bug of the caller. */
jmp_buf *arena_set_guard(arena *a, jmp_buf *guard);
/* For tests: makes the n-th allocation from now on fail (0: none). Counts calls of arena_alloc. */
void arena_fail_after(arena *a, uint64_t n);

/* A growable array of T in an arena:
 *     VEC(ir_node *) work = {0};   vec_push(a, &work, node);   work.items[i], work.count */
#define VEC(T) \
    struct { \
        T *items; \
        size_t count, capacity; \
    }
#define vec_push(a, v, item) \
    ((v)->count == (v)->capacity \
         ? (void)((v)->items = arena_grow((a), (v)->items, &(v)->capacity, sizeof *(v)->items)) \
         : (void)0, \
     (void)((v)->items[(v)->count++] = (item)))
void *arena_grow(arena *a, void *items, size_t *capacity, size_t size);

/* A map from strings to void *, and string interning, both in an arena. */
typedef struct strmap strmap;
strmap *strmap_new(arena *a);
strmap *strmap_new_borrowing(arena *a);                   /* keys are not copied and must outlive the map */
void *strmap_get(const strmap *m, const char *key);       /* NULL if absent */
void strmap_put(strmap *m, const char *key, void *value); /* replaces an existing entry */
void strmap_reserve(strmap *m, size_t count);             /* capacity for `count` keys in total */
/* Adds an absent key and returns the map's copy of it; returns NULL if the key exists. */
const char *strmap_enter(strmap *m, const char *key, void *value);
const char *arena_intern(arena *a, const char *s); /* equal strings yield equal pointers */

/* Checked arithmetic for sizes from files. Returns false on overflow or negative input. */
bool checked_mul(int64_t a, int64_t b, int64_t *out);
bool checked_add(int64_t a, int64_t b, int64_t *out);

#endif
