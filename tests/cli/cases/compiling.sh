# shellcheck shell=bash disable=SC2154,SC2034
# compiling.sh - help, usage, compiling, lists of operators, drawings.
try help.ampc 0 '^usage: ampc MODEL.onnx' ampc --help
holds help.short [ "$(wc -l <.test/out)" -le 28 ]
try help.all 0 'fp32-node=GLOB' ampc --help=all
holds help.exit grep -qE '^  3  .*not supported$' .test/out
try help.run 0 'ampc-run VERB MODEL' ampc-run --help
try help.opt 0 '--pass' ampc-opt --help
for verb in infer train eval grad bench plan export; do
    try "help.$verb" 0 "^usage: ampc-run $verb MODEL" ampc-run $verb --help
    try "help.all.$verb" 0 '--strict' ampc-run $verb --help=all
done
for program in ampc ampc-run ampc-opt; do
    try "version.$program" 0 "^$program [0-9]+\.[0-9]+\.[0-9]+" $program --version
done
# What other programs call an option or a loss.
try usage.normalize.axis 1 'no axis of 1000 channels' ampc tiny.onnx -o a.ir \
    --normalize=mean="$(seq -s/ 1000)"
try usage.short-alias 0 "ampc 0" ampc -q --version
for name in fp16:float16 fp16:half fp16:f16 bf16:bfloat16; do
    try "usage.alias.${name#*:}" 0 "float ops in ${name%:*}" ampc tiny.onnx -o alias.ir --dtype="${name#*:}"
done
try usage.before-verb 0 'median' ampc-run --device cpu --threads=1 bench tiny.onnx --dim N=2 --iterations 2 --warmup 0

# ---- compiling ----------------------------------------------------------------------------------------------------
summary='^[0-9]+/[0-9]+ float ops in (fp16|bf16|low precision), [0-9]+ fp32.*[0-9]+ casts inserted( .*removed)?$'
try compile.infer 0 "$summary" ampc tiny.onnx -o infer.ir
holds compile.note grep -q 'note: no loss, so no training step' .test/out
holds compile.summary-last bash -c "tail -n 1 .test/out | grep -qE '$summary'"
try compile.train 0 "$summary" ampc tiny.onnx -o tiny.ir --loss=ce:s --optimizer=adamw,lr=0.01
holds compile.sidecar test -s tiny.safetensors
try compile.bf16 0 'in bf16' ampc tiny.onnx -o bf16.ir --dtype=bf16 --loss=ce:s
try compile.o0 0 '0 casts inserted' ampc tiny.onnx -o o0.ir --amp=O0 --loss=ce:s
try compile.separate 0 "$summary" ampc tiny.onnx -o sep.ir --loss ce:s --optimizer sgd,lr=0.1 --dtype fp16
try compile.reference 0 "$summary" ampc tiny.onnx -o reference.ir --weights=reference
holds compile.reference-file grep -q 'file("tiny.onnx"' reference.ir
cp "$here/../goldens/gpt2/model.onnx" gpt2.onnx
try compile.reference-computed 0 '' ampc gpt2.onnx -q -o gpt2.ir --weights=reference
holds compile.reference-no-values bash -c "! grep -q 'bytes \"' gpt2.ir && test -s gpt2.safetensors"
mkdir -p below
try compile.reference-dir 0 "$summary" ampc tiny.onnx -o below/reference.ir --weights=reference --weights-dir=.
try reference.dir 0 '^output/p' ampc-run infer below/reference.ir --input x=x.npy --weights-dir=.
# Edits a sealed text and drops its seal, as a user would.
edit() { sed -e '1s/ sealed//' -e '/^end /d' -e "$1"; }
edit 's|file("tiny.onnx"|file("/etc/passwd"|' <reference.ir >passwd.ir
try compile.stdout 0 '^graph @infer' ampc tiny.onnx -o - --weights=reference
try compile.onnx 0 "$summary" ampc tiny.onnx -o tiny.amp.onnx
try compile.onnx-again 0 '^output/p' ampc-run infer tiny.amp.onnx --amp=O0 --input x=x.npy
try compile.quiet 0 '' ampc tiny.onnx -o q.ir -q
holds compile.quiet-empty test ! -s .test/out
try compile.explain 0 'fc1/MatMul \(MatMul\): white, fp16' ampc tiny.onnx --explain all
try compile.explain-json 0 '"name": "softmax", "op": "Softmax"' ampc tiny.onnx --explain softmax --json
# the trained initializers
trained='note: 2 initializers trained \(13 elements\), 2 held constant: onnx::Div_9, mask'
try params.note 0 "$trained" ampc masked.onnx -o masked.ir --loss=mse
holds params.held bash -c 'grep -qE "^const +@mask " masked.ir && grep -qE "^param +@temperature " masked.ir'
try params.quiet 0 '' ampc masked.onnx -o masked.ir --loss=mse -q
holds params.quiet-empty test ! -s .test/out
try params.inference 0 "$summary" ampc masked.onnx -o infer.ir
holds params.inference-silent bash -c '! grep -q "held constant" .test/out'
holds params.stdout bash -c 'ampc masked.onnx -o - --weights=reference --loss=mse 2>/dev/null | head -n 1 | grep -qx "ampc-ir 3"'
try params.explain 0 '^mask: f32\[4,4\], 16 elements, held constant: a mask' ampc masked.onnx --explain=params
holds params.explain-rest bash -c 'grep -q "^bound: .* constant: a setting of an operator: a bound" .test/out &&
    grep -q "^onnx::Div_9: .* held constant: one element with a name" .test/out && grep -q "^w: .* trained .rule default.$" .test/out'
