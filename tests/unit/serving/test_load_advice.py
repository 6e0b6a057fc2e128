"""Files that people deploy by mistake: each refused with its own sentence and the way out."""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import types
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloud_ml.serving.errors import ModelFailed
from cloud_ml.serving.loading import load
from cloud_ml.serving.runtimes.base import LoadOptions
from cloud_ml.serving.runtimes.load_advice import keras_refusal, keras_version
from cloud_ml.serving.runtimes.onnx import session
from cloud_ml.serving.versions.single_model import base_of

RUN_CODE = LoadOptions(allow_code=True)
X = {"name": "x", "dtype": "float32", "shape": [-1, 3]}


def _module(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    made = types.ModuleType(name)
    for word, value in content.items():
        value.__module__, value.__qualname__ = name, word
        setattr(made, word, value)
    monkeypatch.setitem(sys.modules, name, made)


class _Net:
    pass


def _rebuild() -> None:
    """In the place of the function that makes a tensor."""


class _Head:
    pass


class _Tensor:
    def __reduce__(self) -> Any:
        return _rebuild, ()


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What ``torch.save`` pickles, by what was given to it."""
    for package in ("torch", "shop"):
        monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
    _module(monkeypatch, "torch._utils", _rebuild_tensor_v2=_rebuild)
    _module(monkeypatch, "shop.nets", Net=_Net, Head=_Head)
    _rebuild.__qualname__ = _rebuild.__name__ = "_rebuild_tensor_v2"
    _Net.__name__, _Head.__name__ = "Net", "Head"
    before = b"".join(
        pickle.dumps(each, protocol=2)
        for each in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
    )
    state = OrderedDict(weight=_Tensor(), bias=_Tensor())
    return {
        "state_dict": pickle.dumps(state, protocol=2),
        "checkpoint": pickle.dumps({"model_state_dict": state, "epoch": 3}, protocol=4),
        "checkpoint with arguments": pickle.dumps(
            {"model": state, "args": argparse.Namespace(lr=1)}, protocol=2
        ),
        "weights of PyTorch 1.5": before + pickle.dumps(state, protocol=2),
        "module of PyTorch 1.5": before + pickle.dumps([_Net(), _Head()], protocol=2),
        "module with submodules": pickle.dumps([_Net(), _Head(), {"_modules": state}], protocol=2),
        "module": pickle.dumps([_Net(), _Head()], protocol=2),
        "module of protocol 4": pickle.dumps([_Net(), _Head()], protocol=4),
    }


def _write(folder: Path, pickled: bytes, *, archive: bool, **more: bytes) -> None:
    folder.mkdir(exist_ok=True)
    if not archive:
        (folder / "model.pt").write_bytes(pickled)
        return
    with zipfile.ZipFile(folder / "model.pt", "w") as made:
        made.writestr("net/data.pkl", pickled)
        for name, content in more.items():
            made.writestr(f"net/{name}", content)


def _refusal(folder: Path) -> str:
    with pytest.raises(ModelFailed) as refused:
        load(folder, RUN_CODE)
    return refused.value.message


@pytest.mark.parametrize("archive", [True, False])
@pytest.mark.parametrize(
    "what", ["state_dict", "checkpoint", "checkpoint with arguments", "weights of PyTorch 1.5"]
)
def test_weights_alone_are_told_to_be_exported(
    tmp_path: Path, saved: dict[str, bytes], what: str, *, archive: bool
) -> None:
    _write(tmp_path, saved[what], archive=archive)
    message = _refusal(tmp_path)
    assert message.startswith(
        "model.pt holds only weights (a state_dict), not a model: load them into your model"
    )
    assert (
        "torch.export.save(torch.export.export(model.eval(), (example,)), 'model.pt2')" in message
    )


@pytest.mark.parametrize("archive", [True, False])
@pytest.mark.parametrize(
    "what", ["module", "module of protocol 4", "module of PyTorch 1.5", "module with submodules"]
)
def test_a_pickled_module_names_the_classes_that_it_needs(
    tmp_path: Path, saved: dict[str, bytes], what: str, *, archive: bool
) -> None:
    _write(tmp_path, saved[what], archive=archive)
    assert _refusal(tmp_path).startswith(
        "model.pt is a pickled module that needs its Python classes (shop.nets.Net, "
        "shop.nets.Head): load it with torch.load(…, weights_only=False) and export"
    )


def test_torch_script_without_a_signature_names_the_command_that_writes_it(
    tmp_path: Path, saved: dict[str, bytes]
) -> None:
    _write(tmp_path, saved["module"], archive=True, **{"constants.pkl": b""})
    message = _refusal(tmp_path)
    assert message.startswith(
        "model.pt stores no input signature, as TorchScript never does: put signature.json beside"
    )
    assert "cloudml models signature model.pt --input x:float32[?,8] -o signature.json" in message


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"junk", "model.pt is not a TorchScript file: export the model"),
        (b"", "model.pt is not a TorchScript file, it is empty"),
        (b"PK\x03\x04 cut off", "model.pt is not a TorchScript file, it is a ZIP archive"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid",
            "it is a Git LFS pointer: run `git lfs pull`",
        ),
        (b"\n<!DOCTYPE html><html>", "it is an HTML page: the download that wrote it failed"),
    ],
)
def test_what_is_no_file_of_pytorch_is_told_for_what_it_is(
    tmp_path: Path, content: bytes, expected: str
) -> None:
    (tmp_path / "model.pt").write_bytes(content)
    assert expected in _refusal(tmp_path)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            b"this is no model",
            "model.onnx is not a valid ONNX file: export the model again, or upload the whole file",
        ),
        (b"", "model.onnx is not a valid model: it is empty"),
        (b"<html><body>404", "model.onnx is not a valid model: it is an HTML page"),
    ],
)
def test_garbage_in_place_of_onnx(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(ModelFailed) as refused:
        session(tmp_path / "model.onnx")
    assert expected in refused.value.message
    assert "(onnxruntime: " in refused.value.message


def _keras_file(path: Path, metadata: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("metadata.json", metadata)
    return path


def test_a_keras_file_of_another_version_names_both(tmp_path: Path) -> None:
    file = _keras_file(tmp_path / "model.keras", json.dumps({"keras_version": "3.12.0"}).encode())
    message = keras_refusal(file, "3.3.3", TypeError("unknown argument 'quantization'")).message
    assert message.startswith(
        "model.keras was saved by Keras 3.12.0 and this replica runs Keras 3.3.3: save it "
        "with Keras"
    )
    assert "model.export('saved') and deploy the folder saved" in message
    assert "--framework_version" not in message, (
        "this server runs the same Keras whichever 3.x is named"
    )
    assert "unknown argument 'quantization'" in message
    same = keras_refusal(file, "3.12.0", ValueError("no class Net")).message
    assert same == "Keras cannot load it: ValueError: no class Net"
    (tmp_path / "old.keras").write_bytes(b"\x89HDF\r\n\x1a\n....")
    assert (
        "it is an HDF5 file, as Keras 2 wrote it"
        in keras_refusal(tmp_path / "old.keras", "3.3.3", OSError()).message
    )


@pytest.mark.parametrize(
    "metadata",
    [b"", b"[", b"[]", b'{"keras_version": 3}', b"[" * 60_000, b'{"keras_version": "\\n"}'],
)
def test_metadata_of_keras_that_says_nothing(tmp_path: Path, metadata: bytes) -> None:
    assert keras_version(_keras_file(tmp_path / "model.keras", metadata)) == ""


PYTHON = """
import numpy as np
class Model:
    def load(self, folder): pass
    def predict(self, inputs):
        x = inputs["x"]
        return {"total": x.sum(axis=1), "kind": np.zeros((1, 2), np.int64)}
"""


def test_outputs_that_are_left_out_are_found_out_by_a_run_with_zeros(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(PYTHON)
    (tmp_path / "signature.json").write_text(json.dumps({"inputs": [X]}))
    model = load(tmp_path, RUN_CODE)
    (signature,) = model.signatures.values()
    assert [str(each) for each in signature.outputs] == ["total: float32 [?]", "kind: int64 [1, 2]"]
    total, _ = model.predict(signature, [np.ones((2, 3), np.float32)])
    assert total.tolist() == [3.0, 3.0]
    model.close()


@pytest.mark.parametrize(
    ("predict", "expected"),
    [
        (
            "raise ValueError('three rows are needed')",
            "with zeros to find them out failed: ValueError: three rows",
        ),
        ("return {}", "outputs are missing, and two runs gave different ones"),
        ("return {'y': np.zeros(1, 'complex256')}", "have no form in the protocols"),
    ],
)
def test_a_model_whose_outputs_cannot_be_found_out(
    tmp_path: Path, predict: str, expected: str
) -> None:
    code = f"import numpy as np\nclass Model:\n    def load(self, f): pass\n    def predict(self, i): {predict}\n"
    (tmp_path / "model.py").write_text(code)
    (tmp_path / "signature.json").write_text(json.dumps({"serving_default": {"inputs": [X]}}))
    assert expected in _refusal(tmp_path)


def test_a_single_file_is_named_as_its_owner_named_it(
    tmp_path: Path, saved: dict[str, bytes]
) -> None:
    for name, what in (("weights.pt", "state_dict"), ("net.pth", "module")):
        (tmp_path / name).write_bytes(saved[what])
        assert _refusal(base_of(tmp_path / name)).startswith(f"{name} ")
    (tmp_path / "churn.onnx").write_bytes(b"<html>")
    assert _refusal(base_of(tmp_path / "churn.onnx")).startswith("churn.onnx is not a valid model")
