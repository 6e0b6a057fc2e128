"""What a person reads of an error."""

from __future__ import annotations

import pytest

from cloud_ml.cli.guard import explain
from cloud_ml.errors import InvalidRequest, NotFound

SAYS_IT = "replicas is '-3'; allowed is a whole number"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (NotFound("there is no job x"), "cloudml: there is no job x (code: not_found)"),
        (
            InvalidRequest("replica is 9; there is none", field="replica", value=9, allowed="1, 2"),
            "cloudml: replica is 9; there is none\n  allowed: 1, 2 (code: invalid)",
        ),
        (InvalidRequest(SAYS_IT, allowed="a whole number"), f"cloudml: {SAYS_IT} (code: invalid)"),
        (
            InvalidRequest("Offered: a, b", allowed="one of a, b"),
            "cloudml: Offered: a, b (code: invalid)",
        ),
        (
            InvalidRequest("x is 9", allowed="1, 2", hint="Did you mean 1?"),
            "cloudml: x is 9\n  allowed: 1, 2\n  Did you mean 1? (code: invalid)",
        ),
    ],
)
def test_an_error_says_what_is_allowed_once(error: InvalidRequest | NotFound, text: str) -> None:
    assert explain(error) == text
