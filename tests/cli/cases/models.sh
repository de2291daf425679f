# shellcheck shell=bash disable=SC2154,SC2034
# models.sh - files of models and modules that are refused.
# Files of other kinds are recognised by their content, whatever they are called.
mkdir kinds
printf 'ampc-ir sealed 3\n' >kinds/module
gzip -c tiny.onnx >kinds/gzip
printf 'PK\3\4..model/data.pkl' >kinds/torch.save
printf 'PK\3\4' >kinds/zip
cp data.npz kinds/npz && cp x.npy kinds/npy
printf '\34\0\0\0TFL3..' >kinds/TensorFlow
printf '\100\0\0\0\0\0\0\0{"w":' >kinds/safetensors
printf '\211HDF\r\n' >kinds/HDF5
printf 'version https://git-lfs.github.com/spec/v1' >kinds/LFS
printf 'ir_version: 8' >kinds/text
while read -r kind text; do
    cp kinds/$kind kinds/model.onnx
    try "kind.$kind.onnx" 1 "model.onnx: error: not an ONNX model, but $text" ampc kinds/model.onnx -o kinds/o.ir
    cp kinds/$kind kinds/model.ir
    [ $kind = module ] || try "kind.$kind.ir" 1 "model.ir: error: not a module, but $text" ampc-run plan kinds/model.ir
done <<'END'
module      a compiled module
gzip        gzip data; unpack it first
torch.save  a file of torch.save
zip         a zip archive
npz         arrays of NumPy
npy         an array of NumPy
TensorFlow  a TensorFlow Lite model
safetensors a safetensors file, which has weights
HDF5        an HDF5 file
LFS         a pointer of Git LFS
text        an ONNX model as text
END
cp tiny.onnx kinds/model.ir
try kind.onnx.ir 1 'not a module, but an ONNX model; its name must end in .onnx' ampc-run plan kinds/model.ir
try model.unknown 3 "node 'three' \(Whirl\): error: operator Whirl is not supported" ampc unknown.onnx -o tiny.ir
holds model.unknown-all grep -q "node 'one' (Frobnicate): error" .test/out
try model.hostile 1 'control character 0x1b' ampc hostile.onnx -o tiny.ir
holds model.hostile-terminal bash -c "! grep -q $'\033' .test/out"
# Characters that reverse the direction of text are escaped wherever a name is shown.
plain_text() { LC_ALL=C grep -qP '\xe2\x80[\x8f\xad\xae]|\xe2\x81\xa6|\xd8\x9c' .test/out; [ $? = 1 ]; }
reversed_shown() { # NAME COMMAND..
    try "reversed.$1" 0 'xe2|u20' "${@:2}"
    holds "reversed.$1-plain" plain_text
}
try reversed.message 3 'xe2' ampc reversed-unknown.onnx -o tiny.ir
holds reversed.message-plain plain_text
reversed_shown text ampc reversed.onnx -v --weights=reference -o -
reversed_shown explain ampc reversed.onnx -q --explain=$'\xe2\x80\xaeact' -o reversed.ir
reversed_shown train ampc reversed.onnx -v --loss=mse --explain=params -o reversed.ir
reversed_shown info ampc-run info reversed.ir
reversed_shown info-json ampc-run info reversed.ir --json
reversed_shown plan ampc-run plan reversed.ir --entry infer
reversed_shown plan-json ampc-run plan reversed.ir --entry infer --json
rm reversed.ir
# Without parameters there are gradients of inputs, but no training.
try model.nothing-trained 0 'whole.onnx: warning: there is nothing to train: every parameter is frozen; @grad has' \
    ampc whole.onnx --loss=mse --freeze='*' -o frozen.ir
for model in whole.onnx frozen.ir; do
    set -- --loss=mse --freeze='*'
    [ $model = whole.onnx ] || set --
    try train.nothing-trained.${model#*.} 1 'there is nothing to train: the module has no parameters, or all of them' \
        ampc-run train $model -q "$@" --data synthetic,rows=8 --batch 8 --steps 1
done
# The folder of a log is not writable: the reason is that, not that the log does not exist.
as_user=()
[ "$(id -u)" = 0 ] && as_user=(setpriv --reuid=64997 --clear-groups)
mkdir sealed
chmod 555 sealed
chmod 755 .
try log.denied 4 'sealed/a.csv: error: .*Permission denied' "${as_user[@]}" \
    ampc-run train whole.onnx -q --loss=mse --data synthetic,rows=8 --batch 8 --steps 1 --log=sealed/a.csv
rmdir sealed
try write.full 4 'cannot write to standard output' bash -c 'ampc-opt tiny.ir >/dev/full'

# ---- invalid module text ----------------------------------------------------------------------------------------------------
edit 's/: f16\[N,32\] !MatMul/: f16[N,33] !MatMul/' <tiny.ir >type.ir
edit 's/xxh3=[0-9a-f]*/xxh3=00000000000000000000000000000000/' <tiny.ir >hash.ir
try ir.type 1 'type.ir:[0-9]+:[0-9]+: error: ' ampc-opt type.ir
holds ir.type-caret grep -qE '^ +\^' .test/out
