# shellcheck shell=bash disable=SC2154,SC2034
# training.sh - training runs, their data and logs, losses, masks.
train=(ampc-run train tiny.ir --data npz:data.npz --batch 16)
try train.run 0 '^48 steps  loss' "${train[@]}" --epochs 3 --lr 0.02 --checkpoint-dir ck --log a.jsonl --plot a.svg \
    --eval-data npz:data.npz
holds train.epochs grep -q '^epoch 3  train loss' .test/out
holds train.log [ "$(grep -c '^{"step":.*"loss"' a.jsonl)" -eq 48 ]
holds train.log-evaluations [ "$(grep -c '^{"eval":{"step":[0-9]*,"loss":[0-9.]*,"accuracy":[0-9.]*}}$' a.jsonl)" -eq 3 ]
holds train.log_norm [ "$(grep -c '"grad_norm":[0-9]' a.jsonl)" -eq 48 ]
holds train.header bash -c 'head -n 1 a.jsonl | grep -q "\"run\""'
holds train.plot grep -q '<svg' a.svg
accuracy=$(sed -nE 's/^epoch 3.*accuracy ([0-9.]*).*/\1/p' .test/out)
checkpoint=ck/ckpt-0000000048.safetensors
try eval.checkpoint 0 "accuracy $accuracy " ampc-run eval tiny.ir --checkpoint $checkpoint --data npz:data.npz
try eval.folder 0 "accuracy $accuracy " ampc-run eval tiny.ir --checkpoint ck --data npz:data.npz
# Without oneDNN, or with a file that is none, own code runs, and one line says so.
try own.eval 0 "accuracy $accuracy " env AMPC_ONEDNN=off ampc-run eval tiny.ir --checkpoint ck --data npz:data.npz
holds own.note [ "$(grep -c '^note: oneDNN is switched off .*: products and convolutions run on' .test/out)" -eq 1 ]
try own.train 0 '^48 steps  loss' env AMPC_ONEDNN=off "${train[@]}" --epochs 3 --lr 0.02 --eval-data npz:data.npz
holds own.train-note [ "$(grep -c '^note: oneDNN' .test/out)" -eq 1 ]
mkdir no-onednn
for file in libdnnl.so.2 libdnnl.so.3; do echo none >no-onednn/$file; done
try own.absent 0 "accuracy $accuracy " env LD_LIBRARY_PATH=no-onednn ampc-run eval tiny.ir --checkpoint ck --data npz:data.npz
holds own.absent-note [ "$(grep -c '^note: oneDNN cannot be opened' .test/out)" -eq 1 ]
# The same samples from another kind of file, read by other threads.
csv=(ampc-run train tiny.ir --batch 16 --epochs 3 --lr 0.02)
try csv.train 0 '^48 steps  loss' "${csv[@]}" --data csv:data.csv --eval-data csv:data.csv --workers=2 --log b.jsonl
holds csv.accuracy grep -q "^epoch 3.*accuracy $accuracy " .test/out
losses() { grep -o '"loss":[^,]*' "$1"; }
holds csv.losses [ "$(losses a.jsonl | wc -l) $(losses a.jsonl)" = "51 $(losses b.jsonl)" ] # and 3 evaluations
try csv.split 0 '^36 steps  loss' "${csv[@]}" --data csv:data.csv,validation=0.2 --eval-data csv:data.csv,validation=0.2
try csv.held-out 0 'samples 51$' ampc-run eval tiny.ir --data csv:data.csv,validation=0.2 --checkpoint ck
awk -F, 'NR == 3 { $1 = "1e39" } { OFS = ","; print }' data.csv >large.csv
try train.quiet 0 '' "${train[@]}" --epochs 2 --eval-data npz:data.npz -q
holds train.quiet-empty test ! -s .test/out
# A run that resumes at an earlier checkpoint replaces what the events say about later steps.
events=(ampc-run train tiny.ir --data npz:data.npz --batch 64 --steps 6 --save-every 2 --checkpoint-dir ev.ck --tensorboard=ev)
try events.run 0 '' "${events[@]}" --eval-data npz:data.npz --log=ev.jsonl
cp -r ev ev.first
rm ev.ck/ckpt-0000000006.safetensors
try events.resumed 0 '' "${events[@]}" --resume --trace=ev.json
for tag in loss lr scale skipped epoch grad_norm samples_s; do
    holds events.$tag bash -c "'$here/check_events.py' scalars ev | grep -qE '^train/$tag 1:[^ ]+ 2:[^ ]+ 3:[^ ]+ 4:[^ ]+ 5:[^ ]+ 6:[^ ]+$'"
