"""Words of other tools and what they stand for here. Data only: ``suggestions`` reads it when a
word is not known.

``docs/howto/other-tools.md`` shows these words to users; ``tests/acceptance/test_other_tools.py``
types every row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

GENERAL_COMMANDS: Mapping[str, Sequence[str]] = {
    "ls": ("list",),
    "ps": ("list",),
    "show": ("describe", "list"),
    "get": ("describe", "list"),
    "info": ("describe",),
    "inspect": ("describe",),
    "status": ("describe",),
    "add": ("create",),
    "new": ("create",),
    "edit": ("update",),
    "modify": ("update",),
    "rm": ("delete", "remove"),
    "remove": ("delete",),
    "delete": ("remove",),
    "destroy": ("delete",),
}
"""In every group: the first of these commands that the group has."""

COMMANDS: Mapping[str, Mapping[str, str]] = {
    "cloudml": {
        "cat": "storage cat",
        "cp": "storage cp",
        "create": "jobs submit",
        "delete": "rm",
        "deploy": "models deploy",
        "describe": "status",
        "du": "storage du",
        "cancel": "stop",
        "get": "status",
        "frameworks": "framework",
        "info": "status",
        "init": "config init",
        "inspect": "status",
        "job": "jobs",
        "list": "ls",
        "login": "config init",
        "mb": "storage mb",
        "model": "models",
        "mv": "storage mv",
        "outputs": "jobs outputs",
        "predict": "models predict",
        "queue": "ls",
        "rb": "storage rb",
        "remove": "rm",
        "rerun": "jobs rerun",
        "runtime": "framework",
        "runtimes": "framework",
        "service": "models",
        "secrets": "secret",
        "services": "models",
        "show": "status",
        "submit": "jobs submit",
        "tokens": "token",
        "top": "jobs top",
    },
    "cloudml jobs": {
        "create": "submit",
        "down": "cancel",
        "kill": "cancel --grace 0",
        "launch": "submit --watch",
        "queue": "list",
        "requeue": "rerun",
        "resubmit": "rerun",
        "retry": "rerun",
        "run": "submit --watch",
        "stop": "cancel",
        "terminate": "cancel",
        "watch": "logs --follow",
    },
    "cloudml models": {
        "call": "predict",
        "down": "stop",
        "kill": "stop --grace 0",
        "run": "deploy",
        "serve": "deploy",
        "undeploy": "delete",
        "up": "deploy",
    },
    "cloudml storage": {
        "copy": "cp",
        "list": "ls",
        "mkdir": "mb",
        "move": "mv",
        "rename": "mv",
        "rmdir": "rb",
        "sync": "cp --recursive --sync",
    },
    "cloudml config": {
        "get-contexts": "list",
        "login": "init",
        "use-context": "use",
        "view": "show",
    },
    "cloudml secret": {
        "put": "create --replace",
        "set": "create --replace",
        "update": "create --replace",
    },
    "cloudml framework": {"install": "prepare", "uninstall": "remove"},
    "cloudml quota": {"apply": "update", "request": "update"},
}
"""Command path: word → the words that take its place. They work as they stand."""

COMMAND_ADVICE: Mapping[str, Mapping[str, str]] = {
    "cloudml": {
        "apply": "use: cloudml jobs submit -f FILE",
        "build": "images are not offered; packages come from requirements.txt: cloudml run FOLDER",
        "attach": "use: cloudml logs NAME --follow",
        "auth": "use: cloudml whoami, or cloudml config init",
        "check": "use: cloudml doctor",
        "cluster": "there is one server; use: cloudml doctor",
        "cluster-info": "use: cloudml whoami, or cloudml doctor",
        "deployments": "use: cloudml models list",
        "down": "use: cloudml stop NAME",
        "endpoints": "use: cloudml models list",
        "exec": "a running job has no shell; use: cloudml logs NAME --follow",
        "experiments": "experiments are not offered; use: cloudml jobs list --label "
        "experiment=NAME",
        "gpus": "use: cloudml doctor",
        "history": "use: cloudml jobs list",
        "images": "images are not offered; choose a framework: cloudml framework list",
        "help": "use: cloudml --help",
        "artifacts": "use: cloudml jobs outputs NAME, and cloudml jobs cp -r NAME: .",
        "launch": "use: cloudml run FOLDER",
        "nodes": "there is one server; use: cloudml doctor",
        "port-forward": "a service has an address; use: cloudml models describe NAME",
        "tail": "use: cloudml logs NAME --follow",
        "rollout": "use: cloudml models rollback NAME VERSION",
        "runs": "use: cloudml jobs list",
        "salloc": "jobs are not interactive; use: cloudml run FOLDER",
        "sacct": "use: cloudml jobs list --output wide",
        "sbatch": "use: cloudml jobs submit SCRIPT",
        "scale": "use: cloudml models update NAME VERSION --replicas N",
        "scancel": "use: cloudml stop NAME",
        "scontrol": "use: cloudml jobs describe NAME",
        "serve": "use: cloudml models deploy NAME VERSION URI, or cloudml server to start the "
        "platform",
        "show-gpus": "use: cloudml doctor",
        "sinfo": "use: cloudml doctor",
        "squeue": "use: cloudml jobs list",
        "srun": "use: cloudml run SCRIPT",
        "ssh": "a running job has no shell; use: cloudml logs NAME --follow",
        "tensorboard": "TensorBoard is not offered; copy the logs: cloudml storage cp -r "
        "fds://BUCKET/PATH .",
        "ui": "there is no web console yet; use: cloudml jobs list",
        "up": "use: cloudml server",
        "version": "use: cloudml --version",
        "volume": "volumes are not offered; use: cloudml storage",
        "volumes": "volumes are not offered; use: cloudml storage",
    },
    "cloudml jobs": {
        "attach": "use: cloudml jobs logs NAME --follow",
        "apply": "use: cloudml jobs submit -f FILE",
        "exec": "a running job has no shell; use: cloudml jobs logs NAME --follow",
        "hold": "use: cloudml jobs submit --save_mode, then: cloudml jobs start NAME",
        "pause": "a job cannot be paused; use: cloudml jobs cancel NAME, later: cloudml jobs rerun "
        "NAME",
        "resume": "use: cloudml jobs rerun NAME",
        "suspend": "a job cannot be paused; use: cloudml jobs cancel NAME, later: cloudml jobs "
        "rerun "
        "NAME",
    },
    "cloudml models": {
        "build-docker": "images are not offered; use: cloudml models deploy NAME VERSION URI",
        "register": "use: cloudml models deploy NAME VERSION URI",
        "restart": "use: cloudml models stop NAME, then: cloudml models start NAME",
        "rollout": "use: cloudml models rollback NAME VERSION",
        "scale": "use: cloudml models update NAME VERSION --replicas N",
    },
    "cloudml storage": {
        "create": "use: cloudml storage mb BUCKET",
        "delete": "use: cloudml storage rm URI for objects, or cloudml storage rb BUCKET",
        "download": "use: cloudml storage cp fds://BUCKET/PATH FILE",
        "get": "use: cloudml storage cp fds://BUCKET/PATH FILE",
        "put": "use: cloudml storage cp FILE fds://BUCKET/PATH",
        "remove": "use: cloudml storage rm URI for objects, or cloudml storage rb BUCKET",
        "upload": "use: cloudml storage cp FILE fds://BUCKET/PATH",
    },
    "cloudml config": {
        "current-context": "use: cloudml config list",
        "set": "use: cloudml config init NAME",
    },
    "cloudml secret": {
        "get": "a value is never shown again; use: cloudml secret describe NAME",
        "reveal": "a value is never shown again; use: cloudml secret describe NAME",
    },
    "cloudml quota": {
        "set": "administrators use: cloudml admin quota set ORG; others: cloudml quota update"
    },
}
"""Command path: word → what to use instead."""

_DETACH = "a submitted job runs on its own; leave the option out"
_DISTRIBUTED = "a job runs on one machine; distributed jobs are not offered"
_IMAGES = "images are not offered; choose a framework with -F and list packages in requirements.txt"
_PARTITION = "there is one queue; use --enable_rank for a high priority"

OPTION_ADVICE: Mapping[str, Mapping[str, str]] = {
    "": {
        "--all-namespaces": "lists show your organisation; administrators use: cloudml admin",
        "--format": "use --output json|yaml|name",
        "--json": "use --output json",
        "--kubeconfig": "use: cloudml --context NAME before the command",
        "--namespace": "the key decides the organisation; use: cloudml --context NAME before the "
        "command",
        "--quiet": "use --output name",
        "-q": "use --output name",
        "--region": "there is one server; use: cloudml --context NAME before the command",
        "--address": "use: cloudml --endpoint URL before the command",
        "--profile": "use: cloudml --context NAME before the command",
        "--verbose": "set CLOUDML_DEBUG=1 to see the traceback of an error",
    },
    "cloudml jobs list": {
        "--running": "use --state running",
        "--sort-by": "the newest job comes first; use --output json for programs",
        "--watch": "use: cloudml jobs top, or cloudml jobs wait NAME",
        "-w": "use: cloudml jobs top, or cloudml jobs wait NAME",
    },
    "cloudml jobs logs": {
        "--container": "use --task TASK",
        "--job": "the attempts of a job are its runs; use --attempt N",
        "--no-follow": "leave it out; only --follow follows",
        "--num": "use --attempt N",
        "--previous": "use --attempt N",
        "-p": "use --attempt N",
        "--replica": "use --task TASK",
        "--worker": "use --task TASK",
    },
    "cloudml jobs delete": {
        "--all": "use: cloudml jobs list -a -o name | xargs cloudml jobs delete",
        "-a": "use: cloudml jobs list -a -o name | xargs cloudml jobs delete",
        "--force": "leave it out: a job that runs is stopped first",
        "-f": "leave it out: a job that runs is stopped first",
    },
    "cloudml jobs cancel": {
        "--abort": "use --grace 0",
        "--all": "use: cloudml jobs list -s queued,running -o name | xargs cloudml jobs cancel",
        "-a": "use: cloudml jobs list -s queued,running -o name | xargs cloudml jobs cancel",
        "--now": "use --grace 0",
        "--signal": "a job gets SIGTERM, and SIGKILL after --grace TIME",
        "-s": "a job gets SIGTERM, and SIGKILL after --grace TIME",
        "-u": "use: cloudml jobs list --user USER -o name | xargs cloudml jobs cancel",
        "--user": "use: cloudml jobs list --user USER -o name | xargs cloudml jobs cancel",
    },
    "cloudml jobs submit": {
        "--account": "the key decides the organisation; use: cloudml --context NAME before the "
        "command",
        "--array": "submit a job for each value: for i in 1 2 3; do cloudml jobs submit . -- "
        "--seed "
        "$i; done",
        "--backend": _PARTITION,
        "--chdir": "give the folder itself: cloudml jobs submit FOLDER",
        "--cloud": _PARTITION,
        "--cluster": _PARTITION,
        "--container-image": _IMAGES,
        "--deadline": "use --time-limit TIME, such as 2h",
        "--dependency": "use: cloudml jobs wait FIRST && cloudml jobs submit …",
        "--disk": "use --disk-limit SIZE, such as 10G",
        "--disk-size": "use --disk-limit SIZE, such as 10G",
        "--down": "nothing stays behind after a job; leave the option out",
        "--entry-point": "use -m MODULE",
        "--entrypoint-memory": "use --memory SIZE, such as 2G",
        "--entrypoint-num-cpus": "use --cpus CORES",
        "--entrypoint-num-gpus": "use --gpus N",
        "--env-manager": "packages come from requirements.txt beside the code; leave the option "
        "out",
        "--error": "output and errors are in one log: cloudml jobs logs NAME",
        "--experiment-name": "use --label experiment=NAME",
        "--export": "use --env NAME=VALUE",
        "--gres": "use --gpus N",
        "--idle-minutes-to-autostop": "nothing stays behind after a job; leave the option out",
        "-i": "jobs are not interactive; use --watch to follow the log",
        "--image": _IMAGES,
        "--image-id": _IMAGES,
        "--instance-type": "use --cpus CORES and --memory SIZE",
        "--interactive": "jobs are not interactive; use --watch to follow the log",
        "--max-duration": "use --time-limit TIME, such as 2h",
        "--max-price": "there are no prices; leave the option out",
        "--mem-per-cpu": "use --memory SIZE, such as 2G",
        "--metadata-json": "use --label KEY=VALUE",
        "--mount": "data is read from storage: give the code fds://BUCKET/PATH",
        "-N": _DISTRIBUTED,
        "--nodes": _DISTRIBUTED,
        "--nproc-per-node": _DISTRIBUTED,
        "--ntasks": _DISTRIBUTED,
        "--num-nodes": _DISTRIBUTED,
        "-P": "put parameters after `--`: cloudml jobs submit . -- --alpha 0.5",
        "--param-list": "put parameters after `--`: cloudml jobs submit . -- --alpha 0.5",
        "--partition": _PARTITION,
        "--priority": "use --enable_rank for a high priority",
        "--qos": _PARTITION,
        "--queue": _PARTITION,
        "--replicas": _DISTRIBUTED,
        "--requeue": "use --retries N",
        "--restart": "use --retries N",
        "--retry": "use --retries N",
        "--rm": "use: cloudml jobs delete NAME when the job has ended",
        "--runtime-env": "packages come from requirements.txt beside the code",
        "--runtime-env-json": "use --env NAME=VALUE; packages come from requirements.txt beside "
        "the "
        "code",
        "--setup": "use --prepare_command COMMAND",
        "--spot": "there are no spot machines; leave the option out",
        "--submission-id": "use --name NAME",
        "--time": "use --time-limit TIME, such as 2h",
        "-t": "use --time-limit TIME, such as 2h",
        "--timeout": "use --time-limit TIME, such as 2h",
        "--use-spot": "there are no spot machines; leave the option out",
        "-v": "data is read from storage: give the code fds://BUCKET/PATH",
        "--volume": "data is read from storage: give the code fds://BUCKET/PATH",
        "--workdir": "give the folder itself: cloudml jobs submit FOLDER",
        "--working-dir": "give the folder itself: cloudml jobs submit FOLDER",
        "--wrap": "put the commands into a script: cloudml jobs submit train.py",
        "-J": "use --name NAME",
        "-y": "nothing is asked; leave the option out",
        "--yes": "nothing is asked; leave the option out",
    },
    "cloudml models deploy": {
        "--autoscale": "use --replicas N and --max_replicas N",
        "--detach": _DETACH,
        "--image": _IMAGES,
        "--max-replicas-per-node": "use --max_replicas N",
        "--model-uri": "use --model_uri URI",
        "--min-replicas": "use --replicas N",
        "--port": "the server chooses the port; read it from: cloudml models describe NAME",
        "-t": "there is one kind of target; leave the option out",
        "--target": "there is one kind of target; leave the option out",
    },
    "cloudml models predict": {
        "--content-type": "input is JSON; use --data FILE",
        "--input-path": "use --data FILE",
        "--model-uri": "deploy the model first: cloudml models deploy NAME VERSION URI",
    },
    "cloudml status": {"--refresh": "the status is always fresh; leave the option out"},
    "cloudml start": {"--head": "use: cloudml server"},
}
"""Command path, or nothing for every command: option → what to use instead. ``ALSO`` names
commands that share one.
"""

SAME_OPTIONS: Mapping[str, str] = {
    "cloudml logs": "cloudml jobs logs",
    "cloudml ls": "cloudml jobs list",
    "cloudml ps": "cloudml jobs list",
    "cloudml run": "cloudml jobs submit",
    "cloudml stop": "cloudml jobs cancel",
    "cloudml jobs rerun": "cloudml jobs submit",
    "cloudml models create": "cloudml models deploy",
    "cloudml models update": "cloudml models deploy",
}
"""Command path: another one whose options of ``OPTION_ADVICE`` it shares."""
