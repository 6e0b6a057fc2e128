"""Jobs of several tasks, from the command line to the last line of a log."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.request import urlopen

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.jobs.job import Job
from cloud_ml.models.jobs.train_job import TrainJob
from support.server import RealServer

Run = Callable[..., tuple[Job, str]]

MEETING = """
import json, os, socket, sys
cluster = json.loads(os.environ["CLOUDML_CLUSTER"])
name = os.environ["CLOUDML_ROLE"] + "-" + os.environ["CLOUDML_INDEX"]
without_sandbox = cluster["worker"][0].startswith("127.0.0.1:")
assert without_sandbox or socket.gethostname() == name
open(os.path.join(os.environ["CLOUDML_TASK_DIR"], "mine"), "w").close()
if name == "worker-0":
    listener = socket.create_server(("", int(os.environ["CLOUDML_PORT"])))
    for _ in cluster["worker"][1:]:
        connection, _ = listener.accept()
        print("met", connection.makefile().readline().strip(), flush=True)
else:
    host, port = cluster["worker"][0].rsplit(":", 1)
    while True:
        try:
            connection = socket.create_connection((host, int(port)))
            break
        except ConnectionRefusedError:
            pass
    connection.sendall((name + chr(10)).encode())
    print("arguments", sys.argv[1:], flush=True)
print("cluster", *cluster["worker"])
open(name + ".txt", "w").close()
"""
"""The first worker waits until all others have told it their names."""


def test_tasks_meet_under_their_names(run: Run, client: CloudMlClient) -> None:
    job, log = run("meeting", MEETING, worker_count=3, recipe="cluster", framework="python")
    assert job.succeeded, log
    assert sorted(line for line in log.splitlines() if " met " in line) == [
        "[worker-0] met worker-1",
        "[worker-0] met worker-2",
    ]
    assert job.outputs is not None
    assert job.outputs.files == 3  # all tasks share one working directory
    (cluster,) = set(re.findall(r" cluster (.+)", log))
    # Without a mount table of its own, a job knows its tasks by addresses.
    without_sandbox = [
        one.replace("127.0.0.1", f"worker-{n}") for n, one in enumerate(cluster.split())
    ]
    assert [task.address for task in job.tasks] == without_sandbox
    assert {task.node for task in job.tasks} == {job.node}
    own = b"".join(client.get_train_job("meeting").logs(task="worker-1")).decode()
    assert "arguments []\n" in own
    assert "[worker-1]" not in own


def test_roles_have_limits_and_arguments_of_their_own(run: Run) -> None:
    roles: dict[str, Any] = {
        "master": {"count": 1, "task_args": "--lead"},
        "ps": {"count": "1", "memory_limit": "64M"},
    }
    source = """
import os, sys, time
print("argv", sys.argv[1:], flush=True)
if os.environ["CLOUDML_ROLE"] == "ps":
    open("up", "w").close()
    time.sleep(600)
while not os.path.exists("up"):
    time.sleep(0.01)
"""
    job, log = run("roles", source, cluster_spec=roles, recipe="cluster", framework="python")
    assert job.succeeded, log
    assert "[master-0] argv ['--lead']" in log
    assert "[ps-0] argv []" in log


def test_a_task_that_fails_ends_the_job_and_is_named(run: Run, server: RealServer) -> None:
    source = """
import os, sys, time
if os.environ["CLOUDML_INDEX"] == "1":
    sys.exit(3)
time.sleep(600)
"""
    job, _ = run("failing", source, worker_count=2, recipe="cluster", framework="python")
    assert (job.phase, job.reason, job.exit_code) == ("Failed", "NoProgress", 3)
    assert "worker-1 exited with code 3" in job.message
    shown = server.cli("jobs", "describe", "failing").good().out
    assert re.search(r"worker-0 +Cancelled +worker-0:\d+ +0 ", shown)
    assert re.search(r"worker-1 +NonZeroExit +worker-1:\d+ +0 ", shown)


def test_code_without_a_recipe_runs_nothing(
    client: CloudMlClient, code: Callable[..., str]
) -> None:
    job = TrainJob("plain", "trainer.task", code("print('ran')"), worker_count=1, max_retries=3)
    handle = client.submit_train_job(job)
    ended = handle.wait(60)
    assert (ended.phase, ended.reason, ended.attempt) == ("Failed", "NoDistributedRecipe", 1)
    assert "--recipe pytorch sets RANK, WORLD_SIZE and MASTER_ADDR" in ended.message
    assert "--recipe cluster" in ended.message
    assert b"ran" not in b"".join(handle.logs())


def test_a_job_that_is_stopped_stops_all_tasks(
    client: CloudMlClient, code: Callable[..., str]
) -> None:
    source = "import time; print('up', flush=True); time.sleep(600)"
    job = TrainJob("stopped-gang", "trainer.task", code(source), worker_count=2, recipe="cluster")
    handle = client.submit_train_job(job)
    up: set[bytes] = set()
    for chunk in handle.logs(follow=True):
        up.update(line for line in chunk.splitlines() if line.endswith(b"] up"))
        if len(up) == 2:
            break
    handle.cancel()
    ended = handle.wait(60)
    assert (ended.phase, ended.reason) == ("Stopped", "Cancelled")
    assert [(task.name, task.reason, task.message) for task in ended.tasks] == [
        ("worker-0", "Cancelled", "stopped with the whole job"),
        ("worker-1", "Cancelled", "stopped with the whole job"),
    ]


def test_the_log_of_one_role(run: Run, client: CloudMlClient) -> None:
    source = """
