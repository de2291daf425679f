# shellcheck shell=bash disable=SC2154,SC2034
# running.sh - infer, grad and bench: results, losses, modes, initial values.
try infer.table 0 '^output/p +f32\[8,3\]' ampc-run infer tiny.ir --input x=x.npy
try infer.json 0 '^\{"output/s": \{"dtype": "f32", "shape": \[8, 3\], "values": \[-?[0-9.]+, .*"output/p": ' \
    ampc-run infer tiny.ir --input x=x.npy --json -q
holds infer.json-valid python3 -c 'import json,sys; assert len(json.load(open(sys.argv[1]))["output/p"]["values"]) == 24' .test/out
try infer.npz 0 '' ampc-run infer tiny.ir --inputs batch.npz -o out.npz
holds infer.npz-file grep -q 'output/p.npy' out.npz
try infer.safetensors 0 '' ampc-run infer tiny.ir --input x=x.pb -o out.safetensors
holds infer.safetensors-file grep -aq '"output/p"' out.safetensors
try infer.same 0 '^output/p' ampc-run infer tiny.ir --input x=x.npy -q
cp .test/out first.txt
try infer.onnx 0 '^output/p' ampc-run infer tiny.onnx --input x=x.npy -q --dtype=fp16
holds infer.onnx-same cmp .test/out first.txt
# --dtype=auto: bf16 where the processor is faster in it, else fp32.
try auto.fp32 0 'note: computed in fp32: this processor has no instructions for bf16' \
    env AMPC_CPU_ISA=avx2 ONEDNN_MAX_CPU_ISA=AVX2 ampc-run infer tiny.onnx --input x=x.npy -o auto.npz
holds auto.fp32-same env AMPC_CPU_ISA=avx2 ONEDNN_MAX_CPU_ISA=AVX2 ampc-run infer tiny.onnx --input x=x.npy -o plain.npz --amp=O0
holds auto.fp32-equal cmp auto.npz plain.npz
try auto.level 0 '^fc1/MatMul .*: white, bf16' env AMPC_CPU_ISA=avx2 ONEDNN_MAX_CPU_ISA=AVX2 ampc-run check tiny.onnx --amp=O1 --explain=fc1/MatMul --entry infer --input x=x.npy
try auto.slower 0 'note: matrix products in fp32 are about 1.3 times as fast as in fp16 on this processor' \
    env AMPC_CPU_ISA=avx2 ONEDNN_MAX_CPU_ISA=AVX2 AMPC_CPU_SPEED=0.75,0.75 ampc-run infer tiny.onnx --dtype=fp16 --input x=x.npy
if grep -q avx512_bf16 /proc/cpuinfo; then
    env -u ONEDNN_MAX_CPU_ISA AMPC_CPU_SPEED=1.2,1 ampc-run infer tiny.onnx --input x=x.npy -o auto.npz
    env -u ONEDNN_MAX_CPU_ISA ampc-run infer tiny.onnx --input x=x.npy -o plain.npz --dtype=bf16
    holds auto.bf16-equal cmp auto.npz plain.npz
    try auto.slow-bf16 0 'note: computed in fp32: matrix products in bf16 are 0.55 times as fast on this processor' \
        env -u ONEDNN_MAX_CPU_ISA AMPC_CPU_SPEED=0.55,1 ampc-run infer tiny.onnx --input x=x.npy -o auto.npz
    env -u ONEDNN_MAX_CPU_ISA ampc-run infer tiny.onnx --input x=x.npy -o plain.npz --amp=O0
    holds auto.slow-bf16-equal cmp auto.npz plain.npz
