# shellcheck shell=bash disable=SC2154,SC2034
# exporting.sh - export, normalised inputs, penalties, old modules, fp16 weights, signals.
try export.run 0 '' ampc-run export tiny.ir --checkpoint good.safetensors -o trained.onnx
try export.weights 0 '' ampc-run export tiny.ir --checkpoint good.safetensors -o weights.safetensors
try export.weights-read 0 '^output/p' ampc-run infer tiny.onnx --checkpoint weights.safetensors --input x=x.npy
cp .test/out weights.txt
try export.weights-same 0 '^output/p' ampc-run infer tiny.onnx --checkpoint good.safetensors --input x=x.npy
holds export.weights-equal cmp .test/out weights.txt
try export.again 0 '^output/p' ampc-run infer trained.onnx --amp=O0 --input x=x.npy

# ---- normalised inputs: training, export and emission compute the same from raw data ---------------------------------------------
/usr/bin/python3 -c "
import numpy as np
f = np.load('data.npz')
np.savez('raw.npz', **{k: f[k] * 64 + 100 if f[k].dtype.kind == 'f' else f[k] for k in f.files})
np.save('raw.npy', np.load('x.npy') * 64 + 100)"
scaled=(--amp=O0 --normalize=divide=64,mean=1.5625)
try normalize.compile 0 '' ampc tiny.onnx -o scaled.ir "${scaled[@]}" --loss=ce
try normalize.train 0 '^9 steps' ampc-run train scaled.ir --data npz:raw.npz --steps 9 --batch 8 --lr 0.1 --checkpoint-dir scaled.ck
try normalize.infer 0 '' ampc-run infer scaled.ir --checkpoint scaled.ck --input x=raw.npy -o scaled.npz
try normalize.export 0 '' ampc-run export scaled.ir --checkpoint scaled.ck -o scaled.onnx
try normalize.exported 0 '' ampc-run infer scaled.onnx --amp=O0 --input x=raw.npy -o exported.npz
try normalize.emit 0 '' ampc tiny.onnx -o emitted.onnx "${scaled[@]}"
try normalize.emitted 0 '' ampc-run infer emitted.onnx --amp=O0 --input x=raw.npy -o emitted.npz
try normalize.raw 0 '' ampc-run infer tiny.onnx --amp=O0 --input x=x.npy -o plain.npz
try normalize.again 0 '' ampc scaled.onnx -o again.ir "${scaled[@]}" --loss=ce # the names of the new nodes exist already
try normalize.twice 0 '' ampc-run export again.ir --checkpoint scaled.ck -o twice.onnx
try normalize.double 0 '' ampc-run infer twice.onnx --amp=O0 --input x=raw.npy
holds normalize.same /usr/bin/python3 -c "
import numpy as np
a, b, c, d = (np.load(f + '.npz')['output/p'] for f in ('scaled', 'exported', 'emitted', 'plain'))
assert (a == b).all() and abs(c - d).max() < 1e-5 and abs(a - c).max() > 1e-3"

# ---- penalty of the gradient: not in an evaluation; a resumed run has the same bits ---------------------------------------------
ampc modes.onnx -o plain.ir -q --seed=3
ampc modes.onnx -o penalty.ir -q --seed=3 --grad-penalty=L2:params,0.5 --accumulate=2 --clip-norm=1
for model in plain penalty; do ampc-run eval $model.ir --data npz:data.npz --json >$model.json; done
holds penalty.eval grep -qF "$(grep -o '"loss": [0-9.]*' plain.json)" penalty.json
penalized=(ampc-run train penalty.ir --data npz:data.npz --batch 8 --lr 0.05)
try penalty.train 0 '^9 steps' "${penalized[@]}" --steps 9 --checkpoint-dir penalty.a
try penalty.half 0 '^5 steps' "${penalized[@]}" --steps 5 --checkpoint-dir penalty.b
try penalty.resume 0 '^9 steps' "${penalized[@]}" --steps 9 --checkpoint-dir penalty.b --resume
holds penalty.bitwise cmp penalty.a/ckpt-0000000009.safetensors penalty.b/ckpt-0000000009.safetensors

