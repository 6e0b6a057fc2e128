"""Runs PyPI's TensorBoard in a tenant's sandbox, on a Unix socket in the working folder.

It is sent into the sandbox as a wheel (see ``controller.programs.tensorboard_package``), and
imports nothing else of ours.
"""
