/* arena.c - bump allocation from a list of chunks, growable arrays, string map, checked arithmetic.
 *
 * Chunks are zeroed; their size doubles from 64 KiB to 4 MiB. A request larger than half a chunk gets a chunk of its
 * own, linked after the current one so that the free space there stays in use. Large chunks are mapped, in huge pages
 * if the system has them, because page faults would otherwise account for half the time of a big compilation. The map
 * uses open addressing with linear probing and is at most half full. Under AddressSanitizer, unallocated memory is
 * poisoned and allocations are separated by a gap, which detects overruns inside an arena. */
#include "ir/base/arena.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
enum { GAP = 16 };
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
enum { GAP = 0 };
#endif

enum { ALIGNMENT = 16, FIRST_CHUNK = 64 << 10, LARGEST_CHUNK = 4 << 20, HUGE_PAGE = 2 << 20 };
enum { FIRST_ITEMS = 64 }; /* initial size of a growable array in bytes */

typedef struct chunk {
    struct chunk *next;
    size_t size, used; /* bytes of data */
    size_t mapped;     /* bytes of the mapping; 0: from calloc */
    _Alignas(ALIGNMENT) unsigned char data[];
} chunk;

struct arena {
    chunk *chunks; /* allocations come from the first */
    size_t chunk_size, used, limit;
    jmp_buf *guard;
    uint64_t fail_after;
    strmap *interned;
};

arena *arena_new(size_t limit)
{
    arena *a = calloc(1, sizeof *a);
    if (!a) return NULL;
    a->limit = limit;
    a->chunk_size = FIRST_CHUNK;
    return a;
}

static void chunks_free(chunk *c)
{
    for (chunk *next; c; c = next) {
        next = c->next;
        ASAN_UNPOISON_MEMORY_REGION(c->data, c->size);
        if (c->mapped) munmap(c, c->mapped);
        else free(c);
    }
}

void arena_free(arena *a)
{
    if (!a) return;
    chunks_free(a->chunks);
    free(a);
}

void arena_clear(arena *a)
{
    chunk *first = a->chunks;
    a->used = 0;
    a->interned = NULL;
    if (!first) return;
    chunks_free(first->next);
    first->next = NULL;
    ASAN_UNPOISON_MEMORY_REGION(first->data, first->size);
    memset(first->data, 0, first->used);
    ASAN_POISON_MEMORY_REGION(first->data, first->size);
    first->used = 0;
}

static _Noreturn void arena_out_of_memory(arena *a)
{
    /* callers set a guard before they allocate */
    assert(a->guard && "an arena ran out of memory and has no guard");
    if (!a->guard) __builtin_trap();
    longjmp(*a->guard, 1);
}

arena *arena_new_guarded(arena *other)
{
    arena *a = arena_new(0);
    if (!a) arena_out_of_memory(other);
    a->guard = other->guard;
    return a;
}

/* Maps zeroed memory aligned to a huge page, trimming the mapping at both ends. Returns NULL if out of memory. */
static chunk *chunk_map(size_t bytes)
{
    bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    char *start = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return NULL;
    size_t before = (HUGE_PAGE - (uintptr_t)start % HUGE_PAGE) % HUGE_PAGE;
    if (before) munmap(start, before);
    if (before < HUGE_PAGE) munmap(start + before + bytes, HUGE_PAGE - before);
    madvise(start + before, bytes, MADV_HUGEPAGE); /* a hint that may fail */
    chunk *c = (chunk *)(void *)(start + before);
    c->mapped = bytes;
    c->size = bytes - sizeof *c;
    return c;
}

static chunk *chunk_new(size_t capacity)
{
    size_t bytes = sizeof(chunk) + capacity;
    if (bytes >= HUGE_PAGE) return chunk_map(bytes);
    chunk *c = calloc(1, bytes);
    if (c) c->size = capacity;
    return c;
}

/* Adds a chunk with at least `size` free bytes. */
static chunk *chunk_add(arena *a, size_t size)
{
    bool separate = size > a->chunk_size / 2;
    chunk *c = chunk_new(separate ? size : a->chunk_size);
    if (!c) arena_out_of_memory(a);
    ASAN_POISON_MEMORY_REGION(c->data, c->size);
    chunk **at = separate && a->chunks ? &a->chunks->next : &a->chunks;
    c->next = *at;
    *at = c;
    if (!separate && a->chunk_size < LARGEST_CHUNK) a->chunk_size *= 2;
    return c;
}

void *arena_alloc(arena *a, size_t size)
{
    if (a->fail_after && --a->fail_after == 0) arena_out_of_memory(a);
    if (size > SIZE_MAX / 4) arena_out_of_memory(a);
    size_t rounded = ((size ? size : 1) + GAP + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (a->limit && (rounded > a->limit || a->used > a->limit - rounded)) arena_out_of_memory(a);
    chunk *c = a->chunks;
    if (!c || c->size - c->used < rounded) c = chunk_add(a, rounded);
    void *p = c->data + c->used;
    ASAN_UNPOISON_MEMORY_REGION(p, size);
    c->used += rounded;
    a->used += rounded;
    return p;
}

void *arena_array(arena *a, size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total)) arena_out_of_memory(a);
    return arena_alloc(a, total);
}

