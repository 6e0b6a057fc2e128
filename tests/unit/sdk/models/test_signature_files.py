"""Signatures from words, and a model that is one file with what belongs to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cloud_ml.cli.models.signature import signature
from cloud_ml.errors import InvalidRequest
from cloud_ml.sdk.models.folders import files_of
from cloud_ml.sdk.models.signature_files import signature_document
from cloud_ml.serving.runtimes import signature_file


@pytest.mark.parametrize(
    ("word", "tensor"),
    [
        ("x:float32[?,8]", {"name": "x", "dtype": "float32", "shape": [-1, 8]}),
        ("x:float[-1, 8]", {"name": "x", "dtype": "float32", "shape": [-1, 8]}),
        (
            "image/in:uint8[None,224,224,3]",
            {"name": "image/in", "dtype": "uint8", "shape": [-1, 224, 224, 3]},
        ),
        ("n:int64", {"name": "n", "dtype": "int64", "shape": []}),
        ("n:int64[]", {"name": "n", "dtype": "int64", "shape": []}),
        ("t:string[?]", {"name": "t", "dtype": "string", "shape": [-1]}),
    ],
)
def test_what_is_written_is_what_the_model_server_reads(
    tmp_path: Path, word: str, tensor: dict[str, object]
) -> None:
    document = signature_document([word])
    assert document == {"inputs": [tensor]}
    (tmp_path / signature_file.FILE).write_text(json.dumps(document))
    found = signature_file.read_inputs(tmp_path)
    assert found is not None
    assert [each.name for each in found["serving_default"].inputs] == [tensor["name"]]
    (tmp_path / signature_file.FILE).write_text(
        json.dumps(signature_document([word], ["y:float32[?]"]))
    )
    assert signature_file.read(tmp_path) is not None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "input is missing"),
        (["x"], "allowed is NAME:TYPE"),
        (["x:"], "allowed is NAME:TYPE"),
        ([":float32"], "allowed is NAME:TYPE"),
        (["x:float31[?]"], "a type of float16"),
        (["x:float32[a]"], "or ? for any"),
        (["x:float32[?,]"], "or ? for any"),
        (["x:float32[99999999999]"], "or ? for any"),
        (["x:float32[?"], "allowed is NAME:TYPE"),
        (["x:float32", "x:int8"], "a name that is given once"),
        (["\n:float32"], "allowed is NAME:TYPE"),
    ],
)
def test_words_that_are_wrong(words: list[str], message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        signature_document(words)
    assert message in f"{refused.value.message} {refused.value.allowed}"


def test_the_line_that_the_model_server_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.pt").write_bytes(b"PK\x03\x04")
    words = ["model.pt", "--input", "x:float32[?,8]", "-o", "signature.json"]
    done = CliRunner().invoke(signature, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert done.stdout == "signature.json is written\n"
    assert "cloudml models deploy NAME VERSION model.pt" in done.stderr
    assert json.loads(Path("signature.json").read_text())["inputs"][0]["shape"] == [-1, 8]
    assert [(each.path.name, each.key) for each in files_of(Path("model.pt"))] == [
        ("model.pt", "1/model.pt"), ("signature.json", "1/signature.json"),
    ]  # fmt: skip
    shown = CliRunner().invoke(signature, ["model.pt", "--input", "x:int8"], catch_exceptions=False)
    assert json.loads(shown.stdout) == {"inputs": [{"name": "x", "dtype": "int8", "shape": []}]}


@pytest.mark.parametrize(
    ("beside", "deployed"), [((), "code/model.py"), (("weights.pkl",), "code")]
)
def test_code_is_deployed_with_the_files_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: tuple[str, ...], deployed: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("code").mkdir()
    for name in ("model.py", *beside):
        (Path("code") / name).touch()
    words = ["code/model.py", "--input", "x:float32[?,8]", "-o", "code/signature.json"]
    done = CliRunner().invoke(signature, words, catch_exceptions=False)
    assert done.stderr.endswith(f"cloudml models deploy NAME VERSION {deployed}\n")


def test_a_model_of_onnx_that_is_one_file_comes_with_its_weights(tmp_path: Path) -> None:
    for name in ("net.onnx", "net.onnx.data", "net.onnx_data", "other.onnx.data"):
        (tmp_path / name).write_bytes(b"\x08")
    found = [each.key for each in files_of(tmp_path / "net.onnx")]
    assert found == ["1/model.onnx", "1/net.onnx.data", "1/net.onnx_data"]
