"""Every harness for a while: guided by coverage where atheris is installed, else by chance.
`make fuzz`.

::

    python tests/fuzz/run.py [--seconds 20] [--runs 0] [--slice N] [--workers 2] [target ...]

With ``--runs`` each harness gets the same so many inputs every time, where the time is enough: a
change is not held up by what luck finds beside it. ``--slice`` takes a third of the harnesses. What breaks a parser is added to
``tests/fuzz/corpus/<target>.txt``, where `make test` finds it from then on. What was learnt about
coverage stays in ``.cache/fuzz`` and serves the next run. Exit code 1: something broke.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT / "tests")  # not this folder: its modules are fuzz.…
WORK = ROOT / ".cache" / "fuzz"
LONGEST = 4096
SLOW_S = 10
MEMORY_MB = 1024
SEED = 2016
SLICES = 3


def guided(name: str, module: str, seconds: float, runs: int) -> None:
    """Run one harness under libFuzzer; ends the process."""
    import atheris

    from fuzz.harness import load

    with atheris.instrument_imports(include=["cloud_ml"]):
        one = load(module)[name]
    folder = WORK / name
    (folder / "corpus").mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(one.inputs()):
        (folder / "corpus" / f"known-{number}").write_bytes(data)
    words = "".join('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n' for word in one.words)
    (folder / "words").write_text(words)
    words_option = [f"-dict={folder / 'words'}"] if words else []
    options = [
        f"-max_total_time={max(1, round(seconds))}",
        f"-timeout={SLOW_S}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-max_len={LONGEST}",
        *words_option,
        f"-artifact_prefix={folder}/broke-",
        "-print_final_stats=1",
        *([f"-runs={runs}", f"-seed={SEED}"] if runs else []),
    ]
    atheris.Setup([sys.argv[0], *options, str(folder / "corpus")], one.run)
    atheris.Fuzz()


def by_chance(name: str, module: str, seconds: float, most: int) -> None:
    """Run one harness over changed inputs; the first that breaks it is left in its folder."""
    import random

    from fuzz.harness import load

    one, folder = load(module)[name], WORK / name
    folder.mkdir(parents=True, exist_ok=True)
    known, until, runs = one.inputs(), time.monotonic() + seconds, 0
    luck = random.Random(SEED if most else None)
    while time.monotonic() < until and (not most or runs < most):
        data = bytearray(luck.choice(known))
        for _ in range(luck.randint(0, 6)):
            at = luck.randint(0, len(data))
            piece = luck.choice([*one.words, luck.randbytes(luck.randint(1, 4)), b""])
            data[at : at + luck.randint(0, 4)] = piece
        try:
            one.run(bytes(data[:LONGEST]))
        except BaseException:
            (folder / f"broke-{time.time_ns()}").write_bytes(data)
            raise
        runs += 1
    print(f"stat::number_of_executed_units: {runs}")


def fuzzed(name: str, seconds: float, runs: int) -> tuple[str, bool, str]:
    """One harness in a process of its own: its name, whether all is well, and what there is to
    say.
    """
    from fuzz.harness import TARGETS, escaped

    module = TARGETS[name].run.__module__.rpartition(".")[2]
    for old in (WORK / name).glob("broke-*"):
        old.unlink()
    limit = seconds + 60 + 3 * SLOW_S
    command = [sys.executable, __file__, "--one", f"{module}/{name}", "--seconds", str(seconds)]
    command += ["--runs", str(runs)]
    variables = {**os.environ, "PYTHONHASHSEED": "0"} if runs else None
    try:
        ran = subprocess.run(
            command,
            env=variables,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit,
            check=False,
        )
        lines = (ran.stdout + ran.stderr).splitlines()
        code, output = (
            ran.returncode,
            "\n".join(line for line in lines if "INFO: Instrumenting" not in line),
        )
    except subprocess.TimeoutExpired:
        code, output = 1, f"it has not ended after {limit:.0f} s"
    found = [file.read_bytes() for file in sorted((WORK / name).glob("broke-*"))]
    if code == 0 and not found:
        runs = next(
            (
                line.split()[-1]
                for line in output.splitlines()
                if "number_of_executed_units" in line
            ),
            "?",
        )
        return name, True, f"{runs} runs"
    if not found:
        return name, False, output[-4000:]
    kept = TARGETS[name].kept
    lines = kept.read_text("ascii").splitlines() if kept.exists() else []
    kept.write_text(
        "".join(f"{line}\n" for line in dict.fromkeys([*lines, *map(escaped, found)])), "ascii"
    )
    return (
        name,
        False,
        output[max(0, output.find("Uncaught Python exception")) :][:4000]
        + "".join(f"\nkept in {kept.name}: {escaped(one)[:400]}" for one in found),
    )


def _in_slice(names: list[str], number: int) -> list[str]:
    return names if number < 0 else names[number % SLICES :: SLICES]


def main() -> int:
    parser = argparse.ArgumentParser(description="Give every parser what nobody would write.")
    parser.add_argument("targets", nargs="*", help="all, if none is named")
    parser.add_argument(
        "--seconds",
        type=float,
        default=float(os.environ.get("FUZZ_S", "20")),
        help="for each target",
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=int(os.environ.get("FUZZ_RUNS", "0")),
        help="at most so many, always the same",
    )
    parser.add_argument(
        "--slice",
        type=int,
        default=int(os.environ.get("FUZZ_SLICE") or -1),
        help="a third of the targets, others with each of three numbers; all by default",
    )
    parser.add_argument("--workers", type=int, default=int(os.environ.get("WORKERS", "2")))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        import atheris  # noqa: F401

        run = guided
    except ImportError:
        run = by_chance
    if options.one:
        module, _, name = options.one.partition("/")
        run(name, module, options.seconds, options.runs)
        return 0
    from fuzz.harness import load

    known = load()
    if unknown := set(options.targets) - set(known):
        parser.error(
            f"there is no target {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}"
        )
    if run is by_chance:
        print(
            "atheris is not installed (it has wheels for Linux on x86-64): inputs are changed "
            "by chance, not by coverage"
        )
    broken = 0
    with ThreadPoolExecutor(options.workers) as pool:
        names = options.targets or _in_slice(sorted(known), options.slice)
        for name, well, report in pool.map(
            lambda one: fuzzed(one, options.seconds, options.runs), names
        ):
            print(f"{'ok     ' if well else 'BROKEN '} {name}: {report}", flush=True)
            broken += not well
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
