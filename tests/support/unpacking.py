"""How tests unpack archives of our own making."""

from __future__ import annotations

import tarfile
from typing import Any

UNPACKING: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Python before 3.11.4 has no filters, and later ones want one named."""
