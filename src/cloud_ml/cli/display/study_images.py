"""Plots as PNG, by the package of the extra ``plot``."""

from __future__ import annotations

import functools

import click

_FAMILIES = (
    "DejaVu Sans", "Arial", "Helvetica", "Liberation Sans", "Noto Sans", "Segoe UI", "Verdana",
    "Roboto", "Open Sans", "Ubuntu", "Cantarell", "FreeSans", "Tahoma",
)  # fmt: skip
_PROBE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">'
    '<text y="16" font-family="sans-serif">{}</text></svg>'
)
_ZOOM = 2.0
"""Pixels for each unit of the drawing: it is looked at on screens and in slides."""


def png_of(svg: str) -> bytes:
    """The drawing as PNG, twice as large.

    Raises:
        ClickException: The package, or a font for its words, is not installed.
    """
    try:
        import resvg_py
    except ImportError:
        raise click.ClickException(
            "a PNG needs the package resvg-py: pip install 'cloud-ml[plot]'; or write .svg"
        ) from None
    family = _find_family()
    if family is None:
        raise click.ClickException(
            "a PNG needs a font for its words, such as the package fonts-dejavu-core; or write .svg"
        )
    drawn: bytes = resvg_py.svg_to_bytes(svg_string=svg, zoom=_ZOOM, sans_serif_family=family)
    return drawn


@functools.cache
def _find_family() -> str | None:
    """A font of this machine. One that is missing is no error: words would be left out."""
    import resvg_py

    empty = resvg_py.svg_to_bytes(svg_string=_PROBE.format(""))
    for family in _FAMILIES:
        found = resvg_py.svg_to_bytes(svg_string=_PROBE.format("ab"), sans_serif_family=family)
        if found != empty:
            return family
    return None
