"""What is shown of prepare and finish commands."""

from __future__ import annotations

import pytest

from cloud_ml.models.secrets.commands import (
    command_flags_with_masks,
    fill_masked_command,
    mask_command,
    masked_command_flags,
)
from cloud_ml.models.secrets.secret import MASK


@pytest.mark.parametrize(
    ("given", "shown", "flags"),
    [
        ("login --password hunter2", f"login --password {MASK}", ["--password"]),
        (
            "export DB_PASSWORD=hunter2; ./load",
            f"export DB_PASSWORD={MASK}; ./load",
            ["DB_PASSWORD"],
        ),
        (
            "HF_TOKEN='a b' python get.py\nls  -l",
            f"HF_TOKEN={MASK} python get.py\nls  -l",
            ["HF_TOKEN"],
        ),
        (
            "a --token=x&&b --api-key y|c",
            f"a --token={MASK}&&b --api-key {MASK}|c",
            ["--token", "--api-key"],
        ),
        (
            "pip install git+https://me:pw@host/x",
            f"pip install git+https://me:{MASK}@host/x",
            ["a URL"],
        ),
        ('echo "it\'s" # --secret x', f'echo "it\'s" # --secret {MASK}', ["--secret"]),
        ("(wandb login --key-token $'abc')", f"(wandb login --key-token {MASK})", ["--key-token"]),
    ],
)
def test_values_of_secret_flags_and_variables_are_masked(
    given: str, shown: str, flags: list[str]
) -> None:
    assert mask_command(given) == shown
    assert mask_command(shown) == shown
    assert masked_command_flags(given) == command_flags_with_masks(shown) == flags
    assert fill_masked_command(shown, given) == given


@pytest.mark.parametrize(
    "given",
    [
        "login --password $PASSWORD", 'login --password '
                                      '"${PASSWORD}"', "login --password $(cat /run/secrets/db)",
        "export TOKEN=$(cat token)", "export TOKEN=`cat token`", "login --password && echo "
                                                                 "hi", "make  data ; ls",
        "cat x | login --password-stdin", "", "echo '", "python train.py --tokenizer bert",
    ],
)  # fmt: skip
def test_a_command_that_holds_no_secret_stays_as_it_was_typed(given: str) -> None:
    assert mask_command(given) == given
    assert masked_command_flags(given) == command_flags_with_masks(given) == []


def test_each_mask_gets_its_own_value_and_no_other() -> None:
    stored = "a --token 'one one'; b --token two"
    assert fill_masked_command(f"a --token {MASK}; b --token {MASK} c", stored) == f"{stored} c"
    assert fill_masked_command(f"b --secret {MASK}", stored) == f"b --secret {MASK}"
    assert fill_masked_command(None, stored) is None
    assert fill_masked_command("ls", None) == "ls"
