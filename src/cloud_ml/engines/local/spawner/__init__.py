"""The resident spawner: one small process that outlives the server and keeps a supervisor for each
gang.

Forking a process that has everything imported takes a millisecond where a fresh Python takes a
hundred. ``main`` is the program, ``loop`` what it does and when, ``requests`` how the server asks,
``supervisor_pool`` its supervisors, ``reaper`` what is done for a gang whose supervisor died, and
``fences`` the networks of organisations.
"""
