"""Training steps of the benchmark's models in PyTorch: the same architecture, loss, optimizer and inputs on the device.

usage: torch_bench.py MODEL BATCH PRECISION MODE.. [--tf32] [--device=cpu] [--tiny]
       torch_bench.py --ceilings
  MODEL      mlp, resnet50, bert, gpt2          PRECISION  fp32, fp16 (autocast and GradScaler), bf16 (autocast)
  MODE       eager, graph (the whole step as one CUDA graph), default, max-autotune (torch.compile), or one of these two
             with -graph (the whole compiled step as one CUDA graph)
  --tf32     fp32 products may use TF32 in a second measurement of each mode; ours never do
  --ceilings the rates of a large copy and of large matrix products
  --tiny     small models; with --device=cpu for tests of this program

Prints a line of JSON for each mode as soon as it is known: median_ms, p90_ms of a step on the device, peak_bytes
(allocated) and reserved_bytes; or error. Steps are timed by events that are read after the last step. Attention gets no
mask as a tensor, which is its fastest form: BERT sees all tokens, GPT-2 is causal.
"""

import gc
import json
import statistics
import sys
import time
import types

sys.path.pop(0)  # modules in this program's folder would shadow others

import torch
from torch import nn

WARMUP, STEPS = 5, 20
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": None}


# ---- models: (network, input, label, loss, optimizer) ----


def mlp(batch, tiny):
    width = 64 if tiny else 4096
    layers = [part for _ in range(3) for part in (nn.Linear(width, width), nn.ReLU())][:-1]
    return (
        nn.Sequential(*layers),
        torch.randn(batch, width),
        torch.randn(batch, width),
        nn.functional.mse_loss,
        lambda parameters, **more: torch.optim.SGD(parameters, lr=1e-3, fused=True),
    )


def resnet50(batch, tiny):
    import torchvision

    size = 32 if tiny else 224
    images = torch.randn(batch, 3, size, size).to(memory_format=torch.channels_last)
    return (
        torchvision.models.resnet50().to(memory_format=torch.channels_last),
        images,
        torch.randint(1000, (batch,)),
        nn.functional.cross_entropy,
        lambda parameters, **more: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, fused=True),
    )


