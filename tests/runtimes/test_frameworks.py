"""Every framework that is offered trains a small model, through a real server. Downloads gigabytes
on a fresh machine.

``make test-runtimes`` runs them one at a time; ``pytest tests/runtimes -k pytorch`` runs one.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.environments.catalog import Catalog
from support.environments import EXAMPLES
from support.pages import ROOT
from support.server import RealServer, serving

LIMIT_S = 1500
FRAMEWORKS = EXAMPLES / "frameworks"
RUNTIMES = {
    "jax": ("jax==0.10", "jax "),
    "keras": ("keras==3", "on tensorflow"),
    "keras-jax": ("keras==3-jax", "on jax"),
    "keras-torch": ("keras==3-torch", "on torch"),
    "lightgbm": ("lightgbm==4.7", ""),
    "paddlepaddle": ("paddlepaddle==3.3", "paddle 3.3"),
    "pytorch": ("pytorch==2.13", "with 1 threads"),
    "scikit-learn": ("scikit-learn==1.9", ""),
    "xgboost": ("xgboost==3.2", ""),
}
_UNREACHABLE = (
    "Failed to fetch",
    "dns error",
    "error sending request",
    "Could not connect",
    "Connection refused",
)

pytestmark = [pytest.mark.runtimes, pytest.mark.timeout(LIMIT_S)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(
        tmp_path_factory.mktemp("server"), CLOUDML_ENVIRONMENTS_LAYERS_LIMIT_BYTES=0
    ) as running:
        yield running


def test_every_framework_has_its_example() -> None:
    offered = {f"{one.name}=={one.version}" for one in Catalog.load().runtimes}
    others = {
        name for name in offered if name.startswith(("python==", "tensorflow=="))
    }  # shown by examples beside
    assert {runtime for runtime, _ in RUNTIMES.values()} == offered - others
    assert {path.name for path in FRAMEWORKS.iterdir()} == set(RUNTIMES)


@pytest.mark.parametrize("name", RUNTIMES)
def test_it_is_prepared_found_in_code_and_trains(server: RealServer, name: str) -> None:
    runtime, expected_line = RUNTIMES[name]
    began = time.monotonic()
    prepared = server.cli("framework", "prepare", runtime, timeout_s=LIMIT_S)
    if prepared.code and any(word in prepared.err for word in _UNREACHABLE):
        pytest.skip(
            f"the packages of {runtime} cannot be fetched here: "
            f"{prepared.err.splitlines()[-1][:200]}"
        )
    print(f"{prepared.good().out.strip()} after {time.monotonic() - began:.1f} s")
    began = time.monotonic()
    ran = server.cli(
        "jobs",
        "submit",
        "-W",
        name,
        "-c",
        "1",
        "trainer.task",
        str(FRAMEWORKS / name),
        timeout_s=600,
    )
    print(f"trained after {time.monotonic() - began:.1f} s")
    accuracy = re.search(r"^accuracy: ([\d.]+)$", ran.good().out, re.MULTILINE)
    assert accuracy is not None, ran.out
    assert float(accuracy[1]) > 0.85
    assert expected_line in ran.out
    described = json.loads(server.cli("framework", "describe", runtime, "-o", "json").good().out)
    assert (described["ready"], described["size_bytes"] > 10**7) == (True, True)
    heavy = [
        package
        for package in described["packages"]
        if Path(package).name.startswith(("nvidia-", "triton"))
    ]
    assert heavy == []


DISTRIBUTED = {
    "array_rates": (
        ("--array", "0-3%2"),
        ["task-1] task 1 of 4 found 3.00", "task-3] task 3 of 4 found 2.60"],
    ),
    "cluster_sum": (("--recipe", "cluster", "-w", "3"), ["worker-0] worker 0 of 3 found 6"]),
    "tensorflow1": (("-p", "1", "-w", "2"), ["master-0] master-0 found 3.00"]),
    "tensorflow_ps": (("-p", "1", "-w", "2"), ["master-0] found 3.00"]),
    "tensorflow_workers": (
        ("-F", "tensorflow", "-w", "1"),
        ["master-0] replica of 2 found 3.00", "worker-0] replica of 2 found 3.00"],
    ),
    "dask_client": (
        ("--recipe", "dask", "-w", "2"),
        ["client-0] worker-0 and worker-1 found 3.14"],
    ),
    "mpi_pi": (("--recipe", "mpi", "-w", "2"), ["launcher-0] 2 processes found 3.14"]),
    "pytorch_ddp": (
        ("-F", "pytorch", "-w", "2"),
        ["worker-0] rank 0 of 2 found 1.00", "worker-1] rank 1 of 2 found 1.00"],
    ),
    "jax_processes": (
        ("-F", "jax", "-w", "2"),
        ["worker-0] process 0 of 2 found 3.00", "worker-1] process 1 of 2 found 3.00"],
    ),
    "keras_jax": (
        ("-F", "keras", "-V", "3-jax", "-w", "2"),
        ["worker-0] process 0 of 2 found 3.00", "worker-1] process 1 of 2 found 3.00"],
    ),
    "lightgbm_workers": (
        ("-F", "lightgbm", "-w", "2"),
        ["worker-0] task 0 of 2 found 1.00", "worker-1] task 1 of 2 found 1.00"],
    ),
    "xgboost_workers": (
        ("-F", "xgboost", "-w", "2"),
        ["worker-0] rank 0 of 2 found 1.00", "worker-1] rank 1 of 2 found 1.00"],
    ),
}
"""Example → options, and what its tasks say."""


def test_every_example_on_several_processes_has_its_options() -> None:
    assert {path.stem for path in (EXAMPLES / "distributed").iterdir()} == set(DISTRIBUTED)


@pytest.mark.parametrize("name", DISTRIBUTED)
def test_it_trains_on_several_processes(server: RealServer, name: str) -> None:
    options, expected = DISTRIBUTED[name]
    # The example of one process has the same name for some frameworks.
    script, job = str(EXAMPLES / "distributed" / f"{name}.py"), f"several-{name.replace('_', '-')}"
    ran = server.cli("jobs", "submit", "-W", script, "-n", job, *options, timeout_s=900)
    if ran.code and any(word in ran.out + ran.err for word in _UNREACHABLE):
        pytest.skip(f"the packages of {name} cannot be fetched here")
    output = ran.good().out
    assert [line for line in expected if f"[{line}" not in output] == [], output


def test_each_task_of_pytorch_has_several_processes(server: RealServer) -> None:
    script = str(EXAMPLES / "distributed" / "pytorch_ddp.py")
    words = ("-n", "ranks", "-F", "pytorch", "-w", "2", "--procs-per-task", "2")
    output = server.cli("jobs", "submit", "-W", script, *words, timeout_s=900).good().out
    for rank in range(4):  # torchrun's processes write beside each other, also within a line
        found = rf"^\[worker-{rank // 2}\] .*rank {rank} of 4 found 1\.00"
        assert re.search(found, output, re.MULTILINE), output


@pytest.mark.parametrize("name", ["dask_client", "mpi_pi"])
def test_tasks_meet_without_a_sandbox(name: str, tmp_path: Path) -> None:
    """Names stand for addresses, all tasks have one host name, and they may belong to root."""
    _meet(name, tmp_path, CLOUDML_ENGINE_SANDBOX="none")


@pytest.mark.skipif(os.geteuid() != 0, reason="a network for each gang takes root")
@pytest.mark.parametrize("name", ["dask_client", "mpi_pi"])
def test_tasks_meet_without_a_network(name: str, tmp_path: Path) -> None:
    """Daemons of MPI refuse a network whose only interface is the loopback."""
    _meet(name, tmp_path, CLOUDML_ENGINE_NETWORK="none")


def _meet(name: str, folder: Path, **settings: str) -> None:
    options, expected = DISTRIBUTED[name]
    script = str(EXAMPLES / "distributed" / f"{name}.py")
    with serving(folder, **settings) as server:
        ran = server.cli("jobs", "submit", "-W", script, "-n", "bare", *options, timeout_s=900)
        if ran.code and any(word in ran.out + ran.err for word in _UNREACHABLE):
            pytest.skip(f"the packages of {name} cannot be fetched here")
        output = ran.good().out
    assert [line for line in expected if f"[{line}" not in output] == [], output


SNIPPETS = {
    "lightgbm": ("import lightgbm\n", ["[worker-0] 10\n", "[worker-1] 10\n"]),
    "dask": ("from distributed import Client\n", ["[client-0] 6\n"]),
    "mpi": ("from mpi4py import MPI\n", ["[launcher-0] 1\n"]),
}
"""Recipe → how the page's snippet begins, and what its tasks say."""


