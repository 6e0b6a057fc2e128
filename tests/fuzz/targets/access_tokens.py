"""Access tokens: the header that carries one, the address that must not, and the scopes that are
asked for; tokens of jobs.
"""

from __future__ import annotations

import contextlib

from cloud_ml.auth import bearer, job_tokens
from cloud_ml.domain import scopes
from cloud_ml.errors import InvalidRequest, Unauthenticated
from fuzz.harness import target, text

TOKEN = "cloudml_tkabcdefghjkmnpq_" + "aB3" * 14 + "c"


@target(
    "auth.bearer",
    seeds=[f"Authorization: Bearer {TOKEN}", "authorization: bearer   "
                                             f"{TOKEN}", f"Authorization: Bearer {TOKEN}x",
           f"Authorization: Bearer {TOKEN}\nAuthorization: Bearer "
           f"{TOKEN}", "Authorization: Bearer cmt1.a.1.x",
           f"Authorization: Bearer {TOKEN}\nX-Cloudml-Key: AK"],
    words=["Authorization: ", "Bearer ", TOKEN, "\n", "X-Cloudml-Date: 1", "cmt2.", "access_token=", "\t", "\x0b", "="],
)  # fmt: skip
def bearer_header(data: bytes) -> None:
    """Only the token itself, in one header and beside no signature, is read as this token."""
    lines = (line.partition(": ") for line in data.decode("latin-1").split("\n"))
    pairs = [(name, value) for name, _, value in lines]
    named = [value for name, value in pairs if name.lower() == "authorization"]
    try:
        found = bearer.read(pairs)
    except Unauthenticated as error:
        assert len(str(error)) < 300  # noqa: PT017
    else:
        assert bearer.is_sent(pairs)
        assert len(named) == 1
        sent = named[0].split(" ")[-1]
        assert found == bearer.BearerToken(sent.split("_")[1], bearer.digest_of(sent))
        assert (found.digest == bearer.digest_of(TOKEN)) == (sent == TOKEN)
    assert TOKEN not in bearer.without_secrets(text(data))
    if TOKEN.encode() in data:
        assert bearer.is_in_query(data)


@target(
    "domain.scopes",
    seeds=[
        "jobs:read",
        "models:predict",
        "models:predict:linear/v1",
        "keys:write",
        "job:read",
        "jobs:read:x",
    ],
    words=[":", "/", "jobs", "models", "predict", "metadata", "write", "read", "linear", "v1", "١"],
)
def token_scopes(data: bytes) -> None:
    """A scope is refused, or is what its text says, covers itself, and covers no other resource."""
    with contextlib.suppress(InvalidRequest):
        scope = scopes.parse_scope(text(data))
        assert str(scope) == text(data)
        assert scope.covers(scope)
        for other in ("jobs:write", "models:write", "keys:write", "models:predict"):
            wider = scopes.parse_scope(other)
            assert not scope.covers(wider) or str(scope) == other


JOB_KEY = job_tokens.derived_key(b"a sealing key")
JOB_TOKEN = job_tokens.make_token(JOB_KEY, "0b5c-1", 2)


@target(
    "auth.job_tokens",
    seeds=[JOB_TOKEN, f"{JOB_TOKEN}\n", JOB_TOKEN.replace(".2.", ".02."), "cmj1.a.1." + "A" * 43],
    words=[JOB_TOKEN, "cmj1.", ".", "2", "٢", "=", "\n"],
)
def job_token(data: bytes) -> None:
    """Nothing but the token itself is believed to be made with the key."""
    sent = text(data)
    found = job_tokens.JobToken.read(sent)
    believed = found is not None and found.made_with(JOB_KEY)
    assert believed == (sent == JOB_TOKEN)