fi
try infer.reference 0 '^output/p' ampc-run infer reference.ir --input x=x.npy -q
holds infer.reference-same cmp .test/out first.txt
try grad.keys 0 '^grad/w1 +f32\[4,32\]' ampc-run grad tiny.ir --inputs batch.npz
holds grad.key-gradin grep -q '^gradin/x ' .test/out
holds grad.key-loss grep -q '^loss ' .test/out
holds grad.key-scale grep -qE '^loss_scale .* 65536$' .test/out
try grad.file 0 '' ampc-run grad tiny.ir --inputs batch.npz -o grad.safetensors
try grad.onnx 0 '^grad/w2' ampc-run grad tiny.onnx --loss=ce:s --amp=O0 --inputs batch.npz
try grad.infinite 5 'is not finite at loss scale 1' ampc-run grad tiny.ir --inputs infinite.npz -o tiny.npz
try grad.overflow 5 'grad/w is not finite at loss scale 1' ampc-run grad hot.onnx --loss=l1 --inputs hot.npz --dtype=fp16
# ---- losses on outputs that the model already normalizes -----------------------------------------------------------------------
shown() { # NAME COMMAND..: writes the output to a file of that name
    local to=$1
    shift
    ampc-run "$@" >"$to.txt" 2>/dev/null
}
for loss in ce:s ce:p; do shown "$loss" grad tiny.onnx --amp=O0 --loss="$loss" --inputs batch.npz; done
holds loss.softmax cmp ce:s.txt ce:p.txt
try loss.note 0 "node 'softmax' \(Softmax\): note: loss ce includes this normalisation" ampc tiny.onnx -o noted.ir --loss=ce:p
for loss in bce_logits:s bce_logits:p bce:p bce:r; do
    ampc-run grad sigmoid.onnx --amp=O0 --loss="$loss" --inputs soft.npz -o "${loss/:/-}.npz" -q
done
holds loss.sigmoid /usr/bin/python3 -c 'import numpy as np
files = {k: np.load(k + ".npz") for k in ("bce_logits-s", "bce_logits-p", "bce-p", "bce-r")}
batch, first = np.load("soft.npz"), files["bce_logits-s"]
x, y, s = batch["x"].astype("f8"), batch["label"].astype("f8"), first["output/s"].astype("f8")
p = 1 / (1 + np.exp(-s))
assert abs(p - 0.5).max() > 0.49
loss, grad = -(y * np.log(p) + (1 - y) * np.log(1 - p)).mean(), x.T @ (p - y) / y.size
for name, f in files.items():
    assert abs(f["loss"] - loss) < (1e-4 if name == "bce-r" else 1e-6) and abs(f["grad/w"] - grad).max() < 1e-6, name
assert all((files[k]["grad/w"] == first["grad/w"]).all() for k in ("bce_logits-p", "bce-p"))'

# ---- initial values, mode and outputs of the network ----------------------------------------------------------------------------
batch=(--amp=O0 --inputs batch.npz)
ampc modes.onnx -o modes.ir -q --amp=O0
for seed in '' 5 6; do
    shown "grad-onnx$seed" grad modes.onnx "${batch[@]}" ${seed:+--seed $seed}
    shown "grad-ir$seed" grad modes.ir --inputs batch.npz ${seed:+--seed $seed}
    holds "seed.compiled$seed" cmp "grad-onnx$seed.txt" "grad-ir$seed.txt"
done
holds seed.grad bash -c '! cmp -s grad-ir.txt grad-ir5.txt && ! cmp -s grad-ir5.txt grad-ir6.txt && grep -q ^grad/w grad-ir5.txt'
ampc modes.onnx -o seeded.ir -q --amp=O0 --seed 5
shown seeded grad seeded.ir --inputs batch.npz
holds seed.of-the-module cmp seeded.txt grad-ir5.txt
# If all samples are equal, the sample order of the first training step does not matter.
/usr/bin/python3 -c 'import numpy as np
np.savez("equal.npz", x=np.tile(np.float32([1, 2, -1, 3]), (8, 1)), label=np.ones(8, "i8"))'
for seed in 5 6; do
    shown "equal$seed" grad modes.ir --inputs equal.npz --seed $seed
    ampc-run train modes.ir --data npz:equal.npz --batch 8 --steps 1 --seed $seed --json >"step$seed.txt" 2>/dev/null
    holds "seed.train$seed" grep -q "\"loss\": $(awk '$1 == "loss" { print substr($3, 1, 6) }' "equal$seed.txt")" "step$seed.txt"