ampc masked.onnx --explain=params --json 2>/dev/null >params.json
holds params.explain-json env PATH=/usr/bin:/bin python3 -c 'import json; rows = [json.loads(line) for line in open("params.json")]
assert {r["name"]: r["state"] for r in rows} == {"onnx::Div_9": "held constant", "temperature": "trained",
    "mask": "held constant", "w": "trained", "bound": "constant"}, rows'
merged='note: 3 initializers that the exporter had merged are separate: 1 parameter, 2 running'
try params.merged 0 "$merged statistics" ampc merged.onnx -o merged.ir --loss=mse --mode=train --strict
holds params.merged-kinds bash -c 'grep -qE "^param +@fc.bias " merged.ir && grep -qE "^param +@bn.weight " merged.ir &&
    grep -qE "^state +@bn.running_var " merged.ir && grep -qE "^state +@bn.running_mean " merged.ir'
try params.no-untie 0 'note: 2 initializers that .* are separate: 2 running statistics$' \
    ampc merged.onnx -o tied.ir --loss=mse --no-untie
holds params.no-untie-kinds bash -c '! grep -q @fc.bias tied.ir && grep -qE "^state +@bn.running_var " tied.ir'
try params.merged-convert 0 "$summary" ampc merged.onnx -o merged.amp.onnx --strict
holds params.merged-silent bash -c '! grep -qE "warning|merged are" .test/out'
try params.merged-explain 0 '^fc.bias: .* trained .rule default. facts merged.$' ampc merged.onnx --explain=params
try params.read 0 "^half: f32.*held constant: an operator needs its value at compile time" ampc ratio.onnx --explain=params
try params.setting 0 'note: 1 initializer trained \(1 elements\)' ampc limit.onnx -o limit.ir --loss=mse --strict
stopped="node 'align' .RoiAlign.: warning: no gradient flows through 'rois'"
try params.stopped 0 "$stopped" ampc regions.onnx -o regions.ir --loss=mse
try params.stopped-inference 0 "$summary" ampc regions.onnx -o regions.ir --strict
try params.train-glob 0 "$trained" ampc masked.onnx -o masked.ir --loss=mse --train='*'
try params.train-name 0 'note: 1 initializer trained \(16 elements\), 2 frozen, 1 held constant: onnx::Div_9' \
    ampc masked.onnx -o masked.ir --loss=mse --train=mask
holds params.trained grep -qE '^param +@mask ' masked.ir
try params.train-steps 0 '^3 steps' ampc-run train masked.onnx --loss=mse --optimizer=adamw --data synthetic --steps 3 --batch 2 \
    --checkpoint-dir masked.ckpt
