"""Load for a set time, and what the server has become of it. ``make soak``; two hours unless told
otherwise.

Two questions, one a run:

* Does it hold on to anything? Memory of server and spawner may grow by 10 %, descriptors
  and threads by 10 (``SOAK_S`` seconds of load).
* Does it lose anything? With ``SOAK_KILL_S=20`` the server is killed about every 20 seconds, and
  every job that was acknowledged must end as it should, once, with its whole log.

What was measured lies in ``.soak/``: ``samples.csv`` and a picture of it, ``samples.svg``.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from soak.load import Load
from soak.watch import Sample, Watch, growth
from support.environments import pack
from support.invariants import WITNESS
from support.machine import spawner_pid
from support.server import RealServer, serving, trainer

SECONDS = float(os.environ.get("SOAK_S", "7200"))
KILL_S = float(os.environ.get("SOAK_KILL_S", "0"))
RATE = float(os.environ.get("SOAK_RATE", "2"))
OUT = Path(os.environ.get("SOAK_OUT", ".soak"))
LIMITS = {"server_mb": 10.0, "spawner_mb": 10.0}
MOST_MORE = dict.fromkeys(("server_descriptors", "spawner_descriptors", "server_threads"), 10.0)
_SAMPLES = 400


def main() -> int:
    OUT.mkdir(exist_ok=True)
    watch = Watch()
    with tempfile.TemporaryDirectory(prefix="cloudml-soak-") as folder:
        settings = {"CLOUDML_ENGINE_STOP_GRACE_S": 1, "CLOUDML_CONTROLLER_MAX_RUNNING_JOBS": 4}
        with serving(Path(folder), **settings) as server:
            file = pack(trainer(Path(folder) / "code", WITNESS), Path(folder) / "soak-1.0.tar.gz")
            server.client().storage.upload(file, "fds://cloudml/soak-1.0.tar.gz")
            load = Load(server, "fds://cloudml/soak-1.0.tar.gz", rate=RATE)
            load.start()
            kills = drive(server, load, watch)
            load.stop()
            if load.wrong:
                shutil.copy(server.folder / "server.log", OUT)
            left = sum(1 for _ in server.client().list_train_jobs())
    watch.write(OUT)
    return report(load, watch, kills, left)


def drive(server: RealServer, load: Load, watch: Watch) -> int:
    """Watch, and kill now and then, until the time is over; returns how often the server was
    killed.
    """
    end, kills = time.monotonic() + SECONDS, 0
    next_kill = time.monotonic() + random.uniform(0.5, 1.5) * KILL_S if KILL_S else end
    next_words = time.monotonic() + 60
    while (now := time.monotonic()) < end:
        if now >= next_kill:
            server.kill()
            server.start()
            kills += 1
            next_kill = time.monotonic() + random.uniform(0.5, 1.5) * KILL_S
        elif server.process is not None:
            sample = watch.look(server.process.pid, spawner_pid(server.data / "engine") or 0)
            if now >= next_words:
                say(load, sample)
                next_words = now + 60
        time.sleep(max(0.5, SECONDS / _SAMPLES) if not KILL_S else 0.5)
    return kills


def say(load: Load, sample: Sample) -> None:
    """A line a minute."""
    done = ", ".join(f"{count} {what}" for what, count in sorted(load.done.items()))
    print(
        f"{sample.minutes:5.1f} min  {sample.server_mb:.0f} + {sample.spawner_mb:.0f} MB, "
        f"{sample.server_descriptors} + {sample.spawner_descriptors} descriptors, "
        f"{sample.server_threads} threads; {done}; {len(load.wrong)} wrong",
        flush=True,
    )


def report(load: Load, watch: Watch, kills: int, left: int) -> int:
    """Print what came out; 0 if all of it is as promised."""
    wrong = list(load.wrong)
    say(load, watch.samples[-1])
    print(f"killed {kills} times; {left} jobs are still listed")
    if not kills:
        for name in (*LIMITS, *MOST_MORE, "supervisors_mb", "processes"):
            grown = growth(watch.samples, name)
            words = f"{grown.before:8.1f} → {grown.after:8.1f}  ({grown.percent:+.1f} %, {grown.slope:+.2f} an hour)"
            print(f"{name:20} {words}")
            more = grown.after - grown.before
            if grown.percent > LIMITS.get(name, float("inf")) or more > MOST_MORE.get(
                name, float("inf")
            ):
                wrong.append(f"it holds on to {name}: {words}")
    for sentence in wrong[:50]:
        print("WRONG:", sentence)
    print("as promised" if not wrong else f"{len(wrong)} things are not as promised")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