done
holds events.eval bash -c "'$here/check_events.py' scalars ev.first | grep -qE '^eval/accuracy 4:[01][.0-9]* 6:' && '$here/check_events.py' scalars ev.first | grep -qE '^eval/loss 4:[.0-9]+ 6:'"
holds events.values "$here/check_events.py" same ev.first ev.jsonl
holds events.trace [ "$("$here/check_events.py" trace ev.json)" = 'batch:2 checkpoint:1 step:2' ]
# What is wrong is said before memory is allocated for it.
try train.large-batch 1 'the data has [0-9]+ samples, fewer than one batch of 1000000000' \
    bash -c '[ -n "$AMPC_SANITIZED" ] || ulimit -v 4000000; ampc-run train tiny.ir --data npz:data.npz --steps 2 --batch=1000000000'
truncate -s 6G zeros.csv
try csv.binary 1 'zeros.csv: error: not a table, but a binary file' \
    bash -c '[ -n "$AMPC_SANITIZED" ] || ulimit -v 4000000; ampc-run train tiny.ir --data csv:zeros.csv --steps 2 --batch=4'
{ printf 'a,b\n1,2\n3'; head -c 70M /dev/zero | tr '\0' 4; } >zeros.csv
truncate -s 6G zeros.csv
try csv.endless 1 'zeros.csv:3: error: no line end, outside of quotes, within 64 MiB' \
    bash -c '[ -n "$AMPC_SANITIZED" ] || ulimit -v 4000000; ampc-run train tiny.ir --data csv:zeros.csv --steps 2 --batch=4'
rm zeros.csv
# A run that is refused keeps the old trace, and no output replaces a file of another kind.
printf '[\n{"name":"old"}\n]\n' >old.json
cp old.json kept.json
mkfifo unread
try trace.unread 4 'no process reads this pipe' "${train[@]}" --steps 2 --trace=unread
cp tiny.onnx model.copy
for option in trace plot log; do
    try replace.$option 2 "model.copy: error: an ONNX model, which --$option would replace; use another name, or --force" \
        "${train[@]}" --steps 2 --$option=model.copy
done
holds replace.kept cmp tiny.onnx model.copy
cp tiny.onnx copy.npz
printf 'a,b\n1,2\n' >table.csv
try replace.force 0 '' ampc tiny.onnx -o s.ir --emit-list table.csv --force
# Without class labels in the loss no accuracy is reported, even if the data set has labels.
ampc auto.onnx -o auto.ir -q --loss-output=l
try eval.no-classes 0 '^loss [0-9.]+  samples 64$' ampc-run eval auto.ir --data idx:idx
# Scores of tokens have their classes along the last axis; ignored labels count neither in the loss nor in accuracy.
ampc spans.onnx -o spans.ir -q --amp=O0 --loss=ce,ignore_index=-100 --optimizer=sgd,lr=0.1
for batch in 16 3; do ampc-run eval spans.ir --data npz:spans.npz --batch $batch --json >"spans$batch.json"; done
ampc-run eval spans.ir --data npz:spans.npz --dim N=16 --json >spansN.json
ampc-run grad spans.ir --inputs spans.npz -o spans-grad.npz >/dev/null
holds eval.tokens /usr/bin/python3 -c 'import json, numpy as np
data, scores = np.load("spans.npz"), np.load("spans-grad.npz")["output/s"].astype("f8")
y, kept = data["label"], data["label"] != -100
log_prob = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
loss = -np.take_along_axis(log_prob, np.where(kept, y, 0)[..., None], -1)[..., 0][kept].mean()
accuracy = (scores.argmax(-1) == y)[kept].mean()
for name in ("16", "3", "N"):
    e = json.load(open(f"spans{name}.json"))
    assert abs(e["loss"] - loss) < 1e-5 and abs(e["accuracy"] - accuracy) < 1e-6, (name, e, loss, accuracy)'
