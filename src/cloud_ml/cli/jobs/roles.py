"""Asking for the roles of a job of several tasks (``jobs submit --distributed``)."""

from __future__ import annotations

from typing import Any

import click

_QUESTIONS = (
    ("count", "Tasks", "1"),
    ("cpu_limit", "Cores of each, such as 0.5 (empty: no limit)", ""),
    ("memory_limit", "Memory of each, such as 100M (empty: no limit)", ""),
    ("gpu_limit", "GPUs of each (empty: none)", ""),
    ("task_args", "Further arguments (empty: none)", ""),
)


def ask_for_roles() -> dict[str, dict[str, Any]]:
    """A ``cluster_spec``, asked for on the terminal. The server checks the answers."""
    names = click.prompt("Roles, separated by spaces", default="master worker ps", err=True).split()
    roles: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(names):
        click.echo(f"{name}:", err=True)
        answers = {
            field: click.prompt(
                f"  {question}", default=default, show_default=bool(default), err=True
            )
            for field, question, default in _QUESTIONS
        }
        roles[name] = {field: answer for field, answer in answers.items() if answer}
    return roles
