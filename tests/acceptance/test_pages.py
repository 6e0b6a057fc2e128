"""The pages are typed as they stand: README, tutorial, how-to. What they show has to appear,
what they say to work.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.pages import ROOT, blocks
from support.reader import Shell, missing, steps
from support.server import RealServer, serving
from support.serving import SLIDES_DATA, slides_model

pytestmark = pytest.mark.xdist_group("pages")

HUNGRY = "data = [bytearray(10_000_000) for _ in range(1_000)]"
MINE = """
import argparse, pathlib, time
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--out", type=pathlib.Path)
options = parser.parse_args()
print("epochs:", options.epochs)
time.sleep(options.epochs / 50)
pathlib.Path("outputs").mkdir(exist_ok=True)
pathlib.Path("outputs/weight.txt").write_text("2.0")
if options.out:
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "weight.txt").write_text("2.0")
"""
FILES = {
    "linear/train.py": MINE,
    "mine/trainer/__init__.py": "",
    "mine/trainer/task.py": MINE,
    "hungry/trainer/__init__.py": "",
    "hungry/trainer/task.py": HUNGRY,
    "notes.txt": "notes",
    "a.csv": "1,2",
    "b.csv": "3,4",
    "data/train/x.csv": "5,6",
}


@dataclass(frozen=True)
class Typed:
    """A page that is typed. ``skip`` matches commands that belong to another machine or another
    moment.
    """

    page: str
    before: tuple[str, ...] = ()
    skip: str = "nothing"
    instead: dict[str, str] = field(default_factory=dict)
    """What is typed where nobody can be asked."""
    known: dict[str, str] = field(default_factory=dict)
    """Words that stand for what only the server knows: the last match of a pattern in what was
    printed.
    """


PAGES = [
    Typed(
        "docs/howto/backup.md",
        before=("cloudml jobs submit ./mine -n kept --save_mode",),
        skip=r"rsync|systemctl|cloudml server restore|pg_|createdb",
        instead={"/var/lib/cloud-ml": "$DATA", "/backups": "."},
    ),
    Typed("README.md", skip=r"make |\. \.venv|cloudml server$"),
    Typed("docs/tutorial.md", skip=r"python3 -m venv|\. \.venv|pip install|cloudml server$"),
    Typed(
        "docs/howto/command-line.md",
        before=("cloudml jobs submit ./mine -n mnist --watch",),
        skip=r"cloudml config (init|use)|cloudml jobs top$|.*\| jq",
    ),
    Typed("docs/howto/array-jobs.md", skip="python -"),
    Typed("docs/howto/trainer.md", skip=r".*-F python -V 3.12|python -|cloudml jobs submit \. -r"),
    Typed(
        "docs/howto/failures.md",
        before=("cloudml jobs submit ./hungry -M 100M; cloudml jobs wait hungry",),
        skip="cloudml jobs stacks",  # of a job that runs: `test_hangs.py`
    ),
    Typed("docs/howto/storage.md", instead={"--force scratch": "--force --yes scratch"}),
    Typed(
        "docs/howto/secrets.md",
        ("printf pass > password.txt; export TOKEN=token",),
        skip="python -",
    ),
    Typed("docs/howto/sdk.md"),
    Typed(
        "docs/howto/without-sdk.md",
        before=(
            "cp linear/train.py train.py",
            "cloudml models deploy linear v1 ./export --watch",
        ),
        instead={"http://127.0.0.1:8471": "$SERVER_ADDRESS"},
        known={"127.0.0.1:8600": r"answers at (\S+)"},
    ),
    Typed(
        "docs/howto/administration.md",
        # `test_administration.py` does both; another page needs the organisation.
        skip=r"cloudml jobs cancel linear --org|cloudml admin orgs delete",
        known={"AK0123456789": r"\bAK\w{10,}"},
    ),
    Typed(
        "docs/howto/quotas.md",
        before=(
            "cloudml admin orgs create vision || cloudml admin orgs enable vision",
            "cloudml quota update --type jobs --cpu 3",
        ),
        skip=r"cloudml quota list|.* decline",
        known={"5f1c2ab39d04": r"\b[0-9a-f]{12}\b"},
    ),
    Typed(
        "docs/howto/models.md",
        before=(
            "cloudml models delete --wait linear v1",  # another page may have left it
            "cloudml storage cp export/model.onnx fds://cloudml/linear/1/model.onnx",
            "cloudml storage cp export/model.onnx fds://cloudml/linear-better/1/model.onnx",
        ),
        skip=r"cloudml jobs submit",  # `test_models.py` does it with a trainer that exports
        instead={"./export -r 2": "./export --save_mode -r 2", "curl": "curl --fail-with-body"},
        known={"127.0.0.1:8600": r"answers at (\S+)"},
    ),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A server of their own: what pages set, such as quotas, is nobody else's."""
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def shell(server: RealServer, tmp_path: Path) -> Iterator[Shell]:
    """A shell of whoever started the server, in a folder with the code that the pages speak of."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for block in blocks("toml"):
        if block.text.startswith('job_name = "nightly"'):
            (tmp_path / "nightly.toml").write_text(block.text)
    for block in blocks("python"):
        if block.page.name == "array-jobs.md":
            (tmp_path / "variants.py").write_text(block.text)
    slides_model(tmp_path / "export")
    (tmp_path / "data.json").write_text(SLIDES_DATA + "\n")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shell = Shell(
        tmp_path,
        server.environment(
            server.home, PATH=path, DATA=str(server.data), SERVER_ADDRESS=server.endpoint
        ),
    )
    yield shell
    shell.type("cloudml jobs delete --wait $(cloudml jobs list -o name)")
    shell.close()


@pytest.mark.parametrize("typed", PAGES, ids=lambda typed: typed.page)
def test_a_page_is_typed_as_it_stands(shell: Shell, typed: Typed) -> None:
    output = ""
    for command in typed.before:
        output += shell.type(command)[1]
    for step in steps(ROOT / typed.page):
        if re.match(typed.skip, step.command):
            continue
        command = step.command
        for word, other in typed.instead.items():
            command = command.replace(word, other)
        for word, pattern in typed.known.items():
            if word in command:
                command = command.replace(word, re.findall(pattern, output)[-1])
        code, printed = shell.type(command)
        output += printed
        assert (code == 0) == step.ends_well, f"{command} ended with {code}:\n{printed}"
        assert missing(step.shown, printed) == [], f"{command} printed:\n{printed}"
