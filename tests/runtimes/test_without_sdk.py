"""Programs of ``docs/howto/without-sdk.md`` in Go and TypeScript: they compile, and run against
a real server.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.pages import ROOT, blocks
from support.server import RealServer, serving
from support.services import deployed
from support.serving import slides_model

pytestmark = [pytest.mark.runtimes, pytest.mark.timeout(600)]

PAGE = ROOT / "docs" / "howto" / "without-sdk.md"
PACKAGES = (
    "openapi-typescript@7.13.0",
    "openapi-fetch@0.17.0",
    "typescript@5.9.3",
    "@types/node@20.19.43",
)
SCRIPT = """
import pathlib
print("epochs: 3")
pathlib.Path("outputs").mkdir(exist_ok=True)
pathlib.Path("outputs/weight.txt").write_text("2.0")
"""


@dataclass
class Caller:
    """A folder for a program, and what it needs to know."""

    folder: Path
    server: RealServer
    variables: dict[str, str]

    def run(self, *command: str) -> str:
        """What a command prints.

        Raises:
            AssertionError: It failed; shows what it printed.
        """
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=os.environ | self.variables,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(tmp_path_factory.mktemp("server"), CLOUDML_GATEWAY_PORTS="18690-18695") as running:
        yield running


@pytest.fixture(scope="module")
def variables(server: RealServer) -> dict[str, str]:
    """A token that may do what the programs do, and where a model answers."""
    slides_model(server.folder / "export")
    for file in (server.folder / "export").iterdir():
        server.client().storage.upload(file, f"fds://cloudml/linear/1/{file.name}")
    address = deployed(
        server, {"model_name": "linear", "model_version": "v1", "model_uri": "fds://cloudml/linear"}
    )
    scopes = ["jobs:write", "storage:write", "models:predict:linear"]
    token = server.client().tokens.create(scopes, expires_in_s=3600).token
    return {
        "CLOUDML_SERVER": server.endpoint,
        "CLOUDML_TOKEN": token,
        "CLOUDML_GATEWAY": f"http://{address}",
    }


@pytest.fixture
def caller(server: RealServer, variables: dict[str, str], tmp_path: Path) -> Caller:
    (tmp_path / "train.py").write_text(SCRIPT)
    return Caller(tmp_path, server, variables)


def program(language: str) -> str:
    (found,) = (block.text for block in blocks(language) if block.page == PAGE)
    return found


def check(caller: Caller, printed: str) -> None:
    """All steps of the page were done."""
    assert "epochs: 3" in printed
    assert "Succeeded" in printed
    assert (caller.folder / "outputs-weight.txt").read_text() == "2.0"
    assert "30.0" in printed or "30]" in printed
    assert caller.variables["CLOUDML_TOKEN"] not in printed


def test_the_program_in_go(caller: Caller) -> None:
    if shutil.which("go") is None:
        pytest.skip("there is no Go toolchain: install go 1.19 or newer")
    (caller.folder / "main.go").write_text(program("go"))
    (caller.folder / "go.mod").write_text("module example.com/cloudml\n\ngo 1.19\n")
    caller.variables = caller.variables | {"GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    caller.run("go", "vet", ".")
    check(caller, caller.run("go", "run", "."))


def test_the_program_in_typescript(caller: Caller) -> None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("there is no node with npm: install Node.js 20 or newer")
    (caller.folder / "package.json").write_text(
        json.dumps({"name": "caller", "private": True, "type": "module"})
    )
    (caller.folder / "main.ts").write_text(program("ts"))
    caller.run(
        "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--save-exact", *PACKAGES
    )
    document = f"{caller.server.endpoint}/api/v1/openapi.json"
    caller.run(
        "npx", "openapi-typescript", document, "-o", "cloudml.d.ts", "--default-non-nullable=false"
    )
    caller.run("npx", "tsc", "--strict", "--module", "nodenext", "--target", "es2022", "main.ts")
    check(caller, caller.run("node", "main.js"))
