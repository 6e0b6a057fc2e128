from __future__ import annotations

import json
import socket
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from cloud_ml.cli.display.advice import next_step
from cloud_ml.cli.jobs.submit_arguments import read_pairs, with_words
from cloud_ml.models.jobs.job import Job, JobEvent
from cloud_ml.sdk import transport
from cloud_ml.sdk.retries import RetryPolicy
from support.fake_api import FakeApi
from support.fake_server import ACCESS_KEY, SECRET_KEY, FakeServer

if TYPE_CHECKING:
    from unit.cli.conftest import Run

URI = "fds://cloudml/trainer-1.0.tar.gz"
UNCHECKED = "Note: no server has checked this job: there is no access key to sign requests with"


def _submitted(server: FakeServer) -> dict[str, Any]:
    return next(seen.document for seen in server.seen if seen.method == "POST")


def test_the_form_of_the_first_slides(run: Run, server: FakeServer) -> None:
    result = run("jobs", "submit", "face-recognition", "trainer.task", URI)
    assert result.exit_code == 0
    assert result.stdout == "face-recognition is submitted (Queued)\n"
    assert "cloudml jobs logs face-recognition -f" in result.stderr
    document = _submitted(server)
    assert (document["job_name"], document["module_name"], document["trainer_uri"]) == (
        "face-recognition", "trainer.task", URI,
    )  # fmt: skip
    assert "job_args" not in document


def test_the_form_of_the_later_slides(run: Run, server: FakeServer) -> None:
    result = run(
        *f"jobs submit -n linear -m trainer.task -u {URI} -c 0.5 -M 100M -g 1 -d tf/tf".split(),
        "-a",
        "--epochs 3",
    )
    assert result.exit_code == 0, result.output
    document = _submitted(server)
    assert document["cpu_limit"] == "0.5"
    assert document["memory_limit"] == "100M"
    assert document["gpu_limit"] == 1
    assert document["docker_image"] == "tf/tf"
    assert document["job_args"] == "--epochs 3"


_FLAGS = [
    ("-gt p40", {"gpu_type": "p40"}),
    ("-dc run.sh", {"docker_command": "run.sh"}),
    ("-F tensorflow -V 1", {"framework": "tensorflow", "framework_version": "1"}),
    ("-pc true -fc false", {"prepare_command": "true", "finish_command": "false"}),
    ("-p 1 -w 2", {"ps_count": 1, "worker_count": 2}),
    ("-fe http://fds -fb cloudml", {"fds_endpoint": "http://fds", "fds_bucket": "cloudml"}),
    (
        "-hka me -hkp pw -he hdfs://n",
        {"hdfs_krb_account": "me", "hdfs_krb_password": "pw", "hdfs_endpoint": "hdfs://n"},
    ),
    ("-hkt tab", {"hdfs_krb_keytab": "tab"}),
    ("-vt ceph -vp a", {"volume_type": "ceph", "volume_path": "a"}),
    ("-mp /b -mro", {"mount_path": "/b", "mount_read_only": True}),
    ("-nsk disk -nsv ssd", {"node_selector_key": "disk", "node_selector_value": "ssd"}),
    (
        "-tl logs -mn m -mv 1",
        {"tensorboard_logdir": "logs", "model_name": "m", "model_version": "1"},
    ),
    ("-R", {"enable_rank": 1}),
    ("-sv", {"save_mode": True}),
    ("--retries 3 --time-limit 2h", {"max_retries": 3, "wall_time_limit": "2h"}),
    ("--hang-timeout 10m", {"hang_timeout": "10m"}),
    ("-w 2:8 -F pytorch", {"worker_count": "2:8", "framework": "pytorch"}),
    ("-w 2 --retries 0 --task-retries 0", {"max_retries": 0, "task_retries": 0}),
    ("-g 0", {"gpu_limit": 0}),
    ("--restore-from halving", {"restore_from": "halving"}),
    ("--keep-checkpoints 3", {"checkpoint": {"keep": 3}}),
    ("--checkpoint-path fds://bucket/c", {"checkpoint": {"path": "fds://bucket/c"}}),
    (
        "--restart on-failure --on-exit 3,4=fail --on-exit 5=free --on-log a=b=fail "
        "--on-log-pattern a.=b=fail",
        {
            "restart": {
                "policy": "OnFailure",
                "rules": [
                    {"action": "fail", "exit_codes": [3, 4]},
                    {"action": "free", "exit_codes": [5]},
                    {"action": "fail", "log": "a=b"},
                    {"action": "fail", "log_pattern": "a.=b"},
                ],
            }
        },
    ),
    (
        "-M 600M --memory-factor 1.5 --memory-most 4G",
        {
            "restart": {
                "memory_factor": 1.5,
                "memory_most": "4G",
            }
        },
    ),
    ("--env A=1 --env B=x=y --env C=", {"environment": {"A": "1", "B": "x=y", "C": ""}}),
    ("--label team=a", {"labels": {"team": "a"}}),
    ("--output_path fds://cloudml/out", {"output_path": "fds://cloudml/out"}),
    ("--no-check-uris", {"check_uris": False}),
    ("-- --epochs 3", {"job_args": ["--epochs", "3"]}),
]


