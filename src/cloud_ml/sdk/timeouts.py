"""How long clients wait, and for how long in vain."""

from __future__ import annotations

from cloud_ml.sdk.retries import RetryPolicy

LONG_POLL_S = 30.0
"""How long one request waits for a change; shorter than what proxies take for a dead connection."""
QUIET_LOG_S = 900.0
"""How long a followed log may be silent before the connection is made anew. A dead peer is found
out sooner, by probes of the operating system.
"""
QUIET_WATCH_S = 90.0
"""How long a stream may be silent before the connection is made anew; the server says something
every 15 s.
"""
PATIENCE = RetryPolicy(attempts=12, first_s=0.5, longest_s=15.0)
"""About two minutes without a byte from the server, in which it may be restarted or upgraded."""
