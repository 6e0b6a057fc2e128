"""``tensorflow.examples.tutorials.mnist.input_data`` reads the files of MNIST from where people
put them.
"""

from __future__ import annotations

import gzip
import importlib.util
import struct
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from cloud_ml import environments

np = pytest.importorskip("numpy")
SOURCE = (
    Path(environments.__file__).parent
    / "compat/tensorflow1/cloud_ml_tensorflow1/names/examples/tutorials/mnist"
)


@pytest.fixture
def input_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The module over a TensorFlow that has types only; the working directory is empty."""
    types = {name: SimpleNamespace(base_dtype=name) for name in ("float32", "uint8")}
    fake = SimpleNamespace(float32="float32", uint8="uint8", as_dtype=lambda name: types[name])
    monkeypatch.setitem(sys.modules, "tensorflow", fake)
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("input_data", SOURCE / "input_data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_files(folder: Path, *, packed: bool = True) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", 60), ("t10k", 20)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        images = np.repeat(labels, 784).astype(np.uint8)
        for kind, content in (
            ("images-idx3", struct.pack(">4I", 2051, count, 28, 28) + images.tobytes()),
            ("labels-idx1", struct.pack(">2I", 2049, count) + labels.tobytes()),
        ):
            file = folder / f"{name}-{kind}-ubyte{'.gz' if packed else ''}"
            file.write_bytes(gzip.compress(content, mtime=0) if packed else content)


@pytest.mark.parametrize(
    ("named", "folder"),
    [
        ("MNIST_data/", "MNIST_data"),
        ("/no/such/data/", "data"),
        ("/no/such/x", "MNIST_data"),
        ("here", "here"),
        ("x", "."),
    ],
)
@pytest.mark.parametrize("packed", [True, False])
def test_files_are_found(
    input_data: ModuleType, tmp_path: Path, named: str, folder: str, packed: bool
) -> None:
    write_files(tmp_path / folder, packed=packed)
    found = input_data.read_data_sets(named, one_hot=True, validation_size=10)
    assert [one.num_examples for one in found] == [50, 10, 20]
    assert found.train.images.shape == (50, 784)
    assert found.test.labels[3].tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    assert found.test.images[5].max() == pytest.approx(5 / 255)


def test_a_bucket_is_named_by_a_variable(
    input_data: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path / "storage" / "mnist")
    monkeypatch.setenv("MNIST_DATA", str(tmp_path / "storage" / "mnist"))
    assert (
        input_data.read_data_sets("/tmp/no-such-data", validation_size=0).train.num_examples == 60
    )


def test_missing_files_say_where_to_put_them(input_data: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError,
        match=r"Put the four files of https://.* beside your script, or into a bucket",
    ):
        input_data.read_data_sets("/no/such/data")
    write_files(tmp_path / "data")
    (tmp_path / "data" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"t10k-labels-idx1-ubyte\.gz is not in data"):
        input_data.read_data_sets("/no/such/data")


@pytest.mark.parametrize(
    "content", [b"", b"<html>not found</html>", struct.pack(">4I", 2051, 9, 28, 28)]
)
def test_a_file_that_is_none_of_mnist_is_named(
    input_data: ModuleType, tmp_path: Path, content: bytes
) -> None:
    write_files(tmp_path / "data")
    (tmp_path / "data" / "train-images-idx3-ubyte.gz").write_bytes(content)
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte\.gz is no file of MNIST"):
        input_data.read_data_sets("data")


def test_batches_go_through_every_example_once_in_an_epoch(
    input_data: ModuleType, tmp_path: Path
) -> None:
    write_files(tmp_path / "data")
    train = input_data.read_data_sets("data", validation_size=0, seed=1).train
    labels = np.concatenate([train.next_batch(20)[1] for _ in range(3)])
    assert (np.bincount(labels).tolist(), train.epochs_completed) == ([6] * 10, 0)
    images, _ = train.next_batch(45)
    assert (len(images), train.epochs_completed) == (45, 1)
    images, labels = train.next_batch(30)
    assert (len(images), len(labels), train.epochs_completed) == (30, 30, 2)
    assert len(input_data.read_data_sets("", fake_data=True).train.next_batch(2)[0]) == 2
