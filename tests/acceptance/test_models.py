"""Model services from the command line: made, asked, looked at, changed and gone, as the slides
write it.
"""

from __future__ import annotations

import importlib.util
import json
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.settings import load
from cloud_ml.shutdown import Shutdown
from support.server import RealServer, eventually, serving, trainer
from support.serving import SLIDES_DATA, slides_model

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("models")]

LIMIT_S = 100.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(
        tmp_path_factory.mktemp("server"),
        CLOUDML_GATEWAY_PORTS="18700-18749",
        CLOUDML_GATEWAY_LOAD_RETRY_S=0.2,
    ) as running:
        slides_model(running.user_home / "export")
        (running.user_home / "data.json").write_text(SLIDES_DATA)
        yield running


@pytest.fixture(scope="module")
def served(server: RealServer) -> str:
    """A service that answers, made of a local folder that holds one model."""
    made = server.cli(
        "models", "deploy", "linear", "v1", "./export", "-W", timeout_s=LIMIT_S
    ).good()
    assert made.out.startswith("linear v1 is created (Starting)")
    assert "linear v1 answers at 127.0.0.1:187" in made.err
    return server.client().describe_model_service("linear", "v1").address


def test_a_service_without_a_port_says_so_and_answers_once_it_has_one(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as foreign,
        serving(tmp_path, CLOUDML_GATEWAY_PORTS=str(foreign.getsockname()[1])) as own,
    ):
        slides_model(own.user_home / "export")
        own.cli("models", "deploy", "linear", "v1", "./export").good()
        sentence = "no port is free: of the 1 of this server (gateway.ports)"
        eventually(
            lambda: own.client().describe_model_service("linear", "v1").ready,
            "its replica is ready",
            limit_s=LIMIT_S,
        )
        shown = own.client().describe_model_service("linear", "v1")
        assert (shown.phase, shown.reason, shown.address) == ("Starting", "NoPort", "")
        assert " NoPort " in own.cli("models", "list").good().out
        assert sentence in " ".join(own.cli("models", "describe", "linear").good().out.split())
        waited = own.cli("models", "wait", "linear", "v1", "--timeout", "2s")
        assert waited.code != 0
        assert sentence in waited.err
        assert "answers" not in waited.err
        foreign.close()
        own.cli("models", "wait", "linear", "v1", timeout_s=LIMIT_S).good()


@pytest.mark.parametrize("more", [(), ("--http",)])
def test_the_line_of_the_slides(server: RealServer, served: str, more: tuple[str, ...]) -> None:
    for data in ("./data.json", SLIDES_DATA):
        answer = server.cli("models", "predict", "linear", "v1", "-d", data, *more).good().json()
        assert answer == {"keys_out": [[1], [2]], "predict": [[30.0], [70.0]]}


def test_the_same_number_is_printed_over_both(server: RealServer, served: str) -> None:
    (server.user_home / "tenth.json").write_text('{"keys": [[1], [2]], "X": [[0.1], [7.7]]}')
    words = ("models", "predict", "linear", "v1", "-d", "./tenth.json")
    grpc, http = (server.cli(*words, *more).good().out for more in ((), ("--http",)))
    assert grpc == http
    assert "00000" not in grpc, "as few digits as tell a float32"


def test_types_are_found_out_and_values_that_do_not_fit_are_refused(
    server: RealServer, served: str
) -> None:
    file = server.user_home / "untyped.json"
    file.write_text('{"keys": [[1]], "X": [[1]]}')
    assert server.cli("models", "predict", "linear", "-d", str(file)).good().json()["predict"] == [
        [12.0]
    ]
    for content, expected in (
        ('{"X": [[1]]}', "input 'keys' is missing"),
        ('{"keys": [[1], [2, 3]], "X": [[1]]}', "keys is ragged"),
        (
            '{"keys": [["a"]], "keys_dtype": "int32", "X": [[1]]}',
            "keys does not fit its type, int32",
        ),
        ('{"X": [[1]], "X_dtype": "float33"}', "allowed"),
        ("[1", "is not valid JSON"),
    ):
        file.write_text(content)
        refused = server.cli("models", "predict", "linear", "v1", "-d", str(file))
        assert refused.code == 1
        assert expected in refused.err or "X_dtype is 'float33'" in refused.err


