"""Readers of what tenants send take time that grows with the size, and little memory."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_ml.environments import evict
from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.packages import resolve
from cloud_ml.environments.packages.layers import _UvOutput
from cloud_ml.environments.packages.requirements import BadRequirement, from_file_text
from cloud_ml.environments.removing import remove
from cloud_ml.environments.trainers import detect, modules, source_scan, trainer, wheels
from cloud_ml.launcher.archives import ArchiveError, unpack
from support.measuring import cost_of, growth
from unit.environments.test_build import Bench, bench  # noqa: F401 - a fixture

SIZE = 1 << 14
MOST_GROWTH, MOST_MEMORY = 1.5, 24 << 20
"""Four times the size may take four times the time, and some noise; quadratic work takes
sixteen.
"""

SOURCES: dict[str, Callable[[int], bytes]] = {
    "one chain of attributes": lambda size: b"import tensorflow as a\na" + b".a" * (size // 2),
    "many chains of attributes": lambda size: (
        b"import tensorflow as tf\n" + b"tf.a.a.a.a.a.a\n" * (size // 15)
    ),
    "brackets that are never closed": lambda size: b"(" * size,
    "operators without end": lambda size: b"x = " + b"-" * size + b"1",
    "imports of one name": lambda size: b"import a\n" * (size // 9),
    "imports of many names": lambda size: b"import " + b"ab, " * (size // 4),
    "imports in a bracket that is never closed": lambda size: (
        b"from tensorflow import (" + b"ab, " * (size // 4)
    ),
    "many such brackets": lambda size: b"from a import (\n" * (size // 16),
    "the word import without an end": lambda size: b"import " * (size // 7),
    "a backend behind many spaces": lambda size: b"KERAS_BACKEND'" + b" " * size,
    "many backends": lambda size: b"KERAS_BACKEND'" * (size // 14),
    "quotes": lambda size: b"'" * size,
    "other quotes": lambda size: b'"""\\"' * (size // 5),
    "a string that is never closed": lambda size: b"'''" + b"\\" * size,
    "strings that are never closed": lambda size: b"'\n" * (size // 2),
    "joined lines": lambda size: b"\\\n" * (size // 2),
    "comments": lambda size: b"#\n" * (size // 2),
    "semicolons and spaces": lambda size: (b";" + b" " * 99) * (size // 100),
    "spaces": lambda size: b" " * size,
    "print and spaces": lambda size: b"print" + b" " * size,
    "except and names": lambda size: b"except " + b"a." * (size // 2),
    "numbers of Python 2": lambda size: b"0" * (size // 2) + b"1" * (size // 2),
    "names of Python 2": lambda size: b"xrange import " * (size // 14),
    "no text at all": lambda size: bytes(range(256)) * (size // 256),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_source_is_read_in_linear_time_and_little_memory(tmp_path: Path, kind: str) -> None:
    def reading(size: int) -> Callable[[], object]:
        folder = tmp_path / str(size)
        folder.mkdir(exist_ok=True)
        (folder / "task.py").write_bytes(SOURCES[kind](size))
        return lambda: detect.read(folder)

    cost, power = growth(reading, SIZE)
    assert cost.cpu_s < 0.1 or power < MOST_GROWTH, f"{power:.2f}, {cost}"
    assert cost.memory_bytes < MOST_MEMORY


def test_what_is_kept_of_a_source_is_bounded() -> None:
    found = source_scan.scan(
        b"import tensorflow as tf\n"
        + b"".join(b"import m%d\ntf.f%d.g\n" % (n, n) for n in range(5000))
    )
    assert len(found.imports) <= 1000
    assert len(found.uses) <= 2000


def test_a_lock_with_endless_lines_is_read_in_linear_time() -> None:
    def reading(size: int) -> Callable[[], object]:
        lock = "a==1 \\\n" + " \n" * (size // 2)
        return lambda: resolve.entries(lock)

    cost, power = growth(reading, 1 << 18)
    assert cost.cpu_s < 0.1 or power < MOST_GROWTH


def test_a_lock_beyond_its_bound_is_none(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_bytes(b"a==1\n" * (resolve.LOCK_BYTES // 5 + 1))
    assert resolve.read_lock(lock) is None
    lock.write_text("a==1\n")
    assert resolve.read_lock(lock) == "a==1\n"
    (tmp_path / "link").symlink_to(lock)
    assert resolve.read_lock(tmp_path / "link") is None


def test_words_of_a_build_without_a_line_break_are_not_collected() -> None:
    def printing() -> None:
        words = _UvOutput(lambda _: None)
        for _ in range(1000):
            words(b"x" * 65_536)
        assert len(words.kept) <= 65_537

    assert cost_of(printing).memory_bytes < 4 << 20


def test_lines_of_requirements_are_read_in_linear_time() -> None:
    def reading(kind: str) -> Callable[[int], Callable[[], object]]:
        def of(size: int) -> Callable[[], object]:
            text = {
                "spaces": "a" + " " * size,
                "joined": "a\\\n" * (size // 3),
                "names": "a-" * (size // 2) + "a",
                "options": "a " + "--h " * (size // 4),
                "secrets": "a @ https://" + "://" * (size // 3),
            }[kind]

            def read() -> None:
                try:
                    from_file_text(text)
                except BadRequirement:
                    return

            return read

        return of

    for kind in ("spaces", "joined", "names", "options", "secrets"):
        cost, power = growth(reading(kind), SIZE)
        assert cost.cpu_s < 0.1 or power < MOST_GROWTH, kind


def test_a_deep_tree_is_looked_through_without_recursion(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    (tmp_path / "task.py").write_text("import torch")
    try:
        assert detect.read(tmp_path).packages == ("torch",)
        assert evict.size_of(tmp_path) > 0
        with pytest.raises(EnvironmentFailed, match=r"it has task"):
            modules.check("absent", [tmp_path], [], [])
    finally:
        remove(tmp_path)  # pytest would call itself for each level


def test_descriptions_of_a_wheel_are_bounded(tmp_path: Path) -> None:
    wheel, site = tmp_path / "wheel", tmp_path / "site"
    (wheel / "a-1.dist-info").mkdir(parents=True)
    site.mkdir()
    (wheel / "a-1.dist-info" / "METADATA").write_bytes(b"Name: a\n" * (1 << 18))
    with pytest.raises(EnvironmentFailed, match="larger than"):
        wheels.layout(wheel, site)


def test_keywords_for_all_members_of_a_tar_are_bounded(tmp_path: Path) -> None:
    """``tarfile`` copies them for each member that has some of its own."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.pax_headers = {f"k{number}": "v" for number in range(2000)}
    keywords = tarfile.TarInfo.create_pax_global_header(
        {f"k{number}": "v" for number in range(2000)}
    )
    file = tmp_path / "many.tar.gz"
    member = tarfile.TarInfo("a").tobuf(tarfile.PAX_FORMAT)
    file.write_bytes(gzip.compress(keywords + member + bytes(1024)))
    with pytest.raises(ArchiveError, match="keywords"):
        unpack(str(file), str(tmp_path / "target"))


@pytest.mark.parametrize("kind", ["one chain of attributes", "brackets that are never closed"])
def test_a_small_wheel_costs_the_supervisor_nothing(bench: Bench, kind: str) -> None:  # noqa: F811
    """A wheel of 23 kB took it to 983 MB and 30 s."""
    file = bench.folder / "trainer-1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(8):
            archive.writestr(f"trainer/m{number}.py", SOURCES[kind](1 << 20))
        archive.writestr("trainer/task.py", "print('ran')")
        archive.writestr("trainer-1.0.dist-info/METADATA", "Name: trainer\nVersion: 1.0\n")
    assert file.stat().st_size < 1 << 20
    cost = cost_of(lambda: bench.prepare(file, "trainer.task"))
    assert cost.memory_bytes < 32 << 20
    assert cost.cpu_s < 2
    assert bench.output(bench.prepare(file, "trainer.task"), "-m", "trainer.task") == "ran\n"


def test_a_report_beyond_its_bound_is_not_read(bench: Bench) -> None:  # noqa: F811
    """What a build leaves is the tenant's: 16 MiB of empty lists were 900 MiB of memory."""
    tree = bench.tree(
        task__dot__py="",
        pyproject__dot__toml="[build-system]\nrequires = []\nbuild-backend = "
        '"hostile"\nbackend-path '
        "= "
        '["."]\n',
        hostile__dot__py="import atexit, os\nout = os.getcwd().rpartition('/src')[0]\n"
        "atexit.register(lambda: open(out + '/report.json', 'w').write('[' + '[],' * "
        f"{trainer.REPORT_BYTES} + '0]'))\n"
        "def build_wheel(target, *_): raise RuntimeError('done')\n",
    )
    failures: list[str] = []
    cost = cost_of(lambda: failures.append(bench.fails(tree).message) or print(failures))
    assert cost.memory_bytes < 48 << 20
    assert "ended with exit code" in bench.fails(tree).message


def test_a_link_that_a_build_leaves_for_a_folder_of_sources_is_not_followed(bench: Bench) -> None:  # noqa: F811
    """The message of a missing module named the modules of any folder of the machine."""
    (bench.folder / "others").mkdir()
    (bench.folder / "others" / "secret.py").touch()
    leave = "\n".join([
        "import atexit, json, os",
        "out = os.getcwd().rpartition('/src')[0]",
        "def leave():",
        f"    os.symlink({str(bench.folder / 'others')!r}, out + '/folder/src')",
        "    json.dump({'name': 'x', 'src': True}, open(out + '/report.json', 'w'))",
        "    os._exit(0)",
        "atexit.register(leave)",
        "def build_wheel(target, *_): raise RuntimeError('done')",
    ])  # fmt: skip
    tree = bench.tree(
        task__dot__py="",
        pyproject__dot__toml="[build-system]\nrequires = []\nbuild-backend = "
        '"hostile"\nbackend-path '
        "= "
        '["."]\n',
        hostile__dot__py=leave,
    )
    assert not [site for site in bench.prepare(tree).own_sites if site.endswith("/src")]
    with pytest.raises(EnvironmentFailed, match="has no module nothing") as caught:
        bench.prepare(tree, "nothing")
    assert "secret" not in caught.value.message
