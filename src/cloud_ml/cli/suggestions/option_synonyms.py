"""Options of other tools and what they stand for here. Data only: ``unknown_words`` reads it when
an option is not known. ``synonyms`` has the same of commands.
"""

from __future__ import annotations

from collections.abc import Mapping

_DETACH = "a submitted job runs on its own; leave the option out"
_DISTRIBUTED = "a job runs on one machine; use -w N for several processes on it, or -w MIN:MAX"
_ELASTIC = "use -w MIN:MAX, such as 2:8"
_ARRAY = "use --array INDEXES, such as 0-9%2"
_RENDEZVOUS = "the tasks of a job find each other; leave the option out"
_ALL_TASKS = "the lines of all tasks are shown; leave it out"
_FROM_CHECKPOINT = (
    "a job goes on from its newest checkpoint; from another one: cloudml jobs rerun NAME "
    "--restore-from URI"
)
_ONE_TASK: Mapping[str, str] = dict.fromkeys(
    ("--container", "--index", "--pod", "--rank", "--replica", "--worker"), "use --task TASK"
)
_IMAGES = "images are not offered; choose a framework with -F and list packages in requirements.txt"
_PARTITION = "there is one queue; use --enable_rank for a high priority"
_SPACE = "use: -s NAME=VALUES, such as -s lr=0.001:0.1:log or -s optimizer=adam,sgd"

