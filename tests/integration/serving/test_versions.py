"""Versions that come, break and go under a real server while clients ask."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from cloud_ml.serving.protos import message
from support.serving import Running, call, model_server, predict, predict_request, save_linear

STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
RELOAD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"
SERVING = "tensorflow.serving."
QUICK = ("--file_system_poll_wait_seconds", "0.1", "--version_settle_seconds", "0")


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Ask again and again, which is all that a client can do."""
    tick = threading.Event()
    for _ in range(int(seconds / 0.05)):
        if condition():
            return
        tick.wait(0.05)
    raise AssertionError("it did not come to pass")


def states(channel: grpc.Channel, name: str = "linear") -> dict[int, tuple[int, str]]:
    request = message(SERVING + "GetModelStatusRequest")()
    request.model_spec.name = name
    response = call(channel, STATUS, request, SERVING + "GetModelStatusResponse")
    return {
        each.version: (each.state, each.status.error_message)
        for each in response.model_version_status
    }


def publish(base: Path, number: int, slope: float) -> None:
    """A version that appears at once."""
    save_linear(base / f"tmp-{number}", slope=slope).rename(base / str(number))


def test_versions_roll_without_a_failed_request(tmp_path: Path) -> None:
    publish(tmp_path, 1, 1.0)
    with model_server(
        "--model_name", "linear", "--model_base_path", str(tmp_path), *QUICK
    ) as running:
        stop, seen, failures = threading.Event(), set(), []

        def ask() -> None:
            with running.channel() as channel:
                while not stop.is_set():
                    try:
                        seen.add(predict(channel, predict_request(x=[1.0]))["y"][0])
                    except grpc.RpcError as error:
                        failures.append(error)

        callers = [threading.Thread(target=ask) for _ in range(4)]
        for caller in callers:
            caller.start()
        with running.channel() as channel:
            for number in (2, 3, 4):
                publish(tmp_path, number, float(number))
                until(lambda number=number: states(channel).get(number, (0, ""))[0] == 30)
            (tmp_path / "5").mkdir()
            (tmp_path / "5" / "model.onnx").write_bytes(b"no model")
            until(lambda: states(channel).get(5, (0, ""))[0] == 50)
            versions = states(channel)
            until(lambda: states(channel)[3][0] == 50)
        stop.set()
        for caller in callers:
            caller.join()
    assert failures == []
    assert seen == {11.0, 12.0, 13.0, 14.0}
    assert versions[4][0] == 30
    assert "not a valid ONNX file" in versions[5][1]


def config(*models: tuple[str, Path]) -> str:
    each = "".join(f"config {{ name: '{name}' base_path: '{base}' }}\n" for name, base in models)
    return f"model_config_list {{ {each} }}"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    base = tmp_path_factory.mktemp("two")
    save_linear(base / "a" / "1", slope=1.0)
    save_linear(base / "b" / "1", slope=2.0)
    return base / "a", base / "b"


