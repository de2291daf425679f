# shellcheck shell=bash disable=SC2154,SC2034
# checking.sh - learning rates, and the search for numeric faults.
for schedule in polynomial,power=2 exponential one-cycle plateau,every=2 'constant,steps=2,warmup=2;cosine'; do
    try "schedule.$schedule" 0 '^5 steps' "${train[@]}" --steps 5 --lr-schedule "$schedule"
done
try scaling.off 0 'loss scale 1  ' "${train[@]}" --steps 5 --no-loss-scaling
try lr-find.run 0 '^learning rate [0-9.e-]+  smallest loss' ampc-run lr-find tiny.ir --data npz:data.npz --batch 16 --plot rates.svg
holds lr-find.plot grep -q 'learning rate</text>' rates.svg
try lr-find.json 0 '"lr": [0-9.e-]+, "loss"' ampc-run lr-find tiny.ir --data npz:data.npz --batch 16 --steps 40 --json
# ---- looking for numeric faults
/usr/bin/python3 - <<'PYTHON'
import numpy
d = dict(numpy.load("data.npz"))
d["x"] = d["x"].astype("f4")
d["x"][5].flat[1] = numpy.nan
numpy.savez("bad.npz", **d)
d["x"][5].flat[1] = 1e6
numpy.savez("large.npz", **d)
PYTHON
check=(ampc-run check tiny.onnx --loss=ce:s --batch 16 --dtype=fp16)
try check.clean 0 '^@grad: [0-9]+ values in 1 run, all finite' "${check[@]}" --data npz:data.npz
try check.synthetic 0 'all finite' "${check[@]}"
try check.data 5 "error: input 'x' .*has 1 NaN, the first at \[5," "${check[@]}" --data npz:bad.npz
try check.overflow 5 "node .*: error: 'x.h' f16.* has 1 infinity.*operands: 'x' .* 1e\+06" "${check[@]}" --data npz:large.npz
try check.inputs 0 'all finite' ampc-run check tiny.onnx --entry infer --input x=x.npy
try check.train 0 '^@train_step: .* in 4 runs' "${check[@]}" --data npz:data.npz --entry train_step --steps 4
try check.train-stops 5 "note: this is step [0-9]+," "${check[@]/--dtype=fp16/-v}" --amp=O0 --data npz:bad.npz --entry train_step --steps 20
try check.scale 0 'overflow|skips the step|all finite' "${check[@]}" --data npz:data.npz --init-loss-scaling=1e9
holds check.scale-finite grep -qE 'with [0-9.e+]+ everything is finite: dynamic loss scaling skips the step' .test/out
try check.static 5 'the loss scale is 1e\+09, with' "${check[@]}" --data npz:data.npz --init-loss-scaling=1e9 --loss-scale=static
try check.paddle 5 '^\[PRECISION\] \[ERROR\] in \[device=cpu, op=feed, tensor=x, dtype=fp32\], numel=[0-9]+, num_nan=1, num_inf=0, num_zero=[0-9]+, max=[0-9.e+-]+, min=[0-9.e+-]+, mean=nan$' \
    "${check[@]}" --data npz:bad.npz --format=paddle
try check.report 5 '^result .* NaN|^result ' "${check[@]}" --data npz:bad.npz --nan-inf=report
try check.json 5 '"first": \{"node": "", "op": "", "phase": ""' "${check[@]}" --data npz:bad.npz --json
try check.histogram 0 '' "${check[@]}" --data npz:data.npz --histogram=h.csv
holds check.histogram-rows grep -qE '^gradient,d\.' h.csv
# Training and evaluation that end with status 5 say the same.
try explain.train 5 "step [0-9]+: the loss is nan before scaling.*: input 'x' .*has 1 NaN" \
    ampc-run train tiny.onnx --loss=ce:s --amp=O0 --data npz:bad.npz --batch 16 --steps 20
try explain.eval 5 "the loss is not finite: input 'x' .*has 1 NaN" ampc-run eval tiny.onnx --loss=ce:s --data npz:bad.npz --batch 16
compare=(ampc-run compare tiny.onnx --loss=ce:s --batch 16 --data npz:data.npz)
try compare.run 0 '^loses most: (forward|backward) ' "${compare[@]}"
try compare.files 0 '' "${compare[@]}" -q --csv c.csv --html c.html
holds compare.csv grep -qE '^op_type,tensor_name,numel,infinite,fp32_dtype,.*,fp16_num_inf,fp16_num_nan,' c.csv
holds compare.html grep -q '</html>' c.html
holds compare.offline sh -c '! grep -qE "https?:|<script|src=" c.html'
try compare.json 0 '"loses_most": \{"tensor"' "${compare[@]}" --json
# ---- calibration: three places that overflow, each in one sample of 100
/usr/bin/python3 "$here/three_places.py"
calibrate=(ampc-run calibrate three.onnx --data npz:three.npz)
try calibrate.one 0 'nothing has to be added' "${calibrate[@]}" --samples 1
try calibrate.some 0 'fp16 overflows at 1 place, healed by 1 line' "${calibrate[@]}" --samples 18 --batch 5
try calibrate.all 0 'fp16 overflows at 3 places, healed by 3 lines' "${calibrate[@]}" -o three.amplist --histogram three.json
holds calibrate.lines test "$(awk '/^\[/ { on = $1 == "[tensors]" } on { print $1 }' three.amplist | tr '\n' ' ')" = '[tensors] big1 big2 big3 '
holds calibrate.reason grep -qE '^big1  # .* exceeds 65504, 1 of 800 values overflow, the largest in row 17' three.amplist
holds calibrate.histogram grep -q '"name":"big2","node":"square","op":"Mul","kind":"activation","count":800' three.json
for list in none three.amplist; do # without fusion, as in another runtime, all intermediate values are fp16
    [ "$list" = none ] && use=() || use=(--list "$list")
    ampc three.onnx -q -o "three.$list.onnx" "${use[@]}"
    ampc-run predict three.onnx -q --dtype=fp16 --no-fuse --data npz:three.npz -o "$list.run.npz" "${use[@]}"
    ampc-run predict "three.$list.onnx" -q --amp=O0 --no-fuse --data npz:three.npz -o "$list.onnx.npz"
done
ampc-run predict three.onnx -q --amp=O0 --data npz:three.npz -o three.f32.npz
/usr/bin/python3 "$here/three_places.py" check {three.amplist,none}.{run,onnx}.npz >three.txt
holds calibrate.healed test "$(tr '\n' ' ' <three.txt)" = \
    'three.amplist.run.npz finite three.amplist.onnx.npz finite none.run.npz overflows none.onnx.npz overflows '
mkdir places
holds calibrate.places /usr/bin/python3 "$here/overflow_places.py" places
try calibrate.gradients 0 "loss scale: at most [0-9]+; '.*' has gradients up to" \
    ampc-run calibrate tiny.onnx --loss=ce:s --data npz:data.npz
try calibrate.bad 0 "warning: not finite in fp32 either: input 'x' .*has 1 NaN" \
    ampc-run calibrate tiny.onnx --loss=ce:s --data npz:bad.npz
try calibrate.json 0 '"dtype": "(fp16|bf16)", "reason": "' "${calibrate[@]}" --json
try tune.sized 3 "node 'places' \(NonZero\): error: has no derivative: the size of its result depends on data" \
    ampc-run tune places.onnx --data npz:three.npz --budget='error<=1'
try tune.bad 0 'warning: [0-9]+ values of the outputs are not finite in fp32 either' \
    ampc-run tune tiny.onnx --data npz:bad.npz --budget='error<=1'
