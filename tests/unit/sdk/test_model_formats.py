"""A file that cannot be served is refused with what it is and how to export a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.errors import InvalidRequest
from cloud_ml.models.outputs import model_at
from cloud_ml.sdk.model_folders import files_of
from cloud_ml.sdk.output_paths import OutputSource, version_keys
from cloud_ml.serving.versions.single_model import base_of


@pytest.mark.parametrize(
    ("name", "said"),
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
        ("booster.json", "A model of XGBoost must be named model.json"),
        ("booster.txt", "A model of LightGBM must be named model.txt"),
        ("weights.npz", "deploy a folder with model.py, which loads them"),
    ],
)
def test_each_has_its_own_sentence(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(InvalidRequest) as local:
        files_of(tmp_path / name)
    with pytest.raises(InvalidRequest) as output:
        version_keys(OutputSource("churn", f"outputs/{name}"), [f"outputs/{name}"])
    for refused in (local.value, output.value):
        assert said in (refused.hint or "")
        assert "which holds no model; allowed is a file that ends in" in refused.message


@pytest.mark.parametrize(("name", "sent"), [("net.pth", "model.pt"), ("churn.pickle", "model.pkl")])
def test_usual_other_endings_are_known_everywhere(tmp_path: Path, name: str, sent: str) -> None:
    (tmp_path / name).touch()
    assert [file.key for file in files_of(tmp_path / name)] == [f"1/{sent}"]
    assert version_keys(OutputSource("churn", name), [name]) == [f"1/{sent}"]
    assert (base_of(tmp_path / name) / sent).is_symlink()
    assert model_at(f"outputs/{name}") == f"outputs/{name}"


@pytest.mark.parametrize(
    ("file", "meant"),
    [
        ("export/1/saved_model.pb", "export"),
        ("runs/export/saved_model.pb", "runs/export"),
        ("best/model.onnx", "best/model.onnx"),
        ("best/model.py", "best/model.py"),
    ],
)
def test_a_folder_above_a_model_names_it(tmp_path: Path, file: str, meant: str) -> None:
    beside = ("train.py", "export/1/fingerprint.pb")
    for name in (file, *beside):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(InvalidRequest) as local:
        files_of(tmp_path)
    assert local.value.hint == f"Did you mean {tmp_path / meant}?"
    with pytest.raises(InvalidRequest) as output:
        version_keys(OutputSource("churn", ""), [file, *beside])
    assert output.value.hint == f"Did you mean churn:{meant}?"


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
