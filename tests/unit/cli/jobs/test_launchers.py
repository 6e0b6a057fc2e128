"""Users type the command line of their launcher: what they are told to type instead."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from unit.cli.conftest import Run


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("python train.py", "cloudml jobs submit train.py -- ARGUMENTS"),
        ("python3.11 train.py -- --lr 1", "cloudml jobs submit train.py -- --lr 1"),
        ("python -m pkg.train --lr 1", "cloudml jobs submit . -m pkg.train -- --lr 1"),
        ("torchrun train.py", "cloudml jobs submit train.py --recipe pytorch -w N -- ARGUMENTS"),
        (
            "torchrun --nproc-per-node=gpu train.py --lr 1",
            "cloudml jobs submit train.py --recipe pytorch -w N -- --lr 1",
        ),
        (
            "python -m torch.distributed.run --nproc_per_node=2 train.py --lr 1",
            "cloudml jobs submit train.py --recipe pytorch -w 2 -- --lr 1",
        ),
        (
            "mpiexec -n 4 python train.py a b",
            "cloudml jobs submit train.py --recipe mpi -w 4 -- a b",
        ),
        (
            "deepspeed --num_gpus 2 train.py x",
            "cloudml jobs submit train.py --recipe pytorch -w 2 -- x",
        ),
        ("srun -n 2 python train.py a", "cloudml jobs submit train.py -w 2 -- a"),
        ("srun --ntasks=1 train.py", "cloudml jobs submit train.py -- ARGUMENTS"),
        ("nowhere.sh", "there is no file nowhere.sh, and jobs run Python"),
        ("mpirun -np 4", "cloudml jobs submit SCRIPT --recipe mpi -w 4"),
        ("-np 4 train.py", "cloudml jobs submit SCRIPT --recipe mpi -w 4"),
        ("-np4 train.py", "cloudml jobs submit SCRIPT --recipe mpi -w 4"),
    ],
)
def test_a_launcher_is_answered_with_the_command_that_does_the_same(
    offline: Run, words: str, instead: str
) -> None:
    result = offline("jobs", "submit", *words.split())
    assert (result.exit_code, instead in result.stderr) == (2, True), result.stderr
    watched = offline("run", *words.split())
    assert instead.replace("cloudml jobs submit", "cloudml run") in watched.stderr


@pytest.mark.parametrize("name", ["python", "mpirun"])
def test_a_job_and_a_folder_may_be_named_like_a_launcher(
    offline: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    (tmp_path / name / "train.py").write_text("print(1)")
    assert offline("jobs", "submit", name, "--dry-run").exit_code == 0
    assert offline("jobs", "submit", name, "train", f"./{name}", "--dry-run").exit_code == 0


def test_a_short_option_may_hold_its_value(offline: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    result = offline("jobs", "submit", "-np", str(tmp_path), "--dry-run")
    assert (result.exit_code, '"job_name": "p"' in result.stdout) == (0, True)
