# shellcheck shell=bash disable=SC2154,SC2034
# plans.sh - plans, dimensions, and the benchmark models.
# Checks the documented JSON keys, that the sums agree, and that the launches are in order.
plan_adds_up() {
    python3 - "$@" <<'END'
import json, sys
plan = json.load(open(".test/out"))
assert {"entry", "device", "sizes", "steps", "launches", "bytes", "flops", "arena_bytes", "kept_bytes", "pack_bytes",
        "storage_bytes", "planned_bytes"} <= set(plan)
steps = plan["steps"]
for i, step in enumerate(steps):
    assert {"step", "op", "onnx", "bytes", "flops", "workspace", "launch"} <= set(step) and step["step"] == i
    assert (step["launch"] == -1) == (step["bytes"] == 0) == step["kept"]
assert sum(s["bytes"] for s in steps) == plan["bytes"] > 0 and sum(s["flops"] for s in steps) == plan["flops"] > 0
launches = [s["launch"] for s in steps if not s["kept"]]
assert launches == sorted(launches) and set(launches) == set(range(plan["launches"]))
assert plan["planned_bytes"] == plan["arena_bytes"] + plan["kept_bytes"] + plan["pack_bytes"] + plan["storage_bytes"]
for fact in sys.argv[1:]:
    assert eval(fact, {}, plan), fact
END
}
try plan.text 0 '^[0-9]+ steps, [0-9]+ launches, [0-9]+ bytes per step, [0-9]+ FLOPs' ampc-run plan tiny.ir --batch 4
holds plan.text.memory grep -qE '^arena [0-9]+, kept [0-9]+(, packs [0-9]+)?, storage [0-9]+: [0-9]+ bytes planned$' .test/out
holds plan.text.steps grep -qE '^ +[0-9]+  matmul .*  bytes [0-9]+$' .test/out
try plan.json 0 '' ampc-run plan tiny.ir --batch 4 --json
holds plan.json.sums plan_adds_up 'entry == "train_step"' 'device == "cpu"' 'sizes["N"] == 4'
# 4 samples of 4 features, matmul to 32, relu, matmul to 3, softmax, all in fp32. Values per step: x, w1, h;
# h, r; r, w2, s; s, p.
try plan.onnx 0 '' ampc-run plan tiny.onnx --amp=O0 --no-fuse --batch 4 --json
holds plan.by-hand plan_adds_up 'flops == 2 * 4 * (4 * 32 + 32 * 3)' \
    'steps[0]["bytes"] == 4 * (4 * 4 + 4 * 32 + 4 * 32)' 'bytes == 4 * (272 + 256 + (128 + 96 + 12) + 24)'
try plan.dim 0 '^plan @train_step N=7: ' ampc-run plan tiny.ir --dim N=7
cat >tokens.ir <<'END'
ampc-ir 3
graph @infer(@ids : i64[8*N], @x : f32[N,S,4]) as infer {
forward:
  %y = relu @x : f32[N,S,4]
  %i = add @ids, @ids : i64[8*N]
  output "y" = %y
  output "i" = %i
}
END
try plan.leading 0 '%i : i64\[24\]' ampc-run plan tokens.ir --batch 3 --dim S=5
holds plan.leading.sizes grep -q '^plan @infer N=3 S=5: ' .test/out
try plan.fixed 2 "a batch of 3 does not fit input 'x', which has 2 samples" \
    ampc-run plan <(printf 'ampc-ir 3\ngraph @g(@x : f32[2]) {\nforward:\n  %%y = exp @x : f32[2]\n  output "y" = %%y\n}\n') \
    --entry g --batch 3
exports=$here/../models/exports
try batch.note 0 'the export fixed the batch at 1; use --batch=N to make it symbolic' \
    ampc "$exports/fixed-script.onnx" -o fixed.ir --loss=ce --optimizer=sgd,lr=0.1