ampc masked.onnx -o masked.ir -q --loss=mse --optimizer=adamw
try params.export 0 '' ampc-run export masked.ir --checkpoint masked.ckpt -o masked.trained.onnx
holds params.export-held env PATH=/usr/bin:/bin python3 -c 'import onnx
from onnx import numpy_helper
before, after = ({t.name: numpy_helper.to_array(t).tobytes() for t in onnx.load(name).graph.initializer}
                 for name in ("masked.onnx", "masked.trained.onnx"))
assert {name for name in before if before[name] != after[name]} == {"temperature", "w"}'
try params.train-bound 0 'note: 1 initializer trained \(1 elements\)' ampc masked.onnx -o a.ir --loss=mse --train=bound
try params.train-none 0 "warning: --train: 'musk' matches no parameter" ampc masked.onnx -o masked.ir --loss=mse --train=musk --train=w
try compile.stats 0 'Op Name' ampc tiny.onnx -o s.ir --stats
try compile.stats-json 0 '"ops": \{"MatMul": \{"fp16": 2' ampc tiny.onnx -o s.ir --stats --json
try compile.print-ops 0 '^matmul +white' ampc --print-ops
try compile.print-ops-json 0 '"op": "matmul"' ampc --print-ops=json
try compile.list-passes 0 '^autodiff' ampc --list-passes
try compile.dump 0 '^# after amp' ampc tiny.onnx -o s.ir --dump-after=amp
try compile.timing 0 '^import ' ampc tiny.onnx -o s.ir --timing
try compile.black 0 'MatMul.*black' ampc tiny.onnx --explain all --black=MatMul
try compile.dim 0 "$summary" ampc tiny.onnx -o s.ir --dim N=16
holds compile.dim-bound grep -q '@x : f32\[16,4\]' s.ir
printf '[nodes]\n"gemm #1" = fp32\n[gr]* = fp16\n[tensors]\n"[a]"\n' >names.amplist
try list.names 0 "tensor '\[a\]' is not in the model" ampc tiny.onnx -o s.ir --list names.amplist --emit-list again.amplist
holds list.names.quoted grep -qxF '"[gr]*" = fp16' again.amplist
try list.names.again 0 "tensor '\[a\]' is not in the model" ampc tiny.onnx -o s.ir --list again.amplist --emit-list more.amplist
holds list.names.same cmp again.amplist more.amplist
printf '[black]\nMatMul\n-Exp\n[nodes]\ngemm* = fp32\n' >black.amplist
try compile.emit-list 0 "$summary" ampc tiny.onnx -o s.ir --emit-list emitted.amplist --white Gelu
try compile.emitted-list 0 "$summary" ampc tiny.onnx -o s.ir --list emitted.amplist
try list.atc 0 "black.amplist:5:1: warning: a list for ATC cannot express the node 'gemm\*'" ampc tiny.onnx -o s.ir \
    --list black.amplist --white=Gelu --emit-list atc.json
try list.atc.rule 0 "warning: --emit-list: a list for ATC cannot express the rule 'range'" ampc tiny.onnx -o s.ir --list black.amplist \
    --rule=range=off --emit-list atc.json
