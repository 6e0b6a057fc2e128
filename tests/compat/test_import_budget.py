"""What the SDK and the command import: the budget behind their start-up times."""

from __future__ import annotations

import subprocess
import sys

import pytest

_REPORT = "import sys; before = set(sys.modules); {code}; print(*sorted(set(sys.modules) - before), file=sys.stderr)"
_HEAVY = {
    "asyncio",
    "concurrent",
    "email",
    "hashlib",
    "http",
    "logging",
    "multiprocessing",
    "sqlite3",
    "ssl",
    "subprocess",
    "tarfile",
    "tempfile",
    "tomllib",
    "unittest",
    "urllib.request",
    "xml",
}


def _loaded(code: str) -> set[str]:
    command = [sys.executable, "-I", "-c", _REPORT.format(code=code)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def _third_party(modules: set[str]) -> set[str]:
    tops = {name.partition(".")[0] for name in modules}
    return {top for top in tops if top not in sys.stdlib_module_names and top != "cloud_ml"}


def test_the_sdk_imports_the_standard_library_and_little_of_it() -> None:
    modules = _loaded("import cloud_ml.client, cloud_ml.models.train_job")
    assert _third_party(modules) == set()
    assert modules & _HEAVY == set()


def test_a_job_is_loaded_when_it_is_submitted() -> None:
    modules = _loaded("import cloud_ml.client, cloud_ml.sdk.jobs.calls")
    assert (
        modules & {f"cloud_ml.models.jobs.{name}" for name in ("train_job", "reproduction")}
        == set()
    )
    modules = _loaded("import cloud_ml.client, cloud_ml.models.train_job")
    assert modules & {"ipaddress", "pathlib", "urllib.parse"} == set()


def test_a_client_that_has_not_asked_yet_has_loaded_no_network() -> None:
    modules = _loaded(
        "from cloud_ml.client import CloudMlClient; CloudMlClient('k', 's', 'http://127.0.0.1:1')"
    )
    assert _third_party(modules) == set()
    assert modules & {"http.client", "ssl", "socket", "asyncio", "tempfile", "tarfile"} == set()


def test_the_whole_sdk_needs_no_third_party_package() -> None:
    names = (
        "client, sdk.transport, sdk.jobs.calls, sdk.storage.client, sdk.jobs.handles, "
        "sdk.jobs.follow, sdk.trainers.upload, sdk.trainers.packaging"
    )
    modules = _loaded(
        "import " + ", ".join(f"cloud_ml.{name.strip()}" for name in names.split(","))
    )
    assert _third_party(modules) == set()
    assert modules & {"asyncio", "http", "ssl"} == set()
    assert {name for name in modules if name.startswith("cloud_ml.")} & {
        "cloud_ml.domain",
        "cloud_ml.state",
    } == set()


def test_asking_for_jobs_needs_no_library_of_mail_and_none_of_certificates() -> None:
    modules = _loaded(
        "import cloud_ml.sdk.transport, cloud_ml.sdk.jobs.calls, cloud_ml.cli.jobs.group"
    )
    assert modules & {"asyncio", "email", "http", "logging", "ssl", "tempfile"} == set()


def test_help_loads_click_and_no_command() -> None:
    modules = _loaded(
        "from cloud_ml.cli.main import cli; cli.main(['--help'], standalone_mode=False)"
    )
    assert _third_party(modules) == {"click"}
    ours = {name for name in modules if name.startswith("cloud_ml.")}
    assert ours == {
        "cloud_ml.cli",
        "cloud_ml.cli.display",
        "cloud_ml.cli.guard",
        "cloud_ml.cli.lazy",
        "cloud_ml.cli.main",
        "cloud_ml.cli.session",
        "cloud_ml.cli.display.standard_streams",
        "cloud_ml.errors",
    }


@pytest.mark.parametrize("group", ["jobs", "storage", "config", "framework"])
def test_help_of_a_group_loads_no_network(group: str) -> None:
    modules = _loaded(
        f"from cloud_ml.cli.main import cli; cli.main(['{group}', '--help'], standalone_mode=False)"
    )
    assert modules & {"http.client", "ssl", "socket", "asyncio", "tomllib", "tarfile"} == set()
    assert "cloud_ml.cli.jobs.submit" not in modules


def test_the_awaiting_face_loads_no_network_before_it_asks() -> None:
    made = "from cloud_ml.aio import AsyncCloudMlClient; AsyncCloudMlClient('k', 's', 'http://127.0.0.1:1')"
    modules = _loaded(made)
    assert _third_party(modules) == set()
    assert modules & _HEAVY == set()


def test_the_awaiting_face_waits_without_what_the_blocking_one_and_files_need() -> None:
    modules = _loaded("import cloud_ml.aio.jobs.handles, cloud_ml.aio.transport")
    assert _third_party(modules) == set()
    assert (
        modules
        & {"cloud_ml.sdk.transport", "cloud_ml.sdk.storage.client", "cloud_ml.aio.storage.files"}
        == set()
    )


def test_a_server_with_studies_loads_neither_numpy_nor_scipy() -> None:
    modules = _loaded("import cloud_ml.bootstrap.build, cloud_ml.server, cloud_ml.tuning.tuner")
    assert {"numpy", "scipy"} & _third_party(modules) == set()
    assert "cloud_ml.tuning.numeric" not in modules
