#!/usr/bin/env python3
"""Trains language models on padded batches in PyTorch and here, and compares the losses.

usage: tests/train/compare_padded.py [--steps=N] [--keep=FOLDER] [--program=PATH] [--device=NAME] [WORD]..
       tests/train/compare_padded.py --write=FOLDER     writes what tests/train/run-train reads: smaller models of some
                                                        cells, the batches and the losses of PyTorch in fp32 and bf16
WORD: selects, with others of its column, the cells of the matrix: a model (gpt2, qwen3, gemma3, llama, bert), an attention
      (eager, sdpa), an exporter (dynamo, script), a padding (left, right, both, empty, none) or a type (fp32, bf16,
      fp16); default: all. In empty, one sample of every batch has no token at all, and others are padded on the left
--program: what trains here, default ampc-run of AMPC_BUILD; with the device of a test double, ampc-run-double
--device: where, default the CPU
AMPC_BUILD: the folder of the built programs, default build/release

Every model is that of transformers with a tiny random configuration, an odd number of words (so that a device pads the
scores), and is exported once per attention and exporter:
ids and a mask of tokens in, scores out. Padded positions have the label -100. For each padding PyTorch trains it with
AdamW in fp32 and under bf16 autocast. Here it is trained with the same batches in each type:
  - the attention of each layer is one op, with a gradient of its own;
  - no step is skipped (in fp16 from a loss scale that needs no search);
  - the losses of fp32 are those of PyTorch to TOLERANCE;
  - those of bf16 and fp16 differ from fp32's by at most OWN times the distance of PyTorch's bf16, plus FLOOR, on average.
Run it by hand: it takes minutes, and needs torch 2.5 or later, onnxscript and transformers; without them it passes with a
note.
"""

import contextlib
import json
import logging
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

try:
    import numpy as np
    import torch
    import transformers
except ImportError as why:
    print(f"SKIP: {why}")
    sys.exit(0)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("AMPC_BUILD", ROOT / "build/release")).absolute()
TOLERANCE, OWN, FLOOR = 2e-4, 3, 5e-3
WRITES = any(a.startswith("--write=") for a in sys.argv)
WORDS, WIDTH, LAYERS, LENGTH, BATCH, BATCHES, RATE = (24, 16, 1, 8, 4, 2, 3e-3) if WRITES else (47, 32, 2, 12, 4, 4, 3e-3)
WRITTEN = [("gpt2", "eager", "script"), ("gpt2", "sdpa", "script"), ("gemma3", "eager", "dynamo"),
           ("qwen3", "sdpa", "dynamo"), ("bert", "eager", "dynamo")]
WRITTEN_STEPS, WRITTEN_PADDING = 8, "left"

# ---- models ----------------------------------------------------------------------------------------------------------

LLAMA = {"vocab_size": WORDS, "hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_hidden_layers": LAYERS,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": WIDTH // 4, "max_position_embeddings": 4 * LENGTH,
         "pad_token_id": 0, "use_cache": False}