def test_the_calls_that_are_described_work_when_they_are_pasted(
    server: RealServer, served: str
) -> None:
    described = server.cli("models", "describe", "linear", "v1").good().out
    assert "keys: int32 [?, 1] · X: float32 [?, 1]" in described
    assert "predict: float32 [?, 1]" in described
    curl = next(line for line in described.splitlines() if line.startswith("  curl "))
    environment = server.environment(
        server.user_home, **server.known, PATH=f"{Path(server.command[0]).parent}:/usr/bin:/bin"
    )
    done = subprocess.run(
        ["sh", "-c", curl], env=environment, capture_output=True, text=True, timeout=30, check=True
    )
    assert json.loads(done.stdout) == {"outputs": {"keys_out": [[1]], "predict": [[12.0]]}}
    python = next(line for line in described.splitlines() if line.startswith("  from cloud_ml"))
    ran = subprocess.run(
        [str(Path(server.command[0]).with_name("python")), "-c", python.strip()],
        env=environment, capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    assert "'predict': [[12.0]]" in ran.stdout
    grpcurl = shlex.split(
        next(line for line in described.splitlines() if line.startswith("  grpcurl "))
    )
    message = json.loads(grpcurl[grpcurl.index("-d") + 1])
    assert message["inputs"]["X"]["float_val"] == [1.0]
    document = server.cli("models", "describe", "linear", "v1", "-o", "json").good().json()
    assert [one["name"] for one in document["signatures"]["items"][0]["inputs"]] == ["keys", "X"]
    assert document["lineage"]["number"] == 1


def test_lists_logs_events_metrics(server: RealServer, served: str) -> None:
    row = next(
        line
        for line in server.cli("models", "list").good().out.splitlines()
        if line.startswith("linear")
    )
    assert row.split()[:4] == ["linear", "v1", "Running", served]
    assert (
        "model linear version 1 is ready" in server.cli("models", "logs", "linear", "v1").good().out
    )
    whole = server.cli("models", "logs", "linear", "v1").good().out
    served_only = server.cli("models", "logs", "linear", "v1", "--no-installation").good().out
    assert whole.endswith(served_only)
    assert "model linear version 1 is ready" in served_only
    assert "Installed" not in served_only
    assert server.cli("models", "logs", "linear", "v1", "-ri", "7").code == 1
    assert "Running" in server.cli("models", "events", "linear", "v1").good().out
    metrics = server.cli("models", "metrics", "linear", "v1", "-o", "json").good().json()
    assert metrics["items"][0]["requests"] >= 1
    assert server.cli("models", "list", "-o", "name").good().out == "linear v1\n"


def test_a_token_is_made_without_the_server(server: RealServer, served: str) -> None:
    token = server.cli("models", "token", "--for", "5m").good().out.strip()
    assert token.startswith("cmt1.")
    assert server.cli(
        "models", "predict", "linear", "-s", served, "-d", "./data.json"
    ).good().json()["predict"] == [
        [30.0],
        [70.0],
    ]


def test_a_program_with_a_narrow_token_calls_the_model(server: RealServer, served: str) -> None:
    scopes = "models:read,models:predict:linear"
    token = server.client().tokens.create(scopes.split(","), expires_in_s=600).token
    given = {
        "CLOUDML_ENDPOINT": server.endpoint,
        "CLOUDML_TOKEN": token,
        "CLOUDML_CONFIG": "/nowhere/config.json",
    }
    home = server.user_home
    for more in ((), ("--http",), ("-s", served)):
        answer = server.cli(
            "models", "predict", "linear", "v1", "-d", "./data.json", *more, home=home, **given
        )
        assert answer.good().json()["predict"] == [[30.0], [70.0]]
    refused = server.cli("models", "token", home=home, **given)
    assert (refused.code, "needs an access key" in refused.err) == (1, True)
    refused = server.cli("models", "stop", "linear", "v1", home=home, **given)
    assert (refused.code, "models:write" in refused.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("describe", "linaer", "v1"), "Did you mean linear?"),
        (("describe", "linear", "v2"), "There is linear v1."),
        (
            ("deploy", "linear", "v1", "fds://cloudml/other"),
            "there is a model service linear v1 already",
        ),
        (("deploy", "new", "v1", "./nowhere"), "a file or folder of this machine that exists"),
        (("deploy", "new", "v1", "."), "holds no model"),
        (("update", "linear", "v1"), "nothing is to be changed"),
        (("create", "-n", "new"), "missing: model_version, model_uri"),
        (
            ("create", "-n", "new", "-v", "v1", "-u", "fds://nowhere/x"),
            "there is no bucket 'nowhere'",
        ),
    ],
)
def test_mistakes_are_told_with_what_to_do(
    server: RealServer, served: str, words: tuple[str, ...], expected: str
) -> None:
    refused = server.cli("models", *words)
    assert refused.code in (1, 2)
    assert expected in refused.err, refused.err


