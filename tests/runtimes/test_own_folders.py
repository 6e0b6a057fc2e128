"""Folders as people have them, with real frameworks: wrong first, then right, then served and
called.

``folders/`` holds them: a script of PyTorch with its data, the MNIST of
pytorch/examples, and a tutorial of TensorFlow 1.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.server import Ran, RealServer, serving

FOLDERS = Path(__file__).parent / "folders"
LIMIT_S = 900.0

pytestmark = [pytest.mark.runtimes, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A server with a gateway of its own."""
    with serving(tmp_path_factory.mktemp("server"), CLOUDML_GATEWAY_PORTS="18760-18789") as running:
        for runtime in ("pytorch", "tensorflow"):
            running.cli("framework", "prepare", runtime, timeout_s=LIMIT_S).good()
        yield running


def _copy(name: str, folder: Path) -> Path:
    return shutil.copytree(FOLDERS / name, folder / name)


def _submit(server: RealServer, folder: Path, name: str, arguments: str = "", *options: str) -> Ran:
    """What a person types in the folder."""
    words = ["jobs", "submit", ".", "-n", name, *options, "--watch", "--", *arguments.split()]
    return server.cli(*words, folder=folder, timeout_s=LIMIT_S)


# ---- PyTorch

WRONG = {
    "module": (
        ("import torch\n", "import torch\nimport sklearn\n"),
        "",
        1,
        [
            "ModuleNotFoundError: No module named 'sklearn' (train.py, line 9)",
            'add the line "scikit-learn" to',
        ],
    ),
    "argument": (
        ("", ""),
        "--learning-rate 0.1",
        2,
        ["unrecognized arguments: --learning-rate 0.1"],
    ),
    "path": (
        ("", ""),
        "--data data/chrun.csv",
        1,
        [
            "FileNotFoundError",
            "'data/chrun.csv' (train.py, line 14)",
            "did you mean data/churn.csv?",
        ],
    ),
    "syntax": (
        ("    model = nn", "    model = = nn"),
        "",
        1,
        ["SyntaxError: invalid syntax (train.py, line 29)"],
    ),
    "nan": (
        ("", ""),
        "--lr 1e30",
        1,
        [
            "FloatingPointError: loss is nan in epoch 1 (train.py, line 36)",
            "lower the learning rate",
        ],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_script_that_is_wrong_ends_with_the_cause_and_the_way_out(
    server: RealServer, tmp_path: Path, name: str
) -> None:
    change, arguments, code, expected = WRONG[name]
    folder = _copy("churn", tmp_path)
    script = folder / "train.py"
    script.write_text(script.read_text().replace(*change))
    ran = _submit(server, folder, f"wrong-{name}", arguments)
    assert ran.code == code, ran.out + ran.err
    verdict = ran.err[ran.err.index(f"wrong-{name} failed") :]
    assert [words for words in expected if words not in verdict] == [], verdict
    assert "Traceback" not in verdict


def test_a_script_that_needs_more_memory_is_told_the_next_limit(
    server: RealServer, tmp_path: Path
) -> None:
    if server.client().server_info().isolation["limits"] == "none":
        pytest.skip("no control groups here")
    folder = _copy("churn", tmp_path)
    script = folder / "train.py"
    script.write_text(
        script.read_text().replace("torch.manual_seed(0)", "kept = torch.ones(1 << 29)")
    )
    ran = _submit(server, folder, "wrong-memory", "", "-M", "200M")
    assert ran.code == 3, ran.out + ran.err
    assert "OOMKilled: 200M" in ran.err
    assert "cloudml jobs rerun wrong-memory -M 400M" in ran.err


def test_two_runs_are_compared_and_the_better_model_is_called_with_curl(
    server: RealServer, tmp_path: Path
) -> None:
    folder = _copy("churn", tmp_path)
    _submit(server, folder, "run-slow", "--lr 0.01 --epochs 2").good()
    _submit(server, folder, "run-fast", "--lr 0.1 --epochs 20").good()
    rows = _wide(server, "run-*")
    assert {name: row["ARGUMENTS"] for name, row in rows.items()} == {
        "run-slow": "--lr 0.01 --epochs 2",
        "run-fast": "--lr 0.1 --epochs 20",
    }
    changed = {
        column
        for column in rows["run-slow"]
        if rows["run-slow"][column] != rows["run-fast"][column]
    }
    assert (
        {"NAME", "ARGUMENTS", "UID"}
        <= changed
        <= {"NAME", "ARGUMENTS", "UID", "DURATION", "CREATED", "UPDATED"}
    )

    listed = server.cli("jobs", "outputs", "run-fast").good().out.splitlines()
    assert [line.split()[0] for line in listed] == [
        "PATH", "outputs/model.pt", "outputs/model.pt2", "outputs/weights.pt",
    ]  # fmt: skip
    server.cli("jobs", "cp", "-r", "run-fast:", "results", folder=folder).good()
    assert (folder / "results" / "outputs" / "model.pt2").stat().st_size > 1000

    deployed = server.cli(
        "models", "deploy", "churn", "v1", "run-fast:outputs/model.pt2", "-W", timeout_s=LIMIT_S
    )
    assert "churn v1 answers at 127.0.0.1:187" in deployed.good().err
    create = ("token", "create", "--for", "1h", "--scope", "models:predict:churn", "-o", "json")
    token = server.cli(*create).good().json()["token"]
    address = server.client().describe_model_service("churn", "v1").address
    curl = ["curl", "-sS", "-w", "\n%{http_code}", f"http://{address}/v1/models/churn:predict"]
    body = ["-d", '{"instances": [[0.9, 0.8, 0.1], [0.1, 0.1, 0.9]]}']
    called = subprocess.run(
        [*curl, "-H", f"Authorization: Bearer {token}", *body],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answer, code = called.stdout.rsplit("\n", 1)
    (leaves,), (stays,) = json.loads(answer)["predictions"]
    assert (code, leaves > stays) == ("200", True)
    bare = subprocess.run([*curl, *body], capture_output=True, text=True, timeout=60, check=True)
    assert bare.stdout.endswith("\n401")
    server.cli("models", "delete", "churn", "v1", "--wait").good()


def _wide(server: RealServer, names: str) -> dict[str, dict[str, str]]:
    """The rows of ``jobs list -o wide``, by job and column."""
    header, *lines = (
        server.cli("jobs", "list", "--name", names, "-o", "wide").good().out.splitlines()
    )
    begins = [match.start() for match in re.finditer(r"\S+(?: \S+)*", header)]
    cells = [
        [line[a:b].strip() for a, b in zip(begins, [*begins[1:], None], strict=True)]
        for line in [header, *lines]
    ]
    return {row[0]: dict(zip(cells[0], row, strict=True)) for row in cells[1:]}


BROKEN = {
    "weights.pt": "holds only weights (a state_dict), not a model: load them into your model and "
    "export that with",
    "module.pt": "is a pickled module that needs its Python classes (__main__.Net): load it with "
    "torch.load(",
    "script.pt": "stores no input signature, as TorchScript never does: put signature.json beside "
    "it",
    "garbage.onnx": "is not a valid ONNX file: export the model again, or upload the whole file",
}
SAVES = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def forward(self, x):
        return self.layer(x)

net = Net()
torch.save(net.state_dict(), "weights.pt")
torch.save(net, "module.pt")
torch.jit.script(net).save("script.pt")
open("garbage.onnx", "wb").write(b"this is no model")
"""


def test_broken_models_of_pytorch_have_failed_with_the_way_out(
    server: RealServer, tmp_path: Path
) -> None:
    (tmp_path / "save.py").write_text(SAVES)
    server.cli("jobs", "submit", "save.py", "--watch", folder=tmp_path, timeout_s=LIMIT_S).good()
    for file, expected in BROKEN.items():
        _fails(server, f"save:{file}", expected)


def _fails(server: RealServer, source: str, expected: str) -> None:
    """Deploying ends with exit code 3 and these words, and a loader's refusal is not tried
    again.
    """
    name = re.sub("[^a-z0-9]+", "-", source)
    deployed = server.cli("models", "deploy", name, "v1", source, "--watch", timeout_s=LIMIT_S)
    assert deployed.code == 3, deployed.err
    verdict = deployed.err[deployed.err.index(f"{name} v1 is Failed: ModelLoadFailed") :]
    assert expected in verdict
    events = [event.reason for event in server.client().model_service_events(name, "v1")]
    assert events.count("Failed") == 1, events
    server.cli("models", "delete", name, "v1", "--wait").good()


def test_the_mnist_of_pytorch_examples(server: RealServer, tmp_path: Path) -> None:
    folder = _copy("mnist", tmp_path)
    ran = _submit(server, folder, "mnist", "--epochs 1 --lr 0.5 --save-model").good()
    accuracy = re.search(r"Accuracy: (\d+)/200", ran.out)
    assert accuracy is not None, ran.out
    assert int(accuracy[1]) > 150
    listed = server.cli("jobs", "outputs", "mnist", "-o", "json").good().json()
    assert [each["path"] for each in listed] == ["mnist_cnn.pt"], (
        "../data is the job's own, and no output"
    )
    _fails(server, "mnist:mnist_cnn.pt", BROKEN["weights.pt"])
    wrong = _submit(server, folder, "mnist-wrong", "--epoch-count 1")
    assert (wrong.code, "unrecognized arguments: --epoch-count 1" in wrong.err) == (2, True)


# ---- TensorFlow and Keras


def test_a_tutorial_of_tensorflow_1(server: RealServer, tmp_path: Path) -> None:
    folder = _copy("softmax", tmp_path)
    lacks = _submit(server, folder, "softmax-lacks")
    assert lacks.code == 1
    assert (
        "train-images-idx3-ubyte.gz is not in MNIST_data. Put the four files of https://"
        in lacks.err
    )
    _write_mnist(folder / "MNIST_data")
    ran = _submit(server, folder, "softmax").good()
    assert (
        "cloudml: TensorFlow 1 code (tf.examples.tutorials.mnist.input_data in softmax.py:"
        in ran.out
    )
    assert float(ran.out.split()[-1]) > 0.9, ran.out


def _write_mnist(folder: Path) -> None:
    """The four files in their format; a digit is a bright row."""
    folder.mkdir()
    for prefix, count in (("train", 6000), ("t10k", 500)):
        labels = bytes(number % 10 for number in range(count))
        images = b"".join(
            bytes(28 * 2 * label) + bytes([255]) * 56 + bytes(28 * (26 - 2 * label))
            for label in labels
        )
        for kind, content in (
            ("images-idx3", struct.pack(">4I", 2051, count, 28, 28) + images),
            ("labels-idx1", struct.pack(">2I", 2049, count) + labels),
        ):
            (folder / f"{prefix}-{kind}-ubyte.gz").write_bytes(gzip.compress(content, mtime=0))


SAVES_KERAS = """
import json, zipfile
import keras, tf_keras

def network(library):
    return library.Sequential([library.layers.Input((3,), name="x"), library.layers.Dense(4), library.layers.Dense(1)])

network(tf_keras).save("keras2.h5")
network(keras).save("model.keras")
with zipfile.ZipFile("model.keras") as old, zipfile.ZipFile("newer.keras", "w") as newer:
    for name in old.namelist():
        content = old.read(name)
        if name == "metadata.json":
            content = json.dumps({**json.loads(content), "keras_version": "3.99.0"}).encode()
        newer.writestr(name, content.replace(b'"units": 4', b'"units": 4, "rounding": "new"'))
open("renamed.keras", "wb").write(open("keras2.h5", "rb").read())
network(keras).export("saved")
"""


def test_files_of_other_versions_of_keras_name_the_way_out_that_works(
    server: RealServer, tmp_path: Path
) -> None:
    (tmp_path / "save_keras.py").write_text(SAVES_KERAS)
    server.cli(
        "jobs",
        "submit",
        "-n",
        "save-keras",
        "save_keras.py",
        "-W",
        folder=tmp_path,
        timeout_s=LIMIT_S,
    ).good()
    refused = server.cli("models", "deploy", "keras2", "v1", "save-keras:keras2.h5")
    assert (refused.code, "It is Keras's older HDF5 format: load it with keras" in refused.err) == (
        1,
        True,
    )
    _fails(
        server,
        "save-keras:renamed.keras",
        "it is an HDF5 file, as Keras 2 wrote it: load it and save it with",
    )
    _fails(
        server, "save-keras:newer.keras", "was saved by Keras 3.99.0 and this replica runs Keras 3."
    )
    server.cli(
        "models", "deploy", "keras", "v1", "save-keras:saved", "-W", timeout_s=LIMIT_S
    ).good()
    server.cli("models", "predict", "keras", "v1", "-d", '{"x": [[1, 2, 3]]}').good()
    server.cli("models", "delete", "keras", "v1", "--wait").good()