import os
for number in range(3):
    print(os.environ["CLOUDML_ROLE"], number)
"""
    roles = {"worker": {"count": 2}, "chief": {}}
    job, log = run("by-role", source, cluster_spec=roles, recipe="cluster", framework="python")
    handle = client.get_train_job("by-role")

    def lines(**selection: Any) -> list[str]:
        return b"".join(handle.logs(installation=False, **selection)).decode().splitlines()

    chief = [f"[chief-0] chief {number}" for number in range(3)]
    assert lines(role="chief") == lines(role="chief", follow=True) == chief, log
    assert lines(role="chief", lines=2) == lines(role="chief", lines=2, follow=True) == chief[1:]
    assert {line[:10] for line in lines(role="worker")} <= {"[worker-0]", "[worker-1]"}
    assert lines(role="chief", since=job.created_at) == chief
    with pytest.raises(InvalidRequest, match="one of chief, worker"):
        lines(role="ps")
    with pytest.raises(InvalidRequest, match="together with task"):
        lines(role="worker", task="worker-0")


def test_a_task_that_fails_starts_again_alone(
    run: Run, client: CloudMlClient, server: RealServer
) -> None:
    source = """
import os, sys, time
restart = os.environ["CLOUDML_TASK_RESTART"]
print("start", restart, flush=True)
if os.environ["CLOUDML_INDEX"] == "0":
    while not os.path.exists("done"):
        time.sleep(0.01)
elif restart == "0":
    sys.exit(3)
else:
    open("done", "w").close()
"""
    job, log = run(
        "again", source, worker_count=2, recipe="cluster", framework="python", task_retries=2
    )
    assert job.succeeded, log
    assert job.attempt == 1
    assert [task.restarts for task in job.tasks] == [0, 1]
    shown = json.loads(server.cli("jobs", "describe", "again", "-o", "json").good().out)
    last = [
        [one[f"last_{name}"] for name in ("reason", "exit_code", "signal")]
        for one in shown["tasks"]
    ]
    assert last == [["", None, None], ["NonZeroExit", 3, None]]
    live = [(one.last_reason, one.last_exit_code) for one in client.train_job_tasks("again")]
    assert live == [("", None), ("NonZeroExit", 3)]
    assert [line for line in log.splitlines() if "start " in line or "starts again" in line][-3:-1]
    assert "[worker-1] cloudml: worker-1 starts again (1): worker-1 exited with code 3" in log
    assert log.count("[worker-0] start 0") == 1
    assert log.index("[worker-1] start 0") < log.index("[worker-1] start 1")
    restarts = [
        event for event in client.train_job_events("again") if event.reason == "TaskRestarted"
    ]
    assert len(restarts) == 1
    assert re.match(
        r"worker-1 starts again \(restart 1 of attempt 1\) after [0-9.]+s: worker-1 exited with code 3",
        restarts[0].message,
    )


def test_a_task_that_fails_quickly_again_and_again_says_so_and_nothing_of_earlier_ends(
    run: Run,
) -> None:
    source = """
import os, sys, time
if os.environ["CLOUDML_INDEX"] == "0":
    time.sleep(600)
if os.environ["CLOUDML_TASK_RESTART"] == "0":
    print("only the first one says anything")