MODELS = {
    "gpt2": lambda t: t.GPT2LMHeadModel(t.GPT2Config(
        vocab_size=WORDS, n_positions=4 * LENGTH, n_embd=WIDTH, n_layer=LAYERS, n_head=4, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0, use_cache=False)),
    "qwen3": lambda t: t.Qwen3ForCausalLM(t.Qwen3Config(**LLAMA)),
    "gemma3": lambda t: t.Gemma3ForCausalLM(t.Gemma3TextConfig(
        **LLAMA, sliding_window=4, query_pre_attn_scalar=WIDTH // 4, layer_types=["sliding_attention", "full_attention"][:LAYERS])),
    "llama": lambda t: t.LlamaForCausalLM(t.LlamaConfig(**LLAMA)),
    "bert": lambda t: t.BertForMaskedLM(t.BertConfig(
        vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=4, intermediate_size=2 * WIDTH,
        max_position_embeddings=4 * LENGTH, hidden_dropout_prob=0, attention_probs_dropout_prob=0)),
}
COLUMNS = {"model": list(MODELS), "attention": ["eager", "sdpa"], "exporter": ["dynamo", "script"],
           "padding": ["left", "right", "both", "empty", "none"], "type": ["fp32", "bf16", "fp16"]}


class Scores(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask):
        return self.model(input_ids=ids, attention_mask=mask).logits


def make(model, attention):
    torch.manual_seed(3)
    net = MODELS[model](transformers)
    net.set_attn_implementation(attention)
    return Scores(net).train()


def export(net, exporter, path):
    ids, mask = torch.ones(BATCH, LENGTH, dtype=torch.int64), torch.ones(BATCH, LENGTH, dtype=torch.int64)
    mask[1, :3] = 0
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")
        how = {"dynamo": True, "optimize": False} if exporter == "dynamo" else {
            "dynamo": False, "do_constant_folding": False, "opset_version": 17,
            "training": torch.onnx.TrainingMode.PRESERVE}
        torch.onnx.export(net, (ids, mask), path, input_names=["ids", "mask"], output_names=["scores"], verbose=False,
                          **how)


# ---- data ------------------------------------------------------------------------------------------------------------


def make_data(padding):
    """The samples of BATCHES batches: a token follows from the one before, with some noise."""
    draw = np.random.default_rng(5)
    n = BATCH * BATCHES
    ids = np.zeros((n, LENGTH + 1), np.int64)
    ids[:, 0] = draw.integers(1, WORDS, n)
    for i in range(LENGTH):
        ids[:, i + 1] = np.where(draw.random(n) < 0.9, ids[:, i] * 5 % (WORDS - 1) + 1, draw.integers(1, WORDS, n))
    mask = np.ones((n, LENGTH), np.int64)
    for row in range(n):
        first = row % 6 if padding in ("left", "both", "empty") else 0
        last = row // 2 % 6 if padding in ("right", "both") else 0
        mask[row, :first] = 0
        mask[row, LENGTH - last:] = 0
        if padding == "empty" and row % BATCH == BATCH - 1: mask[row] = 0
    label = np.where(mask, ids[:, 1:], -100)
    return {"ids": ids[:, :-1] * mask, "mask": mask, "label": label}


# ---- training --------------------------------------------------------------------------------------------------------


def train_torch(model, attention, data, steps, autocast):
    net = make(model, attention)
    update = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=0.01)
    data = {key: torch.from_numpy(value) for key, value in data.items()}
    losses = []
    for step in range(steps):
        at = step % BATCHES * BATCH
        batch = {key: value[at:at + BATCH] for key, value in data.items()}
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            scores = net(batch["ids"], batch["mask"])
        loss = torch.nn.functional.cross_entropy(scores.float().flatten(0, 1), batch["label"].flatten(),
                                                 ignore_index=-100)
        update.zero_grad()
        loss.backward()
        assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None), "PyTorch is not finite"
        update.step()
        losses.append(loss.item())
    return np.array(losses)


def run(*command):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    if done.returncode: raise AssertionError(f"exit {done.returncode}: {done.stderr.strip()[:300]}")
    return done.stdout