char *arena_strndup(arena *a, const char *s, size_t n)
{
    size_t length = strnlen(s, n);
    char *copy = arena_alloc(a, length + 1);
    memcpy(copy, s, length);
    return copy;
}

char *arena_strdup(arena *a, const char *s) { return arena_strndup(a, s, strlen(s)); }

char *arena_printf(arena *a, const char *format, ...)
{
    char brief[256]; /* long enough for most texts, which are then formatted once */
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(brief, sizeof brief, format, args);
    va_end(args);
    if (length < 0) {
        va_end(again);
        arena_out_of_memory(a);
    }
    char *text = arena_alloc(a, (size_t)length + 1);
    if ((size_t)length < sizeof brief) memcpy(text, brief, (size_t)length + 1);
    else vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

size_t arena_used(const arena *a) { return a->used; }

jmp_buf *arena_set_guard(arena *a, jmp_buf *guard)
{
    jmp_buf *before = a->guard;
    a->guard = guard;
    return before;
}

void arena_fail_after(arena *a, uint64_t n) { a->fail_after = n; }

void *arena_grow(arena *a, void *items, size_t *capacity, size_t size)
{
    size_t first = size < FIRST_ITEMS ? FIRST_ITEMS / size : 1, grown = *capacity ? *capacity * 2 : first;
    if (grown < *capacity) arena_out_of_memory(a);
    void *larger = arena_array(a, grown, size);
    if (*capacity) memcpy(larger, items, *capacity * size);
    *capacity = grown;
    return larger;
}

typedef struct map_entry {
    const char *key; /* NULL: free */
    void *value;
    uint64_t hash;
} map_entry;

struct strmap {
    arena *owner;
    map_entry *entries;
    size_t count, capacity; /* capacity is a power of two */
    bool borrows;           /* keys belong to the caller */
};

/* Hashes eight bytes at a time; the shift moves the well-mixed high bits to where the next word is added. */
static uint64_t hash_string(const char *s)
{
    uint64_t hash = 0x9e3779b97f4a7c15u, word;
    size_t length = strlen(s);
    for (; length >= sizeof word; s += sizeof word, length -= sizeof word) {
        memcpy(&word, s, sizeof word);
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    word = length;
    for (size_t i = 0; i < length; i++) word = word << 8 | (unsigned char)s[i];
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    return hash ^ hash >> 29;
}

strmap *strmap_new(arena *a)
{
    strmap *m = arena_alloc(a, sizeof *m);
    m->owner = a;
    m->capacity = 16;
    m->entries = arena_array(a, m->capacity, sizeof *m->entries);
    return m;
}

strmap *strmap_new_borrowing(arena *a)
{
    strmap *m = strmap_new(a);
    m->borrows = true;
    return m;
}

/* The entry with that key, or the free entry where it would be inserted. */
static map_entry *map_find(const strmap *m, const char *key, uint64_t hash)
{
    size_t i = (size_t)(hash ^ (hash >> 32)) & (m->capacity - 1);
    for (;; i = (i + 1) & (m->capacity - 1)) {
        map_entry *e = &m->entries[i];
        if (!e->key || (e->hash == hash && strcmp(e->key, key) == 0)) return e;
    }
}

void *strmap_get(const strmap *m, const char *key) { return map_find(m, key, hash_string(key))->value; }

static void map_grow(strmap *m, size_t capacity)
{
    strmap larger = *m;
    larger.capacity = capacity;
    larger.entries = arena_array(m->owner, larger.capacity, sizeof *larger.entries);
    for (size_t i = 0; i < m->capacity; i++) {
        const map_entry *e = &m->entries[i];
        if (e->key) *map_find(&larger, e->key, e->hash) = *e;
    }
    *m = larger;
}

/* The entry with that key, added if absent. */
static map_entry *map_entry_of(strmap *m, const char *key)
{
    uint64_t hash = hash_string(key);
    map_entry *e = map_find(m, key, hash);
    if (e->key) return e;
    const char *copy = m->borrows ? key : arena_strdup(m->owner, key);
    if ((m->count + 1) * 2 > m->capacity) {
        map_grow(m, m->capacity * 2);
        e = map_find(m, key, hash);
    }
    *e = (map_entry){.key = copy, .hash = hash};
    m->count++;
    return e;
}

void strmap_reserve(strmap *m, size_t count)
{
    size_t capacity = m->capacity;
    while (capacity < count * 2) capacity *= 2;
    if (capacity > m->capacity) map_grow(m, capacity);
}

void strmap_put(strmap *m, const char *key, void *value) { map_entry_of(m, key)->value = value; }

const char *strmap_enter(strmap *m, const char *key, void *value)
{
    map_entry *e = map_entry_of(m, key);
    if (e->value) return NULL;
    e->value = value;
    return e->key;
}

const char *arena_intern(arena *a, const char *s)
{
    if (!a->interned) a->interned = strmap_new(a);
    return map_entry_of(a->interned, s)->key;
}

bool checked_mul(int64_t a, int64_t b, int64_t *out) { return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, out); }

bool checked_add(int64_t a, int64_t b, int64_t *out) { return a >= 0 && b >= 0 && !__builtin_add_overflow(a, b, out); }