done
for seed in 5 6; do shown "infer$seed" infer modes.onnx "${batch[@]}" --mode=file --seed $seed; done
holds seed.infer bash -c '! cmp -s infer5.txt infer6.txt && grep -q ^output/l infer5.txt'
for mode in '' file train eval; do
    shown "modes-$mode" infer modes.onnx "${batch[@]}" --seed 5 ${mode:+--mode=$mode}
    shown "frozen-$mode" infer frozen.onnx "${batch[@]}" --seed 5 ${mode:+--mode=$mode}
done
fixed='1 of 1 BatchNormalization nodes are in evaluation mode in the file and train with its running statistics'
try mode.note 0 "note: $fixed" ampc frozen.onnx -o noted.ir
holds mode.note-once [ "$(grep -c 'BatchNormalization' .test/out)" -eq 1 ]
for mode in '--mode=file' '--mode=train' '--freeze=m'; do
    try "mode.no-note.${mode#*=}" 0 'float ops in' ampc frozen.onnx -o noted.ir "$mode"
    holds "mode.silent.${mode#*=}" bash -c '! grep -q BatchNormalization .test/out'
done
bn_of() { grep '^output/bn' "$1.txt"; }
# Batch statistics make the mean of one channel b, which is 1/3 over all channels.
holds mode.file bash -c 'grep -qE "^output/bn .*mean 0\.33333 " modes-file.txt && ! grep -qE "^output/bn .*mean 0\.33333 " modes-.txt'
holds mode.file-frozen [ "$(bn_of frozen-file)" = "$(bn_of frozen-eval)" ]
holds mode.eval bash -c 'cmp modes-.txt modes-eval.txt && cmp modes-eval.txt modes-train.txt && cmp modes-eval.txt frozen-eval.txt'
holds infer.outputs [ "$(cut -d' ' -f1 modes-.txt | paste -sd' ')" = 'output/bn output/l output/p output/s' ]
try infer.without-labels 0 "note: omitting outputs 'l', 'p': an input of the loss has no value" ampc-run infer modes.ir --input x=x.npy
holds infer.others [ "$(grep -o '^output/[a-z]*' .test/out | paste -sd' ')" = 'output/bn output/s' ]
try infer.written 0 '' ampc-run infer modes.ir --inputs batch.npz -o modes.npz
holds infer.written-loss grep -q 'output/l.npy' modes.npz

try bench.text 0 '^median +[0-9.]+ ms +[0-9.]+ ms$' ampc-run bench tiny.ir --batch 4 --iterations 5 --warmup 1 --trace=trace.json
holds bench.columns grep -qE '^ +resident +with input$' .test/out
# Launches are ordered by time and by plan step and none is missing, so the last launch belongs to the last
# step of the plan.
holds bench.trace /usr/bin/python3 -c '
import json
step, end = None, 0
events = json.load(open("trace.json"))["traceEvents"]
lanes = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
assert list(lanes.values()) == ["forward", "backward", "update", "copies"], lanes
for event in events[len(lanes):]:
    args = event["args"]
    assert step in (None, args["step"]) and abs(event["ts"] - end) < 1e-3 and event["dur"] >= 0, event
    assert event["ph"] == "X" and event["tid"] in lanes and event["name"] and event["cat"] and "onnx" in args and "ir" in args, event
    step, end = args["step"] + args["steps"], event["ts"] + event["dur"]
assert step > 10 and end > 0, (step, end)'
try bench.json 0 '"median_ms": ' ampc-run bench tiny.ir --iterations 5 --entry infer --json -q
holds bench.keys /usr/bin/python3 -c '
import json
line = json.load(open(".test/out"))
assert line["entry"] == "infer" and line["device"] == "cpu" and line["clock"] == "host" and line["batch"] == 1, line
assert line["iterations"] == 5 and line["planned_bytes"] > 0 and "device_used_bytes" not in line, line
assert 0 < line["min_ms"] <= line["median_ms"] <= line["p90_ms"] <= line["p99_ms"], line
assert 0 < line["with_input_median_ms"] <= line["with_input_p90_ms"], line
assert abs(line["samples_s"] * line["median_ms"] / 1e3 - 1) < 1e-3, line'
try bench.once 0 'samples/s' ampc-run bench tiny.ir --iterations 1 --warmup 0
