"""Files of a server's own machine: settings, the ledger, logs, control groups. A crash may have
torn them.
"""

from __future__ import annotations

import contextlib
import os

from cloud_ml.domain.observed import ObservedGang
from cloud_ml.engines.abilities import LogView
from cloud_ml.engines.gang import GangKey
from cloud_ml.engines.local.cgroups import files, finding
from cloud_ml.engines.local.cleanup import stale_processes
from cloud_ml.engines.local.ledger import Gate, Ledger
from cloud_ml.engines.local.logs.logfile import LogReader
from cloud_ml.engines.local.logs.logview import ShownLog
from cloud_ml.errors import InvalidRequest
from cloud_ml.objects.local.noted import Notes
from cloud_ml.settings import load
from fuzz.harness import pieces, scratch, target, text

KEY = GangKey("a" * 8, 1)


@target(
    "settings.loading",
    "settings.checks",
    seeds=['[server]\nport = 80\n[engine]\nsandbox = "auto"\ndefault_memory = '
           '"1G"\n', "server = 5", "a=" + "[" * 3000, "[server]\nport = "
                                                                                                                        "1e999",
           '[quota]\ntrain_cpu = '
           '"x"', "[api]\nheartbeat_s = "
                                       "nan", "[server]\nport = " + "9" * 5000, "[server]\nheader_timeout_s = "
                                                                                                     "1" + "0" * 400],
    words=["[server]", "[engine]", "[api]", "[quota]", "[environments]", "port", "sandbox", "pythons", "=", '"', "inf", "nan", "true", "-1"],
)  # fmt: skip
def server_settings(data: bytes) -> None:
    """Refused as a setting, or settings that are complete."""
    with scratch() as folder:
        file = folder / "server.toml"
        file.write_bytes(data)
        with contextlib.suppress(InvalidRequest):
            load(file)
        value = data.decode("utf-8", "surrogateescape").replace("\0", "")
        for name in (
            "CLOUDML_SERVER_PORT",
            "CLOUDML_API_HEARTBEAT_S",
            "CLOUDML_ENGINE_SANDBOX",
            "CLOUDML_QUOTA_TRAIN_CPU",
        ):
            with contextlib.suppress(InvalidRequest):
                load(environment={name: value})


@target(
    "engines.local.ledger",
    "engines.local.cleanup.stale_processes",
    seeds=['{"pid": 1, "started": 2, "boot": "x"}\0{"job_uid": "aaaaaaaa", "attempt": 1, "state": '
           '"Running"}\x005.0', "\0\0", '{"pid": "x"}\0[]\0nan',
           "[]\0{}\0-1", '{"pid": 0}\0\0', "\0{", '{"pid": 4194305, "started": 1, "boot": '
                                                  '""}\0' + "[" * 3000 + "\0inf"],
    words=['"pid"', '"started"', '"boot"', '"state"', '"Running"', '"Lost"', '"processes"', "[]", "null"],
)  # fmt: skip
def ledger_files(data: bytes) -> None:
    """A gate whose content is gone still bars the gang; a report or a wish that cannot be read
    is none.
    """
    gate, report, stop = pieces(data, 3)
    with scratch() as folder:
        ledger = Ledger(folder)
        ledger.create()
        (ledger.gates / str(KEY)).write_bytes(gate)
        (ledger.reports / f"{KEY}.json").write_bytes(report)
        (ledger.stops / str(KEY)).write_bytes(stop)
        ledger.attempt_folder(KEY).mkdir(parents=True)
        (ledger.attempt_folder(KEY) / "groups").write_bytes(report)
        assert isinstance(ledger.gate(KEY), Gate)
        assert not ledger.claim(KEY)
        assert isinstance(ledger.observe(KEY), ObservedGang)
        grace = ledger.stop_requested(KEY)
        assert grace is None or grace >= 0
        assert all(isinstance(name, str) for name in stale_processes.group_names(ledger, KEY))
        assert ledger.attempts(KEY.job_uid) == [1]


@target(
    "engines.local.logs.logfile",
    "engines.local.logs.logview",
    seeds=["a\nb\x00999999999999.0 "
           "0\n\x001\n2\n","hello\nworld\n\x001767225600.000 0\n1767225601.500 "
                                                  "6\n\x0000000000000000000020", "\0\0\0", "a\0nan inf\n\0x", "a\0" + "\0\0\0\n1 2 3\n\0-5",
           "x\n" * 50 + "\x001 1\n2 " + "9" * 5000 + "\n\x0099"],
    words=["1767225600.000 ", "nan", "inf", "-1", "\n", "00000000000000000005"],
)  # fmt: skip
def log_files(data: bytes) -> None:
    """A log is read to its end whatever became of the times that are noted beside it."""
    content, marks, tail = pieces(data, 3)
    with scratch() as folder:
        (folder / "t.log").write_bytes(content)
        (folder / "t.times").write_bytes(marks)
        with contextlib.suppress(OSError):
            (
                folder / f"t.tail-{text(tail).replace('/', '').replace(chr(0), '')[:100]}.log"
            ).write_bytes(b"tail")
        LogReader(folder, "t").skip_to_last_lines(3)
        reader = LogReader(folder, "t")
        assert reader.skip_to(1767225601.0) >= 0
        reader = LogReader(folder, "t")
        found = b""
        for _ in range(100):
            if not (chunk := reader.read()):
                break
            found += chunk
        assert found.startswith(content)
        (folder / "t.code").write_bytes(tail)
        code = ShownLog(folder, "t", LogView(installation=False)).select(0, len(content), content)
        assert code in content
        stamped = ShownLog(folder, "t", LogView(timestamps=True)).select(0, len(content), content)
        assert len(stamped) == len(content) + 25 * (
            content.count(b"\n") + (not content.endswith(b"\n") and content != b"")
        )


@target(
    "engines.local.cgroups.files",
    seeds=["5\n\x0011:memory:/x\n0::/y\n", "low 0\noom_kill 3\n\0", "max\0a\n", "\u00b2\x001:name=systemd,cpu:/", "9" * 5000 + "\0::::"],
    words=["oom_kill ", "max", ":", ",", "memory", "0::/", "\n"],
)  # fmt: skip
def control_groups(data: bytes) -> None:
    """A number, numbers, a table, or none of them; without groups a sentence says so."""
    content, own = pieces(data, 2)
    with scratch() as folder:
        (folder / "file").write_bytes(content)
        assert isinstance(files.number(folder / "file"), int)
        assert all(isinstance(one, int) for one in files.numbers(folder / "file"))
        assert all(isinstance(one, int) for one in files.table(folder / "file").values())
        hierarchy, why = finding.find(
            "x", root=folder / "no", own=own.decode("latin-1").replace("m", "n")
        )
        assert hierarchy is None
        assert why


@target(
    "objects.local.noted",
    seeds=[
        "a" * 64 + " 1 " + "b" * 64,
        "a" * 64 + " 99999999999999999999 " + "b" * 64,
        "",
        b"\xff" * 20,
    ],
    words=[" ", "0", "f"],
)
def noted_digest(data: bytes) -> None:
    """A job writes what it likes beside its file: it is not believed."""
    with scratch() as folder:
        notes = Notes(folder)
        file = os.open(folder / "object", os.O_RDWR | os.O_CREAT)
        try:
            with contextlib.suppress(OSError):
                os.setxattr(file, "user.cloudml.sha256", data[:1000])
            assert notes.noted(file) is None
        finally:
            os.close(file)
