"""The ``cloudml`` command. Groups are loaded when they are used."""
