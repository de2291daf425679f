# shellcheck shell=bash disable=SC2154,SC2034
# continuing.sh - names of classes, resumed runs, damaged checkpoints, fine-tuning.
# The names of classes are those of the training, also for a file with some of them or none.
awk -F, -v OFS=, 'NR > 1 {$5 = "kind" $5} 1' data.csv >kinds.csv
grep -v kind0 kinds.csv >some.csv
cut -d, -f1-4 data.csv >none-named.csv
sed '3s/kind./fish/' kinds.csv >other.csv
sed '3s/^[^,]*/1e39/' kinds.csv >huge.csv
names=(ampc-run train tiny.ir --data csv:kinds.csv --eval-data csv:some.csv --batch 64 --checkpoint-dir named)
try names.train 0 '^4 steps  loss' "${names[@]}" --steps 4
try names.eval 0 '^label 2 .kind2.: ' ampc-run eval tiny.ir --data csv:some.csv --checkpoint named --metric confusion
holds names.json sh -c 'ampc-run eval tiny.ir --data csv:some.csv --checkpoint named --metric confusion --json |
    grep -q "\"classes\": \[\"kind0\", \"kind1\", \"kind2\"\]"'
for file in some none-named; do ampc-run predict tiny.ir --data csv:$file.csv --checkpoint named -o $file.out.csv -q; done
holds names.predict awk -F, 'NR == 1 {exit $4 != "class_name"} $4 != "kind" $3 || $2 == 0 {exit 1}' some.out.csv
holds names.unlabelled awk -F, 'NR == 1 {exit $3 != "class_name"} $3 != "kind" $2 {exit 1}' none-named.out.csv
try names.export 0 '' ampc-run export tiny.ir --checkpoint named -o named.onnx -q
try names.onnx 0 '^label 2 .kind2.: ' ampc-run eval named.onnx --loss=ce --data csv:some.csv --metric confusion
try names.again 0 '' ampc-run export tiny.ir --checkpoint named -o named.onnx -q
holds names.metadata [ "$(grep -c 'ampc.codes' named.onnx)" = 1 ]
# Predictions as arrays have the names as strings, which are not read as data; conversions keep all entries of the file.
ampc-run predict tiny.ir --data csv:some.csv --checkpoint named -o some.npz -q
holds names.npz /usr/bin/python3 -c 'import numpy as np
names = np.load("some.npz")["class_names"]
assert names.dtype.kind == "U" and names.tolist() == ["kind0", "kind1", "kind2"], names'
/usr/bin/python3 -c 'import onnx
m = onnx.load("named.onnx")
m.metadata_props.add(key="author", value="A \"B\"\nC\u00fc")
m.metadata_props.add(key="names", value="{0: \"kind0\"}")
onnx.save(m, "entries.onnx")'
for level in O0 O1; do ampc entries.onnx --amp=$level -o entries$level.onnx -q --roundtrip-each; done
holds names.entries /usr/bin/python3 -c 'import onnx
def entries(name): return sorted((e.key, e.value) for e in onnx.load(name).metadata_props)
want = entries("entries.onnx")
assert len(want) == 3 and want == entries("entriesO0.onnx") == entries("entriesO1.onnx"), want'
try names.converted 0 '^label 2 .kind2.: ' ampc-run eval entriesO1.onnx --loss=ce --data csv:some.csv --metric confusion
for suffix in npz csv; do
    try predict.folder.$suffix 4 "nowhere/p.$suffix: error: .*No such file" "${predict[@]}" -o nowhere/p.$suffix
    echo old >old.$suffix
    try predict.late.$suffix 1 'infinite|x' ampc-run predict tiny.ir --data npz:wide.npz -o old.$suffix
    holds predict.untouched.$suffix [ "$(cat old.$suffix)" = old ]
done
cat >sized.ir <<'END'
ampc-ir 3
const @zero : f32[] = 0
graph @infer(@x : f32[N,4]) as infer {
forward:
  %c = greater @x, @zero : bool[N,4]
  %p, %n = nonzero %c : i64[4*N,2], i64[]
  %t = trim %p, %n {size=[K]} : i64[K,2]
  %v = gather_nd @x, %t : f32[K]
  output "v" = %v
}
END
try train.default-batch 0 '^4 steps' ampc-run train tiny.ir --data npz:data.npz --epochs 1
try eval.json 0 '"samples": 256' ampc-run eval tiny.ir --data npz:data.npz --json
try train.idx 0 '^4 steps' ampc-run train tiny.ir --data idx:idx --batch 16 --epochs 1
try train.ends-inside-an-epoch 0 '"steps": 5, .*"eval_loss": [0-9.]*[1-9].*"accuracy": (0\.[0-9]+|1)' "${train[@]}" --steps 5 --json \
    --eval-data npz:data.npz
try train.json 0 '"steps": 5, .*"peak_bytes": [0-9]+' "${train[@]}" --steps 5 --json
try train.bf16 0 '^5 steps' ampc-run train bf16.ir --data npz:data.npz --batch 16 --steps 5
try train.synthetic 0 '^5 steps' ampc-run train tiny.ir --data synthetic --batch 16 --steps 5
try train.resume 0 '^64 steps' "${train[@]}" --epochs 4 --lr 0.02 --checkpoint-dir ck --resume
# Another length of a constant schedule is not another schedule; another rate is.
holds train.resume-length bash -c '! grep -q "the schedule was" .test/out'
cp -r ck rate.ck
try train.resume-rate 0 'the schedule was constant,lr=0.02.*; continuing with constant,lr=0.0[23]' \
    "${train[@]}" --epochs 5 --lr 0.03 --checkpoint-dir rate.ck --resume