def test_a_service_is_changed_stopped_started_and_destroyed(
    server: RealServer, served: str
) -> None:
    client: CloudMlClient = server.client()
    changed = server.cli(
        "models", "update", "linear", "-v", "v1", "-r", "2", "--watch", timeout_s=LIMIT_S
    ).good()
    assert "answers" in changed.err
    handle = client.get_model_service("linear", "v1")
    assert [one.ready for one in handle.service.replicas] == [True, True]
    answer = handle.predict({"keys": [[1]], "X": [[0.5]]}, grpc=True)
    assert answer["predict"] == [[11.0]]
    here = load(options={"server": {"data_dir": str(server.data)}})
    left = Shutdown(here).survivors()  # what `server stop` names
    assert list(left.replicas) == ["default/linear/v1"], "a service is named once"
    assert server.cli("models", "stop", "linear", "v1").good().out == "linear v1 is being stopped\n"
    server.cli("models", "wait", "linear", "v1", timeout_s=LIMIT_S).good()
    assert handle.refresh().phase == "Stopped"
    assert (
        server.cli("models", "destroy", "linear", "v1", "--wait").good().out
        == "linear v1 is deleted\n"
    )
    assert list(client.list_model_services()) == []


def test_a_saved_service_is_started_later(server: RealServer) -> None:
    server.client().storage.upload(onnx_file(server), "fds://cloudml/linear/1/model.onnx")
    saved = server.cli(
        "models", "create", "-n", "linear-model", "-v", "v1", "-u", "fds://cloudml/linear", "-sv"
    ).good()
    assert saved.out == "linear-model v1 is created (Saved)\n"
    started = server.cli(
        "models", "start", "linear-model", "v1", "--watch", timeout_s=LIMIT_S
    ).good()
    assert "answers" in started.err
    server.cli("models", "delete", "linear-model", "v1").good()


def test_what_the_demo_prints_to_type_next_works_on_a_server_of_ones_own(
    server: RealServer,
) -> None:
    model = server.folder / "demo model" / "model"
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.onnx").write_bytes(onnx_file(server).read_bytes())
    spec = importlib.util.spec_from_file_location(
        "demo", Path(__file__).parents[2] / "examples" / "demo.py"
    )
    assert spec is not None
    assert spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    first, *rest = demo.next_commands(model)
    assert first[0].endswith("cloudml server")
    for command, remark in rest:
        _, *words = shlex.split(command)
        paths = [str(demo.ROOT / word) if (demo.ROOT / word).exists() else word for word in words]
        ran = server.cli(*paths, timeout_s=LIMIT_S)
        assert ran.code == 0 or words == ["doctor"], (command, ran.err)
        for also in remark.removeprefix("and: ").split(", ") if remark.startswith("and: ") else ():
            server.cli(*shlex.split(also)).good()
    server.cli("models", "delete", "digits", "v1", "--wait").good()