holds list.atc.text diff - atc.json <<'END'
{
  "black-list": {"to-add": ["MatMul", "MatMulV2", "BatchMatMul", "BatchMatMulV2"], "to-remove": ["Exp"]},
  "white-list": {"to-add": [], "to-remove": []},
  "gray-list": {"to-add": []}
}
END
try list.atc.strict 1 "cannot express the rule 'range'" ampc tiny.onnx -o s.ir --strict --rule=range=off --emit-list no.json
try list.atc.again 0 'atc.json:2' ampc tiny.onnx --list atc.json --explain all --emit-list atc2.json
holds list.atc.same cmp atc.json atc2.json
try compile.mincut 0 'predicted on gpu: ' ampc tiny.onnx -o s.ir -v --placement=mincut
try compile.mincut-soft 0 "$summary" ampc tiny.onnx -o s.ir --placement=mincut --white-soft --strict
try compile.mincut-explain 0 '"alone_in": "f' ampc tiny.onnx --explain all --json --placement=mincut --target=bytes
try compile.list 0 'good.amplist:5' ampc tiny.onnx --explain all --list good.amplist
# Each list file is opened once, so a pipe of the shell works as well as a file. A FIFO might never have a writer.
printf '[black]\nMatMul\n[rules]\nscaling = 512, 7, 3, 4, 0.25\n' >once.amplist
once='ampc tiny.onnx -q -o - --weights=reference --loss=mse --stats --list'
mkfifo once.fifo
try list.file 0 '' bash -c "$once once.amplist --emit-list file.amplist >file.ir"
try list.pipe 0 '' bash -c "$once <(cat once.amplist) --emit-list pipe.amplist >pipe.ir"
try list.stdin 0 '' bash -c "cat once.amplist | $once /dev/stdin --emit-list stdin.amplist >stdin.ir"
try list.fifo 4 'not a regular file, but a pipe' $once once.fifo
rm once.fifo
holds list.scaling grep -q 'incr_every=7' file.ir
for form in pipe stdin; do
    holds list.$form-ir cmp file.ir $form.ir
    holds list.$form-emitted cmp file.amplist $form.amplist
done
try compile.same 0 '^graph' ampc-opt tiny.ir
holds compile.canonical bash -c 'ampc-opt tiny.ir -o sealed.ir && cmp tiny.ir sealed.ir'
# At level O2 each parameter has a low-precision copy, whether or not a gradient reaches it, so only the cast
# of x is left.
try paddle.apart 0 ' 1 casts inserted' ampc apart.onnx -o apart.ir --profile=paddle-3 --amp=O2 --no-keep-io-types
holds paddle.apart-copies [ "$(sed -n '/@infer/,/^}/p' apart.ir | grep -c 'low-precision copy of the parameter')" -eq 3 ]
try paddle.apart-train 0 'note: 1 initializer trained \(16 elements\)' ampc apart.onnx -o apart.ir --loss=mse:z
try params.apart 0 '^p: .* constant: no output has a derivative with respect to it .rule apart' ampc apart.onnx --explain=params
try compile.warning 0 "warning: unknown operator 'MatMull'" ampc tiny.onnx -o s.ir --list unknown.amplist
try colour.always 0 $'\033\\[1;35mwarning:' ampc tiny.onnx -o s.ir --list unknown.amplist --color=always
try colour.never 0 '^unknown.amplist:2:1: warning:' ampc tiny.onnx -o s.ir --list unknown.amplist --color=never

# ---- levels and devices
try compile.o2 0 'float ops in fp16' ampc tiny.onnx -o o2.ir --amp=O2
try later.cuda 6 'cuda' ampc-run infer tiny.ir --input x=x.npy --device cuda

# ---- drawings --------------------------------------------------------------------------------------------------------
try draw.dot 0 'float ops in' ampc tiny.onnx -o tiny.dot
holds draw.diamond grep -q 'label="f16", shape=diamond' tiny.dot
holds draw.edges grep -Eq '^  [ins][0-9]+ -> n[0-9]+;$' tiny.dot
ln -sf "$(command -v ampc)" .test/ampc
try draw.no-graphviz 4 "requires Graphviz' program 'dot', which is not installed" env PATH=.test ampc tiny.onnx -o tiny.svg
holds draw.no-graphviz.file [ ! -e tiny.svg ]
printf '#!/bin/sh\necho "<svg>"; cat >/dev/null\n' >.test/dot
chmod +x .test/dot
try draw.svg 0 'float ops' env PATH=".test:$PATH" ampc tiny.onnx -o tiny.svg
holds draw.svg.file grep -q '<svg>' tiny.svg
try draw.loss 0 'float ops in' ampc loss.onnx -o loss.dot
holds draw.loss.op grep -q 'LayerNormalization' loss.dot
printf '#!/bin/sh\nexit 1\n' >.test/dot
try draw.fails 4 "'dot' failed" env PATH=".test:$PATH" ampc tiny.onnx -o tiny2.svg