def test_a_configuration_file_is_followed(two: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "models.config"
    file.write_text(config(("a", two[0])))
    flags = (
        "--model_config_file",
        str(file),
        "--model_config_file_poll_wait_seconds",
        "0.1",
        *QUICK,
    )
    with model_server(*flags) as running, running.channel() as channel:
        assert predict(channel, predict_request("a", x=[1.0]))["y"] == [11.0]
        file.write_text("model_config_list { config {")
        file.write_text(config(("b", two[1])))

        until(lambda: answered(channel, "b") is grpc.StatusCode.OK)
        until(lambda: answered(channel, "a") is grpc.StatusCode.NOT_FOUND)


def answered(channel: grpc.Channel, name: str) -> grpc.StatusCode:
    try:
        predict(channel, predict_request(name, x=[1.0]))
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK


def reload_request(*models: tuple[str, Path]) -> object:
    request = message(SERVING + "ReloadConfigRequest")()
    for name, base in models:
        request.config.model_config_list.config.add(name=name, base_path=str(base))
    return request


def test_callers_change_the_configuration_where_they_may(
    two: tuple[Path, Path], tmp_path: Path
) -> None:
    flags = ("--model_name", "a", "--model_base_path", str(two[0]), *QUICK)
    with model_server(*flags, "--allow_model_control") as running, running.channel() as channel:
        call(
            channel,
            RELOAD,
            reload_request(("a", two[0]), ("b", two[1])),
            SERVING + "ReloadConfigResponse",
        )
        assert predict(channel, predict_request("b", x=[1.0]))["y"] == [12.0]
        with pytest.raises(grpc.RpcError) as caught:
            call(
                channel,
                RELOAD,
                reload_request(("c", tmp_path / "none")),
                SERVING + "ReloadConfigResponse",
            )
        assert "No such file" in caught.value.details()
        with pytest.raises(
            grpc.RpcError, match=r"no version of model 'c' is known: .*No such file"
        ):
            states(channel, "c")


def test_callers_change_nothing_where_they_may_not(linear: Running, two: tuple[Path, Path]) -> None:
    with linear.channel() as channel:
        with pytest.raises(grpc.RpcError) as caught:
            call(channel, RELOAD, reload_request(("b", two[1])), SERVING + "ReloadConfigResponse")
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "--allow_model_control" in caught.value.details()


def test_a_server_whose_only_version_is_broken_says_so(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.onnx").write_bytes(b"no model")
    with (
        model_server(
            "--model_name", "linear", "--model_base_path", str(tmp_path), *QUICK
        ) as running,
        running.channel() as channel,
    ):
        assert answered(channel, "linear") is grpc.StatusCode.UNAVAILABLE
        save_linear(tmp_path / "1")
        until(lambda: answered(channel, "linear") is grpc.StatusCode.OK)


def test_a_model_that_ends_the_program_ends_only_its_call_or_its_version(tmp_path: Path) -> None:
    code = """
import sys
class Model:
    def load(self, folder):
        if folder.name == "2":
            sys.exit("no luck")
    def predict(self, inputs):
        if inputs["x"][0] < 0:
            sys.exit(3)
        return {"y": inputs["x"] * 2}
"""
    sides = {
        side: [{"name": name, "dtype": "float32", "shape": [-1]}]
        for side, name in (("inputs", "x"), ("outputs", "y"))
    }
    for number in (1, 2):
        folder = tmp_path / f"tmp-{number}"
        folder.mkdir()
        (folder / "model.py").write_text(code)
        (folder / "signature.json").write_text(json.dumps(sides))
    (tmp_path / "tmp-1").rename(tmp_path / "1")
    flags = [
        "--model_name",
        "linear",
        "--model_base_path",
        str(tmp_path),
        "--allow_models_that_run_code",
        *QUICK,
    ]
    with model_server(*flags) as running, running.channel() as channel:
        for _ in range(3):
            assert predict(channel, predict_request(x=[1.0]))["y"] == [2.0]
            with pytest.raises(grpc.RpcError) as failed:
                predict(channel, predict_request(x=[-1.0]))
            assert "SystemExit: 3" in failed.value.details()
        (tmp_path / "tmp-2").rename(tmp_path / "2")
        until(lambda: "no luck" in states(channel).get(2, (0, ""))[1])
        assert predict(channel, predict_request(x=[1.0]))["y"] == [2.0]


def test_a_load_that_takes_for_ever_does_not_hold_up_the_end(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.py").write_text(
        "import time\nprint('it begins', flush=True)\ntime.sleep(600)\n"
    )
    sides = {
        side: [{"name": side, "dtype": "float32", "shape": [-1]}] for side in ("inputs", "outputs")
    }
    (tmp_path / "1" / "signature.json").write_text(json.dumps(sides))
    command = [
        sys.executable,
        "-m",
        "cloud_ml.serving",
        "--port",
        "0",
        "--model_base_path",
        str(tmp_path),
    ]
    flags = ["--allow_models_that_run_code", *QUICK]
    with subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "it begins\n"
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_a_server_of_one_file_leaves_no_folder_of_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "twice.py"
    model.write_text("class Model:\n    def predict(self, inputs):\n        return inputs\n")
    links = tmp_path / "tmp"
    links.mkdir()
    monkeypatch.setenv("TMPDIR", str(links))
    with model_server("--model_name", "twice", "--model_base_path", str(model), *QUICK):
        assert list(links.glob("cloudml-model-*"))
    assert not list(links.glob("cloudml-model-*"))
