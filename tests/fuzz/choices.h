/* choices.h - turns a fuzzer's input into a stream of decisions.
 *
 * Each decision consumes one byte, so a mutation of the input changes one decision. After the last byte,
 * decisions come from a deterministic generator seeded by the first bytes: eight bytes are enough to generate
 * a whole graph. */
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

/* Returns a number in [0, n), n in [1, 256]. Larger ranges need several decisions. */
static inline int choose(choices *c, int n)
{
    const uint32_t word = c->at < c->size ? c->data[c->at++] : choices_word(c) >> 8;
    return n > 1 ? (int)(word % (uint32_t)n) : 0;
}

/* Returns true with probability 1/n. */
static inline bool rarely(choices *c, int n) { return choose(c, n) == n - 1; }

#define CHOOSE(c, list) ((list)[choose((c), (int)(sizeof(list) / sizeof *(list)))])

#endif
