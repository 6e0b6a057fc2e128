from __future__ import annotations

import shlex

import pytest

from cloud_ml.models.secrets.arguments import (
    fill_masked_arguments,
    flags_with_masks,
    masked_arguments,
    masked_flags,
)
from cloud_ml.models.secrets.secret import MASK


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("--password hunter2 --lr 0.1", f"--password {MASK} --lr 0.1"),
        ("--token=abc", f"--token={MASK}"),
        ("-password 'two words' data.csv", f"-password {MASK} data.csv"),
        ("db.password=x", f"db.password={MASK}"),
        ("--dbPassword x", f"--dbPassword {MASK}"),
        ("--hf-token --verbose x", "--hf-token --verbose x"),
        ("--url https://me:pw@host/x", f"--url https://me:{MASK}@host/x"),
        ("--name 'a b' --secret x", f"--name 'a b' --secret {MASK}"),
        ("--token=", "--token="),
    ],
)
def test_values_of_secret_flags_are_masked(given: str, shown: str) -> None:
    assert masked_arguments(given) == shown
    assert masked_arguments(shlex.split(given)) == shlex.split(shown)
    assert fill_masked_arguments(shlex.split(shown), given) == shlex.split(given)
    assert bool(masked_flags(given)) == (given != shown) == bool(flags_with_masks(shown))


@pytest.mark.parametrize(
    "given",
    ["--max_tokens 5", "--tokenizer bert", "--pad-token '<pad>'", "--cls_token x", "--password-file f", "a=b", "",
     "-p x", "--monkey 3   --lr  1"],
)  # fmt: skip
def test_other_arguments_stay_as_they_were_typed(given: str) -> None:
    assert masked_arguments(given) == given
    assert masked_flags(given) == []


def test_each_mask_gets_its_own_value_and_no_other() -> None:
    stored = ["--token", "one", "--password", "two", "--token", "three"]
    shown = ["--token", MASK, "--password", MASK, "--token", MASK]
    assert fill_masked_arguments(shown, stored) == stored
    assert fill_masked_arguments(["--password", MASK, *shown[4:]], stored) == [
        "--password",
        "two",
        "--token",
        "one",
    ]
    assert fill_masked_arguments(["--secret", MASK], stored) == ["--secret", MASK]
    assert fill_masked_arguments([MASK], stored) == [MASK]
    assert fill_masked_arguments(None, stored) is None