sys.exit(3)
"""
    job, log = run(
        "quick",
        source,
        worker_count=2,
        recipe="cluster",
        framework="python",
        task_retries=9,
        max_retries=0,
    )
    assert [task.restarts for task in job.tasks] == [0, 2], log
    why = "it does not start again alone: 3 starts in a row failed within 60 s"
    assert job.message.startswith(f"worker-1 exited with code 3; {why}"), job.message


def test_a_task_is_restarted_by_hand(
    client: CloudMlClient, code: Callable[..., str], server: RealServer
) -> None:
    source = """
import os, time
from cloud_ml import job
restart = os.environ["CLOUDML_TASK_RESTART"]
if os.environ["CLOUDML_INDEX"] == "1":
    assert job.notice() is None
    told = []
    job.on_preempt(lambda: told.append(job.notice().reason))
    print("start", restart, flush=True)
    if restart == "1":
        open("done", "w").close()
    while not told and restart == "0":  # the notice is there before the signal
        time.sleep(0.01)
    print("told", *told, flush=True)
else:
    while not os.path.exists("done"):
        time.sleep(0.01)
"""
    fields: dict[str, Any] = {"worker_count": 2, "recipe": "cluster", "framework": "python"}
    job = client.submit_train_job(
        TrainJob("one-by-hand", "trainer.task", code(source), task_retries=1, **fields)
    )
    for chunk in job.logs(follow=True):
        if b"start 0" in chunk:
            break
    output = server.cli("jobs", "restart", "one-by-hand", "--task", "worker-1").good().out
    assert output == "worker-1 of one-by-hand is being restarted\n"
    ended = job.wait(60)
    log = b"".join(job.logs(task="worker-1")).decode()
    assert ended.succeeded, log
    assert [task.restarts for task in ended.tasks] == [0, 1]
    assert "told Restarting\n" in log
    assert "cloudml: worker-1 starts again (1): ended on request, to start again\n" in log
    events = {event.reason: event for event in job.events()}
    assert events["RestartRequested"].message.startswith("restart of worker-1 requested by ")
    assert events["TaskRestarted"].type == "Normal"


def test_a_task_that_the_others_need_is_not_restarted_alone(
    client: CloudMlClient, code: Callable[..., str], server: RealServer
) -> None:
    source = "import time; print('up', flush=True); time.sleep(600)"
    job = client.submit_train_job(
        TrainJob(
            "as-one",
            "trainer.task",
            code(source),
            worker_count=2,
            recipe="pytorch",
            framework="python",
        )
    )
    for chunk in job.logs(follow=True):
        if b"up" in chunk:
            break
    refused = server.cli("jobs", "restart", "as-one", "--task", "worker-1")
    assert refused.code == 1
    assert "with recipe pytorch, the other tasks would not go on" in refused.err
    assert "cloudml jobs restart as-one" in refused.err
    several = server.cli("jobs", "restart", "as-one", "one-by-hand", "--task", "worker-1")
    assert "--task is a task of one job" in several.err
    job.cancel(grace="0")


def test_restarts_are_told_counted_and_say_what_they_cost(
    run: Run, client: CloudMlClient, server: RealServer
) -> None:
    source = """
import os, sys
from cloud_ml import job
if os.environ["CLOUDML_INDEX"] == "1":
    path = os.path.join(os.environ["CLOUDML_CHECKPOINT_DIR"], "ckpt-1")
    if os.environ["CLOUDML_TASK_RESTART"] == "0":
        open(path, "w").close()
        job.saved(path, step=1)
        sys.exit(3)
    assert os.environ["CLOUDML_RESTORE_FROM"] == path
    if os.environ["CLOUDML_ATTEMPT"] == "1":
        sys.exit(4)
"""
    job, log = run(
        "from-checkpoints",
        source,
        worker_count=2,
        recipe="cluster",
        framework="python",
        restart={"rules": [{"exit_codes": [3], "action": "restart-task"}]},
    )
    messages = {
        event.reason: event.message for event in client.train_job_events("from-checkpoints")
    }
    assert "after " in messages["TaskRestarted"], log
    assert "s, from step 1 (ckpt-1): worker-1 exited with code 3" in messages["TaskRestarted"]
    assert messages["Restarting"].startswith("worker-1 exited with code 4"), messages
    assert messages["Restarting"].endswith("s; its newest checkpoint is step 1 (ckpt-1)"), messages
    assert (job.attempt, job.phase) == (2, "Succeeded"), log
    known = job.recoveries
    assert known is not None
    assert (known.count, known.last.whole, known.last.reason) == (3, False, "NonZeroExit")
    assert set(known.last.stages) == {"detect", "end", "stage", "start"}
    assert 0 < known.last.recovery_s < known.recovery_s
    shown = server.cli("jobs", "describe", "from-checkpoints").good().out
    assert re.search(r"^Work lost: .+ the last time, .+ in 3 restarts$", shown, re.MULTILINE)
    assert re.search(r"^Time to recover: .+ the last time, .+ in 3 restarts$", shown, re.MULTILINE)
    with urlopen(f"{server.endpoint}/metrics", timeout=10) as answer:
        counted = answer.read().decode()
    for name in ("task", "job"):
        assert f'cloudml_{name}_restarts_total{{role="worker",reason="NonZeroExit"}}' in counted
        assert f'cloudml_lost_work_seconds_count{{of="{name}"}}' in counted
    for stage in ("detect", "end", "stage", "start"):
        assert f'cloudml_recovery_seconds_count{{of="job",stage="{stage}"}}' in counted


def test_a_restart_that_somebody_asked_for_is_no_failure(client: CloudMlClient, code: Any) -> None:
    source = """
