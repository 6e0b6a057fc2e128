"""A network of its own for each organisation's jobs.

``find`` says what this machine gives, ``Networks`` makes networks and takes them away. What is in
force is one of ``TENANT``, ``HOST`` and ``NONE``.
"""

HOST, NONE, TENANT = "host", "none", "tenant"