# ---- modules and a checkpoint in old versions of the text -------------------------------------------------------------------
mkdir old
cp "$here/../models/mlp.onnx" "$here"/../expect/old/files/* old
mkdir old/ck
mv old/ckpt-0000000006.safetensors old/ck
for module in control.0.900 gan.1.732; do
    try "old.train.${module%%.*}" 0 "^2 steps  loss ${module#*.}" \
        ampc-run train "old/${module%%.*}.ir" --data=synthetic --batch 8 --steps 2 --seed 1
done
try old.roles 0 'as slot m @fc1.weight' ampc-opt old/mlp.ir
try old.resume 0 '^9 steps' ampc-run train old/mlp.ir --data synthetic --batch 16 --steps 9 --checkpoint-dir old/ck --resume
holds old.saved test -e old/ck/ckpt-0000000009.safetensors
try old.eval 0 '^loss ' ampc-run eval old/mlp.ir --checkpoint old/ck --data synthetic --batch 16
try old.infer 0 '^output/scores' ampc-run infer old/mlp.ir --input x=x.npy
try old.export 0 '' ampc-run export old/mlp.ir --checkpoint old/ck -o old/trained.onnx
try old.exported 0 'float ops' ampc old/trained.onnx -o old/trained.ir --loss=ce

# ---- weights that the model stores in fp16 ----------------------------------------------------------------------------------
for level in O0 O1; do
    try "half.compile.$level" 0 'float ops' ampc half.onnx -o half.ir --amp=$level --loss=ce --optimizer=sgd,lr=1e-4
    ampc-run grad half.ir --inputs batch.npz -o "half.$level.npz" -q
    try "half.train.$level" 0 '^5 steps' ampc-run train half.ir --data npz:batch.npz --batch 8 --steps 5 --checkpoint-dir "half.$level"
    try "half.export.$level" 0 '' ampc-run export half.ir --checkpoint "half.$level" -o "half.$level.onnx"
    # Each of five updates alone would be lost in fp16. The master weights accumulate them, and the export
    # contains the masters.
    holds "half.masters.$level" /usr/bin/python3 - "half.$level" <<'PYTHON'
import glob, json, struct, sys
import numpy as np, onnx
from onnx import numpy_helper
name = sys.argv[1]
data = open(glob.glob(name + "/*.safetensors")[0], "rb").read()
size, = struct.unpack("<Q", data[:8])
head, grad = json.loads(data[8:8 + size]), np.load(name + ".npz")
stored = {t.name: numpy_helper.to_array(t) for t in onnx.load("half.onnx").graph.initializer}
exported = {t.name: numpy_helper.to_array(t) for t in onnx.load(name + ".onnx").graph.initializer}
for key, first in stored.items():
    entry = head["param/" + key]
    assert entry["dtype"] == "F32", entry
    begin, end = entry["data_offsets"]
    master = np.frombuffer(data[8 + size + begin:8 + size + end], "<f4").reshape(first.shape)
    moved, step = master - first.astype("f4"), -1e-4 * grad["grad/" + key]
    assert grad["grad/" + key].dtype == np.float32 and abs(step).max() > 1e-6
    assert abs(moved - 5 * step).max() < 1e-2 * abs(5 * step).max(), (key, moved, step)
    assert exported[key].dtype == np.float16 and (exported[key] == master.astype("f2")).all(), key
    assert all((first - step.astype("f2") == first).ravel()[abs(first).ravel() > 0.3]), "fp16 keeps the steps: no test"
PYTHON
done

# ---- signals ---------------------------------------------------------------------------------------------------------------------
for signal in INT:130 TERM:143; do
    name=signal.${signal%:*}
    ampc-run train tiny.ir --data npz:data.npz --batch 16 --steps 100000000 --checkpoint-dir "$name" \
        --log "$name.jsonl" >.test/out 2>&1 &
    child=$!
    while kill -0 $child && ! [ -s "$name.jsonl" ]; do
        sleep 0.1
    done
    kill "-${signal%:*}" $child
    wait $child
    holds "$name.status" [ $? -eq "${signal#*:}" ]
    holds "$name.note" grep -q 'stopped by signal' .test/out
    holds "$name.checkpoint" bash -c "ls $name/ckpt-*.safetensors"
    try "$name.resume" 0 ' steps ' ampc-run train tiny.ir --data npz:data.npz --batch 16 \
        --steps $(($(grep -c '"loss"' "$name.jsonl") + 3)) --checkpoint-dir "$name" --resume
done
