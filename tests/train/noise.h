/* noise.h - numbers that a test and the script with its references compute alike (noise.py). */
#ifndef AMPC_TEST_NOISE_H
#define AMPC_TEST_NOISE_H

#include <stdint.h>

/* A multiple of 2^-20 in [0, 1). */
static inline double noise(int64_t i, uint64_t salt)
{
    uint64_t h = (uint64_t)i * 0x9E3779B97F4A7C15u + salt * 0xD1B54A32D192ED03u;
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9u;
    h ^= h >> 32;
    return (double)(h >> 44) / (1 << 20);
}

#endif