try batch.symbolic 0 'is the symbol batch, also in 2 Reshape nodes: /Reshape, /Reshape_1' \
    ampc "$exports/fixed-script.onnx" -o free.ir --loss=ce --optimizer=sgd,lr=0.1 --batch 4
try batch.trained 0 '^epoch 1 ' ampc-run train free.ir --data synthetic,rows=8 --batch 4 --epochs 1
try batch.at-once 0 '^epoch 1 ' ampc-run train "$exports/fixed-dynamo.onnx" --loss=ce --optimizer=sgd,lr=0.1 \
    --data synthetic,rows=8 --batch 4 --epochs 1
holds batch.pair /usr/bin/python3 -c 'import numpy as np
r = np.random.RandomState(0)
np.savez("pair.npz", x=r.randn(10, 3, 4).astype("f"), z=r.randn(10, 7, 5).astype("f"), a=r.randint(0, 3, 10))'
try batch.two-symbols 0 '^epoch 1 .*test loss' ampc-run train "$exports/symbols.onnx" --loss=ce:y,a+mse:mean_1,0 \
    --optimizer=sgd,lr=0.1 --data npz:pair.npz --eval-data npz:pair.npz --batch 4 --epochs 1
try info.export 0 '^ +3 BatchNormalizations were folded .*bn5 into Gemm$' ampc-run info "$exports/dynamo.onnx"
holds info.next grep -q '^next  *to train it, export again: torch.onnx.export(model.train()' .test/out
holds info.operators grep -Eq '^ +Relu +3  yes +yes' .test/out
try info.symbols 0 '^@infer +unknown sizes: --dim s27=SIZE --dim s68=SIZE --dim s32=SIZE$' \
    ampc-run info "$exports/symbols.onnx"
try info.fixed 0 '^next +ampc .*fixed-script.onnx -o model.ir --loss=ce --batch=64$' \
    ampc-run info "$exports/fixed-script.onnx"
