"""The original client, unmodified, against a real server: what its users type, and what they
read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cloud_ml.models.studies.hp_documents import METRIC
from cloud_ml.models.studies.study import STUDIES, NewStudy
from support.browser import Browser
from support.environments import pack
from support.event_files import TUNED
from support.gateway_process import free_port
from support.original import (
    BUCKET,
    FDS_HOST,
    OriginalClient,
    Tunnel,
    certificate,
    install,
    older_requests,
)
from support.server import RealServer, eventually, serving, trainer
from support.serving import save_linear

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("original-client"),
]

STEPS = """
import sys
print("arguments", sys.argv[1:], flush=True)
for step in range(3):
    print("step", step, flush=True)
"""
TENSORFLOW_S = 600
SMALL = ("-F", "python", "-c", "0.5", "-M", "200M")


@pytest.fixture(scope="module")
def programs() -> Path:
    return install()


@pytest.fixture(scope="module")
def secure(
    tmp_path_factory: pytest.TempPathFactory, programs: Path
) -> Iterator[tuple[RealServer, Path]]:
    """A server that speaks TLS, and its certificate."""
    cert, key = certificate(tmp_path_factory.mktemp("certificate"))
    folder = tmp_path_factory.mktemp("server")
    settings = {"CLOUDML_SERVER_TLS_CERT": cert, "CLOUDML_SERVER_TLS_KEY": key}
    with serving(folder, CLOUDML_APPLICATIONS_PORT=free_port(), **settings) as server:
        yield server, cert


@pytest.fixture(scope="module")
def cloudml(
    programs: Path, secure: tuple[RealServer, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OriginalClient]:
    server, cert = secure
    tunnel = Tunnel(server.port)
    yield OriginalClient(programs, server, tmp_path_factory.mktemp("user"), cert, tunnel)
    tunnel.close()


@pytest.fixture(scope="module")
def package(cloudml: OriginalClient) -> str:
    """The URI of a trainer that a first job brought along."""
    code = trainer(cloudml.home / "linear", STEPS)
    submission = cloudml(
        "jobs", "submit", "-n", "first", "-m", "trainer.task", "-u", str(code), "-a=--x=1", *SMALL
    )
    return str(fields(submission.good().out)["Trainer uri"])


def fields(described: str) -> dict[str, str]:
    """The lines ``Name: value`` of a description, without colours."""
    plain = re.sub(r"\x1b\[\d+m", "", described)
    return {
        name: value.strip()
        for name, _, value in (line.partition(":") for line in plain.splitlines())
    }


def state(cloudml: OriginalClient, job: str) -> str:
    return fields(cloudml("jobs", "describe", job).good().out)["State"]


def names_of(cloudml: OriginalClient) -> list[str]:
    """The first words of the lines of the list of jobs."""
    listed = cloudml("jobs", "list").good().out
    return [line.split()[0] for line in listed.splitlines() if line.strip()]


def completed(cloudml: OriginalClient, job: str) -> None:
    eventually(lambda: state(cloudml, job) == "completed", f"{job} is completed")


def test_it_is_the_original(cloudml: OriginalClient) -> None:
    assert cloudml("-v").good().out.strip() == "0.3.71"


def test_small_questions(cloudml: OriginalClient) -> None:
    frameworks = cloudml("framework", "list").good().out
    assert "python" in frameworks
    assert "tensorflow" in frameworks
    assert cloudml("org_id").good().out == "Your org_id is: 1\n"
    quota = cloudml("quota", "list").good().out
    assert re.search(r"Train job +[\d.]+G / ", quota)
    assert re.search(r"Total quota +INF / ", quota)
    assert "Available memory" in cloudml("resources", "list").good().out


CREATE_SECRET = """
import base64, sys
from cloud_ml_sdk.client import CloudMlClient
from cloud_ml_sdk.models.secret_service import SecretService
data = base64.b64encode(sys.argv[2].encode()).decode()  # which `secret create` forgets on Python 3
print(CloudMlClient().create_secret_service(SecretService(sys.argv[1], data)))
"""


def test_secrets(cloudml: OriginalClient) -> None:
    made = cloudml.run("python", "-c", CREATE_SECRET, "hf-token", "hunter2").good().out
    assert "'secret_name': 'hf-token'" in made
    listed = cloudml("secret", "list").good().out
    described = cloudml("secret", "describe", "hf-token").good().out
    assert re.search(r"^hf-token +20\d\d-", listed, re.MULTILINE)
    assert fields(described)["secret name"] == "hf-token"
    assert "hunter2" not in made + listed + described
    cloudml("secret", "delete", "hf-token").good()
    assert "hf-token" not in cloudml("secret", "list").good().out


def test_a_folder_is_brought_along_and_runs(cloudml: OriginalClient, package: str) -> None:
    assert re.fullmatch(rf"fds://{BUCKET}/user_packages/linear\.cloudml_\d+_\d+\.tar\.gz", package)
    completed(cloudml, "first")
    described = fields(cloudml("jobs", "describe", "first").good().out)
    assert (described["Job args"], described["CPU limit"], described["Memory limit"]) == (
        "--x=1",
        "0.5",
        "200M",
    )
    assert (described["FDS Endpoint"], described["Fuse mount bucket"]) == (FDS_HOST, BUCKET)
    log = cloudml("jobs", "logs", "first").good().out
    assert "arguments ['--x=1']\nstep 0\nstep 1\nstep 2\n" in log
    assert cloudml("jobs", "logs", "first", "-n", "1").good().out.strip() == "step 2"
    assert "b'step 2'" in cloudml("jobs", "logs", "first", "-f").good().out
    assert "Completed" in cloudml("jobs", "events", "first").good().out
    assert "Memory:" in cloudml("jobs", "metrics", "first").good().out
    refused = cloudml("jobs", "hp", "first")
    assert (refused.code, "not a tuning" in refused.out) == (1, True)


def test_a_tuning_is_reported_as_on_the_slide(
    cloudml: OriginalClient,
    secure: tuple[RealServer, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = pack(trainer(tmp_path / "tuned", TUNED), tmp_path / "tuned.tar.gz")
    monkeypatch.setenv("SSL_CERT_FILE", str(secure[1]))
    client = secure[0].client()
    client.storage.upload(code, f"fds://{BUCKET}/tuned.tar.gz")
    job = {
        "module_name": "trainer.task",
        "trainer_uri": f"fds://{BUCKET}/tuned.tar.gz",
        "framework": "python",
        "output_path": f"fds://{BUCKET}/tuned",
    }
    new_study = NewStudy(
        name="tuned",
        job=job,
        space={"learning_rate": [0.1, 0.5]},
        algorithm="grid",
        objective=f"{METRIC}:min",
    )
    studies = client.resources(STUDIES)
    studies.create(new_study)
    studies.wait("tuned", timeout=120)
    lines = cloudml("jobs", "hp", "tuned-hp-1").good().out.splitlines()
    assert lines[:3] == ["Goal: MINIMIZE", "Trial count: 2", "Best trial:"]
    params = f"Params: --output_path=fds://{BUCKET}/tuned/0 --learning_rate=0.1"
    assert [line.strip() for line in lines[4:7]] == [params, "Step: 20000", "State: completed"]
    assert lines.count("Trial 1:") == 1


def test_studies(cloudml: OriginalClient, tmp_path: Path) -> None:
    code = trainer(tmp_path / "rates", TUNED)
    rates = {
        "name": "learning_rate",
        "parametertype": "discrete",
        "feasible": {"list": ["0.1", "0.5"]},
    }
    document = {
        "hp_name": "rates", "module_name": "trainer.task", "trainer_uri": str(code),
        "framework": "python", "output_path": f"fds://{BUCKET}/rates", "cpu_limit": "0.5",
        "optimization_type": "minimize", "objectivevalue_name": METRIC,
        "metrics_names": [METRIC], "parametertype_configs": [rates],
        "suggestion_algorithm": "grid", "request_number": 2,
    }  # fmt: skip
    file = cloudml.home / "rates.json"
    file.write_text(json.dumps(document))
    made = fields(cloudml("hp", "submit", "-f", str(file)).good().out)
    assert (made["hp name"], made["Request number"]) == ("rates", "2")
    assert made["Trainer uri"].startswith(f"fds://{BUCKET}/user_packages/rates")

    def described() -> dict[str, str]:
        return fields(cloudml("hp", "describe", "rates").good().out)

    eventually(lambda: described()["State"] == "completed", "the study ends", limit_s=120)
    assert described()["Suggestion algorithm"] == "grid"
    assert re.search(r"^rates +.*completed", cloudml("hp", "list").good().out, re.MULTILINE)
    trials = cloudml("hp", "trials", "rates").good().out
    assert trials.count("trial_id: rates-hp-0") == 2, "as a trial, and as the best"
    assert "metric: 0.1" in trials
    assert "learning_rate=0.5" in cloudml("jobs", "describe", "rates-hp-1").good().out
    log = cloudml("hp", "logs", "rates", "-ti", "rates-hp-0").good().out
    assert log == cloudml("hp", "logs", "rates", "-ti", "0").good().out
    assert cloudml("hp", "logs", "rates", "-ti", "0", "-f").good()
    absent = cloudml("hp", "logs", "rates", "-ti", "9")
    assert "has no trial 9" in absent.out
    assert "TrialCompleted" in cloudml("hp", "events", "rates").good().out
    assert "Memory:" in cloudml("hp", "metrics", "rates").good().out
    assert "Trial count: 2" in cloudml("jobs", "hp", "rates").good().out
    everyone = cloudml.run("cloudml_admin", "hp", "list", "-1").good().out
    assert re.search(r"^1 +default +rates ", everyone, re.MULTILINE)
    file.write_text(json.dumps({**document, "hp_name": "wrong", "optimization_type": "best"}))
    refused = cloudml("hp", "submit", "-f", str(file))
    assert (refused.code, "optimization_type is" in refused.out) == (1, True)
    assert "deleting" in cloudml("hp", "delete", "rates").good().out
    eventually(lambda: cloudml("hp", "describe", "rates").code == 1, "the study is gone")


def test_lists(cloudml: OriginalClient, package: str) -> None:
    completed(cloudml, "first")
    row = next(
        line
        for line in cloudml("jobs", "list").good().out.splitlines()
        if line.startswith("first ")
    )
    assert "completed" in row
    wide = cloudml("jobs", "list", "-o", "wide").good().out.splitlines()
    assert "NODE NAME" in wide[0]
    assert any(line.startswith("first ") for line in wide)


SEVERAL = """
import json, os, time
config = json.loads(os.environ["TF_CONFIG"])
role, index = config["task"]["type"], config["task"]["index"]
sizes = {name: len(hosts) for name, hosts in config["cluster"].items()}
print(role, index, "of", sorted(sizes.items()), flush=True)
open(f"told-{role}-{index}", "w").close()
while role == "ps" or len([name for name in os.listdir() if name.startswith("told-")]) < 5:
    time.sleep(0.05)
