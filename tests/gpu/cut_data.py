"""Cuts a data set of IDX files to its first samples.

usage: cut_data.py FOLDER OUT SAMPLES
"""
import gzip
import struct
import sys
from pathlib import Path

source, target, most = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
target.mkdir(parents=True)
for path in sorted(source.iterdir()):
    if not path.is_file() or "ubyte" not in path.name:
        continue
    data = gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
    rank = data[3]
    dims = struct.unpack(f">{rank}I", data[4:4 + 4 * rank])
    rows, size = min(dims[0], most), len(data[4 + 4 * rank:]) // dims[0]
    cut = data[:4] + struct.pack(f">{rank}I", rows, *dims[1:]) + data[4 + 4 * rank:4 + 4 * rank + rows * size]
    with gzip.open(target / (path.name.removesuffix(".gz") + ".gz"), "wb") as f:
        f.write(cut)
