"""Files that lie beside models, as whoever exported them wrote them."""

from __future__ import annotations

import json
import pickle
import zipfile
import zlib
from pathlib import Path

from cloud_ml.controller.programs.pickled_modules import pickled_modules
from cloud_ml.errors import InvalidRequest
from cloud_ml.sdk.models.signature_files import signature_document
from cloud_ml.serving.errors import ServingError
from cloud_ml.serving.runtimes import signature_file
from cloud_ml.serving.runtimes.file_content import torch_file
from cloud_ml.serving.runtimes.load_advice import check_torch_script, keras_version
from cloud_ml.serving.signatures import Signature
from cloud_ml.serving.versions.batching_parameters import parse_batching_parameters
from cloud_ml.serving.versions.folders import Interest, look
from cloud_ml.serving.versions.model_config import AllVersions, parse_config
from cloud_ml.serving.versions.warmup import DOCUMENTS, RECORDS, warm_up
from fuzz.harness import scratch, target, text
from fuzz.model_world import Mirror


def _record(data: bytes) -> bytes:
    return len(data).to_bytes(8, "little") + b"crc." + data + b"crc."


@target(
    "serving.runtimes.signature_file",
    seeds=[json.dumps({"serving_default": {side: [{"name": "x", "dtype": "float32", "shape": [-1, 4]}] for side in ("inputs", "outputs")}}),
           '{"inputs": [], "outputs": '
           '[]}', '{"a": {"inputs": [{"name": "x", "dtype": [], "shape": [true]}], "outputs": '
                                            '1}}', "[" * 3000],
    words=['"inputs"', '"outputs"', '"name"', '"dtype"', '"shape"', "[", "]", "{", "}", "-1", '"float32"', "null", ":", ","],
)  # fmt: skip
def model_signature_file(data: bytes) -> None:
    """Refused with its place; or signatures with inputs and outputs."""
    with scratch() as folder:
        (folder / signature_file.FILE).write_bytes(data)
        try:
            found = signature_file.read(folder)
        except ServingError as error:
            assert signature_file.FILE in error.message  # noqa: PT017
            return
    assert found
    assert all(
        isinstance(each, Signature) and each.inputs and each.outputs for each in found.values()
    )


@target(
    "serving.runtimes.file_content", "serving.runtimes.load_advice",
    seeds=[pickle.dumps({"weight": [1.0], "epoch": 3}, protocol) for protocol in (2, 4)]
    + [pickle.dumps([Path("a"), zipfile.ZipFile], protocol) for protocol in (2, 4)] + [b"PK\x03\x04", b""],
    words=[b"\x80\x04", b"\x93", b"\x94", b"h\x00", b"c", b"\n", b".", b"\x8c\x05torch", b"PK\x05\x06" + bytes(18)],
)  # fmt: skip
def model_file_of_pytorch(data: bytes) -> None:
    """Any bytes are of one of the kinds, and a refusal is a sentence that names the file;
    nothing is imported.
    """
    with scratch() as folder:
        (folder / "model.pt").write_bytes(data)
        archive = folder / "archive.pt"
        with zipfile.ZipFile(archive, "w") as made:
            made.writestr("net/data.pkl", data)
            made.writestr("metadata.json", data)
        assert keras_version(archive).isprintable()
        for file in (folder / "model.pt", archive):
            found = torch_file(file)
            assert found.kind in ("script", "weights", "module", "unknown")
            assert bool(found.classes) == (found.kind == "module")
            try:
                check_torch_script(file)
            except ServingError as error:
                assert error.message.startswith(file.name)  # noqa: PT017


@target(
    "sdk.models.signature_files",
    seeds=["x:float32[?,8]", "a/b:int[-1, 2]", "t:str", "x:float32[9999999999]", "x:uint8[\u0662]"],
    words=["[", "]", ",", "?", "-1", ":", "float32", "None", "\u00b2", "\n"],
)  # fmt: skip
def tensor_words(data: bytes) -> None:
    """A word is refused, or what is written of it is what the model server reads."""
    word = text(data)
    try:
        document = signature_document([word], ["y:float32[?]"])
    except InvalidRequest as error:
        assert error.field == "input"  # noqa: PT017
        return
    found = signature_file.parse(document)["serving_default"]
    assert [each.name for each in found.inputs] == [document["inputs"][0]["name"]]