def _snippets() -> list[str]:
    page = (ROOT / "docs" / "howto" / "several-processes.md").read_text("utf-8")
    return re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def test_every_snippet_of_the_page_runs() -> None:
    found = [code.splitlines(keepends=True)[0] for code in _snippets()]
    assert found == [begins for begins, _ in SNIPPETS.values()]


@pytest.mark.parametrize("recipe", SNIPPETS)
def test_the_snippet_of_the_page_runs(server: RealServer, recipe: str, tmp_path: Path) -> None:
    begins, expected = SNIPPETS[recipe]
    (code,) = [one for one in _snippets() if one.startswith(begins)]
    script = tmp_path / "snippet.py"
    script.write_text(code, "utf-8")
    options = ("-W", str(script), "-n", f"snippet-{recipe}", "--recipe", recipe, "-w", "2")
    ran = server.cli("jobs", "submit", *options, timeout_s=900)
    if ran.code and any(word in ran.out + ran.err for word in _UNREACHABLE):
        pytest.skip(f"the packages of {recipe} cannot be fetched here")
    output = ran.good().out
    assert [line for line in expected if line not in output] == [], output


def test_no_task_of_dask_is_killed_at_the_end(server: RealServer) -> None:
    """A worker whose scheduler ends at the same time may hang while it closes."""
    script = str(EXAMPLES / "distributed" / "dask_client.py")
    options = ("-W", script, "-n", "dask-ends", "--recipe", "dask", "-w", "2", "--grace", "120s")
    ran = server.cli("jobs", "submit", *options, timeout_s=900)
    if ran.code and any(word in ran.out + ran.err for word in _UNREACHABLE):
        pytest.skip("the packages of dask cannot be fetched here")
    ran.good()
    job = json.loads(server.cli("jobs", "describe", "dask-ends", "-o", "json").good().out)
    ends = {one["name"]: (one["exit_code"], one["signal"]) for one in job["tasks"]}
    assert ends == dict.fromkeys(("client-0", "scheduler-0", "worker-0", "worker-1"), (0, None))


