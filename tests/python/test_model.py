"""ampc.convert."""
import subprocess

import pytest

import ampc
from conftest import ROOT

MNIST = ROOT / "tests" / "models" / "mnist.onnx"


@pytest.mark.parametrize("options, arguments", [
    ({}, []),
    ({"dtype": "bf16"}, ["--dtype=bf16"]),
    ({"dtype": "fp32"}, ["--amp=O0"]),
    ({"black": ["Relu", "Conv"], "change_io_types": True}, ["--black=Relu,Conv", "--no-keep-io-types"]),
    ({"profile": "paddle-3", "fp32_nodes": "conv*"}, ["--profile=paddle-3", "--fp32-node=conv*"]),
    ({"consumer": "tensorrt", "opset": 23}, ["--consumer=tensorrt", "--opset=23"]),
    ({"fp32_nodes": "*", "low_nodes": "re:conv[12]", "rules": ["init_max=1"]},
     ["--fp32-node=*", "--low-node=re:conv[12]", "--rule=init_max=1"])], ids=str)
def test_bytes_are_those_of_the_program(build, tmp_path, options, arguments):
    model = ampc.convert(MNIST, **options)
    subprocess.run([build / "ampc", MNIST, "-q", "-o", tmp_path / "program.onnx", *arguments], check=True)
    assert model.bytes == (tmp_path / "program.onnx").read_bytes()
    assert model.save(tmp_path / "python.onnx").read_bytes() == model.bytes
    assert ampc.convert(MNIST.read_bytes(), **options).bytes == model.bytes
    assert ampc.convert(MNIST, output=tmp_path / "output.onnx", **options).bytes == model.bytes


def test_a_converted_model_is_a_model():
    once = ampc.convert(MNIST)
    assert ampc.convert(once).summary  # by SerializeToString, as onnx.ModelProto


def test_list_files(tmp_path):
    (tmp_path / "my.amplist").write_text("[black]\nConv\n")
    report = ampc.convert(MNIST, lists=tmp_path / "my.amplist").report()
    assert report.ops["Conv"]["fp32"] == 2 and report.total("fp32") == 9 and report.casts == 6


def test_explanations():
    model = ampc.convert(MNIST)
    assert "white" in model.explain("conv1") and [n["op"] for n in model.explain("conv1").nodes] == ["Conv"]
    assert len(model.explain().nodes) == 12
    with pytest.raises(ampc.UsageError, match="none"):
        model.explain("none")


def test_html_is_escaped():
    model = ampc.convert(MNIST)
    model._name = "<script>"
    for shown in (model, model.report(), model.explain()):
        assert "<table>" in shown._repr_html_() and "<script" not in shown._repr_html_()


def test_refusals(tmp_path):
    with pytest.raises(ampc.FileError):
        ampc.convert(tmp_path / "none.onnx")
    with pytest.raises(ampc.RejectedError):
        ampc.convert(b"\x08\x07garbage")
    with pytest.raises(ampc.UsageError, match="fp17"):
        ampc.convert(MNIST, dtype="fp17")
    with pytest.raises(ampc.UsageError, match="unknown option 'whit'; did you mean 'white'"):
        ampc.convert(MNIST, whit="Conv")
    with pytest.raises(ampc.FileError, match="none.consumer"):
        ampc.convert(MNIST, consumer=str(tmp_path / "none.consumer"))
    with pytest.raises(ampc.UsageError, match="consumer is for a model that is converted to ONNX"):
        ampc.InferenceSession(MNIST, consumer="tensorrt")
    with pytest.raises(ampc.UsageError, match="opset is for"):
        ampc.InferenceSession(MNIST, opset=20)
    with pytest.raises(ampc.FileError, match="nowhere"):
        ampc.convert(MNIST).save(tmp_path / "nowhere" / "m.onnx")
    assert list(tmp_path.iterdir()) == []
