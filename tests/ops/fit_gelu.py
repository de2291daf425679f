#!/usr/bin/python3
"""Computes the coefficients of the gates and slopes of gelu in kernels/cpu/math.h: ratios of polynomials with minimax
absolute error.

A gate is fitted at -t as p(t) / q(t), a slope as 1/2 + x p(x^2) / q(x^2). The fit is a series of linear least-squares
problems, whose weights grow where the error is largest (Lawson), in Chebyshev polynomials. Minutes; numpy only.

usage: fit_gelu.py"""
import math

import numpy as np
from numpy.polynomial import chebyshev, polynomial

ROOT = math.sqrt(2 / math.pi)


def centred_gate(x):
    return np.vectorize(math.erf)(x / math.sqrt(2)) / 2


def centred_slope(x):
    return centred_gate(x) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def tanh(x):
    return np.tanh(ROOT * x * (1 + 0.044715 * x * x))


def centred_tanh_gate(x):
    return tanh(x) / 2


def centred_tanh_slope(x):
    return tanh(x) / 2 + x / 2 * (1 - tanh(x) ** 2) * ROOT * (1 + 0.134145 * x * x)


def fit(u, wanted, weight, n, m):
    """(error, p, q): weight * |wanted - p(u) / q(u)| is smallest on [-1, 1], as Chebyshev coefficients."""
    basis = chebyshev.chebvander(u, max(n, m))
    top, bottom, importance, q, best = basis[:, :n + 1], basis[:, 1:m + 1], np.ones(len(u)) / len(u), np.ones(len(u)), None
    for _ in range(400):
        w = np.sqrt(importance) * weight / np.abs(q)
        matrix = np.hstack([top * w[:, None], -(wanted * w)[:, None] * bottom])
        size = np.linalg.norm(matrix, axis=0)
        c = np.linalg.lstsq(matrix / size, wanted * w, rcond=None)[0] / size
        q = 1 + bottom @ c[n + 1:]
        error = weight * np.abs(wanted - top @ c[:n + 1] / q)
        if (q > 0).all() and (best is None or error.max() < best[0]):
            best = error.max(), c[:n + 1], np.concatenate([[1], c[n + 1:]])
        importance = importance * np.sqrt(error / error.max()) + 1e-300
        importance /= importance.sum()
    return best


def powers(c, high):
    """Coefficients of powers of x in [0, high] from Chebyshev coefficients on [-1, 1]."""
    sum = np.zeros(1)
    for a in chebyshev.cheb2poly(c)[::-1]:
        sum = polynomial.polyadd(polynomial.polymul(sum, [-1, 2 / high]), [a])
    return sum


def show(name, end, error, p, q, high):
    p, q = powers(p, high), powers(q, high)
    print(f"{name}: up to {end}, error {error:.2g} before rounding")
    for which, c in ("p", p / q[0]), ("q", q / q[0]):
        print(f"  {which}", ", ".join("%.9g" % float(np.float32(a)) for a in c))


nodes = np.cos(np.pi * (np.arange(2000) + 0.5) / 2000)
for name, f, end in ("gate", centred_gate, 5.5), ("tanh gate", centred_tanh_gate, 5.2):
    show(name, end, *fit(nodes, 0.5 - f(end * (1 + nodes) / 2), np.ones(2000), 5, 9), end)
for name, f, end in ("slope", centred_slope, 6.2), ("tanh slope", centred_tanh_slope, 5.7):
    x = np.maximum(end * (1 + nodes) / 2, 1e-4)
    show(name, end, *fit(2 * x * x / end ** 2 - 1, f(x) / x, np.maximum(x, 0.2), 6, 7), end ** 2)
