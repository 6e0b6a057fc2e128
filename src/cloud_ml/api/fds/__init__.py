"""The original storage protocol: the part of it that ``galaxy-fds-sdk`` speaks for the original
client.

Its paths are ``/<bucket>/<key>`` at the root of a host of its own, so what tells its requests from
all others is their ``Authorization: Galaxy-V2 …``: whatever carries it comes in here and nowhere
else, and nothing else comes in. What is not listed in ``operations`` is refused.
"""
