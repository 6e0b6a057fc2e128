from __future__ import annotations

import pytest

from cloud_ml.environments.packages.versions import release, satisfies


@pytest.mark.parametrize(
    ("version", "specifier", "met"),
    [
        ("2.21.0", "", True),
        ("2.21.0", ">=1.0", True),
        ("2.21.0", ">=1.0,<2", False),
        ("2.21.0", "==2.21", True),
        ("2.21.0", "==2.21.*", True),
        ("2.21.0", "==2.2.*", False),
        ("2.21.0", "!=2.21.*", False),
        ("2.21.0", "!=2.20", True),
        ("2.21.0", "~=2.20", True),
        ("2.21.0", "~=2.20.1", False),
        ("1.15.5", "~=1.4", True),
        ("1.15.5", "== 1.3.0", False),
        ("1.15.5", ">1.15.5", False),
        ("1.15.5", "<=1.15.5", True),
        ("84.2.1", "===84.2.1", True),
        ("2.13.0+cpu", "==2.13.0", True),
        ("1.0", "gibberish", True),
    ],
)
def test_satisfies(version: str, specifier: str, met: bool) -> None:
    assert satisfies(version, specifier) is met


def test_release_takes_the_numbers_only() -> None:
    assert release("v2.21.0rc1+cpu") == (2, 21, 0)
    assert release("latest") == ()