"""
"""A parameter server never returns, as that of TensorFlow 1. The others end when all have begun."""
MEMBERS = ("master-0", "ps-0", "ps-1", "worker-0", "worker-1")


@pytest.mark.tensorflow
@pytest.mark.timeout(TENSORFLOW_S)
def test_a_job_of_several_tasks(cloudml: OriginalClient) -> None:
    code = trainer(cloudml.home / "several", SEVERAL)
    words = ("-n", "gang", "-m", "trainer.task", "-u", str(code), "-M", "100M")
    cloudml("jobs", "submit", *words, "-F", "tensorflow", "-V", "1", "-p", "2", "-w", "2").good()
    assert "gang" in names_of(cloudml)
    eventually(
        lambda: state(cloudml, "gang") == "completed",
        "the gang is completed",
        limit_s=TENSORFLOW_S,
    )
    assert {"gang", *(f"gang-{member}" for member in MEMBERS)} <= set(names_of(cloudml))
    for member in MEMBERS:
        role, _, index = member.partition("-")
        described = fields(cloudml("jobs", "describe", f"gang-{member}").good().out)
        assert (described["State"], described["Cluster name"]) == ("completed", "gang")
        own = cloudml("jobs", "logs", f"gang-{member}").good().out
        assert f"{role} {index} of [('master', 1), ('ps', 2), ('worker', 2)]\n" in own, own
    together = cloudml("jobs", "logs", "gang").good().out
    assert all(f"[{member}] " in together for member in MEMBERS)
    assert cloudml("jobs", "events", "gang").good().out
    refused = cloudml("jobs", "delete", "gang-worker-0")
    assert "belongs to gang" in refused.out + refused.err
    cloudml("jobs", "delete", "gang").good()
    eventually(
        lambda: not any(name.startswith("gang") for name in names_of(cloudml)),
        "all are gone",
    )


def test_a_saved_job_is_started_later(cloudml: OriginalClient, package: str) -> None:
    cloudml(
        "jobs", "submit", "-n", "saved", "-m", "trainer.task", "-u", package, *SMALL, "-sv"
    ).good()
    assert state(cloudml, "saved") == "initial"
    cloudml("jobs", "start", "saved").good()
    completed(cloudml, "saved")


def test_a_job_from_a_file_is_watched_and_deleted(cloudml: OriginalClient, package: str) -> None:
    file = cloudml.home / "job.yaml"
    file.write_text(
        f"job_name: watched\nmodule_name: trainer.task\ntrainer_uri: {package}\nframework: "
        'python\ncpu_limit: "0.5"\n'
    )
    watched = cloudml("jobs", "submit", "-f", str(file), "-W").good().out
    assert "completed" in watched.splitlines()[-1]
    assert "deleting" in cloudml("jobs", "delete", "watched").good().out
    eventually(lambda: cloudml("jobs", "describe", "watched").code == 1, "the job is gone")


@pytest.mark.parametrize("uri", [f"fds://{BUCKET}/nothing.tar.gz", "fds://nowhere/nothing.tar.gz"])
def test_a_trainer_that_is_not_there(cloudml: OriginalClient, uri: str) -> None:
    result = cloudml("jobs", "submit", "-n", "missing", "-m", "trainer.task", "-u", uri, *SMALL)
    assert f"Can't find file {uri}" in result.out
    assert cloudml("jobs", "describe", "missing").code == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-n", "first"), "a job named first exists already"),
        (
            ("-n", "far", "-p", "1", "-w", "1"),
            "framework is python, for which there is no distributed recipe",
        ),
        (("-n", "far", "-V", "0.1"), "python 0.1 is not offered"),
    ],
)
def test_refusals_are_one_line_that_says_why(
    cloudml: OriginalClient, package: str, options: tuple[str, ...], message: str
) -> None:
    refused = cloudml(
        "jobs", "submit", "-m", "trainer.task", "-u", package, "-F", "python", *options
    )
    assert (refused.code, refused.out.count("\n")) == (1, 1)
    assert message in refused.out


def test_settings_are_checked_against_the_server(cloudml: OriginalClient) -> None:
    given = cloudml.settings
    answers = [
        "here",
        given["XIAOMI_ACCESS_KEY_ID"],
        given["XIAOMI_SECRET_ACCESS_KEY"],
        FDS_HOST,
        "",
        "",
        "",
        "team@example.com",
        "y",
        given["XIAOMI_CLOUDML_ENDPOINT"],
        BUCKET,
        "y",
        "y",
        "y",
        "y",
    ]
    result = cloudml.run(
        "cloudml", "config", "init", typed="\n".join(answers) + "\n", settings={}
    ).good()
    assert result.out.count("Test successfully!") == 2
    assert (cloudml.home / ".config" / "xiaomi" / "config").is_file()
    assert cloudml.run("cloudml", "org_id", settings={}).good().out == "Your org_id is: 1\n"


def test_a_wrong_key_is_refused(cloudml: OriginalClient) -> None:
    wrong = {**cloudml.settings, "XIAOMI_SECRET_ACCESS_KEY": "wrong"}
    refused = cloudml.run("cloudml", "jobs", "list", settings=wrong)
    assert (refused.code, "Unauthorized: signature is wrong" in refused.out) == (1, True)


def test_the_administrators_tool(cloudml: OriginalClient, package: str) -> None:
    completed(cloudml, "first")
    listed = cloudml.run("cloudml_admin", "jobs", "list", "-1").good().out
    assert re.search(r"^1 +default +first ", listed, re.MULTILINE)
    assert "step 2" in cloudml.run("cloudml_admin", "jobs", "logs", "first", "1").good().out
    assert "Total quota" in cloudml.run("cloudml_admin", "quota", "list", "-1").good().out
    refused = cloudml.run("cloudml_admin", "jobs", "list", "77")
    assert (refused.code, "there is no organisation 77" in refused.out) == (1, True)


def test_quotas_are_applied_for_and_set(cloudml: OriginalClient) -> None:
    result = cloudml("quota", "update", "-t", "jobs", "-c", "2.5", "-M", "4G", "-g", "1").good()
    assert "error" not in result.out.lower()
    limits = (
        "-t",
        "models",
        "-c",
        "10",
        "-m",
        "20G",
        "-g",
        "0",
        "-C",
        "3",
        "-M",
        "team@xiaomi.com",
    )
    cloudml.run("cloudml_admin", "quota", "update", "1", *limits).good()
    shown = cloudml("quota", "list").good().out
    assert re.search(r"Model service +20\.0G / ", shown), shown
    refused = cloudml.run("cloudml_admin", "quota", "update", "77", *limits)
    assert (refused.code, "there is no organisation 77" in refused.out) == (1, True)


def test_the_http_library_of_its_time(
    cloudml: OriginalClient, programs: Path, package: str
) -> None:
    """With it, every GET ends in an empty chunk that nobody announced."""
    old = {**cloudml.settings, "PYTHONPATH": str(older_requests(programs))}
    version = cloudml.run(
        "python", "-c", "import requests; print(requests.__version__)", settings=old
    )
    assert version.good().out == "2.27.1\n"
    submit = ("jobs", "submit", "-n", "older", "-m", "trainer.task", "-u", package, *SMALL)
    cloudml.run("cloudml", *submit, settings=old).good()
    completed(cloudml, "older")
    for arguments in (
        ("list",),
        ("describe", "older"),
        ("logs", "older"),
        ("logs", "older", "-f"),
        ("events", "older"),
    ):
        output = cloudml.run("cloudml", "jobs", *arguments, settings=old).good().out
        assert "Invalid HTTP" not in output, arguments
    cloudml.run("cloudml", "jobs", "delete", "older", settings=old).good()


STORAGE = f"""
import os, fds
settings = fds.FDSClientConfiguration(enable_cdn_for_download=False)
settings.set_endpoint("{FDS_HOST}")
settings.enable_md5_calculate = True
client = fds.GalaxyFDSClient(os.environ["XIAOMI_ACCESS_KEY_ID"], os.environ["XIAOMI_SECRET_ACCESS_KEY"], settings)
client.create_bucket("scratch")
assert sorted(bucket.bucket_name for bucket in client.list_buckets()) == ["{BUCKET}", "scratch"]
assert client.does_bucket_exist("scratch") and not client.does_bucket_exist("nowhere")
client.put_object("scratch", u"a b/\\u6a21", b"0123456789")
client.put_object("scratch", "c", b"")
assert client.does_object_exists("scratch", u"a b/\\u6a21")
assert client.get_object_metadata("scratch", "c").metadata["x-xiaomi-meta-content-length"] == "0"
assert b"".join(client.get_object("scratch", u"a b/\\u6a21").stream) == b"0123456789"
assert b"".join(client.get_object("scratch", u"a b/\\u6a21", position=7).stream) == b"789"
page = client.list_objects("scratch", max_keys=1)
assert (page.common_prefixes, page.is_truncated) == (["a b/"], True)
assert [one.object_name for one in client.list_next_batch_of_objects(page).objects] == ["c"]
assert [one.size for one in client.list_all_objects("scratch", "a b/", "")] == [10]
client.delete_object("scratch", "c")
assert not client.does_object_exists("scratch", "c")
settings.set_threshold_size(20)
settings.set_part_size(16)
client.put_object("scratch", "parts", b"0123456789" * 5)
assert b"".join(client.get_object("scratch", "parts").stream) == b"0123456789" * 5
begun = client.init_multipart_upload("scratch", "given up")
client.upload_part("scratch", "given up", begun.upload_id, 1, b"x")
client.abort_multipart_upload("scratch", "given up", begun.upload_id)
client.delete_object("scratch", "parts")
for refused, message in (
    (lambda: client.rename_object("scratch", u"a b/\\u6a21", "d"), "no PUT of an object with renameTo"),
    (lambda: client.upload_part("scratch", "given up", begun.upload_id, 2, b"x"), "there is no upload"),
):
    try:
        refused()
    except fds.GalaxyFDSClientException as error:
        assert message in str(error), error
    else:
        raise AssertionError(message)
