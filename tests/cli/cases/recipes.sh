# shellcheck shell=bash disable=SC2154,SC2034
# recipes.sh - recipes of several models.
cp -r "$here/../train/linked" linked
ln -sfn /etc/passwd outside # what a recipe may neither read nor replace
echo kept >victim
printf '[rules]\nunsupported = /etc/passwd\n' >names.amplist
recipe() { printf 'ampc-recipe 1\nmodel M = "linked/mlp.onnx"\n%b\n' "$1" >bad.recipe; } # the text begins in line 3
rows recipes.rows recipe ampc bad.recipe -o new.ir --amp=O0
holds recipe.kept grep -qx kept victim
gan=linked/gan.recipe
recipe "input x\ny = M(x)\nloss l = mse(y, 0)$(printf ' + mse(y, 0)%.0s' {1..300})"
try recipe.many-terms 1 'more than 256 terms' ampc bad.recipe -o new.ir
recipe "input x\ny = M(x)\nloss l = mse(y, 0)\ntrain M by sgd$(printf ',lr=0.1%.0s' {1..300}) on l"
try recipe.many-options 1 'more than 256 words of an optimizer' ampc bad.recipe -o new.ir
try recipe.compile 0 "$summary" ampc $gan -o gan.ir
try recipe.dim 0 "$summary" ampc $gan -o gan8.ir --dim N=8
holds recipe.dim.module grep -q '@x : f32\[8,4\]' gan8.ir
try recipe.dim-of-model 0 "$summary" ampc linked/two.recipe -o two8.ir --dim N=8
try recipe.optimizer 0 "$summary" ampc linked/twin.recipe -o twin.ir --optimizer=lion
holds recipe.optimizer.module grep -q 'lion @M.w1' twin.ir
try recipe.data 0 '^4 steps  loss [0-9.]+' ampc-run train $gan --data synthetic,rows=32 --batch 8 --steps 4 --checkpoint-dir gan.ck
try recipe.eval 0 '^loss [0-9.]+  loss.d [0-9.]+  loss.g [0-9.]+  samples 16' ampc-run eval $gan --checkpoint gan.ck --data synthetic,rows=16
printf '%s\n' "import numpy as np; np.save('z3.npy', np.ones((5, 3), np.float32))" | /usr/bin/python3
holds recipe.eval.sum awk '/^loss/ { exit !($2 - $4 - $6 < 2e-6 && $4 + $6 - $2 < 2e-6) }' .test/out
try recipe.eval-json 0 '"loss.d": [0-9.]+, "loss.g": [0-9.]+' ampc-run eval $gan --checkpoint gan.ck --data synthetic,rows=16 --json
try recipe.infer 0 "note: omitting outputs 'real_p': an input has no value" ampc-run infer $gan --checkpoint gan.ck --input z=z3.npy -o out.npz
ampc-run train linked/mlp.onnx -q --loss=mse --data synthetic,rows=8 --batch 8 --steps 1 --checkpoint-dir mlp.ck
try recipe.export 0 '' ampc-run export $gan --checkpoint gan.ck -o g.onnx --model=G
try recipe.exported 0 '' ampc-run infer g.onnx --input x=z3.npy --amp=O0
# Options of the recipe: those of other commands are ignored, the command line overrides them.
sed '$a option --accumulate=2 --steps=3  # of train\noption --clip-norm=1' $gan >linked/options.recipe
# A resumed run has the bits of an uninterrupted one.
resume="ampc-run train ring/ring.recipe -q --data synthetic,rows=32 --batch 8 --deterministic --threads=1 --seed 3"
cp -r "$here"/../../docs/examples/gan ring
# shellcheck disable=SC2086  # a list of words
try recipe.whole 0 '' $resume --steps 6 --checkpoint-dir whole.ck
try recipe.begin 0 '' $resume --steps 3 --checkpoint-dir part.ck
try recipe.resume 0 '' $resume --steps 6 --checkpoint-dir part.ck --resume
holds recipe.resumed cmp whole.ck/ckpt-0000000006.safetensors part.ck/ckpt-0000000006.safetensors
try recipe.options 0 "$summary" ampc linked/options.recipe -o options.ir
holds recipe.options.module bash -c 'grep -qx "window 2" options.ir && grep -q "%clip " options.ir'
try recipe.options-train 0 '^3 steps' ampc-run train linked/options.recipe --data synthetic,rows=32 --batch 8
try recipe.options-override 0 '^2 steps' ampc-run train linked/options.recipe --data synthetic,rows=32 --batch 8 --steps 2
# Drawn inputs differ from step to step, and a run repeats them.
noise='ampc-recipe 1\nmodel M = "linked/linear.onnx"\ninput x : f32[8,4] = %s\ninput y : f32[8,3]\np = M(x)\nloss l = mse(p, y)\ntrain M by sgd,lr=0 on l\n'
# shellcheck disable=SC2059
for kind in normal uniform; do
    printf "$noise" $kind >noise.recipe
    try recipe.draw.$kind 0 '^3 steps' ampc-run train noise.recipe --data synthetic,rows=8 --batch 8 --steps 3 --log $kind.1
    try recipe.again.$kind 0 '^3 steps' ampc-run train noise.recipe --data synthetic,rows=8 --batch 8 --steps 3 --log $kind.2
    holds recipe.repeats.$kind bash -c "[ \"\$(grep -o '\"loss\":[0-9.]*' $kind.1 | sort -u | wc -l)\" = 3 ] &&
        cmp <(grep -o '\"loss\":[0-9.]*' $kind.1) <(grep -o '\"loss\":[0-9.]*' $kind.2)"
done
