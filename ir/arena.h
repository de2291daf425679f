/* arena.h - memory that lives and dies together.
 *
 * The compile side (frontend, ir, passes) allocates from arenas only. A failed allocation does not
 * return: it jumps to the guard that the outermost call has set (ARENA_GUARD), because everything that
 * would have to be undone is in the arena anyway. The run side (kernels, runtime) uses plain allocation
 * and statuses instead. */
#ifndef AMPC_ARENA_H
#define AMPC_ARENA_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct arena arena;

/* A new empty arena, or NULL when memory is exhausted. `limit` bytes at most (0: no limit). */
arena *arena_new(size_t limit);
void arena_free(arena *a); /* NULL allowed */
/* Empty again; a part of the memory is kept for what comes next. The guard stays. */
void arena_clear(arena *a);

/* 16-byte aligned, zeroed. Never returns NULL: see ARENA_GUARD. */
void *arena_alloc(arena *a, size_t size);
/* count * size with overflow check (an overflow counts as out of memory). */
void *arena_array(arena *a, size_t count, size_t size);
char *arena_strdup(arena *a, const char *s);
char *arena_strndup(arena *a, const char *s, size_t n);
char *arena_printf(arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
size_t arena_used(const arena *a); /* bytes handed out */

/* The jump target for a failed allocation. Use:
 *     jmp_buf guard;
 *     if (setjmp(guard)) { clean up; return AMPC_NO_MEMORY; }
 *     arena_set_guard(a, &guard);
 * An arena without a guard aborts: that is a bug of the caller. Returns the guard set before. */
jmp_buf *arena_set_guard(arena *a, jmp_buf *guard);
/* Tests: the n-th allocation from now on fails (0: none does). Counts arena_alloc calls. */
void arena_fail_after(arena *a, uint64_t n);

/* Growable array of T owned by an arena:
 *     VEC(ir_node *) work = {0};   vec_push(a, &work, node);   work.items[i], work.count          */
#define VEC(T)                                                                                     \
    struct {                                                                                       \
        T *items;                                                                                  \
        size_t count, capacity;                                                                    \
    }
#define vec_push(a, v, item)                                                                       \
    ((v)->count == (v)->capacity                                                                   \
         ? (void)((v)->items = arena_grow((a), (v)->items, &(v)->capacity, sizeof *(v)->items))    \
         : (void)0,                                                                                \
     (void)((v)->items[(v)->count++] = (item)))
void *arena_grow(arena *a, void *items, size_t *capacity, size_t size);

/* String -> void* map and string interning, both in an arena. */
typedef struct strmap strmap;
strmap *strmap_new(arena *a);
strmap *strmap_new_borrowing(arena *a); /* keys are not copied: they live as long as the map */
void *strmap_get(const strmap *m, const char *key);              /* NULL when absent */
void strmap_put(strmap *m, const char *key, void *value);        /* replaces */
void strmap_reserve(strmap *m, size_t count); /* room for `count` keys in all */
/* Enters a key that is absent and returns the map's own; NULL when it is there already. */
const char *strmap_enter(strmap *m, const char *key, void *value);
const char *arena_intern(arena *a, const char *s);               /* equal strings, equal pointers */

/* Checked arithmetic on sizes from a file: false on overflow (or negative input). */
bool checked_mul(int64_t a, int64_t b, int64_t *out);
bool checked_add(int64_t a, int64_t b, int64_t *out);

#endif