import os, signal, sys
print("restart", os.environ["CLOUDML_TASK_RESTART"], flush=True)
if os.environ["CLOUDML_INDEX"] == "0" or os.environ["CLOUDML_TASK_RESTART"] == "0":
    signal.pause()
elif os.environ["CLOUDML_TASK_RESTART"] == "1":
    sys.exit(3)
signal.pause()
"""
    job = TrainJob(
        "asked-and-failed",
        "trainer.task",
        code(source),
        worker_count=2,
        recipe="cluster",
        framework="python",
        task_retries=2,
    )
    handle = client.submit_train_job(job)
    read = b""
    for chunk in handle.logs(follow=True):
        read += chunk
        if read.count(b"] restart 0") == 2 and b"asked" not in read:
            handle.restart(task="worker-1")
            read += b"asked"
        if b"[worker-1] restart 2" in read:
            break
    while handle.job.recoveries is None:
        handle.await_change()
    assert handle.job.recoveries.count == 1
    assert handle.job.recoveries.last.reason == "NonZeroExit"
    handle.cancel()
    assert handle.wait(60).recoveries == handle.job.recoveries


def test_all_tasks_start_again_by_default(run: Run, client: CloudMlClient) -> None:
    source = """
import os, sys
with open(os.path.join(os.environ["CLOUDML_TASK_DIR"], "ports"), "a") as ports:
    print(os.environ["CLOUDML_PORT"], file=ports)
if os.environ["CLOUDML_ATTEMPT"] == "1" and os.environ["CLOUDML_INDEX"] == "1":
    sys.exit(7)
used = open(os.path.join(os.environ["CLOUDML_TASK_DIR"], "ports")).read().split()
print("ports", len(used), len(set(used)))
"""
    job, log = run("together", source, worker_count=2, recipe="cluster", framework="python")
    assert job.succeeded, log
    assert (job.attempt, job.retries_used, job.max_retries) == (2, 1, 3)
    # Whether code with sockets of its own could listen on the same ports again is not known.
    assert "[worker-1] ports 2 2" in log
    messages = [event.message for event in client.train_job_events("together")]
    assert any("attempt 2 in 1 s (retry 1 of 3)" in message for message in messages), messages


def test_tasks_of_a_framework_that_can_listen_again_keep_their_ports(run: Run) -> None:
    source = """
import os, socket, sys, time
here, rank = os.environ["CLOUDML_TASK_DIR"], int(os.environ["RANK"])
master = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
with open(os.path.join(here, "ports"), "a") as ports:
    print(os.environ["CLOUDML_PORT"], file=ports)
if rank == 0:  # as PyTorch's TCPStore: it closes first, so that the system keeps the connection
    with socket.create_server(("", master[1])) as server:
        server.accept()[0].close()
else:
    while True:
        try:
            socket.create_connection(master).recv(1)
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
if os.environ["CLOUDML_ATTEMPT"] != "3":
    sys.exit(7)
print("ports", len(set(open(os.path.join(here, "ports")).read().split())))
"""
    job, log = run("the-same", source, worker_count=2, recipe="pytorch", framework="python")
    assert job.succeeded, log
    assert job.attempt == 3
    assert "[worker-0] ports 1" in log
    assert "[worker-1] ports 1" in log


def test_the_restarts_of_single_tasks_are_counted_over_attempts(
    run: Run, client: CloudMlClient
) -> None:
    source = """
import os, sys
attempt, restart = os.environ["CLOUDML_ATTEMPT"], os.environ["CLOUDML_TASK_RESTART"]
if os.environ["CLOUDML_INDEX"] == "1":
    sys.exit(0 if attempt == "3" else 5 if (attempt, restart) == ("1", "1") else 3)
