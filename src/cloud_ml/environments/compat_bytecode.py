"""The modules of ours that each job imports, compiled for the platform's own Python. Some installers
leave that out, and a job may not write where they lie: it would compile them each time anew.
"""

from __future__ import annotations

from pathlib import Path

_COMPAT = Path(__file__).with_name("compat")


def compile_modules(folder: Path = _COMPAT) -> None:
    """Compile what is not; where nothing can be written, jobs do it as before. Takes some
    milliseconds if all of it is compiled.
    """
    import compileall  # noqa: PLC0415 - only servers need it, once

    compileall.compile_dir(folder, quiet=2)
