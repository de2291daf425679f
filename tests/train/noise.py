"""noise.py - numbers that a test and the script with its references compute alike (noise.h)."""
import numpy as np


def noise(shape, salt):
    """Multiples of 2^-20 in [0, 1)."""
    i = np.arange(int(np.prod(shape)), dtype=np.uint64)
    h = i * np.uint64(0x9E3779B97F4A7C15) + np.full(1, salt, np.uint64) * np.uint64(0xD1B54A32D192ED03)
    h ^= h >> np.uint64(29)
    h *= np.uint64(0xBF58476D1CE4E5B9)
    h ^= h >> np.uint64(32)
    return ((h >> np.uint64(44)).astype(np.float64) / 2**20).reshape(shape)