try train.infinite 5 'loss' ampc-run train tiny.ir --data npz:infinite.npz --batch 16 --steps 2
# Nothing checks the gradients of fp32 in a step, but a state that is not finite is not saved, and the last step is run again.
root=(ampc-run train root.onnx --loss=ce --data npz:data.npz --batch 16 -q)
for how in '--amp=O0' '--amp=O0 --accumulate=2' '--amp=O0 --optimizer=adam --ema=0.9' '--dtype=bf16 --loss-scale=off'; do
    # shellcheck disable=SC2086  # a list of words
    try "train.unchecked.${how//[^a-z0-9]/}" 5 "node 'root' .Sqrt.: error: step 1: the update has made 'w' NaN.*backward has" \
        "${root[@]}" $how --steps 1
done
try train.unchecked-save 5 "node 'root' .Sqrt.: error: step 1: the update has made" "${root[@]}" --amp=O0 --steps 3 \
    --save-every 1 --checkpoint-dir root.ck
holds train.unchecked-unsaved [ -z "$(find root.ck -name '*.safetensors')" ]
try train.unchecked-next 5 "step 2: the loss is nan.*parameter 'w' .*an update has stored it" "${root[@]}" --amp=O0 --steps 3
try train.unchecked-allowed 0 '' "${root[@]}" --amp=O0 --steps 1 --allow-skipped-steps
try train.overflow 5 'loss scale|floor|skipped' ampc-run train hot.onnx --loss=l1 --data npz:hot.npz --batch 16 --steps 1000
# A flipped bit is detected anywhere in a checkpoint.
newest=$(ls ck/ckpt-*.safetensors | tail -n 1)
cp "$newest" good.safetensors
for offset in 4 40 400 -5 -300; do
    cp good.safetensors bad.safetensors
    size=$(stat -c %s bad.safetensors)
    at=$((offset < 0 ? size + offset : offset))
    byte=$(od -An -tu1 -j $at -N 1 bad.safetensors)
    printf "\\x$(printf %02x $((byte ^ 16)))" | dd of=bad.safetensors bs=1 seek=$at conv=notrunc status=none
    try "checkpoint.flip.$offset" 1 'bad.safetensors: ' ampc-run eval tiny.ir --checkpoint bad.safetensors --data npz:data.npz
done
head -c 1000 good.safetensors >bad.safetensors
try checkpoint.short 1 'bad.safetensors: ' ampc-run eval tiny.ir --checkpoint bad.safetensors --data npz:data.npz
cp bad.safetensors "$newest"
try checkpoint.resume 1 "${newest##*/}" "${train[@]}" --epochs 5 --lr 0.02 --checkpoint-dir ck --resume
try checkpoint.fallback 0 '^80 steps' "${train[@]}" --epochs 5 --lr 0.02 --checkpoint-dir ck --resume --resume-fallback
# A checkpoint continues at another precision, but not with another optimizer or loss.
for name in bf16,--dtype=bf16 momentum,--optimizer=momentum adam,--optimizer=adam,lr=0.01 nll,--loss=nll:s; do
    loss=--loss=ce:s optimizer=--optimizer=adamw,lr=0.01
    ampc tiny.onnx -o "other-${name%%,*}.ir" -q $loss $optimizer "${name#*,}"
done
resume=(--data npz:data.npz --batch 16 --epochs 6 --lr 0.02 --resume --checkpoint-dir)
cp -r ck crossed
try checkpoint.precision 0 'precision O1 f16\), continuing at O1 bf16; the loss scaler starts from its initial state' ampc-run train other-bf16.ir \
    "${resume[@]}" crossed
cp -r ck reset
try checkpoint.reset 0 '^96 steps' ampc-run train other-momentum.ir "${resume[@]}" reset --reset-optimizer
cp -r ck decay
try checkpoint.numbers 0 'the optimizer was adamw,.*decoupled=1.*continuing with adamw,.*decoupled=0' ampc-run train other-adam.ir \
    "${resume[@]}" decay
# Fine-tuning starts with the weights of a checkpoint, except those that match --reinit.
try tune.run 0 '^3 steps' "${train[@]}" --steps 3 --checkpoint good.safetensors --checkpoint-dir tuned
try tune.reinit 0 '^3 steps' "${train[@]}" --steps 3 --checkpoint good.safetensors --reinit 'w1'
/usr/bin/python3 - <<'PYTHON'
import json, numpy, struct
names = {"w1": (4, 8)}  # one tensor of the model, without hashes
header = json.dumps({n: {"dtype": "F32", "shape": list(s), "data_offsets": [0, 128]} for n, s in names.items()}).encode()
open("other.safetensors", "wb").write(struct.pack("<Q", len(header)) + header + numpy.ones((4, 8), "<f4").tobytes())
PYTHON
try tune.foreign-missing 1 'the file does not have this tensor of the model' "${train[@]}" --steps 3 --checkpoint other.safetensors