def train_here(path, data, steps, dtype, program, device):
    how = ["--amp=O0"] if dtype == "fp32" else ["--amp=O1", f"--dtype={dtype}"]
    how += [*device, "--loss=ce,axis=-1,ignore_index=-100", f"--optimizer=adamw,lr={RATE},weight_decay=0.01",
            f"--batch={BATCH}", "-q"]
    steps_of_plan = re.findall(r"^ *\d+ +(\w+)", run(program, "plan", path, *how), re.MULTILINE)
    assert steps_of_plan.count("attention_grad") == LAYERS, "the attention of a layer is no op"
    how += ["--init-loss-scaling=1024"] * (dtype == "fp16")
    pathlib.Path("log.jsonl").unlink(missing_ok=True)
    run(program, "train", path, *how, f"--data=npz:{data},order=file", f"--steps={steps}", "--log=log.jsonl")
    rows = [json.loads(line) for line in pathlib.Path("log.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if "loss" in row]
    return np.array([row["loss"] for row in rows]), rows[-1]["skipped"]


def compare(found, skipped, fp32, bf16, dtype):
    assert len(found) == len(fp32), f"{len(found)} losses"
    distance = np.abs(found - fp32)
    own = np.abs(bf16 - fp32)
    assert skipped == 0, f"{skipped} steps are skipped"
    if dtype == "fp32":
        assert distance.max() <= TOLERANCE * max(fp32), f"differs by {distance.max():.2e}"
        return f"{distance.max():.1e}"
    assert distance.mean() <= OWN * own.mean() + FLOOR, f"differs by {distance.mean():.2e}, PyTorch by {own.mean():.2e}"
    return f"{distance.mean():.1e} (PyTorch's bf16 {own.mean():.1e})"


def write(folder):
    """Strips names of source files, which are most of an export of such a model."""
    import onnx

    folder.mkdir(parents=True, exist_ok=True)
    data = make_data(WRITTEN_PADDING)
    np.savez_compressed(folder / "batches.npz", **data)
    lines = []
    for model, attention, exporter in WRITTEN:
        path = folder / f"{model}-{attention}-{exporter}.onnx"
        with tempfile.TemporaryDirectory() as scratch:
            export(make(model, attention), exporter, pathlib.Path(scratch) / path.name)
            proto = onnx.load(pathlib.Path(scratch) / path.name)
        for item in [*proto.graph.node, *proto.graph.value_info, *proto.graph.initializer, proto.graph, proto]:
            item.ClearField("doc_string")
            if hasattr(item, "metadata_props"): item.ClearField("metadata_props")
        if exporter == "dynamo": proto.graph.ClearField("value_info")
        onnx.save(proto, path)
        for low in (False, True):
            losses = train_torch(model, attention, data, WRITTEN_STEPS, low)
            lines.append(f"{path.stem} {'bf16' if low else 'fp32'} {' '.join(f'{x:.7f}' for x in losses)}")
    (folder / "losses.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main():
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    options = dict(a[2:].split("=") for a in sys.argv[1:] if a.startswith("--"))
    words = [a for a in sys.argv[1:] if not a.startswith("--")]
    if WRITES: return write(pathlib.Path(options["write"]).absolute())
    steps = int(options.get("steps", 60))
    program = pathlib.Path(options.get("program", BUILD / "ampc-run")).absolute()
    device = [f"--device={options['device']}"] if "device" in options else []
    chosen = {column: [v for v in values if v in words] or values for column, values in COLUMNS.items()}
    failed = passed = 0
    reference = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(options.get("keep", scratch)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        os.chdir(folder)
        for padding in chosen["padding"]: np.savez(f"{padding}.npz", **make_data(padding))
        for model, attention, exporter in [(m, a, e) for m in chosen["model"] for a in chosen["attention"]
                                           for e in chosen["exporter"]]:
            path = f"{model}-{attention}-{exporter}.onnx"
            try:
                export(make(model, attention), exporter, path)
            except Exception as why:
                print(f"SKIP {path}: the exporter fails: {str(why).splitlines()[0]}", flush=True)
                continue
            for padding in chosen["padding"]:
                key = model, attention, padding
                if key not in reference:
                    reference[key] = [train_torch(model, attention, dict(np.load(f"{padding}.npz")), steps, low)
                                      for low in (False, True)]
                parts = []
                for dtype in chosen["type"]:
                    try:
                        found, skipped = train_here(path, f"{padding}.npz", steps, dtype, program, device)
                        parts.append(f"{dtype} {compare(found, skipped, *reference[key], dtype)}")
                        passed += 1
                    except AssertionError as why:
                        parts.append(f"{dtype} FAIL {why}")
                        failed += 1
                state = "FAIL" if any(" FAIL " in p for p in parts) else "PASS"
                print(f"{state} {model} {attention} {exporter} {padding}: {'; '.join(parts)}", flush=True)
    print(f"{passed} agree, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
