"""``cloudml runs`` and ``cloudml tensorboard``."""
