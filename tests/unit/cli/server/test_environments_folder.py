"""A folder of environments that cannot be written is refused at the start."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from cloud_ml.cli.main import cli


def test_a_server_does_not_start_with_a_folder_of_environments_that_it_cannot_write(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    home = tmp_path / "file" / "environments"
    words = ["--data-dir", str(tmp_path / "data"), "--environments-dir", str(home), "--port", "0"]
    refused = CliRunner().invoke(cli, ["server", *words])
    assert refused.exit_code == 1
    assert f"the folder of environments {home} cannot be written" in refused.output
    assert "--environments-dir" in refused.output
    assert not (tmp_path / "data").exists(), "nothing is left behind"
