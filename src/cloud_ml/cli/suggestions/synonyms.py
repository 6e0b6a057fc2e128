"""Words of other tools and what they stand for here. Data only: ``unknown_words`` reads it when a
word is not known.

``docs/howto/other-tools.md`` shows these words to users; ``tests/acceptance/test_other_tools.py``
types every row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

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
        "audit": "admin audit",
        "cat": "storage cat",
        "checkpoints": "jobs checkpoints",
        "cp": "storage cp",
        "create": "jobs submit",
        "delete": "rm",
        "deploy": "models deploy",
        "describe": "status",
        "du": "storage du",
        "cancel": "stop",
        "get": "status",
        "hold": "jobs pause",
        "frameworks": "framework",
        "info": "status",
        "init": "config init",
        "inspect": "status",
        "job": "jobs",
        "key": "admin keys",
        "keys": "admin keys",
        "studies": "hp",
        "study": "hp",
        "sweep": "hp",
        "sweeps": "hp",
        "trials": "hp trials",
        "tune": "hp",
        "list": "ls",
        "login": "config init",
        "mb": "storage mb",
        "model": "models",
        "mv": "storage mv",
        "organisations": "admin orgs",
        "organizations": "admin orgs",
        "org": "admin orgs",
        "orgs": "admin orgs",
        "outputs": "jobs outputs",
        "pause": "jobs pause",
        "predict": "models predict",
        "queue": "ls",
        "rb": "storage rb",
        "release": "jobs resume",
        "remove": "rm",
        "rerun": "jobs rerun",
        "requeue": "jobs rerun",
        "restart": "jobs restart",
        "resume": "jobs resume",
        "runtime": "framework",
        "runtimes": "framework",
        "service": "models",
        "secrets": "secret",
        "services": "models",
        "show": "status",
        "submit": "jobs submit",
        "suspend": "jobs pause",
        "tb": "tensorboard",
        "tensorboards": "tensorboard",
        "tokens": "token",
        "top": "jobs top",
        "user": "admin users",
        "users": "admin users",
    },
    "cloudml admin": {
        "key": "keys",
        "org": "orgs",
        "organisation": "orgs",
        "organisations": "orgs",
        "organization": "orgs",
        "organizations": "orgs",
        "quotas": "quota",
        "user": "users",
    },
    "cloudml jobs": {
        "checkpoint": "checkpoints",
        "continue": "resume",
        "create": "submit",
        "down": "cancel",
        "dump": "stacks",
        "hold": "pause",
        "kill": "cancel --grace 0",
        "launch": "submit --watch",
        "queue": "list",
        "release": "resume",
        "requeue": "rerun",
        "resubmit": "rerun",
        "retry": "rerun",
        "run": "submit --watch",
        "stack": "stacks",
        "stop": "cancel",
        "suspend": "pause",
        "terminate": "cancel",
        "unpause": "resume",
        "unsuspend": "resume",
        "watch": "logs --follow",
    },
    "cloudml runs": {
        "watch": "wait",
    },
    "cloudml hp": {
        "apply": "submit",
        "best-trial": "best",
        "best-trials": "best",
        "cancel": "stop",
        "importances": "importance",
        "kill": "stop",
        "pareto": "best",
        "results": "trials",
        "suspend": "pause",
        "trial": "trials",
        "unpause": "resume",
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

TOOLS: Mapping[str, Collection[str]] = {
    "cloudml": frozenset({"dstack", "kubectl", "mlflow", "ray", "sky"})
}
"""Command path: other tools whose whole command lines are typed behind it."""

_STARTS = "the platform starts the tasks: cloudml run SCRIPT --recipe"
_TORCH = f"{_STARTS} pytorch -w N"
_MPI = f"{_STARTS} mpi -w N"
_DASK = f"{_STARTS} dask -w N"
_EXPERIMENTS = (
    "use: cloudml runs experiments, and cloudml runs list --experiment NAME, or runs wait "
    "--experiment NAME"
)
_STUDIES = "use: cloudml hp submit -f FILE; see docs/howto/tune.md"
_TASKS = "use: cloudml jobs describe NAME"
_SCRIPT = "use: cloudml run SCRIPT"
_CODE = "use: cloudml run FOLDER"
_CONSOLE = "there is no web console yet; use: cloudml jobs list"
_NOTEBOOKS = "development environments are not offered yet; use: cloudml run SCRIPT"
_ONE_SERVER = "there is one server; use: cloudml doctor"
_STORED = "use: cloudml storage ls, cp or rm, with URIs such as fds://BUCKET/PATH"
_IMAGES = "images are not offered; packages come from requirements.txt: cloudml run FOLDER"
_RESTART = (
    "use: cloudml server stop, then: cloudml server; for a unit of systemd: "
    "systemctl restart cloud-ml"
)
_START = "use: cloudml server; for a unit of systemd: systemctl start cloud-ml"
_BEHIND_A_SERVICE = "a service has an address; use: cloudml models describe NAME"

COMMAND_ADVICE: Mapping[str, Mapping[str, str]] = {
    "cloudml": {
        "accelerate": _TORCH,
        "apply": "use: cloudml jobs submit -f FILE, or for a study cloudml hp submit -f FILE",
        "build": _IMAGES,
        "attach": "use: cloudml logs NAME --follow",
        "autostop": "nothing stays behind after a job; use: cloudml stop NAME",
        "aws": _STORED,
        "auth": "use: cloudml whoami, or cloudml config init",
        "check": "use: cloudml doctor",
        "cluster": _ONE_SERVER,
        "clusters": _ONE_SERVER,
        "console": _CONSOLE,
        "cost-report": "nothing is billed; use: cloudml quota list",
        "dashboard": _CONSOLE,
        "docker": _IMAGES,
        "cluster-info": "use: cloudml whoami, or cloudml doctor",
        "dask": _DASK,
        "dask-scheduler": _DASK,
        "dask-worker": _DASK,
        "deployments": "use: cloudml models list",
        "deepspeed": _TORCH,
        "down": "use: cloudml stop NAME",
        "endpoints": "use: cloudml models list",
        "fit": _SCRIPT,
        "fleet": _ONE_SERVER,
        "fleets": _ONE_SERVER,
        "gateway": _BEHIND_A_SERVICE,
        "gateways": _BEHIND_A_SERVICE,
        "gsutil": _STORED,
        "exec": "a running job has no shell; use: cloudml logs NAME --follow",
        "experiment": _EXPERIMENTS,
        "experiments": _EXPERIMENTS,
        "mlflow": "use MLflow's own client: docs/howto/mlflow.md",
        "gpus": "use: cloudml doctor",
        "history": "use: cloudml jobs list",
        "horovodrun": _MPI,
        "images": "images are not offered; choose a framework: cloudml framework list",
        "help": "use: cloudml --help",
        "jupyter": _NOTEBOOKS,
        "lab": _NOTEBOOKS,
        "notebook": _NOTEBOOKS,
        "notebooks": _NOTEBOOKS,
        "offer": "use: cloudml doctor",
        "project": "use: cloudml admin orgs list",
        "projects": "use: cloudml admin orgs list",
        "python": _SCRIPT,
        "python3": _SCRIPT,
        "s3": _STORED,
        "shell": "a running job has no shell; use: cloudml logs NAME --follow",
        "train": _CODE,
        "dstack": "leave out dstack; use: cloudml run FOLDER",
        "kubectl": "leave out kubectl; use: cloudml jobs list",
        "artifacts": "use: cloudml jobs outputs NAME, and cloudml jobs cp -r NAME: .",
        "launch": "use: cloudml run FOLDER",
        "mpijob": "use: cloudml jobs list",
        "mpiexec": _MPI,
        "mpirun": _MPI,
        "katib": _STUDIES,
        "optuna": "for your own scripts use: cloudml hp proxy; for a study: cloudml hp submit -f FILE",
        "wandb": "use: cloudml hp for sweeps, and cloudml runs for runs",
        "nodes": _ONE_SERVER,
        "pods": "the tasks of a job are in its description; use: cloudml jobs describe NAME",
        "pytorchjob": "use: cloudml jobs list",
        "port-forward": _BEHIND_A_SERVICE,
        "tail": "use: cloudml logs NAME --follow",
        "ray": "leave out ray; use: cloudml jobs submit SCRIPT",
        "rollout": "use: cloudml models rollback NAME VERSION",
        "salloc": "jobs are not interactive; use: cloudml run FOLDER",
        "sacct": "use: cloudml jobs list --output wide",
        "sattach": "use: cloudml logs NAME --follow",
        "sbatch": "use: cloudml jobs submit SCRIPT",
        "scale": "use: cloudml models update NAME VERSION --replicas N",
        "scancel": "use: cloudml stop NAME",
        "scontrol": "use: cloudml jobs describe NAME",
        "serve": "use: cloudml models deploy NAME VERSION URI, or cloudml server to start the "
        "platform",
        "show-gpus": "use: cloudml doctor",
        "sinfo": "use: cloudml doctor",
        "sky": "leave out sky; use: cloudml run FOLDER",
        "squeue": "use: cloudml jobs list",
        "srun": "use: cloudml run SCRIPT",
        "sstat": "use: cloudml jobs top NAME",
        "ssh": "a running job has no shell; use: cloudml logs NAME --follow",
        "tfjob": "use: cloudml jobs list",
        "torchrun": _TORCH,
        "ui": _CONSOLE,
        "up": "use: cloudml server",
        "version": "use: cloudml --version",
        "volume": "volumes are not offered; use: cloudml storage",
        "volumes": "volumes are not offered; use: cloudml storage",
    },
    "cloudml server": {
        "logs": "the server prints its log; of a unit of systemd use: journalctl -u cloud-ml",
        "reload": _RESTART,
        "restart": _RESTART,
        "run": "use: cloudml server",
        "start": _START,
        "status": "use: cloudml doctor, or cloudml whoami; for a unit of systemd: systemctl status cloud-ml",
        "ui": _CONSOLE,
        "up": "use: cloudml server",
    },
    "cloudml jobs": {
        "artifacts": "use: cloudml jobs outputs NAME, and cloudml jobs cp -r NAME: .",
        "download": "use: cloudml jobs outputs NAME, and cloudml jobs cp -r NAME: .",
        "ssh": "a running job has no shell; use: cloudml jobs logs NAME --follow",
        "tail": "use: cloudml jobs logs NAME --follow",
        "attach": "use: cloudml jobs logs NAME --follow",
        "apply": "use: cloudml jobs submit -f FILE",
        "exec": "a running job has no shell; use: cloudml jobs logs NAME --follow",
        "members": _TASKS,
        "pods": _TASKS,
        "ranks": _TASKS,
        "replicas": _TASKS,
        "scale": "the number of tasks stays; use: cloudml jobs rerun NAME -w N",
        "tasks": _TASKS,
        "workers": _TASKS,
    },
    "cloudml runs": {
        "draw": "use: cloudml runs metrics NAME --name METRIC",
        "plot": "use: cloudml runs metrics NAME --name METRIC",
    },
    "cloudml tensorboard": {
        "dev": "use: cloudml tensorboard create -n NAME -l fds://BUCKET/PATH",
        "pause": "it pauses when nobody looks; to remove it: cloudml tensorboard delete NAME",
        "start": "use: cloudml tensorboard open NAME",
        "stop": "it pauses when nobody looks; to remove it: cloudml tensorboard delete NAME",
    },
    "cloudml hp": {
        "logs": "a trial is a job; use: cloudml jobs logs NAME-hp-0",
        "ask": "in Python, studies.local asks and tells; see docs/howto/tune.md",
        "create-study": "use: cloudml hp submit -f FILE",
        "optimize": "use: cloudml hp submit -f FILE --watch; for Optuna's client: cloudml hp proxy",
        "tell": "in Python, studies.local asks and tells; see docs/howto/tune.md",
        "start": "use: cloudml hp submit -f FILE, or cloudml hp resume NAME",
        "update": "for more trials use: cloudml hp extend NAME --trials N",
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

NOUN_ADVICE: Mapping[str, str] = {
    "all": "use: cloudml ls, and cloudml models list",
    "events": "use: cloudml events NAME",
    "node": _ONE_SERVER,
    "nodes": _ONE_SERVER,
    "namespaces": "use: cloudml admin orgs list",
    "secrets": "use: cloudml secret list",
}
"""What ``kubectl get`` lists and ``status`` does not. These are also names of jobs: those come
first.
"""
