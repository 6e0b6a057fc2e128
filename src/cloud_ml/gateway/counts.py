"""What the gateway counted, for whoever scrapes the server: sums over services, since nothing
there names a tenant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cloud_ml.domain.services.routes import CANDIDATE, STABLE, Answered, Figures
from cloud_ml.observability.metrics import Family, Reading

SIDES = (STABLE, CANDIDATE)


def families(figures: Callable[[], Mapping[str, Figures]]) -> Sequence[Family]:
    """Families that read the figures when they are scraped; as old as the last word of the
    gateway, about a second.
    """

    def total(number: Callable[[Figures], float]) -> Callable[[], Mapping[tuple[str, ...], float]]:
        return lambda: {(): float(sum(number(each) for each in figures().values()))}

    def outcomes() -> Mapping[tuple[str, ...], float]:
        found = list(figures().values())
        return {
            ("failed",): float(sum(each.failed for each in found)),
            ("refused",): float(sum(each.refused for each in found)),
            ("retried",): float(sum(each.retried for each in found)),
            ("hung_up",): float(sum(each.hung_up for each in found)),
        }

    def sides(number: Callable[[Answered], float]) -> Callable[[], Mapping[tuple[str, ...], float]]:
        def read() -> Mapping[tuple[str, ...], float]:
            found = [each.sides for each in figures().values()]
            return {
                (side,): float(sum(number(each[side]) for each in found if side in each))
                for side in SIDES
            }

        return read

    return [
        Reading(
            "cloudml_gateway_calls_total",
            "Calls of model services that the gateway took in.",
            (),
            total(lambda each: each.requests),
            kind="counter",
        ),
        Reading(
            "cloudml_gateway_troubles_total",
            "Calls that no replica answered, that were refused as too many, further tries, and "
            "connections closed because a replica broke a rule or a bound.",
            ("kind",),
            outcomes,
            kind="counter",
        ),
        Reading(
            "cloudml_gateway_calls_open", "Calls under way.", (), total(lambda each: each.in_flight)
        ),
        Reading(
            "cloudml_gateway_calls_waiting",
            "Calls that wait for a replica.",
            (),
            total(lambda each: each.waiting),
        ),
        Reading(
            "cloudml_gateway_side_calls_total",
            "Calls that replicas of the stable release, or of a candidate, had.",
            ("side",),
            sides(lambda each: each.requests),
            kind="counter",
        ),
        Reading(
            "cloudml_gateway_side_errors_total",
            "Those of them that failed or were answered with an error.",
            ("side",),
            sides(lambda each: each.errors),
            kind="counter",
        ),
        Reading(
            "cloudml_gateway_side_seconds_total",
            "What these calls took together.",
            ("side",),
            sides(lambda each: each.seconds),
            kind="counter",
        ),
        Reading(
            "cloudml_gateway_services",
            "Services that have a port.",
            (),
            lambda: {(): float(len(figures()))},
        ),
        Reading(
            "cloudml_gateway_replicas",
            "Replicas that take calls.",
            (),
            total(lambda each: len(each.backends)),
        ),
    ]
