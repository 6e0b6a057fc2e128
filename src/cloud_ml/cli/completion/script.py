"""``cloudml completion``: the script that makes a shell complete our commands."""

from __future__ import annotations

import sys

import click

from cloud_ml.cli.display.output import note

_INSTALL = {
    "bash": "cloudml completion bash > ~/.local/share/bash-completion/completions/cloudml",
    "zsh": 'cloudml completion zsh > "${fpath[1]}/_cloudml"',
    "fish": "cloudml completion fish > ~/.config/fish/completions/cloudml.fish",
}
_NOW = {
    "bash": 'eval "$(cloudml completion bash)"',
    "zsh": 'eval "$(cloudml completion zsh)"',
    "fish": "cloudml completion fish | source",
}


@click.command()
@click.argument("shell", type=click.Choice(tuple(_INSTALL)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands, options, and the names of jobs, contexts and
    frameworks.

    \b
    bash   eval "$(cloudml completion bash)"        in ~/.bashrc
    zsh    eval "$(cloudml completion zsh)"         in ~/.zshrc
    fish   cloudml completion fish | source         in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "cloudml", "_CLOUDML_COMPLETE")
    click.echo(script.source_template % script.source_vars())
    if sys.stdout.isatty():
        note(f"To use it now:   {_NOW[shell]}\nTo keep it:      {_INSTALL[shell]}")
