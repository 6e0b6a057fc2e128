"""``cloudml hp``: studies, what can be read out of them, and trials on this machine."""