@pytest.mark.parametrize(("flags", "fields"), _FLAGS, ids=[flags for flags, _ in _FLAGS])
def test_every_flag_becomes_its_field(
    run: Run, server: FakeServer, flags: str, fields: dict[str, Any]
) -> None:
    result = run("jobs", "submit", "linear", "trainer.task", URI, *flags.split())
    assert result.exit_code == 0, result.output
    document = _submitted(server)
    assert {name: document[name] for name in fields} == fields


def test_rules_of_exits_go_before_those_of_the_file(
    run: Run, server: FakeServer, tmp_path: Path
) -> None:
    file = tmp_path / "job.json"
    old = {"action": "fail", "exit_codes": [4]}
    job = {"restart": {"policy": "Always", "rules": [old], "healthy_s": 9}}
    file.write_text(json.dumps(job))
    result = run("jobs", "submit", "a", "b", URI, "-f", str(file), "--on-exit", "3=free")
    assert result.exit_code == 0, result.output
    restart = _submitted(server)["restart"]
    assert [rule["action"] for rule in restart["rules"]] == ["free", "fail"]
    assert (restart["policy"], restart["healthy_s"]) == ("Always", 9)


@pytest.mark.parametrize("rule", ["3", "x=fail", "=fail", "3,=fail"])
def test_a_rule_that_cannot_be_read_is_told(run: Run, rule: str) -> None:
    assert "such as 3=fail" in run("jobs", "submit", "a", "b", URI, "--on-exit", rule).stderr


def test_a_cluster_is_given_as_json(run: Run, server: FakeServer) -> None:
    spec = '{"worker": {"count": 2, "cpu_limit": "0.5"}, "ps": {"count": "1"}}'
    assert run("jobs", "submit", "a", "b", URI, "-cs", spec).exit_code == 0
    roles = _submitted(server)["cluster_spec"]
    assert (roles["worker"]["count"], roles["ps"]["count"]) == (2, 1)
    assert (
        "cluster_spec is not valid JSON" in run("jobs", "submit", "a", "b", URI, "-cs", "{").stderr
    )


def test_a_role_that_is_given_twice_is_told(offline: Run) -> None:
    spec = '{"worker": {"count": 2}, "worker": {"count": 3}}'
    result = offline("jobs", "submit", "a", "b", URI, "--cluster_spec", spec)
    assert result.exit_code == 1
    assert "cluster_spec is not valid JSON: the name 'worker' is given twice" in result.stderr