try train.tokens 0 '^8 steps' ampc-run train spans.ir --data npz:spans.npz --batch 4 --epochs 2
# Several losses: each one is an output, and the loss is their weighted sum.
several=ce,ignore_index=-100,name=main:s+ce,weight=0.5,name=other,label_smoothing=0.1:s,again
ampc-run grad spans.onnx --amp=O0 --loss=$several --inputs spans.npz -o several.npz -q >/dev/null
holds loss.several /usr/bin/python3 -c 'import numpy as np
f = np.load("several.npz")
main, other = f["output/loss.main"], f["output/loss.other"]
assert abs(f["loss"] - (main + 0.5 * other)) < 1e-6 and main > 0 and other > 0 and main != other, dict(f)'
# The input n has the number of time steps. The data are found by name, and sequences have no accuracy.
/usr/bin/python3 -c 'import numpy as np
data = np.load("spans.npz")
np.savez("sequences.npz", x=data["x"], label=data["again"][:, :2], n=np.full(16, 4))'
sequences=ctc,batch_axis=0,lengths=n,blank=1,zero_infinity=1
try train.sequences 0 '^8 steps' ampc-run train spans.onnx --loss=$sequences --data npz:sequences.npz --batch 4 --epochs 2
try eval.sequences 0 '^loss [0-9.]+  samples 16$' ampc-run eval spans.onnx --loss=$sequences --data npz:sequences.npz
for level in O0 O2; do
    ampc-run grad spans.onnx --amp=$level --loss-scale=off --loss=$sequences --inputs sequences.npz -o sequences$level.npz -q >/dev/null
done
holds loss.sequences-f32 /usr/bin/python3 -c 'import numpy as np
exact, low = np.load("sequencesO0.npz"), np.load("sequencesO2.npz")
assert exact["loss"] > 0.1 and abs(exact["loss"] - low["loss"]) < 1e-2 and abs(exact["grad/w"] - low["grad/w"]).max() < 1e-2'
try loss.inner-scalar 0 'float ops in' ampc auto.onnx -o a.ir --loss=mse:y,x+scalar,weight=0.1:l
# Pixels are divided by 255 by default; the mean square scales with the square of the divisor.
for divide in 255 1; do ampc-run eval auto.ir --data idx:idx,divide=$divide --json >"auto$divide.json"; done
holds idx.divide /usr/bin/python3 -c 'import json
small, large = (json.load(open(f"auto{d}.json"))["loss"] for d in (255, 1))
assert abs(large / small / 255 ** 2 - 1) < 1e-4, (small, large)'
# ---- masks --------------------------------------------------------------------------------------------------------------------
seg=folder:seg/images,masks=seg/masks
ampc fcn.onnx -o fcn.ir -q --amp=O0 --loss=ce --optimizer=adam,lr=0.03
try masks.train 0 '^240 steps' ampc-run train fcn.ir --data $seg,size=12x16,flip=both,crop=2,classes=ground+lamp+tree \
    --eval-data $seg,size=12x16 --batch 4 --epochs 40 --checkpoint-dir fcn.ck
holds masks.learned awk '/^epoch 40 / {for (i = 1; i < NF; i++) v[$i] = $(i + 1); exit v["accuracy"] < 0.97 || v["iou"] < 0.9}' .test/out
try masks.resume 0 '^270 steps' ampc-run train fcn.ir --data $seg,size=12x16,flip=both,crop=2,classes=ground+lamp+tree \
    --batch 4 --epochs 45 --checkpoint-dir fcn.ck --resume --workers=2
try masks.eval 0 '^label 1 .lamp.: ' ampc-run eval fcn.ir --checkpoint fcn.ck --data $seg,size=12x16 --metric=confusion
ampc-run eval fcn.ir --checkpoint fcn.ck --data $seg,size=12x16 --json >fcn1.json
ampc-run eval fcn.ir --checkpoint fcn.ck --data csv:seg.csv,images=file,masks=mask,size=12x16 --json >fcn2.json
holds masks.csv cmp fcn1.json fcn2.json
for suffix in npz csv; do
    ampc-run predict fcn.ir --checkpoint fcn.ck --data $seg,size=12x16,limit=4 -o fcn.$suffix -q
done
holds masks.predict /usr/bin/python3 -c 'import csv, numpy as np
rows, got = list(csv.DictReader(open("fcn.csv"))), np.load("fcn.npz")
score, label = got["output/y"], got["label"]
assert score.shape == (4, 3, 12, 16) and label.shape == (4, 12, 16) and len(rows) == label.size
assert (score.argmax(1) == label).mean() > 0.95
for row, c, y in zip(rows, score.argmax(1).ravel(), label.ravel()):
    assert (int(row["class"]), int(row["label"]), row["class_name"]) == (c, y, ["ground", "lamp", "tree"][c]), row'
bright=(ampc-run train fcn.onnx --amp=O0 --data "${seg/masks=seg?masks/masks=seg/bright},size=12x16" --batch 4 --steps 2 -q)
try masks.ignored 0 '' "${bright[@]}" --loss=ce,ignore_index=255
