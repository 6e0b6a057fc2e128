"""Fifty pairs of runs with one change that matters, among changes that do not."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from cloud_ml.domain.comparison.ranking import Fact, Facts, differing_facts, rank_differences

LR, DEPTH, OPTIMIZER, CODE, DATA, NUMPY, SEED, LABEL, MEMORY, NODE = (
    ("argument", "lr"), ("argument", "depth"), ("argument", "optimizer"), ("code", "files"),
    ("data", "fds://b/train.csv"), ("package", "numpy"), ("seed", "CLOUDML_SEED"),
    ("argument", "comment"), ("limit", "memory"), ("machine", "node"),
)  # fmt: skip
CHOICES: dict[Fact, list[str]] = {
    LR: ["0.001", "0.003", "0.01", "0.03", "0.1", "0.3"],
    DEPTH: ["2", "4", "6", "8"],
    OPTIMIZER: ["adam", "sgd"],
    CODE: ["c1", "c2", "c3"],
    DATA: ["d1", "d2"],
    NUMPY: ["1.26.0", "2.0.0"],
    LABEL: ["a", "b", "c", "d"],
    MEMORY: ["1G", "2G"],
    NODE: ["n1", "n2"],
}
MATTER = (LR, DEPTH, OPTIMIZER, CODE, DATA, NUMPY)


def loss(facts: Facts, chance: random.Random) -> float:
    """Curved in the rate, with jumps; the seed is noise."""
    value = 0.25 * (math.log10(float(str(facts[LR]))) + 2) ** 2
    value += 0.05 * abs(int(str(facts[DEPTH])) - 6)
    value += {"adam": 0.0, "sgd": 0.2}[str(facts[OPTIMIZER])]
    value += {"c1": 0.0, "c2": 0.15, "c3": 0.3}[str(facts[CODE])]
    value += {"d1": 0.0, "d2": 0.25}[str(facts[DATA])]
    value += {"1.26.0": 0.0, "2.0.0": 0.15}[str(facts[NUMPY])]
    return value + chance.gauss(0, 0.02)


def made(chance: random.Random) -> dict[Fact, str]:
    return {
        **{fact: chance.choice(values) for fact, values in CHOICES.items()},
        SEED: str(chance.getrandbits(31)),
    }


def pair(chance: random.Random, planted: Fact, decoys: list[Fact]) -> tuple[Facts, Facts]:
    """Two runs that differ in what was planted, in decoys and in the seed."""
    first = made(chance)
    second = {**first, SEED: str(chance.getrandbits(31))}
    values = CHOICES[planted]
    ends = [values[0], values[-1]] if planted != LR else ["0.01", "0.3"]
    chance.shuffle(ends)
    first[planted], second[planted] = ends
    if planted == DEPTH:
        first[planted], second[planted] = "2", "6"
    for decoy in decoys:
        second[decoy] = chance.choice([one for one in CHOICES[decoy] if one != first[decoy]])
    return first, second


def test_the_planted_change_stands_first_in_at_least_45_of_50_pairs() -> None:
    found = []
    for number in range(50):
        chance = random.Random(number)
        planted = MATTER[number % len(MATTER)]
        first, second = pair(chance, planted, [LABEL, MEMORY, NODE])
        others = [(facts, loss(facts, chance)) for facts in (made(chance) for _ in range(40))]
        compared = [(facts, loss(facts, chance)) for facts in (first, second)]
        ranking = rank_differences(compared, others)
        assert ranking.enough
        assert len(ranking.facts) == 5
        found.append(ranking.facts[0].fact == planted)
    assert sum(found) >= 45, found


def test_without_other_runs_the_order_is_that_of_what_matters_in_general() -> None:
    chance = random.Random(1)
    first, second = pair(chance, CODE, [MEMORY, NODE, LABEL])
    ranking = rank_differences([(first, 0.1), (second, 0.4)], [])
    assert not ranking.enough
    assert [one.fact for one in ranking.facts] == [LABEL, CODE, SEED, NODE, MEMORY]
    assert {one.effect for one in ranking.facts} == {None}


def test_an_effect_has_the_size_and_the_sign_that_it_has_in_the_other_runs() -> None:
    chance = random.Random(3)
    others = [(facts, loss(facts, chance)) for facts in (made(chance) for _ in range(60))]
    first = made(chance) | {OPTIMIZER: "adam"}
    second = first | {OPTIMIZER: "sgd", LABEL: "z"}
    ranking = rank_differences([(first, None), (second, None)], others)
    best = ranking.facts[0]
    assert best.fact == OPTIMIZER
    assert best.effect == pytest.approx(0.2, abs=0.05)
    assert best.share is not None
    assert best.share > 0.8


@pytest.mark.parametrize("value", [lambda _: 0.5, lambda at: math.nan if at else 1.0])
def test_metrics_that_tell_nothing_rank_nothing(value: Callable[[int], float]) -> None:
    chance = random.Random(4)
    others = [(made(chance), value(at)) for at in range(12)]
    first, second = pair(chance, LR, [])
    ranking = rank_differences([(first, 0.5), (second, 0.5)], others)
    assert {one.effect for one in ranking.facts} <= {0.0, None}
    assert ranking.facts[0].fact == LR


def test_hundreds_of_runs_and_facts_are_bounded() -> None:
    chance = random.Random(5)
    wide = {("package", f"p{number}"): ("1", "2") for number in range(500)}
    others = [
        ({fact: chance.choice(values) for fact, values in wide.items()}, chance.random())
        for _ in range(300)
    ]
    ranking = rank_differences([(others[0][0], 1.0), (others[1][0], 2.0)], others[2:])
    assert ranking.runs == 100
    assert set(differing_facts([others[0][0], others[1][0]])) == {r.fact for r in ranking.facts}
