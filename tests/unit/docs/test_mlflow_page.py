"""The table of MLflow's endpoints names each one that is there."""

from __future__ import annotations

import re

from cloud_ml.api.mlflow.router import ROUTERS
from support.pages import ROOT

PREFIX = "/mlflow/api/2.0/"


def test_the_table_is_what_is_served() -> None:
    page = (ROOT / "docs/howto/mlflow.md").read_text("utf-8")
    listed_routes = re.findall(r"^\| `([A-Z]+ [^`]+)` \| yes \|", page, re.MULTILINE)
    served = set()
    for route in (route for router in ROUTERS for route in router.routes):
        path = route.path.removeprefix(PREFIX)  # type: ignore[attr-defined]
        if path != route.path:  # type: ignore[attr-defined]
            for method in route.methods:  # type: ignore[attr-defined]
                served.add(f"{method} {path.replace(':path', '')}")
    assert len(listed_routes) == len(set(listed_routes))
    assert set(listed_routes) == served
