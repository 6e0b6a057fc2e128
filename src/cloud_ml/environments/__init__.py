"""Environments of jobs: runtimes, trainers and the layers that hold them. Standard library only.

Runs inside the supervisor of the local engine, so nothing here may import a third-party package,
nor the rest of the platform but ``launcher.archives``.
"""
