"""What a new user gets wrong: each ends with what happened, why, what to do, and an exit code."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from support.environments import EXAMPLES
from support.pages import ROOT
from support.server import Ran, RealServer, eventually, made, serving

pytestmark = pytest.mark.xdist_group("new-user")

PLAIN = str(EXAMPLES / "plain")
OFF = """
import datetime

class Shifted(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(days={days})

datetime.datetime = Shifted
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A server that looks often and waits for nobody long."""
    folder = tmp_path_factory.mktemp("server")
    with serving(
        folder, CLOUDML_ENGINE_STOP_GRACE_S=0.5, CLOUDML_ENGINE_DISK_PERIOD_S=0.2
    ) as running:
        yield running


def expect_failure(ran: Ran, code: int, *words: str) -> None:
    """The end of the standard error holds every word, and the exit code is that."""
    assert [word for word in words if word not in ran.err] == [], ran.err
    assert ran.code == code, ran.err


# ---- before there is a job

REFUSED: dict[str, tuple[list[str], dict[str, str]]] = {
    "nothing listens at": (["jobs", "list"], {"CLOUDML_ENDPOINT": "http://127.0.0.1:9"}),
    "cannot agree on TLS": (["jobs", "list"], {"CLOUDML_ENDPOINT": "https://127.0.0.1:PORT"}),
    "there is no access key to sign requests with": (
        ["jobs", "list"], {"CLOUDML_ACCESS_KEY": "", "CLOUDML_SECRET_KEY": ""},
    ),
    "the signature is wrong": (["whoami"], {"CLOUDML_SECRET_KEY": "another"}),
    "a job named": (["jobs", "submit", "taken", "trainer.task", PLAIN, "--save_mode"], {}),
    "exists already": (["jobs", "submit", "taken", "trainer.task", PLAIN, "--save_mode"], {}),
    "Did you mean": (["jobs", "submit", PLAIN, "-n", "My_Job"], {}),
    "more than this server has": (["jobs", "submit", PLAIN, "-c", "4000"], {}),
    "cannot be run as a module": (["jobs", "submit", "FOLDER/my model.py"], {}),
    "a file or folder that exists": (["jobs", "submit", "FOLDER/absent"], {}),
    "holds several modules that could be run": (["jobs", "submit", "FOLDER"], {}),
    "Put your script's arguments after": (["jobs", "submit", PLAIN, "--epochs", "3"], {}),
}  # fmt: skip
"""What the page of refusals quotes, and a command that is told so. What is not here has a test
below.
"""
BELOW = {
    "is a model service and not the server",
    "does not look like a Cloud ML server",
    "ahead of the server's time",
    "behind the server's time",
    "is full",
}


@pytest.mark.slow
def test_the_page_of_refusals_quotes_what_commands_say(server: RealServer, tmp_path: Path) -> None:
    made(tmp_path, {"my model.py": "", "a.py": "", "b.py": ""})
    server.cli("jobs", "submit", "taken", "trainer.task", PLAIN, "--save_mode").good()
    page = (ROOT / "docs" / "howto" / "refused.md").read_text("utf-8")
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert {phrase for cell in cells for phrase in re.findall("`([^`]+)`", cell)} == {
        *REFUSED,
        *BELOW,
    }
    for phrase, (words, variables) in REFUSED.items():
        ran = server.cli(
            *(word.replace("FOLDER", str(tmp_path)) for word in words),
            **{name: value.replace("PORT", str(server.port)) for name, value in variables.items()},
        )
        expect_failure(ran, ran.code or -1, phrase, "(code: ")


@pytest.mark.parametrize(("days", "side"), [(1, "ahead of"), (-1, "behind")])
def test_a_clock_off_by_a_day(server: RealServer, tmp_path: Path, days: int, side: str) -> None:
    made(tmp_path, {"sitecustomize.py": OFF.format(days=days)})
    ran = server.cli("jobs", "list", PYTHONPATH=str(tmp_path))
    expect_failure(
        ran, 1, f"{side} the server's time", "T", "set the clock of this machine", "unauthenticated"
    )
    apart = re.search(r"is (\d+) s", ran.err)
    assert apart is not None
    assert abs(int(apart[1]) - 86400) < 60, "a day, and what the request was on its way"


def test_something_else_listens_there(server: RealServer) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        Thread(target=other.serve_forever, args=(0.02,), daemon=True).start()
        endpoint = f"http://127.0.0.1:{other.server_port}"
        ran = server.cli("jobs", "list", CLOUDML_ENDPOINT=endpoint)
        other.shutdown()
    expect_failure(
        ran,
        1,
        endpoint,
        "answered 404",
        "does not look like a Cloud ML server",
        "cloudml config show",
    )


def test_an_endpoint_with_the_path_of_the_api(server: RealServer) -> None:
    ran = server.cli("jobs", "list", CLOUDML_ENDPOINT=f"{server.endpoint}/api/v1")
    expect_failure(ran, 1, f"Did you mean {server.endpoint}?", "(code: invalid)")


def test_a_folder_that_is_not_there(server: RealServer) -> None:
    expect_failure(
        server.cli("jobs", "submit", "./absent"),
        1,
        "trainer_uri is './absent'",
        "a file or folder that exists",
    )


def test_a_script_with_a_space_in_its_name(server: RealServer, tmp_path: Path) -> None:
    made(tmp_path, {"my model.py": "print(1)"})
    ran = server.cli("jobs", "submit", "my model.py", folder=tmp_path)
    expect_failure(
        ran, 1, "my model.py cannot be run as a module", "Rename it: mv 'my model.py' my_model.py"
    )


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (["-M", "100MB"], ["memory_limit is '100MB'", "Did you mean 100M?"]),
        (["-M", "9999G"], ["memory_limit is 9999G, more than this server has", "at most"]),
        (["-g", "1"], ["gpu_limit is 1", "no GPU", "gpu_missing"]),
    ],
)
def test_a_job_that_can_never_fit(server: RealServer, limit: list[str], words: list[str]) -> None:
    expect_failure(
        server.cli("jobs", "submit", "never-fits", "trainer.task", PLAIN, *limit),
        1,
        *words,
        "(code: invalid)",
    )
    assert "never-fits" not in server.cli("jobs", "list").good().out


# ---- code that cannot run


@pytest.mark.parametrize(
    ("files", "code", "words"),
    [
        ({"train.py": "import pandass"}, 1, ["No module named 'pandass'", "its line to "
                                                                          "requirements.txt", "jobs logs"]),
        ({"train.py": "def f(:"}, 1, ["SyntaxError: invalid syntax (train.py, line "
                                      "1)", "jobs logs"]),
        ({"train.py": "", "requirements.txt": "six==1.16.0\nsix==1.17.0"}, 3,
         ["six==1.16.0 and six==1.17.0", "unsatisfiable", "Fix this and resubmit"]),
        ({"train.py": "", "requirements.txt": "our-own-library-of-cloudml-tests==1"}, 3,
         ["our-own-library-of-cloudml-tests", "not found", "Fix this and resubmit"]),
        ({"train.py": "", "requirements.txt": "git+https://me:hunter2@git.example.invalid/ours.git"}, 3,
         ["names no package", "write NAME @ "
                              "git+https://****@git.example.invalid/ours.git", "beside the trainer's"]),
        ({"trainer/task.py": "", "trainer/__init__.py": "", "setup.py": "raise OSError('no "
                                                                        "compiler')"}, 3,
         ["the trainer's build failed: OSError: no compiler", "Fix this and resubmit"]),
    ],
    ids=["missing module", "syntax error", "conflict", "private package", "private address", "setup.py fails"],
)  # fmt: skip
def test_code_that_cannot_run(
    server: RealServer, tmp_path: Path, files: dict[str, str], code: int, words: list[str]
) -> None:
    ran = server.cli("jobs", "submit", str(made(tmp_path / "broken", files)), "--watch")
    expect_failure(ran, code, *words)
    assert "hunter2" not in ran.out + ran.err


def test_an_index_of_ones_own_is_the_operators_to_set(server: RealServer, tmp_path: Path) -> None:
    made(
        tmp_path / "indexed",
        {"train.py": "", "requirements.txt": "--index-url https://pypi.example.com/simple\nsix"},
    )
    ran = server.cli("jobs", "submit", str(tmp_path / "indexed"), "--watch").good()
    assert (
        "the option '--index-url' is left out; where packages come from is set by the operator"
        in ran.out
    )


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        (
            "fds://cloudml/none/linear.tar.gz",
            ["does not exist", "cloudml storage ls -r fds://cloudml/"],
        ),
        (
            "http://127.0.0.1:9/a.tar.gz",
            ["loopback", "the operator has to allow it", "submit the file itself"],
        ),
    ],
)
def test_a_trainer_that_cannot_be_had(server: RealServer, uri: str, words: list[str]) -> None:
    name = f"absent-{len(uri)}"
    expect_failure(
        server.cli("jobs", "submit", name, "trainer.task", uri, "--watch"),
        3,
        "TrainerNotFound",
        *words,
    )
    assert " run " not in server.cli("jobs", "describe", name).good().out.partition("Events:")[0]


def test_names_with_spaces_and_letters_of_the_world(server: RealServer, tmp_path: Path) -> None:
    script = "import pathlib, sys\nprint((pathlib.Path(__file__).parent / 'daten ä.txt').read_text('utf-8'), sys.argv[1:])"  # noqa: E501
    folder = made(tmp_path / "Mein Größtes Modell", {"train.py": script, "daten ä.txt": "数据"})
    ran = server.cli(
        "jobs", "submit", str(folder), "--watch", "--", "a b", "ñ", PYTHONUTF8="1"
    ).good()
    assert "数据 ['a b', 'ñ']" in ran.out
    assert "is submitted" in ran.err
    uri = "fds://cloudml/ein ordner/ü 数.txt"
    server.cli("storage", "cp", str(folder / "daten ä.txt"), uri).good()
    assert server.cli("storage", "cat", uri).good().out == "数据"
    assert (
        server.cli("storage", "ls", "-r", "fds://cloudml/ein ordner/", "-o", "name").good().out
        == f"{uri}\n"
    )


# ---- code that behaves badly


def watched(server: RealServer, tmp_path: Path, name: str, source: str, *options: str) -> Ran:
    made(tmp_path, {f"{name}.py": source})
    return server.cli("jobs", "submit", f"{name}.py", "--watch", *options, folder=tmp_path)


def test_a_million_lines_arrive(server: RealServer, tmp_path: Path) -> None:
    ran = watched(server, tmp_path, "talks", "print('\\n'.join(map(str, range(1_000_000))))").good()
    assert ran.out.splitlines()[-1_000_000:] == [str(number) for number in range(1_000_000)]


def test_binary_output_is_kept_to_the_byte(server: RealServer, tmp_path: Path) -> None:
    source = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 4)"
    made(tmp_path, {"binary.py": source})
    submit = [*server.command, "jobs", "submit", "binary.py", "--watch"]
    ran = subprocess.run(
        submit,
        env=server.environment(server.user_home, **server.known),
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    assert ran.stdout.endswith(bytes(range(256)) * 4)
    assert b"binary succeeded" in ran.stderr


def test_who_is_deaf_to_sigterm_is_killed_after_the_grace(
    server: RealServer, tmp_path: Path
) -> None:
    source = (
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('deaf', flush=True)\nwhile True: signal.pause()"
    )
    made(tmp_path, {"deaf.py": source})
    server.cli("jobs", "submit", "deaf.py", folder=tmp_path).good()
    eventually(lambda: "deaf" in server.cli("jobs", "logs", "deaf").out.split(), "it runs")
    server.cli("jobs", "cancel", "deaf").good()
    expect_failure(
        server.cli("jobs", "wait", "deaf"),
        4,
        "deaf was stopped",
        "Run it again: cloudml jobs rerun deaf",
    )
    uid = server.cli("jobs", "describe", "deaf", "-o", "json").json()["uid"]
    assert server.processes_of(uid) == []


def test_who_fills_its_disk_is_told_the_next_limit(server: RealServer, tmp_path: Path) -> None:
    source = "import time\nopen('x', 'wb').write(bytes(30_000_000))\nwhile True: time.sleep(1)"
    ran = watched(server, tmp_path, "fills", source, "--disk-limit", "20M")
    expect_failure(
        ran, 3, "DiskQuotaExceeded: 20M exceeded", "cloudml jobs rerun fills --disk-limit 40M"
    )


def test_who_runs_for_ever_is_told_the_next_limit(server: RealServer, tmp_path: Path) -> None:
    source = "import time\nwhile True: time.sleep(1)"
    ran = watched(server, tmp_path, "forever", source, "--time-limit", "1s")
    expect_failure(ran, 3, "TimeLimitExceeded", "cloudml jobs rerun forever --time-limit 2s")


# ---- the server


def test_a_server_that_has_gone_away(server: RealServer) -> None:
    ran = server.cli("jobs", "list", CLOUDML_ENDPOINT="http://127.0.0.1:9")
    expect_failure(
        ran,
        1,
        "nothing listens at http://127.0.0.1:9",
        "Start one with `cloudml server`",
        "--endpoint",
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk")
@pytest.mark.slow
def test_no_space_on_the_servers_disk(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("full")
    (folder / "data").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48m,mode=755", "tmpfs", str(folder / "data")]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a disk")
    try:
        with serving(folder) as server:
            submit = ["jobs", "submit", PLAIN, "--save_mode"]
            server.cli(*submit, "-n", "before").good()
            filler = server.data / "filler"
            with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while file.write(bytes(4096)):
                    pass
            expect_failure(
                server.cli(*submit, "-n", "refused"), 1, "disk", "is full", "(code: out_of_space)"
            )
            assert server.cli("jobs", "list", "-o", "name").good().out == "before\n"
            filler.unlink()
            server.cli(*submit, "-n", "after").good()
    finally:
        subprocess.run(["umount", "-l", str(folder / "data")], check=False, capture_output=True)


def test_a_model_service_is_not_the_server(server: RealServer) -> None:
    class ModelService(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Bearer realm="cloudml"')
            self.end_headers()
            self.wfile.write(b'{"error": "missing bearer token"}')

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), ModelService) as service:
        Thread(target=service.serve_forever, args=(0.02,), daemon=True).start()
        endpoint = f"http://127.0.0.1:{service.server_port}"
        ran = server.cli("whoami", CLOUDML_ENDPOINT=endpoint)
        service.shutdown()
    expect_failure(ran, 1, f"{endpoint} is a model service and not the server", "port 8471")
