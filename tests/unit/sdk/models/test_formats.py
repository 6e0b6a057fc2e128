"""A file that cannot be served is refused with what it is and how to export a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.errors import InvalidRequest
from cloud_ml.models.jobs.outputs import model_at
from cloud_ml.models.services.model_files import MODEL_FILES, MODEL_PARTS
from cloud_ml.sdk.jobs.output_paths import OutputSource, version_keys
from cloud_ml.sdk.models.folders import files_of
from cloud_ml.serving.versions.single_model import base_of


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        (
            "model.h5",
            "It is Keras's older HDF5 format: load it with keras.models.load_model and save "
            "it with",
        ),
        ("best.HDF5", "save it with model.save('model.keras')"),
        ("model.weights.h5", "It holds only weights: load them with model.load_weights"),
        (
            "model.safetensors",
            "export that with torch.export.save(torch.export.export(model.eval(), (example,))",
        ),
        ("pytorch_model.bin", "It holds only weights"),
        ("epoch=3.ckpt", "It holds only weights"),
        ("frozen.pb", "export a SavedModel and deploy its folder"),
        ("saved_model.pb", "Deploy the folder that holds it"),
        ("weights.npz", "deploy a folder with model.py, which loads them"),
    ],
)
def test_each_has_its_own_sentence(tmp_path: Path, name: str, hint: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(InvalidRequest) as local:
        files_of(tmp_path / name)
    with pytest.raises(InvalidRequest) as output:
        version_keys(OutputSource("churn", f"outputs/{name}"), [f"outputs/{name}"])
    for refused in (local.value, output.value):
        assert hint in (refused.hint or "")
        assert "which holds no model; allowed is a file that ends in" in refused.message


@pytest.mark.parametrize(
    ("name", "content", "sent"),
    [
        ("clf.json", b'{"learner":{"attributes":{}},"version":[3,2,0]}', "model.json"),
        ("clf.json", b'{\n  "version": [3, 2, 0], "learner": {}}', "model.json"),
        ("churn.txt", b"tree\nversion=v4\nnum_class=1\n", "model.txt"),
        ("churn.txt", b"tree\r\nversion=v4\r\n", "model.txt"),
    ],
)
def test_models_that_are_text_are_known_by_their_content(
    tmp_path: Path, name: str, content: bytes, sent: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert [file.key for file in files_of(tmp_path / name)] == [f"1/{sent}"]
    assert version_keys(OutputSource("churn", name), [name]) == [f"1/{sent}"]
    assert (base_of(tmp_path / name) / sent).is_symlink()


BEGINNINGS = {
    "saved_model.pb": b"\x08\x01\x12\xe5\xb8\x02\n\xb1\x05\n\x01",
    "export.meta": b"\n\xb5\n\n\xc8\x01\n\x0b",
    "model.keras": b"PK\x03\x04\x14\x00\x00\x00",
    "model.tflite": b"\x1c\x00\x00\x00TFL3",
    "model.onnx": b"\x08\x08\x12\x04test",
    "model.pt2": b"PK\x03\x04\x00\x00\x08\x08",
    "model.pt": b"PK\x03\x04\x00\x00\x08\x08",
    "model.skops": b"PK\x03\x04\x14\x00\x00\x00",
    "model.joblib": b"\x80\x04\x95\x9f",
    "model.pkl": b"(lp0\n.",  # protocol 0 is text
    "model.ubj": b"{L\x00\x00\x00\x00\x00\x00\x00\x07learner",
    "model.json": b'{"learner":{"attributes":{}},"version":[3,2,0]}',
    "model.txt": b"tree\nversion=v4\nnum_class=1\n",
    "model.py": b"class Model:\n    def load(self, folder): ...\n",
}
"""How a model of each format begins."""


def test_each_format_that_is_served_is_known_here() -> None:
    assert set(BEGINNINGS) == set(MODEL_FILES)


@pytest.mark.parametrize("name", MODEL_FILES)
@pytest.mark.parametrize("folder", ["", "1", "00000007"])
def test_each_format_that_is_served_is_sent(tmp_path: Path, name: str, folder: str) -> None:
    place = tmp_path / folder
    place.mkdir(exist_ok=True)
    (place / name).write_bytes(BEGINNINGS[name])
    if name == "model.py":
        (place / "signature.json").write_text("{}")
    assert f"{folder or '1'}/{name}" in [file.key for file in files_of(tmp_path)]
    if name not in MODEL_PARTS:
        assert f"1/{name}" in [file.key for file in files_of(place / name)]


def test_keras_2_writes_hdf5_under_the_ending_of_keras_3(tmp_path: Path) -> None:
    (tmp_path / "net.keras").write_bytes(b"\x89HDF\r\n\x1a\n")
    assert files_of(tmp_path / "net.keras")


@pytest.mark.parametrize("folder", ["", "1"])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"epoch,loss\n1,0.5\n", "It is text. Models that are served: TensorFlow (a folder with "),
        (b"", "It is empty."),
        (b"version https://git-lfs.github.com/spec/v1\n", "run `git lfs pull` first"),
        (b"<!DOCTYPE html><html>", "the download that wrote it failed"),
    ],
)
@pytest.mark.parametrize(
    "name", ["saved_model.pb", "model.keras", "model.tflite", "model.onnx", "model.pt2",
             "model.pt", "model.skops"],
)  # fmt: skip
def test_text_under_the_name_of_a_model_is_not_sent(
    tmp_path: Path, name: str, content: bytes, reason: str, folder: str
) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / name).write_bytes(content)
    with pytest.raises(InvalidRequest, match="which holds no model; allowed is a model of") as one:
        files_of(tmp_path)
    assert reason in (one.value.hint or "")


def test_numbered_folders_without_a_model_are_not_sent(tmp_path: Path) -> None:
    """Only the replica said so."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "notes.md").touch()
    with pytest.raises(InvalidRequest, match=r"numbered folders \(1, 2…\) with one of saved_model"):
        files_of(tmp_path)
    (tmp_path / "1" / "net.onnx").touch()
    with pytest.raises(InvalidRequest) as refused:
        files_of(tmp_path)
    assert refused.value.hint == f"Did you mean {tmp_path / '1' / 'net.onnx'}?"
    with pytest.raises(InvalidRequest, match="which holds no model"):
        version_keys(OutputSource("churn", "out"), ["out/1/notes.md"])
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "model.onnx").write_bytes(BEGINNINGS["model.onnx"])
    assert files_of(tmp_path), "the server takes the version that is a model"
    assert version_keys(OutputSource("churn", "out"), ["out/1/notes.md", "out/2/model.onnx"])


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("metrics.json", b'{"loss": 0.2}', "a model of XGBoost, where its name ends in .json"),
        ("requirements.txt", b"numpy\n", "a model of LightGBM, where its name ends in .txt"),
        ("empty.txt", b"", "a model of LightGBM, where its name ends in .txt"),
    ],
)
def test_other_texts_are_no_models(
    tmp_path: Path, name: str, content: bytes, expected: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidRequest, match=f"allowed is {expected}"):
        files_of(tmp_path / name)


