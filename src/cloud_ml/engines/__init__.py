"""What runs gangs of processes. ``base`` is the contract; ``local`` is this machine, ``fake`` is
for tests.
"""
