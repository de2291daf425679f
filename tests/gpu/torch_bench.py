"""The models of the benchmark in PyTorch: a training step with autocast and GradScaler, eager and compiled.

usage: torch_bench.py mlp|resnet50|bert|gpt2 BATCH [quick|all]

Prints one line of JSON: medians of a step in milliseconds on the device (eager_ms, compile_ms, best_ms), the compile mode
that was best, fp16; or {"error": ..}. Inputs are random and stay on the device; TF32 is allowed; convolutions run in
channels_last; the optimizer is fused.
"""
import json
import statistics
import sys

try:
    import torch
    from torch import nn
except ImportError:
    print(json.dumps({"error": "there is no PyTorch"}))
    sys.exit(0)

name, batch, extent = sys.argv[1], int(sys.argv[2]), (sys.argv[3:] or ["all"])[0]
torch.manual_seed(1)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
device = "cuda"


class Block(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def attention(self, x):
        n, t, c = x.shape
        q, k, v = (p.view(n, t, self.heads, c // self.heads).transpose(1, 2) for p in self.qkv(x).split(c, dim=2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(n, t, c))

    def forward(self, x):
        if self.causal:
            x = x + self.attention(self.norm1(x))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.down(nn.functional.gelu(self.up(x))))


class Transformer(nn.Module):
    def __init__(self, length, vocabulary, width, layers, heads, causal):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*(Block(width, heads, causal) for _ in range(layers)))
        self.norm = nn.LayerNorm(width) if causal else nn.Identity()
        self.head = nn.Linear(width, vocabulary, bias=not causal)
        if causal:
            self.head.weight = self.tokens.weight

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.tokens(x) + self.positions))).flatten(0, 1)


def tokens(length, vocabulary):
    return (torch.randint(vocabulary, (batch, length), device=device),
            torch.randint(vocabulary, (batch * length,), device=device))


def make():
    cross_entropy = nn.functional.cross_entropy
    if name == "mlp":
        layers = [m for i in range(3) for m in (nn.Linear(4096, 4096), nn.ReLU())][:-1]
        return (nn.Sequential(*layers), torch.randn(batch, 4096, device=device), torch.randn(batch, 4096, device=device),
                nn.functional.mse_loss, lambda p: torch.optim.SGD(p, lr=1e-3, fused=True))
    if name == "resnet50":
        import torchvision
        x = torch.randn(batch, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
        return (torchvision.models.resnet50().to(memory_format=torch.channels_last), x,
                torch.randint(1000, (batch,), device=device), cross_entropy,
                lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, fused=True))
    length, vocabulary, causal = (128, 30522, False) if name == "bert" else (1024, 50257, True)
    x, y = tokens(length, vocabulary)
    return (Transformer(length, vocabulary, 768, 12, 12, causal), x, y, cross_entropy,
            lambda p: torch.optim.AdamW(p, lr=1e-4, fused=True))


def measure(mode):
    model, x, y, loss_of, optimizer_of = make()
    model = model.to(device).train()
    optimizer, scaler = optimizer_of(model.parameters()), torch.amp.GradScaler(device)
    forward = model if mode == "eager" else torch.compile(model, mode=mode)

    def step():
        with torch.autocast(device, dtype=torch.float16):
            loss = loss_of(forward(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(5):
        step()
    times = []
    for _ in range(20):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        step()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


answer = {"torch": torch.__version__}
try:
    answer["eager_ms"] = answer["best_ms"] = measure("eager")
    answer["peak_bytes"] = torch.cuda.max_memory_allocated()
    print(json.dumps(answer), flush=True)
    for mode in [] if extent == "quick" else ["default", "reduce-overhead"]:
        torch.compiler.reset()
        took = measure(mode)
        if took < answer.get("compile_ms", float("inf")):
            answer["compile_ms"], answer["compile_mode"] = took, mode
        answer["best_ms"] = min(answer["best_ms"], took)
        print(json.dumps(answer), flush=True)
except RuntimeError as e:
    answer["error"] = str(e).splitlines()[0]
    print(json.dumps(answer))
