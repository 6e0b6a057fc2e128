"""A loop that asks a local study for trials and tells their values, for ``ask_tell``: a process of its
own. With ``together``, one request tells a value and asks for the next trial. Prints how many pairs it
made and the processor time that they took.
"""

from __future__ import annotations

import json
import sys
import time

from cloud_ml.client import CloudMlClient


def main() -> None:
    endpoint, key, secret, study, reports, requests = sys.argv[1:]
    with CloudMlClient(key, secret, endpoint) as client:
        loop = client.studies.local(study)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        pairs, began = 0, time.process_time()
        trial = loop.ask()
        while trial is not None:
            x, y = trial.parameters["x"], trial.parameters["y"]
            for step in range(int(reports)):
                trial.report(step, x + y + 1 / (step + 1))
            value, pairs = (x - 0.3) ** 2 + (y - 0.7) ** 2, pairs + 1
            if requests == "together":
                trial = loop.tell_and_ask(trial, value)
            else:
                loop.tell(trial, value)
                trial = loop.ask()
        json.dump({"pairs": pairs, "processor_s": time.process_time() - began}, sys.stdout)


if __name__ == "__main__":
    main()