def test_a_cluster_is_asked_for(run: Run, server: FakeServer) -> None:
    answers = "worker ps\n2\n0.5\n100M\n\n\n1\n\n\n\n--sync\n"
    assert run("jobs", "submit", "a", "b", URI, "-D", text=answers).exit_code == 0
    roles = _submitted(server)["cluster_spec"]
    assert (
        roles["worker"]["count"],
        roles["worker"]["cpu_limit"],
        roles["worker"]["memory_limit"],
    ) == (
        2,
        "0.5",
        "100M",
    )
    assert (roles["ps"]["count"], roles["ps"]["task_args"]) == (1, "--sync")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["-c", "1"], "--cpu_limit"),
        (["-M", "100M", "-w", "2:8"], "--memory_limit, --worker_count"),
        (["-p", "1"], "--ps_count"),
        (["--array", "0-3"], "--array"),
        (["-cs", "{}"], "--cluster_spec"),
    ],
)
def test_what_is_asked_for_is_not_said_beside_it(run: Run, words: list[str], option: str) -> None:
    refused = run("jobs", "submit", "a", "b", URI, "-D", *words)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"asks for the roles and their limits; leave out {option}\n" in refused.stderr
    assert "Roles" not in refused.stderr


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "job.json",
            '{"job_name": "filed", "module_name": "m", "trainer_uri": "%s", "cpu_limit": "1"}',
        ),
        ("job.yaml", 'job_name: filed\nmodule_name: m\ntrainer_uri: "%s"\ncpu_limit: 1\n'),
        (
            "job.toml",
            'job_name = "filed"\nmodule_name = "m"\ntrainer_uri = "%s"\ncpu_limit = "1"\n',
        ),
    ],
)
def test_a_job_file_is_read_and_options_override_it(
    run: Run, server: FakeServer, tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text % URI)
    result = run("jobs", "submit", "-f", str(tmp_path / name), "-c", "0.5", "--", "--x")
    assert result.exit_code == 0, result.output
    document = _submitted(server)
    assert (document["job_name"], document["cpu_limit"], document["job_args"]) == (
        "filed",
        "0.5",
        ["--x"],
    )


_NAMED = "job_name: a\nmodule_name: m\ntrainer_uri: u\n"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("job.json", "{", "is malformed"),
        ("job.json", '{"job_name": "a", "job_name": "b"}', "the name 'job_name' is given twice"),
        ("job.yaml", "job_name: a\njob_name: b", "the name 'job_name' is given twice"),
        ("job.toml", 'job_name = "a"\njob_name = "b"', "is malformed"),
        ("job.json", "[]", "holds no table"),
        ("job.toml", "a = ", "is malformed"),
        ("job.yaml", "a: [", "is malformed"),
        (
            "job.yaml",
            "job_name: a\nmodule_name: m\ntrainer_uri: u\nframework_version: 2.10\n",
            "in quotes",
        ),
        ("job.yml", "a: !!python/object/apply:os.system [id]", "is malformed"),
        (
            "job.json",
            '{"job_name": "a", "module_name": "m", "trainer_uri": "u", "cpu_limits": "1"}',
            "did you mean cpu_limit",
        ),
        ("job.yaml", "job_name: a\nenv: {A: 1}", "did you mean environment?"),
        ("job.yaml", "job_name: a\nnproc_per_node: 2", "did you mean worker_count?"),
        ("job.yaml", "zzz: 1", "the others are in docs/reference/jobs.md"),
        ("job.yaml", _NAMED + "restart: OnFailure", "an object of policy, rules, healthy_s"),
        ("job.yaml", _NAMED + "environment: [A=1]", "an object of names and values"),
        (
            "job.yaml",
            "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec: {}",
            "is a manifest of Kubernetes (PyTorchJob)",
        ),
        ("job.yaml", "name: a\nresources: {cpus: 1}\nrun: python a.py", "is a task of SkyPilot"),
    ],
)
def test_a_bad_job_file_is_refused(
    offline: Run, tmp_path: Path, name: str, text: str, words: str
) -> None:
    (tmp_path / name).write_text(text)
    result = offline("jobs", "submit", "-f", str(tmp_path / name))
    assert result.exit_code == 1
    assert words in result.stderr


