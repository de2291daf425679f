# shellcheck shell=bash disable=SC2154,SC2034
# describing.sh - ampc-run info.
json() { /usr/bin/python3 -c "import json; info = json.load(open('.test/out')); assert $1, info"; }
try info.refused 0 '^ +Frobnicate +1  no: one$' ampc-run info unknown.onnx
holds info.refused.where grep -Eq '^ +Whirl +1  no: three$' .test/out
holds info.refused.known grep -Eq '^ +Relu +1  yes$' .test/out
holds info.refused.types grep -q '^inputs  *x: f32\[N,4\]$' .test/out
holds info.refused.why grep -Eq "^refused +unknown.onnx: node 'one' \(Frobnicate\): error: operator Frobnicate is not" .test/out
holds info.refused.next grep -q '^next  *ampc unknown.onnx -o model.amp.onnx converts' .test/out
try info.refused.json 0 '' ampc-run info unknown.onnx --json
holds info.refused.members json 'info["supported"] is False and [o["name"] for o in info["operators"] if not o["supported"]] == ["Frobnicate", "Whirl"] and len(info["problems"]) == 2'
try info.no-gradient 0 '^ +Det +1  no, in 1 node: volume$' ampc-run info volume.onnx --loss=mse --grad-penalty=L2:input,1
holds info.no-gradient.others grep -Eq '^ +Mul +1  yes +yes +yes ' .test/out

try info.checkpoint 0 '^checkpoint  best/ckpt-0000000096.safetensors, version 2, all tensors intact$' ampc-run info best
holds info.checkpoint.others grep -q '^ *also best/best.safetensors$' .test/out
holds info.checkpoint.progress grep -q '^progress  *step 96, 0 of them skipped; epoch 7, 0 batches of it used$' .test/out
holds info.checkpoint.best grep -Eq '^best +f1_macro 0\.[0-9]+ at step [0-9]+, ' .test/out
holds info.checkpoint.parameters grep -q '^ *w1: f32\[4,32\]$' .test/out
holds info.checkpoint.next grep -q '^next  *ampc-run info MODEL --checkpoint=best (says' .test/out
try info.checkpoint.json 0 '' ampc-run info best/best.safetensors --json
holds info.checkpoint.members json 'info["checkpoint"] and info["source"] == "tiny.onnx" and info["batch"] == 16 and info["best"]["metric"] == "f1_macro" and info["parameters"]["types"]["w2"] == "f32[32,3]" and info["state"]["step"] == info["step"]'
try info.weights 0 '^weights +tiny.safetensors, without the state of a training$' ampc-run info tiny.safetensors
try info.fits 0 '^checkpoint +best/ckpt-[0-9]*.safetensors: written by this module$' ampc-run info tiny.ir --checkpoint best
try info.fits.network 0 'of the same network, compiled with other options' \
    ampc-run info tiny.onnx --loss=ce:s --amp=O0 --checkpoint best
try info.fits.nothing 0 'of another network' ampc-run info spans.onnx --checkpoint best --dim T=2
holds info.damage /usr/bin/python3 -c 'data = open("best/best.safetensors", "rb").read()
open("cut.safetensors", "wb").write(data[:len(data) // 2])
open("flip.safetensors", "wb").write(data[:-5] + bytes([data[-5] ^ 1]) + data[-4:])
open("none.safetensors", "wb")
open("renamed.bin", "wb").write(data)'
try info.checkpoint.flip 1 "flip.safetensors: tensor '.*': error: damaged: the tensor's hash is wrong" ampc-run info flip.safetensors
try info.checkpoint.content 0 '^checkpoint  renamed.bin,' ampc-run info renamed.bin
holds info.checkpoint.mutations /usr/bin/python3 -c 'import random, subprocess
draw, data = random.Random(5), open("best/best.safetensors", "rb").read()
for i in range(40):
    bytes_ = bytearray(data)
    for k in range(1 + i % 3):
        at = draw.randrange(1400 if i % 2 else len(bytes_))
        bytes_[at:at + i % 5] = draw.randbytes(draw.randrange(4))
    open("mutated.safetensors", "wb").write(bytes_)
    run = subprocess.run(["ampc-run", "info", "mutated.safetensors"] + ["--json"] * (i % 2), capture_output=True)
    assert run.returncode in (0, 1) and (run.returncode == 0 or b"error: " in run.stderr), (i, run)'

try info.data 0 '^samples +256 for --data, 256 for --eval-data$' ampc-run info npz:data.npz
holds info.data.fields grep -Eq '^arrays +x: f32\[4\], -[0-9.]+ to [0-9.]+, mean ' .test/out
holds info.data.classes grep -Eq '^ +2: [0-9]+$' .test/out
printf 'a,label\n1,x\n,y\n3,x\n' >gaps.csv
try info.data.csv 0 "column 'a': 1 of 3 values are missing, the first in line 3" ampc-run info csv:gaps.csv
try info.data.split 0 '^samples +192 for --data, 64 for --eval-data$' ampc-run info csv:data.csv,validation=0.25
try info.data.json 0 '' ampc-run info idx:idx --json
holds info.data.members json 'info["samples"] == 64 and info["evaluation_samples"] == 64 and sum(c["count"] for c in info["arrays"][1]["classes"]) == 64 and info["arrays"][0]["type"] == "f32[2,2]"'
try info.data.model 0 '^arrays +those that the model reads$' ampc-run info synthetic
try info.data.infinite 0 '0 infinite|256 infinite values' ampc-run info npz:infinite.npz

printf '%s\n' 'ampc-recipe 1' 'model M = "tiny.onnx"' 'input x' 's, p = M(x)' 'input label' 'loss l = ce(s, label)' \
    'option --dtype=bf16' 'train M by adam,lr=0.1 on l' >info.recipe
try info.recipe 0 '^trains +1: M\.\* by adam,lr=0.1 on l$' ampc-run info info.recipe
holds info.recipe.model grep -q '^models  *M: tiny.onnx$' .test/out
holds info.recipe.loss grep -q '^losses  *l: ce:' .test/out
holds info.recipe.option grep -q '^options  *--dtype=bf16$' .test/out
