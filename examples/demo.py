"""``make demo``: a server, two real trainings through the command line, a model that answers, a
search for better arguments, and what came out.

Everything happens below ``.demo`` in the current folder; the server is stopped at the end, and what
was trained stays. Run it as often as you like.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEMO = Path.cwd() / ".demo"
CLOUDML = Path(sys.executable).with_name("cloudml")
START_LIMIT_S = 60


def main() -> int:
    DEMO.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "CLOUDML_CONFIG": str(DEMO / "config.json"),
        "PYTHONUNBUFFERED": "1",
    }
    for name in ("CLOUDML_ENDPOINT", "CLOUDML_ACCESS_KEY", "CLOUDML_SECRET_KEY", "CLOUDML_CONTEXT"):
        environment.pop(name, None)
    say("A platform of your own: API, controller and engine in one process")
    with open(DEMO / "server.log", "wb") as log:
        server = subprocess.Popen(
            [CLOUDML, "server", "--data-dir", DEMO / "data", "--port", "0"],
            stdout=subprocess.PIPE, stderr=log, env=environment,
        )  # fmt: skip
    try:
        use_server(server, environment)
        return train(environment)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


def use_server(server: subprocess.Popen[bytes], environment: dict[str, str]) -> None:
    """Show what the server says, and point the command line at it."""
    deadline = time.monotonic() + START_LIMIT_S
    endpoint = ""
    assert server.stdout is not None
    while time.monotonic() < deadline and (line := server.stdout.readline().decode()):
        if match := re.search(r"listens on (\S+)", line):
            endpoint = match[1]
        if line.startswith("Stop with"):
            break
        if "config init" not in line:  # each run has another port, and is told here
            print("  " + line, end="")
    if not endpoint:
        raise SystemExit(f"the server did not start:\n{(DEMO / 'server.log').read_text()}")
    key = json.loads((DEMO / "data" / "credentials.json").read_text())
    environment["CLOUDML_ENDPOINT"] = endpoint
    environment["CLOUDML_ACCESS_KEY"], environment["CLOUDML_SECRET_KEY"] = (
        key["access_key"],
        key["secret_key"],
    )


def train(environment: dict[str, str]) -> int:
    run = time.strftime("%H%M%S")
    linear, digits = f"linear-{run}", f"digits-{run}"
    say(
        "The linear regression of the slides, y = 2x + 10, in TensorFlow 1 style; the first "
        "time installs TensorFlow"
    )
    first = cloudml(
        environment,
        f"jobs submit -n {linear} -m trainer.task -u {relative('examples/linear')} -c 1 -M 100M "
        f"-a '--max_epochs 10 --optimizer sgd --model_path fds://cloudml/{linear}/model' "
        f"--model_name {linear} --model_version v1 --watch",
    )
    say("Handwritten digits with Keras 3, on the pictures that come with scikit-learn")
    second = cloudml(
        environment,
        f"jobs submit -n {digits} -m trainer.task -u {relative('examples/digits')} "
        f"-a '--epochs 10 --model_path fds://cloudml/{digits}/model' --watch",
    )
    answers = serve(environment, linear)
    best = tune(environment, f"tuning-{run}")
    weights = re.search(r"Get the model, w: (\S+), b: (\S+)", first)
    accuracy = re.search(r"[Aa]ccuracy[^0-9]*([0-9.]+%?)\D*$", second.strip(), re.MULTILINE)
    if not weights or not accuracy or not answers or not best:
        print(f"\nThe demo failed; the server's log is {DEMO / 'server.log'}")
        return 1
    say("What came out")
    bucket = DEMO / "data" / "objects" / "cloudml"
    print(f"  linear   learned w = {weights[1]}, b = {weights[2]}        (wanted: 2 and 10)")
    print(f"           model at fds://cloudml/{linear}/model, on disk {bucket / linear / 'model'}")
    print(f"           it answers for x = 10 and 30: {answers}        (wanted: 30 and 70)")
    print(f"  digits   accuracy {accuracy[1]} on pictures it had not seen")
    print(f"           model at fds://cloudml/{digits}/model, on disk {bucket / digits / 'model'}")
    print(f"  tuning   best of four: {best}")
    say("What to type next")
    for command, remark in next_commands(bucket / digits / "model"):
        print(f"  {command:<62} # {remark}" if remark else f"  {command}")
    return 0


def next_commands(model: Path) -> list[tuple[str, str]]:
    """Commands that work as they are printed, and a remark on each. The model is read from its
    folder on disk.

    The first command starts another server, with data of its own: names in the storage of the demo
    mean nothing there.
    """
    cloudml = relative(CLOUDML)
    return [
        (
            f"{cloudml} server",
            "your own server; leave it running, and type the rest in another terminal",
        ),
        (f"{cloudml} jobs submit hello trainer.task {relative('examples/hello')} --watch", ""),
        (f"{cloudml} models deploy digits v1 {relative(model)} --watch", ""),
        (
            f"{cloudml} jobs list",
            "and: jobs describe hello, jobs logs hello, storage ls fds://cloudml",
        ),
        (f"{cloudml} doctor", "what isolation this machine gives"),
    ]


def serve(environment: dict[str, str], model: str) -> str:
    """Ask the linear model, which is served since its job has succeeded, as the slides do;
    returns what it answers.
    """
    say("The linear model as a service: it was asked for with the job; gRPC first, then HTTP")
    data = DEMO / "data.json"
    data.write_text(
        '{"keys_dtype": "int32", "keys": [[1], [2]], "X_dtype": "float32", "X": [[10.0], [30.0]]}\n'
    )
    cloudml(environment, f"models wait {model} v1")
    answers = [
        cloudml(environment, f"models predict {model} v1 -d {data}{more}")
        for more in ("", " --http")
    ]
    if not all(answers):
        return ""
    over_grpc, over_http = (json.loads(answer)["predict"] for answer in answers)
    cloudml(environment, f"models describe {model} v1")
    cloudml(
        environment, f"models delete {model} v1 --wait"
    )  # it would answer on when the demo is over
    close = all(abs(a[0] - b[0]) < 1e-3 for a, b in zip(over_grpc, over_http, strict=True))
    return ", ".join(f"{row[0]:.2f}" for row in over_grpc) if close else ""


def tune(environment: dict[str, str], name: str) -> str:
    """Search for the best optimizer and learning rate, as the slides do; returns the best."""
    say("Tuning: the linear model with two optimizers and two learning rates, two trials at a time")
    study = {
        "name": name,
        "objective": "loss:min",
        "algorithm": "grid",
        "parallel": 2,
        "space": {"optimizer": ["ftrl", "sgd"], "learning_rate": [0.1, 0.5]},
        "job": {
            "module_name": "trainer.task",
            "trainer_uri": str(ROOT / "examples" / "linear"),
            "job_args": "--max_epochs 5 --samples 20",
            "memory_limit": "400M",
            "output_path": f"fds://cloudml/{name}",
        },
    }
    (file := DEMO / "study.json").write_text(json.dumps(study, indent=2) + "\n")
    cloudml(environment, f"hp submit -f {file} --watch")
    report = cloudml(environment, f"jobs hp {name}")
    best = re.search(r"Best trial:\n.*\n +Params: --output_path=\S+ (.*)\n", report)
    return best[1] if best else ""


def cloudml(environment: dict[str, str], line: str) -> str:
    """Run a command as a user would, its output shown as it comes, and return the output."""
    print(f"  $ cloudml {line}\n")
    command = [CLOUDML, *shlex.split(line)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=environment, cwd=ROOT, text=True
    ) as process:
        assert process.stdout is not None
        lines = []
        for output in process.stdout:
            print("    " + output, end="", flush=True)
            lines.append(output)
    return "".join(lines) if process.returncode == 0 else ""


def relative(path: str | Path) -> str:
    """A path as one would type it."""
    path = ROOT / path
    return shlex.quote(
        str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
    )


def say(sentence: str) -> None:
    print(f"\n== {sentence}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