"""
    job, log = run(
        "counted",
        source,
        worker_count=2,
        recipe="cluster",
        framework="python",
        task_retries=2,
        restart={"rules": [{"exit_codes": [5], "action": "restart-gang"}]},
    )
    assert job.succeeded, log
    assert (job.attempt, job.retries_used, job.task_restarts_used) == (3, 2, 2)
    messages = [event.message for event in client.train_job_events("counted")]
    assert any("(restart 1 of attempt 2)" in message for message in messages), messages
    assert not any("(restart 2 of attempt 2)" in message for message in messages), messages
    used_up = "used up (task_retries 2, of which 1 in earlier attempts)"
    assert any(used_up in message for message in messages), messages


def test_a_rule_says_what_an_exit_code_means(run: Run, client: CloudMlClient) -> None:
    job, log = run(
        "final",
        "import sys; sys.exit(7)",
        worker_count=2,
        recipe="cluster",
        framework="python",
        restart={"rules": [{"exit_codes": [7], "roles": ["worker"], "action": "fail"}]},
    )
    assert (job.phase, job.attempt, job.exit_code) == ("Failed", 1, 7), log
    assert "restart.rules: 7 of worker means fail" in client.train_job_events("final")[-1].message


def test_a_rule_says_what_a_text_in_the_log_means(run: Run, client: CloudMlClient) -> None:
    rules = [{"log": "out of luck", "action": "fail"}]
    source = "import sys\nprint('the GPU is out of luck')\nsys.exit(7)"
    job, log = run("lucky", source, max_retries=3, restart={"rules": rules})
    assert (job.phase, job.attempt, job.exit_code) == ("Failed", 1, 7), log
    message = client.train_job_events("lucky")[-1].message
    assert "restart.rules: any exit code of any role with 'out of luck' in its log means" in message


def test_a_rule_says_what_a_match_in_the_log_means(run: Run, client: CloudMlClient) -> None:
    rules = [
        {"log_pattern": "^CUDA error", "action": "fail"},
        {"log_pattern": r"CUDA error: (out of memory|\w+ failed)$", "action": "free"},
        {"log_pattern": "give up", "action": "fail"},
    ]
    source = (
        "import os, sys\n"
        "again = os.environ['CLOUDML_ATTEMPT'] != '1'\n"
        "print('give up' if again else 'RuntimeError: CUDA error: launch failed')\n"
        "print('bye')\nsys.exit(7)"
    )
    job, log = run("matched", source, max_retries=3, restart={"rules": rules})
    assert (job.phase, job.attempt, job.exit_code) == ("Failed", 2, 7), log
    message = client.train_job_events("matched")[-1].message
    assert "any exit code of any role with a match of 'give up' in its log means fail" in message


def test_a_pattern_of_a_rule_that_is_no_re2_is_refused(
    client: CloudMlClient, code: Callable[..., str]
) -> None:
    rules = [{"log": "a", "action": "fail"}, {"log_pattern": r"(a)\1", "action": "fail"}]
    job = TrainJob("unmatched", "trainer.task", code(""), restart={"rules": rules})
    with pytest.raises(InvalidRequest, match="RE2 pattern") as refused:
        client.submit_train_job(job)
    assert refused.value.field == "restart.rules[1].log_pattern"
    assert refused.value.value == r"(a)\1"


def test_a_line_that_a_failed_task_has_begun_ends_before_the_platforms(
    run: Run, client: CloudMlClient
) -> None:
    source = """
import os, sys
sys.stdout.write("half a line")
sys.exit(3 if os.environ["CLOUDML_TASK_RESTART"] == "0" else 0)
"""
    job, log = run(
        "half", source, worker_count=2, recipe="cluster", framework="python", task_retries=2
    )
    assert job.succeeded, log
    own = b"".join(client.get_train_job("half").logs(task="worker-1")).decode()
    assert own.startswith("half a line\ncloudml: worker-1 starts again (1): ")
    lines = log.splitlines()
    assert lines.count("[worker-1] half a line") == 2
    assert any(line.startswith("[worker-1] cloudml: worker-1 starts again (1)") for line in lines)


def test_a_recipe_also_holds_for_one_task(run: Run) -> None:
    source = """
import os, socket
print(socket.gethostbyname(socket.gethostname()), os.environ["CLOUDML_CLUSTER"])
"""
    job, log = run("alone", source, recipe="cluster", framework="python")
    assert job.succeeded, log
    assert '127.0.0.1 {"master": ["' in log
