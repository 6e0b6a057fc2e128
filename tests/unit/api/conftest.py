from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.platform import Served


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.close()