assert [one.object_name for one in client.list_all_objects("scratch", "", "")] == [u"a b/\\u6a21"]
"""


def test_the_storage_client(cloudml: OriginalClient) -> None:
    ended = cloudml.run("python", "-W", "error", "-c", STORAGE)
    assert ended.code == 0, ended.err


def test_a_model_service(cloudml: OriginalClient) -> None:
    save_linear(cloudml.server.bucket("linear-model", "1"))
    # It fails on an attribute that newer Pythons' dictionaries lack when it prints a service: its
    # own defect.
    options = "-n linear-model -v v1 -u fds://cloudml/linear-model -c 0.5 -M 300M"
    made = cloudml("models", "create", *options.split())

    def row() -> str:
        listed = cloudml("models", "list").good().out.splitlines()
        return next((line for line in listed if line.startswith("linear-model ")), "")

    eventually(lambda: "running" in row(), f"the service runs: {made}", limit_s=90)
    assert re.search(r"127\.0\.0\.1:\d+", row())
    assert "is ready" in cloudml("models", "logs", "linear-model", "v1").good().out
    assert "is ready" in cloudml("models", "logs", "linear-model", "v1", "-ri", "0").good().out
    assert "Memory:" in cloudml("models", "metrics", "linear-model", "v1").good().out
    assert "Running" in cloudml("models", "events", "linear-model", "v1").good().out
    cloudml("models", "update", "linear-model", "-v", "v1", "-c", "0.25")
    assert (
        "cpu_limit changed by admin" in cloudml("models", "events", "linear-model", "v1").good().out
    )
    cloudml("models", "start", "linear-model", "v1")
    assert "deleting" in cloudml("models", "delete", "linear-model", "v1").good().out
    eventually(
        lambda: "linear-model " not in cloudml("models", "list").good().out, "the service is gone"
    )
    assert "there is no model service" in cloudml("models", "describe", "linear-model", "v1").out


def test_tensorboards(
    cloudml: OriginalClient, secure: tuple[RealServer, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    logdir = f"fds://{BUCKET}/curves/"
    made = fields(
        cloudml("tensorboard", "create", "-n", "curves", "-l", logdir, "-F", "tensorflow")
        .good()
        .out
    )
    assert made["Tensorboard name"] == "curves"
    assert re.search(
        r"^curves +.*http://tb-[0-9a-f]+", cloudml("tensorboard", "list").good().out, re.MULTILINE
    )
    events = cloudml("tensorboard", "events", "curves").good().out
    assert "framework was ignored" in events

    def described() -> dict[str, str]:
        return fields(cloudml("tensorboard", "describe", "curves").good().out)

    eventually(lambda: described()["State"] == "running", "it runs", limit_s=120)
    opened = described()["Address"]
    browser = Browser(urlsplit(opened).port or 0)
    assert browser.get(opened).status == 303
    page = browser.get(opened.partition("/-/")[0] + "/")
    assert b"<title>TensorBoard</title>" in page.body
    refused = cloudml("tensorboard", "create", "-n", "other", "-l", "hdfs://x/y")
    assert (refused.code, "logdir is" in refused.out) == (1, True)
    assert "deleting" in cloudml("tensorboard", "delete", "curves").good().out
