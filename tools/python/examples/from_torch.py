"""Trains a PyTorch module in fp16 and writes the weights back into it.

usage: from_torch.py     needs torch and onnxscript
"""
import torch

import ampc

torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Linear(64, 3))
x = torch.randn(600, 8)
label = x[:, :3].argmax(1)

trainer = ampc.from_torch(module.train(), (x[:32],), loss="ce", optimizer="adamw,lr=0.01", dtype="fp16")
print(trainer.fit((x, label), epochs=10, batch=50))
trainer.copy_to(module)
accuracy = (module.eval()(x).argmax(1) == label).float().mean()
print(f"accuracy of the module: {accuracy:.3f}")
