"""A network of its own for each organisation's jobs.

``find`` says what this machine gives, ``Networks`` makes networks and takes them away. What is in
force is one of ``TENANT``, ``HOST`` and ``NONE``.
"""

HOST, NONE, TENANT = "host", "none", "tenant"
JOB_PORT = 8471
"""Where jobs find the server, on the loopback of a network that is not the machine's: the port of
the server by default, and none that tasks are given.
"""
