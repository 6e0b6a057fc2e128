"""What an ended job keeps on the disk."""

from __future__ import annotations

from pathlib import Path

from cloud_ml.engines.local.disk.kept_disk import KeptDisk


def test_a_folder_of_logs_that_the_job_made_itself_counts_once(tmp_path: Path) -> None:
    kept = KeptDisk(tmp_path / "kept", tmp_path / "jobs", "boot")
    for folder in ("a/work/logs", "a/1/logs", "b/work/runs", "b/1/logs"):
        (tmp_path / "jobs" / folder).mkdir(parents=True)
    for file in ("a/work/logs/events", "b/work/runs/events"):
        (tmp_path / "jobs" / file).write_bytes(b"x" * 100_000)
    kept.note(1, "a")
    kept.note(2, "b")
    assert kept.total(1) == kept.total(2) >= 100_000