TENSOR = '[{"name": "x", "dtype": "float32", "shape": [-1]}]'
SIGNATURE = f'{{"inputs": {TENSOR}, "outputs": {TENSOR}}}'
BROKEN = {
    "garbage": ("model.onnx", "\x08\x7fthis is no model", "INVALID_PROTOBUF"),
    "raises": (
        "model.py",
        "raise RuntimeError('weights are of version 3')",
        "weights are of version 3",
    ),
    "dies": (
        "model.py",
        "import os\nos._exit(7)",
        "crashed at each of 3 tries: server-0 exited with code 7",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_model_has_failed_within_seconds_and_is_mended_by_deploying_again(
    server: RealServer, name: str
) -> None:
    file, content, expected = BROKEN[name]
    folder = server.user_home / name
    folder.mkdir()
    (folder / file).write_text(content)
    (folder / "signature.json").write_text(SIGNATURE)
    client, words = server.client(), ("models", "deploy", name, "v1", f"./{name}", "--watch")
    failed = server.cli(*words, timeout_s=30.0)
    assert failed.code == 3, failed.err
    assert f"{name} v1 is Failed" in failed.err
    assert expected in failed.err
    service = client.describe_model_service(name, "v1")
    assert (service.phase, service.state, service.address, service.ready) == (
        "Failed",
        "failed",
        "",
        0,
    )
    assert [one.ready for one in service.replicas] in ([], [False])
    assert server.cli("models", "wait", name, "v1", timeout_s=LIMIT_S).code == 3
    assert any(
        event.reason == "Failed" and expected in event.message
        for event in client.model_service_events(name, "v1")
    )
    header, *rows = server.cli("models", "list", "-o", "wide").good().out.splitlines()
    (row,) = [line for line in rows if line.startswith(name)]
    assert row[header.index("REASON") : header.index("ADDRESS")].strip() == service.reason
    assert expected in row
    if name == "dies":  # one is mended: the same is typed again
        for written in folder.iterdir():
            written.unlink()
        (folder / "model.onnx").write_bytes(onnx_file(server).read_bytes())
        again = server.cli(*words, timeout_s=LIMIT_S).good()
        assert "answers at 127.0.0.1:187" in again.err
    server.cli("models", "delete", name, "v1", "--wait").good()


EXPORTS = """
import pathlib, shutil, sys
target = pathlib.Path(sys.argv[1].partition("=")[2]) / "1"
target.mkdir(parents=True)
shutil.copy(sys.argv[2].partition("=")[2], target / "model.onnx")
"""


def test_a_job_is_served_when_it_has_succeeded(server: RealServer) -> None:
    client = server.client()
    client.storage.upload(onnx_file(server), "fds://cloudml/data/ready.onnx")
    code = trainer(server.user_home / "exporter", EXPORTS)
    words = (
        "jobs",
        "submit",
        "-n",
        "exporter",
        "-m",
        "trainer.task",
        "-u",
        str(code),
        "-F",
        "python",
        "-mn",
        "made",
    )
    refused = server.cli(*words, "-mv", "v1")
    assert (refused.code, "model_export_path is missing" in refused.err) == (1, True)
    uri = "fds://cloudml/exported"
    data = "--data=fds://cloudml/data/ready.onnx"
    refused = server.cli(*words, "-a", f"--model_path={uri} {data}")
    assert (refused.code, "model_version is missing" in refused.err) == (1, True)
    server.cli(
        *words, "-mv", "v1", "-a", f"--model_path={uri} {data}", "-W", timeout_s=LIMIT_S
    ).good()
    assert (
        "made v1 serves fds://cloudml/exported"
        in server.cli("jobs", "events", "exporter").good().out
    )
    server.cli("models", "wait", "made", "v1", timeout_s=LIMIT_S).good()
    assert "created by job exporter" in server.cli("models", "events", "made").good().out
    (origin,) = client.get_model_service("made", "v1").lineage().jobs
    assert (origin.name, origin.data) == ("exporter", ["fds://cloudml/data/ready.onnx"])
    assert origin.trainer_digest
    described = server.cli("models", "describe", "made").good().out
    assert "Exported by:" in described
    server.cli("models", "delete", "made", "v1").good()
    for more in ((), ("--http",)):
        began = time.monotonic()
        late = server.cli("models", "predict", "made", "v1", "-d", "./data.json", *more)
        assert late.code == 1
        assert late.err.startswith("cloudml: there is no model service made v1"), late.err
        assert time.monotonic() - began < 8, "it was told to come back in ten seconds"


TRAINS = """
import argparse, pathlib, shutil
parser = argparse.ArgumentParser()
parser.add_argument("--start", default="data/start.onnx")
pathlib.Path("outputs").mkdir()
shutil.copy(parser.parse_args().start, "outputs/model.onnx")
"""


def _printed(line: list[str]) -> str:
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout


def test_from_a_folder_of_ones_own_to_a_call_by_curl(server: RealServer) -> None:
    folder = server.user_home / "own-folder"
    (folder / "data").mkdir(parents=True)
    (folder / "train.py").write_text(TRAINS)
    (folder / "data" / "start.onnx").write_bytes(onnx_file(server).read_bytes())
    server.cli("run", ".", "-n", "own", folder=folder, timeout_s=LIMIT_S).good()
    (described,) = [
        line
        for line in server.cli("status", "own").good().out.splitlines()
        if "models deploy NAME" in line
    ]
    words = described.replace("NAME", "own").split()[4:]
    assert words == ["models", "deploy", "own", "v1", "own:outputs/model.onnx"]
    server.cli(*words, "--watch", timeout_s=LIMIT_S).good()
    created = (
        server.cli("token", "create", "--for", "1h", "--scope", "models:predict:own", "-o", "json")
        .good()
        .json()
    )
    address = server.client().describe_model_service("own", "v1").address
    curl = [
        "curl",
        "-sS",
        f"http://{address}/v1/models/own:predict",
        "-d",
        '{"inputs": {"keys": [[1]], "X": [[1]]}}',
    ]
    for headers, expected in (
        (
            ["-H", f"Authorization: Bearer {created['token']}"],
            '{"outputs":{"keys_out":[[1]],"predict":[[12.0]]}}',
        ),
        ([], "missing bearer token"),
    ):
        assert expected in _printed([*curl, *headers])
    server.cli("models", "delete", "own", "v1").good()


def onnx_file(server: RealServer) -> Path:
    file = server.user_home / "export" / "model.onnx"
    assert onnx.load(file).graph.name == "linear"
    return file
