# shellcheck shell=bash disable=SC2154,SC2034
# metrics.sh - metrics, watched metrics, predictions.
eval=(ampc-run eval tiny.ir --checkpoint ck --data npz:data.npz)
try metric.named 0 '^loss [0-9.]+  auc [0-9.]+  top2 [0-9.]+  samples 256$' "${eval[@]}" --metric=auc,top2
try metric.confusion 0 '^label 2: +[0-9]+ +[0-9]+ +[0-9]+$' "${eval[@]}" --metric=confusion
try metric.json 0 '"f1_macro": 0.[0-9]+, "confusion": \[\[[0-9]+, ' "${eval[@]}" --metric=f1_macro --metric=confusion --json
# An autoencoder is compared with its input, or with nothing if it has no loss.
try metric.reconstruction 0 '^loss [0-9.]+  mse [0-9.e-]+  mae [0-9.e-]+  samples 64$' \
    ampc-run eval auto.onnx --loss=mse:y --data npy:x=auto-x.npy,label=auto-x.npy
try metric.none 0 '^samples 64$' ampc-run eval auto.onnx --data idx:idx
try metric.tokens 0 '  accuracy [0-9.]+  perplexity [0-9.]+  samples 16$' ampc-run eval spans.ir --data npz:spans.npz
watch=("${train[@]}" --lr 0.02 --eval-data npz:data.npz)
# The best weights stay when generations are removed, and belong to the epoch with the best value.
try best.train 0 '^96 steps' "${watch[@]}" --epochs 6 --best f1_macro --checkpoint-dir best --save-every 8 --log best.jsonl
holds best.kept [ "$(ls best | tr '\n' ' ')" = 'best.safetensors ckpt-0000000088.safetensors ckpt-0000000096.safetensors ' ]

holds best.value /usr/bin/python3 -c 'import json, re, subprocess, sys
values = [json.loads(l)["eval"] for l in open("best.jsonl") if "\"eval\"" in l]
assert [v["step"] for v in values] == [16, 32, 48, 64, 80, 96], values
command = "ampc-run eval tiny.ir --checkpoint best/best.safetensors --data npz:data.npz --metric=f1_macro --json"
saved = json.loads(subprocess.run(command.split(), capture_output=True, check=True).stdout)["f1_macro"]
assert abs(saved - max(v["f1_macro"] for v in values)) < 1e-8, (saved, values)'
try best.export 0 '' ampc-run export tiny.ir --checkpoint best/best.safetensors -o best.onnx
mkdir only && cp best/best.safetensors only
# A run in pieces, within and between epochs, stops where one without interruption does, with the same files but for the length
# of the schedule.
stop=("${watch[@]}" --epochs 90 --best accuracy,min-delta=0.01 --early-stop accuracy,patience=3,min-delta=0.01)
try stop.whole 0 'stopped early after step [0-9]+: accuracy has not improved in 3 evaluations since' \
    "${stop[@]}" --checkpoint-dir whole --metric=auc
last=$(ls whole | tail -n 1) && last=${last//[!0-9]/} && last=$((10#$last))
stop=("${stop[@]/--epochs/--steps}" --checkpoint-dir pieces --metric=auc --resume)
for steps in 20 48 $((last - 16)); do "${stop[@]/#90/$steps}" -q 2>/dev/null; done
try stop.pieces 0 "stopped early after step $last: " "${stop[@]/#90/5000}"
holds stop.same /usr/bin/python3 -c 'import json, os
def contents(path):
    data = open(path, "rb").read()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    assert header["__metadata__"].pop("schedule") and header["__metadata__"].pop("xxh3") and header["__metadata__"]["early_stop"].startswith("accuracy 0x"), header
    return header, data[8 + size:]
assert len(os.listdir("whole")) == 2
for name in os.listdir("whole"):
    assert contents(f"whole/{name}") == contents(f"pieces/{name}"), name'
try stop.again 0 "stopped early after step $last: " "${stop[@]/#90/5000}"
try stop.other-metric 0 'warning: the run watched the metric accuracy; the best loss so far is unknown' \
    "${watch[@]}" --steps $((last + 1)) --early-stop loss --checkpoint-dir pieces --resume
predict=(ampc-run predict tiny.ir --checkpoint ck --data npz:data.npz)
for batch in 256 100 1; do "${predict[@]}" --batch $batch -o predicted$batch.npz; done
"${predict[@]}" -o predicted.csv
ampc-run predict tiny.onnx --dtype=fp16 --loss=ce --dim N=100 --checkpoint ck --data npz:data.npz -o predicted-fixed.npz -q
ampc-run infer tiny.ir --checkpoint ck --inputs data.npz -o inferred.npz -q
holds predict.npz /usr/bin/python3 -c 'import numpy as np
whole, data = np.load("inferred.npz"), np.load("data.npz")
for name in "256", "100", "1", "-fixed":
    got = np.load(f"predicted{name}.npz")
    assert sorted(got.files) == ["label", "output/p", "output/s"], got.files
    assert (got["label"] == data["label"]).all() and got["output/s"].shape == (256, 3)
    assert all(abs(got[k] - whole[k]).max() < 1e-3 for k in whole.files)'
holds predict.csv /usr/bin/python3 -c 'import csv, numpy as np
rows, got = list(csv.DictReader(open("predicted.csv"))), np.load("predicted256.npz")
assert list(rows[0]) == ["sample", "label", "class", "score[0]", "score[1]", "score[2]"] and len(rows) == 256
for i, row in enumerate(rows):
    scores = np.array([row[f"score[{c}]"] for c in range(3)], np.float32)
    assert int(row["sample"]) == i and int(row["label"]) == got["label"][i]
    assert (scores == got["output/s"][i]).all() and int(row["class"]) == scores.argmax()'
ampc-run predict auto.onnx --data npy:x=auto-x.npy -o values.csv -q
holds predict.values /usr/bin/python3 -c 'import csv
rows = list(csv.reader(open("values.csv")))
assert rows[0] == ["sample", "y[0]", "y[1]", "y[2]", "y[3]"] and len(rows) == 65 and rows[64][0] == "63", rows[:2]'
ampc-run predict spans.ir --data npz:spans.npz -o spans.csv -q
holds predict.tokens grep -q '^15,1,' spans.csv
holds predict.token-header [ "$(head -c 28 spans.csv)" = sample,position,label,class, ]