def test_a_job_file_that_is_submitted_as_code_is_told(offline: Run, tmp_path: Path) -> None:
    (path := tmp_path / "job.yaml").write_text("job_name: a")
    result = offline("run", str(path))
    assert (result.exit_code, f"jobs submit -f {path}" in result.stderr) == (1, True)


def test_a_dry_run_writes_a_job_file(offline: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    options = ("-w", "2", "--restart", "OnFailure")
    written = offline("jobs", "submit", str(tmp_path / "train.py"), *options, "--dry-run")
    (tmp_path / "job.json").write_text(written.stdout)
    read = offline("jobs", "submit", "-f", str(tmp_path / "job.json"), "--dry-run")
    assert (read.exit_code, read.stdout) == (0, written.stdout), read.stderr


@pytest.mark.parametrize("name", ["environment.yml", "Pipfile"])
def test_packages_that_are_listed_where_nobody_reads_are_told(
    offline: Run, tmp_path: Path, name: str
) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    (tmp_path / name).write_text("dependencies: [numpy]")
    note = f"Note: {name} is not read; list its packages in requirements.txt"
    submit = ("jobs", "submit", str(tmp_path), "--dry-run")
    assert note in offline(*submit).stderr
    assert note not in offline(*submit, "--install", "numpy").stderr
    (tmp_path / "requirements.txt").write_text("numpy")
    assert note not in offline(*submit).stderr


def test_a_folder_is_packed_and_uploaded(run: Run, api: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text("print(1)")
    assert run("jobs", "submit", "a", "task", str(tmp_path)).exit_code == 0
    (uri,) = api.objects
    assert uri.startswith("fds://cloudml/.trainers/")
    assert api.jobs["a"].spec["trainer_uri"] == uri


def test_a_rehearsal_sends_nothing_and_shows_no_secret(offline: Run, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text("print(1)")
    result = offline("jobs", "submit", "a", "task", str(tmp_path), "-hkp", "hunter2", "--dry-run")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["job_name"] == "a"
    assert "would be sent as" in result.stderr
    assert "hunter2" not in result.output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with data, and with what is not sent."""
    (root := tmp_path / "churn").mkdir()
    for name, size in (
        ("train.py", 8),
        ("data.csv", 3000),
        ("big.bin", 9000),
        (".cloudmlignore", 0),
    ):
        (root / name).write_text("#" * size)
    for name in ("env/pyvenv.cfg", "__pycache__/train.pyc", "runs/1/loss.txt"):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text("x")
    (root / ".cloudmlignore").write_text("*.bin\nruns/\n")
    return root


@pytest.mark.parametrize("words", [("jobs", "submit"), ("run",)])
def test_a_dry_run_lists_the_files_that_would_be_sent(
    offline: Run, folder: Path, words: tuple[str, ...]
) -> None:
    result = offline(*words, str(folder), "--dry-run")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines()[1:-1] == [
        "It holds 3 files, 2.9 KiB unpacked (the largest first):",
        "    2.9 KiB  data.csv",
        "       12 B  .cloudmlignore",
        "        8 B  train.py",
        "Left out, by .cloudmlignore or as caches, environments and history: __pycache__/, "
        "big.bin, env/, runs/",
    ]


@pytest.mark.parametrize("name", ["churn", "my folder", "train-model.py"])
def test_a_word_alone_is_the_code_if_a_file_or_folder_has_that_name(
    offline: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """People leave out the ``./``, as with other tools."""
    monkeypatch.chdir(tmp_path)
    script = Path(name) if name.endswith(".py") else Path(name, "train.py")
    script.parent.mkdir(exist_ok=True)
    script.write_text("print(1)")
    result = offline("run", name, "--name", "first", "--dry-run")
    assert result.exit_code == 0, result.stderr
    fields = json.loads(result.stdout)
    assert (fields["job_name"], fields["trainer_uri"]) == ("first", name)
    assert fields["module_name"] == script.stem


def test_of_two_words_a_folder_without_a_slash_is_not_guessed(
    offline: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one may be the module, and the URI is what is missing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my code").mkdir()
    result = offline("jobs", "submit", "first", "my code")
    assert result.exit_code == 2
    assert "missing: trainer_uri" in result.stderr
    assert "cloudml jobs submit './my code'" in result.stderr


def test_a_dry_run_of_many_files_names_the_largest(offline: Run, folder: Path) -> None:
    for number in range(20):
        (folder / f"part-{number}.csv").write_text("x" * (100 + number))
        (folder / f"part-{number}.bin").write_text("x")
    lines = offline("run", str(folder), "--dry-run").stderr.splitlines()
    assert lines[1].startswith("It holds 23 files, ")
    assert lines[2].endswith("  data.csv")
    assert lines[12].split() == ["and", "13", "files", "more"]
    assert lines[13].endswith(", and 14 more")
    assert lines[14] == UNCHECKED


def test_a_dry_run_of_a_file_that_is_sent_as_it_is_names_no_others(
    offline: Run, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    first, *others = offline("run", str(tmp_path / "train.py"), "--dry-run").stderr.splitlines()
    assert "would be sent as train.py" in first
    assert others == [UNCHECKED]


@pytest.mark.parametrize("recipe", ["torch", "pytorhc"])
def test_a_dry_run_refuses_an_unknown_recipe_without_a_server(offline: Run, recipe: str) -> None:
    result = offline("jobs", "submit", "a", "task", URI, "--recipe", recipe, "--dry-run")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"recipe is '{recipe}'; allowed is one of array, cluster, dask," in result.stderr
    assert "Did you mean pytorch?" in result.stderr


def test_a_dry_run_asks_the_server(run: Run, server: FakeServer) -> None:
    result = run("jobs", "submit", "a", "task", URI, "--dry-run")
    assert (result.exit_code, result.stderr) == (0, "")
    assert [(seen.method, seen.path) for seen in server.seen] == [("POST", "/api/v1/jobs/check")]


def test_a_dry_run_says_that_the_server_is_away(
    offline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "RetryPolicy", lambda: RetryPolicy(attempts=1))
    with socket.socket() as nobody:  # bound, so that nobody else listens there
        nobody.bind(("127.0.0.1", 0))
        environment = {
            "CLOUDML_ENDPOINT": f"http://127.0.0.1:{nobody.getsockname()[1]}",
            "CLOUDML_ACCESS_KEY": ACCESS_KEY,
            "CLOUDML_SECRET_KEY": SECRET_KEY,
        }
        result = offline("jobs", "submit", "a", "task", URI, "--dry-run", env=environment)
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["job_name"] == "a"
    assert result.stderr.startswith("Note: no server has checked this job: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("linear",), "missing: module_name, trainer_uri"),
        ((), "cloudml jobs submit ."),
        (("a", "b", URI, "--epochs", "3"), "Put your script's arguments after `--`."),
        (("a", "b", URI, "-a", "x", "--", "y"), "given twice"),
        (("a", "b", URI, "--env", "NOPE_NOT_SET"), "NAME=VALUE"),
        (("a", "b", URI, "--label", "x"), "NAME=VALUE"),
        (("a", "b", URI, "-argo"), "--model_name"),
    ],
)
def test_wrong_usage(offline: Run, arguments: tuple[str, ...], words: str) -> None:
    result = offline("jobs", "submit", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("Linear", "b", URI), "job_name"),
        (("a", "b c", URI), "module_name"),
        (("a", "b", URI, "-c", "much"), "cpu_limit"),
        (("a", "b", URI, "-M", "100"), "memory_limit"),
        (("a", "b", URI, "-w", "0"), "worker_count"),
        (("a", "b", URI, "--time-limit", "soon"), "wall_time_limit"),
        (("a", "b", URI, "--hang-timeout", "0"), "hang_timeout"),
        (("a", "b", URI, "-a", "'"), "job_args"),
        (("a", "b", "./no-such-folder"), "trainer_uri"),
    ],
)
def test_bad_values_are_named_before_anything_is_sent(
    run: Run, api: FakeApi, arguments: tuple[str, ...], field: str
) -> None:
    result = run("jobs", "submit", *arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"cloudml: {field} ")
    assert api.jobs == {}


def test_output_for_programs(run: Run) -> None:
    assert run("jobs", "submit", "a", "b", URI, "-o", "name").stdout == "a\n"
    assert (
        json.loads(run("jobs", "submit", "c", "b", URI, "-o", "json").stdout)["phase"] == "Queued"
    )


@pytest.mark.parametrize(
    ("outcome", "code", "message"),
    [
        ({"phase": "Succeeded", "exit_code": 0}, 0, "a succeeded after 3.0 s"),
        (
            {"phase": "Failed", "exit_code": 7, "reason": "NonZeroExit", "message": "exit 7"},
            7,
            "NonZeroExit: exit 7",
        ),
        (
            {"phase": "Failed", "exit_code": None, "signal": "SIGKILL", "reason": "OOMKilled"},
            3,
            "OOMKilled",
        ),
        ({"phase": "Failed", "exit_code": None, "reason": "TrainerNotFound"}, 3, "TrainerNotFound"),
        ({"phase": "Stopped", "exit_code": 143, "reason": "Cancelled"}, 4, "was stopped"),
    ],
)
def test_watching_ends_as_the_job_did(
    run: Run, api: FakeApi, outcome: dict[str, object], code: int, message: str
) -> None:
    api.outcome = outcome
    result = run("jobs", "submit", "a", "b", URI, "-W")
    assert result.exit_code == code
    assert result.stdout == api.log.decode()
    assert message in result.stderr


@pytest.mark.parametrize(
    ("fields", "words", "behind", "found"),
    [
        ({}, ["n", "m", "u"], [], {"job_name": "n", "module_name": "m", "trainer_uri": "u"}),
        (
            {"job_name": "x"},
            ["m", "u", "1"],
            ["--y"],
            {"job_name": "x", "module_name": "m", "trainer_uri": "u", "job_args": ["1", "--y"]},
        ),
        (
            {"trainer_uri": "."},
            ["n", "m"],
            [],
            {"job_name": "n", "module_name": "m", "trainer_uri": "."},
        ),
        ({"trainer_uri": "."}, [], ["--x"], {"trainer_uri": ".", "job_args": ["--x"]}),
        ({}, ["."], [], {"trainer_uri": "."}),
        (
            {},
            ["n", "train.py"],
            ["1"],
            {"job_name": "n", "trainer_uri": "train.py", "job_args": ["1"]},
        ),
        (
            {"module_name": "m"},
            ["fds://b/x.whl"],
            [],
            {"module_name": "m", "trainer_uri": "fds://b/x.whl"},
        ),
    ],
)
def test_words_fill_what_is_missing(
    fields: dict[str, str], words: list[str], behind: list[str], found: dict[str, object]
) -> None:
    assert with_words(fields, words, behind) == found


def test_the_current_folder_is_submitted_under_its_name_and_again_under_a_number(
    run: Run, api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "My Übung"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)")
    monkeypatch.chdir(folder)
    assert (
        run("jobs", "submit", "-u", ".", "-o", "name", "--", "--epochs", "3").stdout == "my-ubung\n"
    )
    assert run("jobs", "submit", ".", "-o", "name").stdout == "my-ubung-2\n"
    assert run("jobs", "submit", "train.py", "-o", "name").stdout == "train\n"
    first = api.jobs["my-ubung"].spec
    assert (first["module_name"], first["job_args"]) == ("train", ["--epochs", "3"])
    again = run("jobs", "submit", "my-ubung", "train", ".")
    assert (again.exit_code, "cloudml jobs delete my-ubung" in again.stderr) == (1, True)


def test_pairs() -> None:
    assert read_pairs("--env", ["A=1", "HOME"], {"HOME": "/h"}) == {"A": "1", "HOME": "/h"}
    with pytest.raises(click.UsageError, match=r"'A'; allowed is NAME=VALUE$"):
        read_pairs("--label", ["A"])
    with pytest.raises(click.UsageError, match="'A', but this shell has no exported variable"):
        read_pairs("--env", ["A"], {"HOME": "/h"})


def test_requirements_of_files_and_of_options(run: Run, server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "gpu.txt").write_text("torch==2.9 --hash=sha256:00\n# why\n-r base.txt\n")
    (tmp_path / "base.txt").write_text("numpy>=2  # newer\n")
    words = ["-r", str(tmp_path / "gpu.txt"), "--install", "tqdm", "--install", "rich[jupyter]>=13"]
    assert run("jobs", "submit", "a", "trainer.task", URI, *words).exit_code == 0
    assert _submitted(server)["requirements"] == [
        "torch==2.9",
        "numpy>=2",
        "tqdm",
        "rich[jupyter]>=13",
    ]


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("--index-url https://h\n", [], "has the option --index-url, which is not taken"),
        ("-r absent.txt\n", [], "absent.txt cannot be read: No such file"),
        ("", ["--install", "-r"], "requirements[0] is '-r'"),
        ("", ["--install", "./folder"], "requirements[0] is './folder'"),
        ("", ["--install", "numpy pandas"], "requirements[0] is 'numpy pandas'; allowed is one"),
        ("", ["--install", "a==1\n-r /etc/shadow"], "a package on one line"),
    ],
)
def test_requirements_that_are_not_taken(
    run: Run, server: FakeServer, tmp_path: Path, text: str, words: list[str], expected: str
) -> None:
    (tmp_path / "r.txt").write_text(text)
    result = run("jobs", "submit", "a", "trainer.task", URI, "-r", str(tmp_path / "r.txt"), *words)
    assert result.exit_code == (1 if words else 2)
    assert expected in result.output
    assert not [seen for seen in server.seen if seen.method == "POST"]


@pytest.mark.parametrize("place", ["train.ipynb", "."])
def test_a_notebook_is_told_how_it_becomes_a_script(run: Run, tmp_path: Path, place: str) -> None:
    (tmp_path / "train.ipynb").write_text("{}")
    result = run("jobs", "submit", str(tmp_path / place))
    assert result.exit_code == 1
    assert "train.ipynb is a notebook; running notebooks is planned" in result.output
    assert "jupyter nbconvert --to script" in result.output


def _failed(reason: str, **spec: Any) -> Job:
    now = datetime.now(UTC)
    return Job(
        uid="1",
        name="a",
        org="o",
        owner="u",
        revision=1,
        phase="Failed",
        state="failed",
        attempt=1,
        created_at=now,
        updated_at=now,
        reason=reason,
        spec=spec,
    )


@pytest.mark.parametrize(
    ("uri", "step"),
    [
        ("git+https://github.com/o/r@v1", "Check the repository, commit and folder."),
        ("https://host/t.tar.gz", "Put it where the server can fetch it"),
        ("fds://ml/t.tar.gz", "cloudml storage ls -r fds://ml/"),
    ],
)
def test_code_that_was_not_found_is_looked_for_where_it_comes_from(uri: str, step: str) -> None:
    assert step in next_step(_failed("TrainerNotFound", trainer_uri=uri))


def test_what_helps_a_job_of_several_tasks() -> None:
    assert next_step(_failed("OOMKilled", memory_limit="60M", worker_count=2)).endswith(
        "cloudml jobs rerun a -M 120M"
    )
    own = {"worker": {"count": 2, "memory_limit": "60M"}}
    assert "raise its memory_limit in cluster_spec" in next_step(
        _failed("OOMKilled", cluster_spec=own)
    )
    assert "job.report(step)" in next_step(_failed("NoProgress"))
    array = replace(_failed("NonZeroExit", array="0-9"), message="task-7 exited with code 1")
    assert next_step(array) == (
        "Look at its log: cloudml jobs logs a --task task-7 -n 50 · run it alone: cloudml jobs rerun a "
        "--array 7"
    )
    assert next_step(_failed("NoDistributedRecipe")).endswith(
        "cloudml jobs rerun a --recipe pytorch (or tensorflow, dask, mpi, cluster)"
    )


@pytest.mark.parametrize(
    ("flags", "noted"),
    [
        ("-w 4", True),
        ("-w 4 -F pytorch", False),
        ("-w 4 --recipe cluster", False),
        ("-p 1 -w 4", False),
        ("", False),
    ],
)
def test_a_master_that_nobody_asked_for_is_told(run: Run, flags: str, noted: bool) -> None:
    result = run("jobs", "submit", "ddp", "train", URI, *flags.split())
    assert ("ddp has 5 tasks: a master beside the workers" in result.stderr) is noted
    assert ("(or jax, xgboost, lightgbm, cluster), -w 4 makes 4." in result.stderr) is noted


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("-w 2", "train.py imports torch: 2 tasks, recipe pytorch; --recipe chooses another"),
        ("-w 1", "train.py imports torch: 1 task, recipe pytorch; --recipe chooses another"),
        (
            "-w 2:8",
            "train.py imports torch: 2 to 8 tasks, recipe pytorch; --recipe chooses another",
        ),
        ("-w 2 --recipe cluster", ""),
        ("-p 1 -w 2", ""),
        ("", ""),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_the_recipe_that_code_tells_is_said(
    run: Run, api: FakeApi, tmp_path: Path, flags: str, expected: str, *, dry_run: bool
) -> None:
    (script := tmp_path / "train.py").write_text("import torch")
    words = (*flags.split(), *(["--dry-run"] if dry_run else []))
    result = run("jobs", "submit", str(script), "-n", "ddp", *words)
    assert result.exit_code == 0, result.output
    assert (
        expected in result.stderr.splitlines() if expected else "imports torch" not in result.stderr
    )
    assert "beside" not in result.stderr
    spec = json.loads(result.stdout) if dry_run else api.jobs["ddp"].spec
    assert spec.get("recipe") == (
        "pytorch" if expected else flags.partition("--recipe ")[2] or None
    )


@pytest.mark.parametrize(
    "flags", ["--restore-from halving", "--checkpoint-path fds://cloudml/kept"]
)
def test_what_a_job_goes_on_from_is_said(
    run: Run, api: FakeApi, server: FakeServer, flags: str
) -> None:
    message = "to go on from fds://b/step-30.pt (step 30), your code loads the path in …"
    api.events = [
        JobEvent(id=2, at=datetime(2026, 1, 1, tzinfo=UTC), type="Normal", reason="RestoreFrom",
                 message=message),
    ]  # fmt: skip
    result = run("jobs", "submit", "longer", "train", URI, *flags.split())
    assert message.replace("to", "To", 1) in result.stderr.splitlines()
    assert f"Restore from: {message}" in " ".join(run("jobs", "describe", "longer").stdout.split())
    server.seen.clear()
    run("jobs", "submit", "anew", "train", URI)
    assert [one.path for one in server.seen] == ["/api/v1/jobs"]


def test_code_of_two_frameworks_has_a_master_and_says_so(
    run: Run, api: FakeApi, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("import torch, tensorflow")
    result = run("jobs", "submit", str(tmp_path), "-n", "ddp", "-w", "2")
    assert "ddp has 3 tasks: a master beside the workers, as in TensorFlow" in result.stderr
    assert api.jobs["ddp"].spec.get("recipe") is None


@pytest.mark.parametrize("given", ["spec.json", "@spec.json"])
def test_a_file_where_roles_are_written_out_is_told_what_to_type(offline: Run, given: str) -> None:
    result = offline("jobs", "submit", "a", "b", URI, "--cluster_spec", given)
    assert result.exit_code == 1
    assert '--cluster_spec "$(cat spec.json)"' in result.stderr
    assert "$(cat" not in offline("jobs", "submit", "a", "b", URI, "-cs", "{worker: 2}").stderr
