"""The message of a process that failed: its ending, its last words, what helps."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_ml.engines.local.failures import explain, modules, signals
from cloud_ml.engines.local.failures.explain import FailureContext
from cloud_ml.engines.local.failures.files import CodeFolder, sent_files
from cloud_ml.environments.trainers import python2
from support.measuring import growth

ENDING = "master-0 exited with code 1"


def explanation(error: str, context: FailureContext | None = None) -> str:
    tail = f"Traceback (most recent call last):\n  File '<x>', line 1\n{error}\n"
    return explain.message(ENDING, tail.encode(), context or FailureContext(), code=1)


@pytest.mark.parametrize(
    ("module", "line"),
    [("sklearn", "scikit-learn"), ("cv2", "opencv-python-headless"), ("PIL", "pillow"), ("yaml", "pyyaml"),
     ("bs4", "beautifulsoup4"), ("dateutil", "python-dateutil"), ("google.protobuf", "protobuf"), ("tqdm", "tqdm")],
)  # fmt: skip
def test_a_missing_module_names_the_line_to_add(module: str, line: str) -> None:
    message = explanation(f"ModuleNotFoundError: No module named '{module}'")
    assert message.endswith(
        f'; add the line "{line}" to requirements.txt, or submit with --install {line}'
    )


def test_the_table_of_distributions_is_one_to_rely_on() -> None:
    assert len(modules.DISTRIBUTIONS) >= 60
    assert not set(modules.DISTRIBUTIONS) & set(python2.MODULES)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (
            "ModuleNotFoundError: No module named 'my_utils'",
            "your own file, submit the folder that holds it",
        ),
        (
            "ModuleNotFoundError: No module named 'urllib2'",
            "module of Python 2: import urllib.request instead",
        ),
        ("ModuleNotFoundError: No module named 'imp'", "use importlib instead"),
        (
            "ModuleNotFoundError: No module named 'sklearn.cross_validation'",
            "the installed sklearn does not have it",
        ),
        (
            "ModuleNotFoundError: No module named 'yaml.a'; 'yaml' is not a package",
            "named yaml hides the package",
        ),
        (
            "ModuleNotFoundError: No module named 'tensorflow.contrib'",
            "--framework tensorflow --framework_version 1",
        ),
        (
            "NameError: name 'xrange' is not defined. Did you mean: 'range'?",
            "Python 3 has range instead",
        ),
        ("AttributeError: 'dict' object has no attribute 'iteritems'", "this is Python 2 code"),
        (
            "SyntaxError: Missing parentheses in call to 'print'. Did you mean print(...)?",
            "this is Python 2 code",
        ),
        (
            "OSError: [Errno 30] Read-only file system: '/usr/x'",
            "may write to its working directory",
        ),
        ("AssertionError: Torch not compiled with CUDA enabled", "torch.cuda.is_available()"),
        (
            "ImportError: libGL.so.1: cannot open shared object file: No such file",
            '"opencv-python-headless"',
        ),
        (
            "ImportError: libcudart.so.11.0: cannot open shared object file: No such file",
            "no GPU here",
        ),
        (
            "OSError: libsndfile.so.1: cannot open shared object file: No such file",
            "a library of the system is missing",
        ),
        (
            "RuntimeError: operator torchvision::nms does not exist",
            "this torchvision was built for another PyTorch",
        ),
        ("EOFError: EOF when reading a line", "a job has no keyboard: take the value from"),
        ("KeyError: 'SLURM_PROCID'", "CLOUDML_INDEX is the number of the task"),
        ("KeyError: 'OMPI_COMM_WORLD_RANK'", "submit it with --recipe mpi -w N"),
        ("KeyError: 'RANK'", "submit it with --recipe pytorch -w N"),
        ("KeyError: 'DASK_SCHEDULER_ADDRESS'", "submit it with --recipe dask -w N"),
        ("KeyError: 'CLOUDML_ARRAY_INDEX'", "such as --array 0-9"),
        ("KeyError: 'SLURM_ARRAY_TASK_ID'", "such as --array 0-9"),
        ("KeyError: 'SLURM_ARRAY_TASK_COUNT'", "such as --array 0-9"),
        (
            "RuntimeError: Parent directory $CLOUDML_CHECKPOINT_DIR does not exist.",
            "variables in arguments are not replaced: read them in the code",
        ),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '${CLOUDML_TASK_DIR}/a.pt'",
            "variables in arguments are not replaced: read them in the code",
        ),
        ("ModuleNotFoundError: No module named 'mpi4py'", "with --recipe mpi -w N"),
        ("ModuleNotFoundError: No module named 'dask'", "with --recipe dask -w N"),
        ("KeyError: 'TF_CONFIG'", "submit it with -F tensorflow -w N"),
        (
            "ValueError: Error initializing torch.distributed using env:// rendezvous: "
            "environment variable RANK expected, but not set",
            "submit it with --recipe pytorch -w N",
        ),
        (
            "ModuleNotFoundError: No module named 'huggingface_hub'",
            "submit with --install huggingface_hub",
        ),
        (
            "socket.gaierror: [Errno -2] Name or service not known",
            "the name of a host cannot be resolved here: check it",
        ),
        ("NameError: name 'get_ipython' is not defined", "only notebooks have it: remove the line"),
        ("FloatingPointError: loss is nan in epoch 1", "lower the learning rate"),
        (
            "RuntimeError: DataLoader worker (pid 5) is killed by signal: Bus error.",
            "fewer workers or a larger -M",
        ),
    ],
)
def test_what_usually_helps(error: str, hint: str) -> None:
    message = explanation(error)
    assert message.startswith(f"{ENDING}: {error}")
    assert hint in message


def test_no_hint_without_reason() -> None:
    assert (
        explanation("NameError: name 'lr' is not defined")
        == f"{ENDING}: NameError: name 'lr' is not defined"
    )
    assert explanation("EOFError: Ran out of input") == f"{ENDING}: EOFError: Ran out of input"
    assert explanation("ValueError: bad") == f"{ENDING}: ValueError: bad"
    assert explanation("FloatingPointError: division") == f"{ENDING}: FloatingPointError: division"


# ---- files


@pytest.fixture
def sent(tmp_path: Path) -> FailureContext:
    for name in (
        "train.py",
        "data/churn.csv",
        "data/deep/other.csv",
        ".git/config",
        "__pycache__/train.pyc",
    ):
        file = tmp_path / "code" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "churm.csv").touch()
    (tmp_path / "code" / "link").symlink_to(tmp_path / "outside")
    return FailureContext((CodeFolder(str(tmp_path / "code"), "/work"),), "/work")


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("data/chrun.csv", "did you mean data/churn.csv?"),
        ("churn.csv", "did you mean data/churn.csv?"),
        ("/home/me/project/churn.csv", "did you mean data/churn.csv?"),
        ("/home/me/nothing.like.it", "the path is of another machine"),
        ("/scratch/me/nothing.like.it", "the path is of another machine"),
        ("../nothing/like.it", "nothing above the folder is sent: put the file into the folder"),
        ("/tmp/nothing.like.it", "a /tmp of its own: put the file into the folder"),
        ("../data/churn.csv", "did you mean data/churn.csv?"),
        (
            "x.csv",
            "the working directory is /work; sent with the code: train.py, data/churn.csv, "
            "data/deep/other.csv",
        ),
    ],
)
def test_a_missing_file_says_where_it_was_looked_for_and_what_was_sent(
    sent: FailureContext, path: str, hint: str
) -> None:
    message = explanation(f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'", sent)
    assert hint in message
    assert path in message
    assert "churm" not in message
    assert ".git" not in message


def test_a_script_that_was_sent_alone_says_how_to_send_its_folder(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "requirements.txt").touch()
    context = FailureContext((CodeFolder(str(tmp_path), "/work/code"),), "/work/code")
    message = explanation(
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/churn.csv'", context
    )
    assert message.endswith("submit its folder, as in cloudml jobs submit NAME train FOLDER")
    (tmp_path / "model.bin").touch()
    assert "FOLDER" not in explanation(
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/churn.csv'", context
    )


def test_a_missing_object_names_the_command_that_shows_the_bucket(sent: FailureContext) -> None:
    message = explanation(
        "FileNotFoundError: [Errno 2] No such file or directory: '/storage/ml/data/x.csv'", sent
    )
    assert message.endswith("see what is there: cloudml storage ls fds://ml/data/")
    place = f"/var/lib/cloudml/engine/jobs/{'0f' * 16}/storage/ml/x.csv"  # without a sandbox
    message = explanation(
        f"FileNotFoundError: [Errno 2] No such file or directory: '{place}'", sent
    )
    assert message.endswith("see what is there: cloudml storage ls fds://ml/")
    message = explanation(
        "FileNotFoundError: [Errno 2] No such file or directory: '/fds/x.csv'", sent
    )
    assert message.endswith("see what is there: cloudml storage ls fds://BUCKET/")
    message = explanation(
        "FileNotFoundError: [Errno 2] No such file or directory: 'fds://ml/x.csv'", sent
    )
    assert "hand it to the code as an argument" in message


def test_a_missing_secret_names_the_option_that_gives_it(sent: FailureContext) -> None:
    message = explanation(
        "FileNotFoundError: [Errno 2] No such file or directory: '/run/secrets/db-password'", sent
    )
    assert message.endswith("submit it with --secret db-password; cloudml secret list shows all")
    message = explanation(
        "FileNotFoundError: [Errno 2] No such file or directory: '/run/secrets/$(reboot)'", sent
    )
    assert "--secret" not in message


def test_links_in_the_folder_of_a_job_are_not_followed(sent: FailureContext) -> None:
    assert sorted(sent_files(sent.folders)) == ["data/churn.csv", "data/deep/other.csv", "train.py"]


def test_a_link_in_the_place_of_the_working_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "others" / "bucket").mkdir(parents=True)
    (tmp_path / "others" / "bucket" / "secret.csv").touch()
    (tmp_path / "code").symlink_to(tmp_path / "others")
    context = FailureContext((CodeFolder(str(tmp_path / "code"), "/work/code"),), "/work/code")
    message = explanation(
        "FileNotFoundError: [Errno 2] No such file or directory: 'secrets.csv'", context
    )
    assert "secret.csv" not in message
    assert message.endswith("no file was sent with the code")


def test_names_that_are_hard_to_compare_cost_a_bounded_time(tmp_path: Path) -> None:
    """Long names of two letters in random order are the worst case of the comparison."""
    letters = random.Random(1)

    def word() -> str:
        return "".join(letters.choices("ab", k=190))

    for files in (100, 1600):
        (tmp_path / str(files)).mkdir()
        for _ in range(files):
            (tmp_path / str(files) / word()).touch()

    def explained(files: int) -> Callable[[], object]:
        context = FailureContext((CodeFolder(str(tmp_path / str(files)), "/work"),), "/work")
        return lambda: explanation(
            f"FileNotFoundError: [Errno 2] No such file or directory: '{word()}'", context
        )

    _, power = growth(explained, 100, below=0.6)
    assert power < 0.6


def test_a_folder_without_end_is_listed_in_part(tmp_path: Path) -> None:
    below = tmp_path
    for _ in range(40):
        below = below / "a"
        below.mkdir()
        (below / "f").touch()
    assert len(list(sent_files([CodeFolder(str(tmp_path), "/work")]))) == 8


# ---- endings


def test_signals_say_what_they_usually_mean() -> None:
    message = explain.message(
        "master-0 was killed by signal SIGSEGV", b"", FailureContext(), killed_by="SIGSEGV"
    )
    assert message.startswith("master-0 was killed by signal SIGSEGV (compiled code crashed")
    assert "memory" in signals.meaning_of_code(137)
    assert signals.meaning_of_code(143).startswith("SIGTERM")
    assert [signals.meaning_of_code(code) for code in (0, 1, 2, 125, 128, 200, 255)] == [""] * 7


def test_the_line_of_a_shell_command_that_failed() -> None:
    context = FailureContext(command="set -e\nconda install x\necho done")
    message = explain.message(
        "master-0 exited with code 127", b"/bin/sh: 2: conda: not found\n", context, code=127
    )
    assert message == (
        "master-0 exited with code 127 (a command in it was not found): last output: /bin/sh: 2: "
        "conda: not found; line 2 is: conda install x"
    )
    secret = FailureContext(command="set -e\nconda login --token hunter2")
    assert "hunter2" not in explain.message(
        "x", b"/bin/sh: 2: conda: not found\n", secret, code=127
    )
    one_line = explain.message(
        "x", b"/bin/sh: 1: conda: not found\n", FailureContext(command="conda x"), code=1
    )
    assert "line 1 is" not in one_line


def test_a_port_that_is_refused_is_not_taken_for_a_file() -> None:
    error = "PermissionError: [Errno 13] Permission denied"
    frame = '  File "/lib/socketserver.py", line 472, in server_bind\n    self.socket.bind(self.server_address)'
    message = explanation(f"{frame}\n{error}")
    assert message.endswith("ports below 1024 are not for jobs: listen on a higher one")
    assert "may write" not in message
    assert explanation(error) == f"{ENDING}: {error}"
    assert "may write to its working directory" in explanation(f"{error}: '/usr/x'")


def test_a_host_that_nobody_knows_is_explained_where_it_ended_the_program() -> None:
    warning = b"[Errno -2] Name or service not known, while requesting HEAD https://h.example/x\n"
    last = b"Traceback (most recent call last):\n  File '<x>', line 1\nh.errors.%s: no file\n"
    hint = "cannot be resolved here"
    ended = explain.message(ENDING, warning + last % b"LocalEntryNotFoundError", FailureContext())
    assert hint in ended
    other = explain.message(ENDING, warning + last % b"ValueError", FailureContext())
    assert hint not in other


def test_a_refused_connection_of_an_own_network_is_explained() -> None:
    tail = b"OSError: [Errno 113] No route to host\n"
    assert "engine.network_allow" in explain.message(ENDING, tail, FailureContext(own_network=True))
    assert "engine.network_allow" not in explain.message(ENDING, tail, FailureContext())


def test_a_message_has_a_bound_and_is_printable() -> None:
    message = explanation("ValueError: \x1b[2J\u202e" + "x" * 5000)
    assert len(message) <= explain.LONGEST
    assert message.isprintable()


def test_the_users_file_is_named_below_its_innermost_folder() -> None:
    context = FailureContext((CodeFolder("/s", "/work"), CodeFolder("/t", "/work/x/site")), "/work")
    tail = b'Traceback (most recent call last):\n  File "/work/x/site/a/b.py", line 2, in f\n    f()\nValueError: x\n'
    assert explain.message(ENDING, tail, context).endswith("ValueError: x (a/b.py, line 2)")
