"""What the gateway counted, for whoever scrapes the server: sums over services, since nothing there names a tenant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cloud_ml.domain.services.routes import Figures
from cloud_ml.observability.metrics import Family, Reading


def families(figures: Callable[[], Mapping[str, Figures]]) -> Sequence[Family]:
    """Families that read the figures when they are scraped; as old as the last word of the gateway, about a second."""

    def total(number: Callable[[Figures], float]) -> Callable[[], Mapping[tuple[str, ...], float]]:
        return lambda: {(): float(sum(number(each) for each in figures().values()))}

    def outcomes() -> Mapping[tuple[str, ...], float]:
        found = list(figures().values())
        return {
            ("failed",): float(sum(each.failed for each in found)),
            ("refused",): float(sum(each.refused for each in found)),
            ("retried",): float(sum(each.retried for each in found)),
        }

    return [
        Reading(
            "cloudml_gateway_calls_total", "Calls of model services that the gateway took in.", (),
            total(lambda each: each.requests), kind="counter",
        ),
        Reading(
            "cloudml_gateway_troubles_total",
            "Calls that no replica answered, that were refused as too many, and further tries.",
            ("kind",), outcomes, kind="counter",
        ),
        Reading("cloudml_gateway_calls_open", "Calls under way.", (), total(lambda each: each.in_flight)),
        Reading(
            "cloudml_gateway_calls_waiting", "Calls that wait for a replica.", (), total(lambda each: each.waiting)
        ),
        Reading("cloudml_gateway_services", "Services that have a port.", (), lambda: {(): float(len(figures()))}),
        Reading(
            "cloudml_gateway_replicas", "Replicas that take calls.", (), total(lambda each: len(each.backends))
        ),
    ]  # fmt: skip