try info.module 0 '^@train_step +batch 1: [0-9]+ bytes planned, [0-9]+ FLOPs$' ampc-run info fixed.ir
try info.json 0 '"planned_batch": 8' ampc-run info "$exports/fixed-script.onnx" --loss=ce --batch 8 --json --quiet
holds info.json.parses /usr/bin/python3 -c 'import json
text = open(".test/out").read()
info = json.loads(text[text.index("{"):])
assert info["inputs"][0] == {"name": "x", "type": "f32[batch,2,3]"} and info["flops"] > 0 and info["parameters"] == 4'
try plan.infer 0 '^plan @infer N=1: ' ampc-run plan tiny.ir --entry infer
try plan.weights 0 ' bytes planned' bash -c 'mkdir bare && cp tiny.ir bare && ampc-run plan bare/tiny.ir --batch 4'
try plan.dump 0 '^after assign_layouts: plan @train_step N=4: [0-9]+ steps$' ampc-run plan tiny.ir --batch 4 --dump-after=assign_layouts
holds plan.dump.one [ "$(grep -c '^after' .test/out)" -eq 1 ]
try plan.dump-all 0 '^after batch_launches: plan' ampc-run plan tiny.ir --batch 4 --dump-after all
stages=$here/../../runtime/plan/stages.def
holds plan.dump-all.each [ "$(grep -c '^after' .test/out)" -eq "$(grep -c '^STAGE(' "$stages")" ]
try plan.dump-onnx 0 '^after make_steps: plan @infer' ampc-run plan tiny.onnx --dump-after=make_steps
try plan.dump-pass 0 '^# after amp' ampc-run plan tiny.onnx --dump-after=amp
try plan.dump-changed 0 '^after make_steps: plan' ampc-run plan tiny.ir --batch 4 --dump-changed
holds plan.dump-changed.some [ "$(grep -c '^after' .test/out)" -lt 14 ]
mkdir plans
try plan.dump-dir 0 '"steps"' ampc-run plan tiny.ir --batch 4 --dump-after=assign_offsets --dump-dir=plans --json
holds plan.dump-dir.file grep -q '^plan @train_step N=4' plans/*-assign_offsets.plan
try plan.timing 0 '^batch_launches +[0-9.]+ ms  verify +[0-9.]+ ms$' ampc-run plan tiny.ir --batch 4 --timing
try plan.device.missing 4 '^absent.json: error: neither a device of this build \(cpu.*\) nor a file that describes one' \
    ampc-run plan tiny.ir --device=absent.json
printf '{\n  "deviceName": "X",\n}\n' >device.json
try plan.device.malformed 1 '^device.json:3:.*not a device description' ampc-run plan tiny.ir --device=device.json
echo '{"cudaDeviceId": 0}' >device.json
try plan.device.property 1 "^device.json: error: .*the property 'deviceName' is missing" \
    ampc-run plan tiny.ir --device=device.json
echo '{"cudaDeviceId": "first"}' >device.json
try plan.device.type 1 "the property 'cudaDeviceId' must be an integer" ampc-run plan tiny.ir --device=device.json
try plan.device.array 1 'no JSON object' ampc-run plan tiny.ir --device=<(echo '[]')
for verb in infer bench; do
    try plan.device.$verb 2 'can only be used for planning' ampc-run $verb tiny.ir --device=device.json
done

# ---- token labels and the benchmark models ------------------------------------------------------------------------------------
mkdir tiny-models
if PATH=/usr/bin:/bin python3 "$here/../bench/make_models.py" --tiny tiny-models mlp resnet50 bert gpt2 >.test/out 2>&1; then
    for model in mlp resnet50 bert gpt2; do
        try "models.$model" 0 '' ampc "tiny-models/$model.onnx" -o "$model.ir" --loss=ce --optimizer=adamw
        try "models.$model.bench" 0 '"batch": 3.*"median_ms"' ampc-run bench "$model.ir" --batch=3 --device=cpu \
            --iterations 3 --warmup 1 --json
        try "models.$model.dim" 0 '^@train_step  batch 2 ' ampc-run bench "$model.ir" --dim N=2 --iterations 3
    done
    PATH=/usr/bin:/bin python3 - <<'PYTHON'
import numpy as np
random = np.random.default_rng(1)
ids, label = random.integers(0, 97, (13, 8)), random.integers(0, 97, (13, 8))
np.savez("tokens.npz", input_ids=ids, label=label)
np.savez("flat.npz", input_ids=ids, label=label.reshape(-1))
np.savez("short.npz", input_ids=ids, label=label[:, :7])
PYTHON
    for data in tokens flat; do
        try "tokens.train.$data" 0 '^6 steps' ampc-run train gpt2.ir --data "npz:$data.npz" --batch 5 --steps 6
        try "tokens.eval.$data" 0 'samples 13' ampc-run eval gpt2.ir --data "npz:$data.npz" --batch 5
        try "tokens.fixed.$data" 0 'samples 13' ampc-run eval gpt2.ir --data "npz:$data.npz" --dim N=4
    done
    try tokens.train-fixed 0 '^4 steps' ampc-run train gpt2.ir --data npz:tokens.npz --dim N=4 --steps 4
    try tokens.grad 0 '^grad/transformer.wte.weight +f32\[97,32\]' ampc-run grad gpt2.ir --inputs flat.npz
    try tokens.infer 0 '^output/y +f32\[104,97\]' ampc-run infer gpt2.ir --inputs flat.npz
    try tokens.short 1 "'label' is i64\[7\].* 'label' of type i64\[8\*N\] in a batch of 5" \
        ampc-run train gpt2.ir --data npz:short.npz --batch 5 --steps 6
    try tokens.batch 2 "a batch of 5 does not fit input 'input_ids', which has 4 samples" \
        ampc-run train gpt2.ir --data npz:tokens.npz --batch 5 --dim N=4 --steps 6
else
    report FAIL models
fi
