"""Optimizers that PyTorch does not have, in float64, from the formulas of their papers."""

import torch

BETAS = {"lion": (0.9, 0.99)}


class Lion:
    """Chen et al. 2023, Symbolic Discovery of Optimization Algorithms, algorithm 2."""

    def __init__(self, parameters, lr, betas=(0.9, 0.99), weight_decay=0.0):
        self.parameters, self.lr, self.betas, self.decay = parameters, lr, betas, weight_decay
        self.m = [torch.zeros_like(p) for p in parameters]

    @torch.no_grad()
    def step(self):
        for p, m in zip(self.parameters, self.m):
            c = self.betas[0] * m + (1 - self.betas[0]) * p.grad
            p -= self.lr * (torch.sign(c) + self.decay * p)
            m.copy_(self.betas[1] * m + (1 - self.betas[1]) * p.grad)


def ratio(a, b):
    return a / b if a > 0 and b > 0 else torch.ones(())


class Lamb:
    """You et al. 2020, Large Batch Optimization for Deep Learning, algorithm 2, with phi(z) = z."""

    def __init__(self, parameters, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
        self.parameters, self.lr, self.betas, self.eps, self.decay = parameters, lr, betas, eps, weight_decay
        self.m = [torch.zeros_like(p) for p in parameters]
        self.v = [torch.zeros_like(p) for p in parameters]
        self.t = 0

    @torch.no_grad()
    def step(self):
        self.t += 1
        for p, m, v in zip(self.parameters, self.m, self.v):
            m.copy_(self.betas[0] * m + (1 - self.betas[0]) * p.grad)
            v.copy_(self.betas[1] * v + (1 - self.betas[1]) * p.grad**2)
            corrected = v / (1 - self.betas[1] ** self.t)
            r = m / (1 - self.betas[0] ** self.t) / (corrected.sqrt() + self.eps) + self.decay * p
            p -= self.lr * ratio(p.norm(), r.norm()) * r


class Lars:
    """You et al. 2017, Large Batch Training of Convolutional Networks, algorithm 1."""

    def __init__(self, parameters, lr, momentum=0.9, weight_decay=0.0, coefficient=1e-3, eps=0.0):
        self.parameters, self.lr, self.momentum, self.decay = parameters, lr, momentum, weight_decay
        self.coefficient, self.eps = coefficient, eps
        self.velocity = [torch.zeros_like(p) for p in parameters]

    @torch.no_grad()
    def step(self):
        for p, v in zip(self.parameters, self.velocity):
            w, g = p.norm(), p.grad.norm()
            local = self.coefficient * w / (g + self.decay * w + self.eps) if w > 0 and g > 0 else 1.0
            v.copy_(self.momentum * v + self.lr * local * (p.grad + self.decay * p))
            p -= v


def newton_schulz(x, coefficients, steps, eps):
    """Jordan et al. 2024: the orthogonalization of torch.optim.Muon, which computes it in bf16."""
    a, b, c = coefficients
    x = x / max(x.norm().item(), eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


ALL = {"lion": Lion, "lamb": Lamb, "lars": Lars}
