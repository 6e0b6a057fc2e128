"""``cloudml server`` and ``cloudml doctor``: running the platform on this machine, and looking after it."""