MODEL = "class Model:\n    def load(self, folder): ...\n    def predict(self, inputs): ...\n"


def test_a_script_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n# the Model\nmodel = torch.nn.Linear(2, 1)\n")
    with pytest.raises(
        InvalidRequest, match="allowed is Python code with a class Model"
    ) as refused:
        files_of(tmp_path / "train.py")
    assert refused.value.hint == (f"To run train.py as a job: cloudml run {tmp_path / 'train.py'}")


@pytest.mark.parametrize(
    "code",
    [
        MODEL,
        "from churn.serving import Model\n",
        "from churn.serving import (\n    Forest,\n    Model,\n)\n",
        "import churn\nModel = churn.Forest\n",
    ],
)
def test_python_code_needs_its_signature_before_it_is_sent(tmp_path: Path, code: str) -> None:
    """Only the replica said so, minutes later."""
    (tmp_path / "churn.py").write_text(code)
    with pytest.raises(
        InvalidRequest, match=r"allowed is .* signature\.json beside churn\.py"
    ) as one:
        files_of(tmp_path / "churn.py")
    assert f"cloudml models signature {tmp_path / 'churn.py'} --input" in (one.value.hint or "")
    (tmp_path / "signature.json").write_text("{}")
    assert [file.key for file in files_of(tmp_path / "churn.py")] == [
        "1/model.py",
        "1/signature.json",
    ]