class Logits(nn.Module):
    """A model of the transformers library that returns the logits of all tokens, [tokens, vocabulary]."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(input_ids=tokens).logits.flatten(0, 1)


def transformer(config, model, batch, length):
    tokens, labels = (torch.randint(config.vocab_size, (batch, length)) for _ in range(2))
    return (
        Logits(model(config)),
        tokens,
        labels.flatten(),
        nn.functional.cross_entropy,
        lambda parameters, **more: torch.optim.AdamW(parameters, lr=1e-4, fused=True, **more),
    )


def bert(batch, tiny):
    from transformers import BertConfig, BertForMaskedLM

    size = (
        dict(vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
        if tiny
        else {}
    )
    config = BertConfig(hidden_dropout_prob=0, attention_probs_dropout_prob=0, attn_implementation="sdpa", **size)
    return transformer(config, BertForMaskedLM, batch, 16 if tiny else 128)


def gpt2(batch, tiny):
    from transformers import GPT2Config, GPT2LMHeadModel

    size = dict(vocab_size=100, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0) if tiny else {}
    config = GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False, attn_implementation="sdpa", **size)
    return transformer(config, GPT2LMHeadModel, batch, 16 if tiny else 1024)


MODELS = {"mlp": mlp, "resnet50": resnet50, "bert": bert, "gpt2": gpt2}


# ---- a step ----


class Step:
    """One training step with resident inputs. Neither the fused optimizers nor the scaler wait for the device: scale
    and found_inf stay there. The step can therefore be captured unchanged."""

    def __init__(self, options, mode):
        torch.manual_seed(1)
        is_captured, compiled = mode.endswith("graph"), mode.removesuffix("graph").removesuffix("-")
        model, x, y, self.loss_of, make_optimizer = MODELS[options.model](options.batch, options.tiny)
        self.device, self.dtype = options.device, DTYPES[options.precision]
        model, self.x, self.y = model.to(self.device).train(), x.to(self.device), y.to(self.device)
        if options.model == "resnet50":
            self.x = self.x.to(memory_format=torch.channels_last)
        self.optimizer = make_optimizer(model.parameters(), **({"capturable": True} if is_captured else {}))
        self.scaler = torch.amp.GradScaler(self.device, enabled=options.precision == "fp16")
        self.forward = model if compiled in ("eager", "") else torch.compile(model, mode=compiled)
        self.has_own_graphs = compiled == "max-autotune" and not is_captured
        self.run = self.step
        if is_captured:
            self.capture()

    def step(self):
        if self.has_own_graphs:
            torch.compiler.cudagraph_mark_step_begin()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, dtype=self.dtype or torch.bfloat16, enabled=self.dtype is not None):
            loss = self.loss_of(self.forward(self.x), self.y)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()

    def capture(self):
        """Captures the entire step as a graph after warm-up steps on a side stream, as in the documentation of torch.cuda.graph."""
        if self.device != "cuda":
            raise RuntimeError("a CUDA graph needs CUDA")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        self.graph, self.run = graph, graph.replay


def measure_cuda(step):
    """Returns the milliseconds of each step, from events between the steps; waits once, after the last."""
    for _ in range(WARMUP):
        step.run()
    torch.cuda.synchronize()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(STEPS + 1)]
    events[0].record()
    for event in events[1:]:
        step.run()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(events, events[1:])]


def measure_cpu(step):
    stamps = [time.perf_counter()]
    for _ in range(3):
        step.run()
        stamps.append(time.perf_counter())
    return [1e3 * (b - a) for a, b in zip(stamps, stamps[1:])]


def measure(options, mode, tf32):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    answer = {"mode": mode, "tf32": tf32, "torch": torch.__version__}
    is_cuda = options.device == "cuda"
    if is_cuda:
        torch.cuda.reset_peak_memory_stats()
    try:
        step = Step(options, mode)
        times = sorted(measure_cuda(step) if is_cuda else measure_cpu(step))
        answer.update(median_ms=statistics.median(times), p90_ms=times[int(0.9 * (len(times) - 1) + 0.5)])
        if is_cuda:
            answer.update(peak_bytes=torch.cuda.max_memory_allocated(), reserved_bytes=torch.cuda.max_memory_reserved())
    except Exception as error:  # another mode may support it
        answer["error"] = (f"{type(error).__name__}: {error}".splitlines() or [""])[0][:300]
    return answer


def clear(device, keep_compiled):
    gc.collect()
    if not keep_compiled:
        torch.compiler.reset()
    if device == "cuda":
        torch.cuda.empty_cache()


# ---- ceilings ----


def milliseconds(run):
    return statistics.median(measure_cuda(types.SimpleNamespace(run=run)))


def ceilings():
    """Returns GB/s of a copy (bytes read and written) and TFLOP/s of a product of 8192 x 8192 random matrices."""
    torch.backends.cuda.matmul.allow_tf32 = False
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target, size, tflops = torch.empty_like(source), 8192, {}
    copy = 2 * source.numel() / milliseconds(lambda: target.copy_(source)) / 1e6
    for name, dtype in DTYPES.items():
        a, b = (torch.randn(size, size, device="cuda", dtype=dtype or torch.float32) for _ in range(2))
        tflops[name] = 2 * size**3 / milliseconds(lambda: torch.mm(a, b)) / 1e9
    print(json.dumps({"copy_gbs": copy, "tflops": tflops}))


# ---- all of it ----


class Options:
    def __init__(self, argv):
        flags = [a for a in argv if a.startswith("--")]
        self.model, batch, self.precision, *self.modes = [a for a in argv if not a.startswith("--")]
        self.batch, self.tiny = int(batch), "--tiny" in flags
        self.device = next((f.partition("=")[2] for f in flags if f.startswith("--device=")), "cuda")
        self.tf32 = [False, True] if "--tf32" in flags else [False]


def main(argv):
    torch.backends.cudnn.benchmark = True
    if argv == ["--ceilings"]:
        return ceilings()
    options, before = Options(argv), None
    for mode in options.modes:
        for tf32 in options.tf32:
            clear(options.device, keep_compiled=before == mode.removesuffix("-graph"))
            before = mode
            print(json.dumps(measure(options, mode, tf32)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
