"""make_picture.py AMPC docs/report.png: a picture of the report of a small BERT, by headless Chromium."""
import os
import subprocess
import sys
import tempfile

from browser import Browser

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../models/zoo/bert.onnx")

with tempfile.TemporaryDirectory() as folder:
    page = os.path.join(folder, "report.html")
    subprocess.run([sys.argv[1], MODEL, "-q", "-o", page], check=True)
    b = Browser(1320, 1000)
    b.open(page)
    b.run("revealNode(view.report.nodes.find((n) => n.op === 'MatMul'))")
    b.screenshot(sys.argv[2])
    b.close()