@pytest.mark.parametrize(
    ("source", "paths"),
    [
        ("model.py", ["model.py"]),
        ("best", ["best/model.py", "best/weights.npz"]),
        ("", ["1/model.py", "2/model.py", "2/signature.json"]),
    ],
)
def test_python_code_among_outputs_needs_its_signature(source: str, paths: list[str]) -> None:
    with pytest.raises(InvalidRequest, match=r"allowed is Python code with a signature\.json"):
        version_keys(OutputSource("churn", source), paths)


@pytest.mark.parametrize("number", ["", "7"])
def test_a_folder_with_python_code_needs_a_signature(tmp_path: Path, number: str) -> None:
    (tmp_path / number).mkdir(exist_ok=True)
    (tmp_path / number / "model.py").write_text(MODEL)
    with pytest.raises(InvalidRequest, match=r"signature\.json beside model\.py"):
        files_of(tmp_path)
    # Which the server takes first.
    (tmp_path / number / "model.onnx").write_bytes(BEGINNINGS["model.onnx"])
    assert files_of(tmp_path)


@pytest.mark.parametrize(("name", "sent"), [("net.pth", "model.pt"), ("churn.pickle", "model.pkl")])
def test_usual_other_endings_are_known_everywhere(tmp_path: Path, name: str, sent: str) -> None:
    (tmp_path / name).write_bytes(BEGINNINGS[sent])
    assert [file.key for file in files_of(tmp_path / name)] == [f"1/{sent}"]
    assert version_keys(OutputSource("churn", name), [name]) == [f"1/{sent}"]
    assert (base_of(tmp_path / name) / sent).is_symlink()
    assert model_at(f"outputs/{name}") == f"outputs/{name}"


@pytest.mark.parametrize(
    ("file", "suggestion"),
    [
        ("export/1/saved_model.pb", "export"),
        ("runs/export/saved_model.pb", "runs/export"),
        ("best/model.onnx", "best/model.onnx"),
        ("best/model.py", "best/model.py"),
    ],
)
def test_a_folder_above_a_model_names_it(tmp_path: Path, file: str, suggestion: str) -> None:
    beside = ("train.py", "export/1/fingerprint.pb")
    for name in (file, *beside):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(InvalidRequest) as local:
        files_of(tmp_path)
    assert local.value.hint == f"Did you mean {tmp_path / suggestion}?"
    with pytest.raises(InvalidRequest) as output:
        version_keys(OutputSource("churn", ""), [file, *beside])
    assert output.value.hint == f"Did you mean churn:{suggestion}?"


def test_a_folder_of_scripts_is_no_folder_of_models(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    with pytest.raises(InvalidRequest) as refused:
        files_of(tmp_path)
    assert refused.value.hint is None


def test_a_folder_that_is_no_model_names_the_file_in_it(tmp_path: Path) -> None:
    (tmp_path / "loss.json").touch()
    (tmp_path / "best.h5").touch()
    with pytest.raises(InvalidRequest) as refused:
        files_of(tmp_path)
    assert refused.value.hint == (
        f"{tmp_path} holds best.h5, but it is Keras's older HDF5 format: load it with "
        "keras.models.load_model and save it with model.save('model.keras')"
    )
    (tmp_path / "churn.onnx").touch()
    with pytest.raises(InvalidRequest) as refused:
        files_of(tmp_path)
    assert refused.value.hint == f"Did you mean {tmp_path / 'churn.onnx'}?"
    with pytest.raises(InvalidRequest) as refused:
        version_keys(
            OutputSource("churn", ""), ["outputs/a.csv", "outputs/churn.onnx", "outputs/plot.png"]
        )
    assert refused.value.hint == "Did you mean churn:outputs/churn.onnx?"
    with pytest.raises(InvalidRequest) as refused:
        version_keys(OutputSource("churn", "plots"), ["plots/a.png"])
    assert refused.value.hint == "List the outputs: cloudml jobs outputs churn"


@pytest.mark.parametrize(
    "name",
    [
        "optimizer.pt",
        "scheduler.pt",
        "rng_state.pth",
        "rng_state_0.pth",
        "optimizer-3.pth",
        "random_states_0.pkl",
        "grad_scaler.pt",
    ],
)
def test_what_a_trainer_goes_on_from_is_no_model(name: str) -> None:
    assert model_at(f"out/checkpoint-20/{name}") == ""
