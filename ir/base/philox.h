/* philox.h - Philox4x32-10, the only source of randomness: shuffles, initialisation, dropout, noise.
 *
 * The generator is counter based: its output depends only on key and counter. Any position of a stream can be computed
 * directly, the state is two numbers, and results are the same on all machines. Algorithm and constants: Salmon,
 * Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. */
#ifndef AMPC_PHILOX_H
#define AMPC_PHILOX_H

#include <stdint.h>

/* Device code defines its own qualifiers before including this file. */
#ifndef PHILOX_FUNCTION
#define PHILOX_FUNCTION static inline
#endif

typedef struct philox_words {
    uint32_t v[4];
} philox_words;

/* The four words of block `counter` of stream `stream` under `key`. */
PHILOX_FUNCTION philox_words philox_block(uint64_t key, uint64_t stream, uint64_t counter)
{
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    philox_words words = {{c0, c1, c2, c3}};
    return words;
}

/* Word `index` of a stream. */
PHILOX_FUNCTION uint32_t philox_word(uint64_t key, uint64_t stream, uint64_t index)
{
    return philox_block(key, stream, index / 4).v[index % 4];
}

/* Maps a word to [0, 1), a multiple of 2^-24 and therefore exact in f32. */
PHILOX_FUNCTION float philox_unit(uint32_t word) { return (float)(word >> 8) * 0x1p-24f; }

/* Maps 64 random bits to 0 .. bound-1, for 0 < bound < 2^32; the bias is less than bound / 2^64. */
PHILOX_FUNCTION uint64_t philox_below(uint64_t bits, uint64_t bound)
{
    uint64_t high = (bits >> 32) * bound, low = (bits & 0xffffffffu) * bound; /* bound < 2^32 */
    return (high + (low >> 32)) >> 32;
}

/* The `index`-th 64 random bits of a stream. */
PHILOX_FUNCTION uint64_t philox_bits(uint64_t key, uint64_t stream, uint64_t index)
{
    philox_words w = philox_block(key, stream, index / 2);
    unsigned half = (unsigned)(index % 2) * 2;
    return (uint64_t)w.v[half + 1] << 32 | w.v[half];
}

#endif