# The others wait for a first task that comes late: by itself, XGBoost would give up after 6 s.
COMES_LATE = """
import os, time
if os.environ["CLOUDML_INDEX"] == "0":
    time.sleep(8)
"""
DIES = """
import os
if os.environ["CLOUDML_ATTEMPT"] == "1" and os.environ["CLOUDML_INDEX"] == "1":
    os._exit(3)
"""


@pytest.mark.parametrize("framework", ["lightgbm", "xgboost"])
def test_it_trains_again_when_a_task_has_died(
    server: RealServer, framework: str, tmp_path: Path
) -> None:
    """These cannot listen on the ports that they had before."""
    source = (EXAMPLES / "distributed" / f"{framework}_workers.py").read_text("utf-8")
    script, job = tmp_path / "dies.py", f"dies-{framework}"
    script.write_text(COMES_LATE + source + DIES, "utf-8")
    options = ("-W", str(script), "-n", job, "-F", framework, "-w", "2")
    ran = server.cli("jobs", "submit", *options, timeout_s=900)
    if ran.code and any(word in ran.out + ran.err for word in _UNREACHABLE):
        pytest.skip(f"the packages of {framework} cannot be fetched here")
    ran.good()
    ended = server.client().get_train_job(job).refresh()
    assert (ended.phase, ended.attempt) == ("Succeeded", 2)


@pytest.mark.parametrize("name", sorted(path.stem for path in (EXAMPLES / "checkpoints").iterdir()))
def test_it_goes_on_from_its_checkpoint(server: RealServer, name: str) -> None:
    script, job = str(EXAMPLES / "checkpoints" / f"{name}.py"), f"goes-on-{name.replace('_', '-')}"
    ran = server.cli("jobs", "submit", "-W", script, "-n", job, "--retries", "1", timeout_s=900)
    if ran.code and any(word in ran.out + ran.err for word in _UNREACHABLE):
        pytest.skip(f"the packages of {name} cannot be fetched here")
    output = ran.good().out
    assert "starts at step 0\n" in output
    assert "starts at step 10\n" in output
    assert "trained\n" in output
    (*_, last) = server.client().get_train_job(job).checkpoints()
    assert last.step == 30
