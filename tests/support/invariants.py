"""What must hold after any fault, said once: nothing acknowledged is lost, nothing runs twice,
nothing is left.

Each function returns sentences about what does not hold; none is good. Jobs made from ``WITNESS``
leave what is needed to tell in a folder of the default bucket.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from cloud_ml.client import CloudMlClient
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.engines.gang import GangKey
from cloud_ml.engines.local import cgroups
from cloud_ml.engines.local.network import pins
from cloud_ml.engines.local.network.pins import Pins
from cloud_ml.errors import CloudMlError, NotFound
from cloud_ml.models.jobs.job import Job
from cloud_ml.process_handles import with_log_in
from cloud_ml.sdk.jobs.handles import JobHandle
from cloud_ml.settings import EngineSettings
from cloud_ml.settings.gateway import ports_of
from support.event_files import EVENT_WRITER
from support.machine import spawner_pid
from support.server import RealServer, eventually

LINES = 20
OUTPUTS = 3
STARTED_TASK = """
import fcntl, os, pathlib, sys, time
place = pathlib.Path(sys.argv[1])
place.mkdir(parents=True, exist_ok=True)
task = os.environ["CLOUDML_ROLE"] + "-" + os.environ["CLOUDML_INDEX"]
attempt, restart = os.environ["CLOUDML_ATTEMPT"], os.environ["CLOUDML_TASK_RESTART"]
lock = open(place / ("lock-" + task), "a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    (place / "overlap").write_text(task)
with open(place / "starts", "a") as starts:
    starts.write(f"{task}, attempt {attempt}, restart {restart}" + chr(10))
"""
"""The beginning of a task: each start leaves a line, and two at once leave the file ``overlap``."""
TEAM = f"""{STARTED_TASK}done = place / ("done-" + attempt)
if task == "worker-1" and restart == "0":
    sys.exit(3)
if task == "worker-1":
    done.touch()
while not done.exists():
    time.sleep(0.01)
"""
"""Of two tasks, the second fails, starts again and then lets both end. Each start leaves a
line.
"""
WITNESS = f"""
import fcntl, os, pathlib, sys, time
try:
    from cloud_ml.job import report
except ImportError:  # below a server of before
    def report(step, **metrics):
        pass
attempt = os.environ["CLOUDML_ATTEMPT"]
place = pathlib.Path(sys.argv[1])
place.mkdir(parents=True, exist_ok=True)
lock = open(place / "lock", "a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    (place / "overlap").write_text(attempt)
pathlib.Path("model").mkdir(exist_ok=True)
for number in range({OUTPUTS}):
    pathlib.Path("model", str(number)).write_text(f"output {{number}}")
with open(place / "runs", "a") as runs:
    runs.write(attempt + "\\n")
for number in range({LINES}):
    print("line", attempt, number, flush=True)
    report(number, witnessed=int(attempt))
    time.sleep(0.002)
if "forever" in sys.argv:
    time.sleep(3600)
while "wait" in sys.argv and not (place / "go").exists():
    time.sleep(0.02)
sys.exit(3 if "fail" in sys.argv and attempt == "1" else 0)
"""
WITNESS_OF_FILES = f"""{EVENT_WRITER}
written = opened("../logs", int(os.environ["CLOUDML_ATTEMPT"]))
for number in range({LINES}):
    written.write(scalar("logged_to_file", float(os.environ["CLOUDML_ATTEMPT"]), number))
    written.write(summary("weights", 5, b"histogram", number))
written.close()
{WITNESS}"""
"""The same, and points and histograms in an event file and points in its log; see ``PATTERNS``."""
PATTERNS = [r"^line (?P<logged>\d+) (?P<step>\d+)"]
_STATE, _LISTENS = 3, "0A"
"""The column of the kernel's tables of sockets, and what it says there."""
_PORTS_OF_TASKS = ports_of(EngineSettings().ports)
_GROUPS_AHEAD = 8
"""Four that are ready, and those of four supervisors that wait."""


class Watcher(threading.Thread):
    """Looks at jobs until told that it is enough, and notes the order of every state that it is
    shown.
    """

    def __init__(self, client: CloudMlClient, names: Collection[str]) -> None:
        super().__init__(daemon=True)
        self.seen: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._enough = threading.Event()
        self._client = client
        self._names = names

    def run(self) -> None:
        ended: set[str] = set()
        while not self._enough.wait(0.01):
            for name in [name for name in tuple(self._names) if name not in ended]:
                with contextlib.suppress(CloudMlError):
                    job = self._client.describe_train_job(name)
                    self.seen[name].append(
                        WorkloadStatus(Phase(job.phase), attempt=job.attempt).order
                    )
                    if job.finished:
                        ended.add(name)

    def wrong(self) -> list[str]:
        """Stop looking; the jobs whose states went backwards."""
        self._enough.set()
        self.join(60)
        return [
            f"{name} went backwards: {orders}"
            for name, orders in self.seen.items()
            if orders != sorted(orders)
        ]


def started_twice(name: str, place: Path) -> list[str]:
    """Whether tasks of a job made from ``TEAM`` ran twice, at the same time or by the same
    start.
    """
    wrong = []
    if (place / "overlap").exists():
        wrong.append(f"{(place / 'overlap').read_text()} of {name} ran twice at the same time")
    starts = (place / "starts").read_text().splitlines() if (place / "starts").exists() else []
    wrong += [
        f"{name}: the start {start} happened twice"
        for start in set(starts)
        if starts.count(start) > 1
    ]
    return wrong


def lost(client: CloudMlClient, names: Iterable[str]) -> list[str]:
    """Acknowledged jobs that the server does not know."""
    wrong = []
    for name in names:
        try:
            client.describe_train_job(name)
        except NotFound:
            wrong.append(f"{name} was acknowledged and is lost")
    return wrong


def ran_twice(name: str, place: Path) -> list[str]:
    """Attempts of the job that ran more than once, or beside another. ``place`` is what the
    witness was given.
    """
    wrong = []
    runs = place / "runs"
    attempts = runs.read_text().split() if runs.exists() else []
    if len(set(attempts)) != len(attempts):
        wrong.append(f"{name} ran an attempt twice: {attempts}")
    if attempts != sorted(attempts, key=int):
        wrong.append(f"{name} ran its attempts out of order: {attempts}")
    if (place / "overlap").exists():
        wrong.append(
            f"{name} ran two attempts at once: {(place / 'overlap').read_text()} beside another"
        )
    return wrong


def points_wrong(handle: JobHandle, attempt: int) -> list[str]:
    """A job of ``WITNESS_OF_FILES`` that has succeeded in ``attempt`` has each point of it once, and
    nothing of the attempts that it has replaced. Each of its histograms is counted once.
    """
    wrong = []
    expected = [(step, float(attempt)) for step in range(LINES)]
    for name in ("witnessed", "logged", "logged_to_file"):
        found = handle.points(name, most=10_000)
        if [(point.step, point.value) for point in found] != expected:
            wrong.append(f"{handle.name} has {len(found)} points of {name} for {LINES}")
    tags = [(tag.name, tag.kind, tag.last_step) for tag in handle.summaries()]
    if tags != [("weights", "histogram", LINES - 1)]:
        wrong.append(f"{handle.name} has the tags {tags}")
    # Those of attempts that were cut off count, too: how many there are is not known.
    counts = [tag.count for tag in handle.summaries()]
    if not all(LINES <= count <= LINES * attempt for count in counts):
        wrong.append(f"{handle.name} has {counts} histograms for {LINES} of attempt {attempt}")
    return wrong


def log_incomplete(
    name: str, log: bytes, attempts: Sequence[int], whole: Collection[int]
) -> list[str]:
    """Attempts of ``whole`` must have all their lines; the others, which were cut off, the first
    of theirs.
    """
    wrong = []
    for attempt in attempts:
        lines = [
            int(found) for found in re.findall(rb"^line %d (\d+)$" % attempt, log, re.MULTILINE)
        ]
        if lines != list(range(len(lines))) or (attempt in whole and len(lines) != LINES):
            wrong.append(
                f"{name} has these lines of attempt {attempt} in its log: {lines}; it ends "
                f"with {log[-200:]!r}"
            )
    return wrong


def outputs_wrong(client: CloudMlClient, job: Job) -> list[str]:
    """Outputs of a witness that ran and has ended: each is there once, as a whole, and summed up
    right.
    """
    found = {}
    for file in client.train_job_outputs(job.uid):
        with client.storage.open(file.uri) as body:
            found[file.path] = body.read()
    expected = {f"model/{number}": f"output {number}".encode() for number in range(OUTPUTS)}
    totals = (job.outputs.files, job.outputs.bytes, job.outputs.not_kept) if job.outputs else None
    if found == expected and totals == (OUTPUTS, sum(map(len, expected.values())), 0):
        return []
    return [f"{job.name} has the outputs {found}, and says {totals}"]


def left_behind(server: RealServer, *, mounted: int = 0, limit_s: float = 60.0) -> list[str]:
    """Whatever is there although no job runs: processes, control groups, mounts, temporary files,
    networks of gangs, and ports that are given out or listened on.

    What was ended a moment ago may take a moment to go.
    """
    found: list[str] = []

    def nothing() -> bool:
        found[:] = [
            *_processes(server),
            *_groups(server),
            *_temporary_files(server),
            *_mounts(server, mounted),
            *(f"the network {number} is left" for number in networks_of_gangs(server)),
            *_ports(server),
        ]
        return not found

    with contextlib.suppress(AssertionError):
        eventually(nothing, "nothing is left", limit_s=limit_s)
    return found


def _ports(server: RealServer) -> list[str]:
    """Ports that are still given out, and those of tasks that somebody listens on in the network of
    an organisation: the platform itself listens there on others. Where jobs share the machine's
    network, a leftover that listens is a process.
    """
    given_out = task_ports(server)
    found = [f"{given_out} ports of engine.ports are given out"] if given_out else []
    kept = Pins(server.findings.config.network.instance)
    for tenant in kept.slots():
        network = kept.path(tenant)
        listening = listeners_in(network) if pins.identity(network) else []
        left = [port for port in listening if any(port in ports for ports in _PORTS_OF_TASKS)]
        found += [f"somebody listens on port {port} of organisation {tenant}" for port in left]
    return found


def task_ports(server: RealServer) -> int:
    """How many of ``engine.ports`` the server has given out; a server that is down gives out none."""
    try:
        with urlopen(f"{server.endpoint}/metrics", timeout=10) as answer:
            figures = answer.read().decode()
    except URLError as error:
        if isinstance(error.reason, ConnectionRefusedError):
            return 0
        raise
    counted = re.search(r"^cloudml_task_ports (\d+)", figures, re.MULTILINE)
    assert counted is not None
    return int(counted[1])


def listeners_in(network: Path) -> list[int]:
    """The TCP ports that are listened on in a network that is mounted at a file."""
    words = ["nsenter", f"--net={network}", "cat", "/proc/self/net/tcp", "/proc/self/net/tcp6"]
    tables = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in tables.splitlines()]
    listening = [row[1] for row in rows if len(row) > _STATE and row[_STATE] == _LISTENS]
    return sorted({int(address.rpartition(":")[2], 16) for address in listening})


def _processes(server: RealServer) -> list[str]:
    """Processes of jobs of this server, and attempts that have a supervisor still."""
    ledger, found = server.ledger, []
    uids = set(ledger.known_jobs())
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            environment = Path(entry.path, "environ").read_bytes()
            mark = re.search(rb"(?:^|\0)CLOUDML_GANG=([^.\0]+)\.\d+", environment)
            if mark and mark[1].decode() in uids:
                found.append(f"process {entry.name} of {mark[0].decode()} is left")
    for uid in uids:
        for attempt in ledger.attempts(uid):
            seen = ledger.observe(GangKey(uid, attempt))
            if seen is not None and not seen.state.over:
                found.append(f"the attempt {uid}.{attempt} is {seen.state}")
    return found


def _groups(server: RealServer) -> list[str]:
    """Control groups beyond those made ahead, and members of them that are not the spawner's."""
    hierarchy = cgroups.restore(dict(server.findings.config.cgroups))
    if hierarchy is None:
        return []
    names = hierarchy.names()
    found = [f"{len(names)} control groups are left: {names}"] if len(names) > _GROUPS_AHEAD else []
    spawner = spawner_pid(server.data / "engine") or 0
    for name in names:
        strangers = [
            pid for pid in hierarchy.group(name).processes() if not _is_below(pid, spawner)
        ]
        found += [f"process {pid} is left in the control group {name}" for pid in strangers]
    return found


def networks_of_gangs(server: RealServer) -> set[int]:
    """Networks of gangs of this server. Those of organisations stay for the next job."""
    kept = Pins(server.findings.config.network.instance)
    of_organisations = {pins.identity(kept.path(tenant)) for tenant in kept.slots()}
    found = networks_of(server.data / "engine")
    return {one for one in found if one not in of_organisations}


def networks_of(engine: Path) -> set[int]:
    """The networks beside the machine's in which the spawner and the supervisors of an engine are,
    or that they keep.
    """
    pids = with_log_in(engine)
    return {number for pid in pids for number in _networks_of(pid)} - _networks_of(os.getpid())


def is_used(network: int) -> bool:
    """Whether any process of this machine is in a network, or keeps it."""
    pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
    return any(network in _networks_of(pid) for pid in pids)


def _networks_of(pid: int) -> set[int]:
    found: set[int] = set()
    links = [f"/proc/{pid}/ns/net"]
    with contextlib.suppress(OSError):
        links += [entry.path for entry in os.scandir(f"/proc/{pid}/fd")]
    for link in links:
        with contextlib.suppress(OSError):
            target = str(Path(link).readlink())
            if target.startswith("net:["):
                found.add(int(target[5:-1]))
    return found


def _is_below(pid: int, ancestor: int) -> bool:
    with contextlib.suppress(OSError, IndexError):
        while pid > 1:
            if pid == ancestor:
                return True
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def _temporary_files(server: RealServer) -> list[str]:
    data = server.data
    packages, uploads = data / "packages", data / "objects" / ".uploads"
    found = [
        *(data / "engine" / "ledger").glob("*/.*"),
        *(data / "engine" / "jobs").glob("*/*/tmp"),
        *(data / "engine" / "jobs").glob("*/*/venv"),
        *(data / "engine" / "jobs").glob("*/*/hosts"),
        *data.glob(".state.db.*"),
        *data.glob("*.new"),
        *(path for path in (packages.iterdir() if packages.exists() else ()) if path.is_file()),
        *(uploads.iterdir() if uploads.exists() else ()),
    ]
    return [f"{path.relative_to(data)} is left" for path in found]


def _mounts(server: RealServer, allowed: int) -> list[str]:
    places = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    ours = [place for place in places if place.startswith(f"{server.folder}/")]
    return [f"mounts are left: {ours}"] if len(ours) > allowed else []