OPTION_ADVICE: Mapping[str, Mapping[str, str]] = {
    "cloudml hp submit": {
        "--direction": "use: --objective METRIC:min, or METRIC:max",
        "--early-stopping": "use: --stopper median",
        "--goal": "use: --objective METRIC:min, or METRIC:max",
        "--max-concurrent": "use: --parallel N",
        "--max-concurrent-trials": "use: --parallel N",
        "--metric": "use: --objective METRIC:min, or METRIC:max",
        "--mode": "use: --objective METRIC:min, or METRIC:max",
        "--n-jobs": "use: --parallel N",
        "--num-samples": "use: --trials N",
        "--param": _SPACE,
        "--parameter": _SPACE,
        "--params": _SPACE,
        "--pruner": "use: --stopper median",
        "--sampler": "use: --algorithm auto",
        "--scheduler": "use: --stopper asha",
        "--search-alg": "use: --algorithm auto",
        "--timeout": "use: --max-time TIME, such as 2h",
    },
    "cloudml hp extend": dict.fromkeys(
        ("--max-trials", "--n-trials", "--num-samples"), "use: --trials N, how many more"
    ),
    "cloudml hp importance": {"--metric": "use: --objective METRIC"},
    "cloudml runs list": {
        "--sort": "use: --order-by 'metrics.loss ASC'",
        "--sort-by": "use: --order-by 'metrics.loss ASC'",
    },
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
        "-A": "lists show your organisation; administrators use: cloudml admin",
        "--running": "use --state running",
        "--sort-by": "the newest job comes first; use --output json for programs",
        "--watch": "use: cloudml jobs top, or cloudml jobs wait NAME",
        "-w": "use: cloudml jobs top, or cloudml jobs wait NAME",
    },
    "cloudml jobs describe": {"--task": "all tasks are in the description; leave it out"},
    "cloudml jobs events": {"--task": "events name their task; leave it out"},
    "cloudml jobs top": {"--task": "all tasks are shown; leave it out"},
    "cloudml jobs pause": {
        "--all": "use: cloudml jobs list -s running -o name | xargs cloudml jobs pause",
        "--grace": "the job's own --grace holds; give it when you submit",
        "--task": "a job is paused as a whole; leave it out",
    },
    "cloudml jobs resume": {
        "--all": "use: cloudml jobs list -s paused -o name | xargs cloudml jobs resume",
        "--checkpoint": _FROM_CHECKPOINT,
        "--from": _FROM_CHECKPOINT,
        "--task": "a job is resumed as a whole; leave it out",
        "--watch": "use: cloudml jobs logs NAME --follow",
    },
    "cloudml jobs logs": {
        "--all-containers": _ALL_TASKS,
        "--all-pods": _ALL_TASKS,
        "-c": "use --task TASK",
        "--container": "use --task TASK",
        "--job": "the attempts of a job are its runs; use --attempt N",
        "--index": "use --task TASK",
        "--no-follow": "leave it out; only --follow follows",
        "--node": "use --task TASK",
        "--num": "use --attempt N",
        "--previous": "use --attempt N",
        "-p": "use --attempt N",
        "--pod": "use --task TASK",
        "--rank": "use --task TASK",
        "--replica": "use --task TASK",
        "--worker": "use --task TASK",
    },
    "cloudml jobs restart": _ONE_TASK,
    "cloudml jobs stacks": _ONE_TASK,
    "cloudml jobs delete": {
        "--force": "leave it out: a job that runs is stopped first",
        "-f": "leave it out: a job that runs is stopped first",
        "--watch": "use --wait",
    },
    "cloudml models delete": {
        "--force": "leave it out: replicas that run are stopped first",
        "-f": "leave it out: replicas that run are stopped first",
        "--watch": "use --wait",
    },
    "cloudml jobs cancel": {
        "--abort": "use --grace 0",
        "--all": "use: cloudml jobs list -s queued,running -o name | xargs cloudml jobs cancel",
        "-a": "use: cloudml jobs list -s queued,running -o name | xargs cloudml jobs cancel",
        "--now": "use --grace 0",
        "--signal": "a job gets SIGTERM, and SIGKILL after --grace TIME",
        "-s": "a job gets SIGTERM, and SIGKILL after --grace TIME",
        "--task": "a job is cancelled as a whole; leave it out",
        "-u": "use: cloudml jobs list --user USER -o name | xargs cloudml jobs cancel",
        "--user": "use: cloudml jobs list --user USER -o name | xargs cloudml jobs cancel",
    },
    "cloudml jobs submit": {
        "--after": "use: cloudml jobs wait FIRST && cloudml jobs submit …",
        "--account": "the key decides the organisation; use: cloudml --context NAME before the "
        "command",
        "--accelerators": "use --gpus N",
        "--backend": _PARTITION,
        "--backoff-limit": "use --retries N",
        "--chdir": "give the folder itself: cloudml jobs submit FOLDER",
        "--checkpoint-dir": "every job has a folder for checkpoints: CLOUDML_CHECKPOINT_DIR. For one of your own, use "
        "--checkpoint-path URI",
        "--cloud": _PARTITION,
        "--cluster": _PARTITION,
        "--container-image": _IMAGES,
        "--completions": _ARRAY,
        "--concurrency": _ARRAY,
        "--deadline": "use --time-limit TIME, such as 2h",
        "--dependency": "use: cloudml jobs wait FIRST && cloudml jobs submit …",
        "--disk": "use --disk-limit SIZE, such as 10G",
        "--disk-size": "use --disk-limit SIZE, such as 10G",
        "--down": "nothing stays behind after a job; leave the option out",
        "--elastic": _ELASTIC,
        "--entry-point": "use -m MODULE",
        "--entrypoint-memory": "use --memory SIZE, such as 2G",
        "--entrypoint-num-cpus": "use --cpus CORES",
        "--entrypoint-num-gpus": "use --gpus N",
        "--env-manager": "packages come from requirements.txt beside the code; leave the option "
        "out",
        "--error": "output and errors are in one log: cloudml jobs logs NAME",
        "--experiment-name": "use --label experiment=NAME",
        "--export": "use --env NAME=VALUE",
        "--from-checkpoint": "use --restore-from JOB or --restore-from URI",
        "--gpus-per-node": "use --gpus N",
        "--gpus-per-task": "use --gpus N",
        "--gres": "use --gpus N",
        "--hostfile": _RENDEZVOUS,
        "--idle-minutes-to-autostop": "nothing stays behind after a job; leave the option out",
        "-i": "jobs are not interactive; use --watch to follow the log",
        "--image": _IMAGES,
        "--image-id": _IMAGES,
        "--instance-type": "use --cpus CORES and --memory SIZE",
        "--interactive": "jobs are not interactive; use --watch to follow the log",
        "--max-duration": "use --time-limit TIME, such as 2h",
        "--master-addr": _RENDEZVOUS,
        "--master-port": _RENDEZVOUS,
        "--max-concurrent": _ARRAY,
        "--max-nodes": _ELASTIC,
        "--max-parallel": _ARRAY,
        "--max-replicas": _ELASTIC,
        "--max-restarts": "use --retries N",
        "--max-workers": _ELASTIC,
        "--max-price": "there are no prices; leave the option out",
        "--mem-per-cpu": "use --memory SIZE, such as 2G",
        "--metadata-json": "use --label KEY=VALUE",
        "--min-nodes": _ELASTIC,
        "--min-replicas": _ELASTIC,
        "--min-workers": _ELASTIC,
        "--mount": "data is read from storage: give the code fds://BUCKET/PATH",
        "-N": _DISTRIBUTED,
        "--nnodes": _DISTRIBUTED,
        "--nodes": _DISTRIBUTED,
        "--np": _DISTRIBUTED,
        "--nproc": _DISTRIBUTED,
        "--nproc-per-node": _DISTRIBUTED,
        "--ntasks": _DISTRIBUTED,
        "--ntasks-per-node": _DISTRIBUTED,
        "--num-nodes": _DISTRIBUTED,
        "--num-processes": _DISTRIBUTED,
        "--num-workers": _DISTRIBUTED,
        "-P": "put parameters after `--`: cloudml jobs submit . -- --alpha 0.5",
        "--param-list": "put parameters after `--`: cloudml jobs submit . -- --alpha 0.5",
        "--parallelism": _ARRAY,
        "--partition": _PARTITION,
        "--priority": "use --enable_rank for a high priority",
        "--qos": _PARTITION,
        "--queue": _PARTITION,
        "--rdzv-backend": _RENDEZVOUS,
        "--rdzv-endpoint": _RENDEZVOUS,
        "--replicas": _DISTRIBUTED,
        "--requeue": "use --retries N",
        "--resume": "use --restore-from JOB or --restore-from URI",
        "--retry": "use --retries N",
        "--restartPolicy": "use --restart POLICY",
        "--rm": "use: cloudml jobs delete NAME when the job has ended",
        "--runtime-env": "packages come from requirements.txt beside the code",
        "--runtime-env-json": "use --env NAME=VALUE; packages come from requirements.txt beside "
        "the code",
        "--setup": "use --prepare_command COMMAND",
        "--signal": "a job that is to stop gets SIGTERM, and SIGKILL after --grace TIME",
        "--spot": "there are no spot machines; leave the option out",
        "--submission-id": "use --name NAME",
        "--standalone": _RENDEZVOUS,
        "--sweep": _ARRAY,
        "--time": "use --time-limit TIME, such as 2h",
        "-t": "use --time-limit TIME, such as 2h",
        "--timeout": "use --time-limit TIME, such as 2h",
        "--use-spot": "there are no spot machines; leave the option out",
        "-v": "data is read from storage: give the code fds://BUCKET/PATH",
        "--volume": "data is read from storage: give the code fds://BUCKET/PATH",
        "--workdir": "give the folder itself: cloudml jobs submit FOLDER",
        "--working-dir": "give the folder itself: cloudml jobs submit FOLDER",
        "--workers": _DISTRIBUTED,
        "--world-size": _DISTRIBUTED,
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
        "--uri": "use --model_uri URI",
    },
    "cloudml models predict": {
        "--content-type": "input is JSON; use --data FILE",
        "--input-path": "use --data FILE",
        "--model-uri": "deploy the model first: cloudml models deploy NAME VERSION URI",
    },
    "cloudml tensorboard": {
        "--logdir": "use: cloudml tensorboard create -n NAME -l fds://BUCKET/PATH",
        "-l": "use: cloudml tensorboard create -n NAME -l fds://BUCKET/PATH",
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
    "cloudml models destroy": "cloudml models delete",
    "cloudml models update": "cloudml models deploy",
}
"""Command path: another one whose options of ``OPTION_ADVICE`` it shares."""
