"""What a process of a job may see and call on this machine: bubblewrap's command line,
Landlock, the filter of system calls, the ``/etc`` that jobs see, the folders that a job is
shown, and how far a tenant's user reaches.
"""
