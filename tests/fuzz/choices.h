/* choices.h - a fuzzer's bytes as a stream of decisions.
 *
 * Each decision takes one byte, so that a mutation of the input changes one decision. When the bytes are used up, the
 * decisions go on from a fixed generator seeded by the first ones: eight bytes are enough for a whole graph. */
#ifndef TESTS_FUZZ_CHOICES_H
#define TESTS_FUZZ_CHOICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct choices {
    const uint8_t *data;
    size_t size, at;
    uint64_t random;
} choices;

static inline choices choices_start(const uint8_t *data, size_t size)
{
    choices c = {.data = data, .size = size, .random = 0x9e3779b97f4a7c15u};
    for (size_t i = 0; i < size && i < 8; i++) c.random = (c.random ^ data[i]) * 0x100000001b3u;
    c.random |= 1;
    return c;
}

static inline uint32_t choices_word(choices *c) /* xorshift64* */
{
    c->random ^= c->random >> 12;
    c->random ^= c->random << 25;
    c->random ^= c->random >> 27;
    return (uint32_t)((c->random * 0x2545f4914f6cdd1du) >> 32);
}

/* 0 .. n-1; n is 1 to 256 (larger ranges: several bytes' worth of decisions). */
static inline int choose(choices *c, int n)
{
    const uint32_t word = c->at < c->size ? c->data[c->at++] : choices_word(c) >> 8;
    return n > 1 ? (int)(word % (uint32_t)n) : 0;
}

/* True once in n. */
static inline bool rarely(choices *c, int n) { return choose(c, n) == n - 1; }

#define CHOOSE(c, list) ((list)[choose((c), (int)(sizeof(list) / sizeof *(list)))])

#endif