@target(
    "serving.versions.warmup",
    seeds=[_record(b"\x1a\x06\x0a\x04\x0a\x02\x0a\x00"), b"\xff" * 12, b"abc", _record(b"") * 2,
           '[{"inputs": {"x": [[1, 2]]}}, {"signature_name": "text", "inputs": {"t": '
           '["a"]}}]', '{"inputs": {"x": [[1e999, "a"]]}}',
           '{"signature_name": [], "inputs": {}}', "[" * 3000],
    words=[b"crc.", b"\0\0\0\0\0\0\0", '"inputs"', '"signature_name"', '"x"', "[", "]", "{", "}", "null", "1"],
)  # fmt: skip
def model_warmup_files(data: bytes) -> None:
    """Refused, with the request that is wrong; or run."""
    for name in (RECORDS, DOCUMENTS[1]):
        with scratch() as folder:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)
            try:
                assert warm_up(Mirror(), folder) >= 0
            except ServingError as error:
                assert f"of {name} failed: " in error.message  # noqa: PT017


@target(
    "serving.versions.folders",
    seeds=["1", "01", "18446744073709551616", "9223372036854775807", "-1", "\u0661", ".1", "1\n"],
    words=["0", "1", "9", "-", ".", "\u0661", "\n"],
)
def model_folder_name(data: bytes) -> None:
    """A number that fits, or no version; a look never fails."""
    name = text(data.replace(b"\0", b"").replace(b"/", b""))[:100].strip(".")
    with scratch() as folder:
        try:
            (folder / (name or "x")).mkdir()
            (folder / (name or "x") / "model.onnx").touch()
        except (OSError, UnicodeError):
            return
        found = look(folder, Interest(AllVersions(), settle_s=0))
    assert not found.error
    assert found.numbers == (
        {int(name)}
        if name.isascii() and name.isdigit() and int(name) < 2**63 and len(name) < 20
        else set()
    )


@target(
    "serving.versions.model_config",
    seeds=['model_config_list { config { name: "m" base_path: "/m" model_version_policy { '
           'specific { versions: 1 } } version_labels { key: "a" value: 1 } } }',
           "custom_model_config {}", "model_config_list { config { name: \"m\" base_path: 'm' } "
                                     "}", "\ufeff{"],
    words=["config {", "}", "name:", "base_path:", '"/m"', "versions: 1", "model_config_list {", "latest {", "num_versions: -1", "[a.b]"],
)  # fmt: skip
def model_config_text(data: bytes) -> None:
    """Refused; or models with a name and an absolute folder each."""
    try:
        found = parse_config(data.decode("utf-8", "replace"))
    except ServingError:
        return
    assert all(name == each.name and each.base.is_absolute() for name, each in found.items())


@target(
    "serving.versions.batching_parameters",
    seeds=["max_batch_size { value: 8 } allowed_batch_sizes: 4 allowed_batch_sizes: "
           "8", "num_batch_threads { value: -1 "
                                                                                        "}", "\ufeff{"],
    words=["max_batch_size", "{", "}", "value:", "allowed_batch_sizes:", "max_enqueued_batches", "99999999999999999999", "true"],
)  # fmt: skip
def batching_parameters_text(data: bytes) -> None:
    """Refused; or sizes and numbers of threads that a server can have."""
    try:
        policy, threads = parse_batching_parameters(data.decode("utf-8", "replace"))
    except ServingError as error:
        assert error.message  # noqa: PT017
        return
    assert policy.max_batch_rows > 0
    assert threads > 0
    assert policy.max_queue > 0
    assert all(0 < size <= policy.max_batch_rows for size in policy.allowed_rows)


_KNOWN = frozenset({"xgboost", "lightgbm"})


@target(
    "controller.programs.pickled_modules",
    seeds=[
        b"\x80\x04\x95\x20\0\0\0\0\0\0\0\x8c\x0fxgboost.sklearn\x94\x8c\x03XGB\x94\x93\x94)\x81\x94.",
        b"\x80\x02clightgbm.sklearn\nLGBMClassifier\nq\0)\x81q\x01.",
        zlib.compress(b"cxgboost\nBooster\n."),
    ],
    words=["xgboost", "lightgbm", b"\x8c", b"\x94", b"\x93", "\n", "c", b"x\x9c", b"\x1f\x8b"],
)
def classes_of_a_pickle(data: bytes) -> None:
    """Known names only, and the same ones however the bytes come: in pieces, or compressed."""
    pickled_modules([data], _KNOWN)  # compressed, or plain
    plain = b"\x80" + data
    found = pickled_modules([plain], _KNOWN)
    assert found <= _KNOWN
    assert all(name.encode() in plain for name in found)
    middle = len(plain) // 2 + 1
    assert pickled_modules([plain[:middle], plain[middle:]], _KNOWN) == found
    assert pickled_modules([zlib.compress(plain)], _KNOWN) == found
