"""``cloudml hp plot``: drawings are well-formed, whatever tenants call things."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import click
import pytest

from cloud_ml.cli.display import study_images, study_plots
from cloud_ml.cli.display.study_values import KINDS, DrawnStudy, drawn_study
from cloud_ml.cli.display.text_plots import history_lines, plots_of
from cloud_ml.models.studies.readouts import (
    ParameterImportance,
    StudyCurves,
    StudyImportance,
    TrialCurve,
)
from cloud_ml.models.studies.study import Study, Trial

if TYPE_CHECKING:
    from unit.cli.conftest import Run

_SVG = "{http://www.w3.org/2000/svg}"
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_HOSTILE = "</title><script src='//evil'>\x00\x1b\ud800\"&"


def _trial(number: int, value: float | None, state: str = "Completed", **parameters: Any) -> Trial:
    return Trial(
        number=number, job=f"rates-hp-{number}", parameters=parameters, state=state, value=value
    )


def _study(*trials: Trial, objective: str = "loss:min", **space: Any) -> Study:
    return Study(
        name="rates",
        uid="1",
        org="acme",
        owner="eva",
        revision=1,
        created_at=_NOW,
        updated_at=_NOW,
        phase="Completed",
        objective=objective,
        algorithm="auto",
        max_trials=9,
        parallel=1,
        space=space,
        trials=list(trials),
    )


def svg_of(study: Study) -> str:
    return study_plots.svg_of(drawn_study(study))


def html_of(study: Study) -> str:
    return study_plots.html_of(drawn_study(study))


def _groups(svg: str, kind: str) -> list[ET.Element]:
    return [one for one in ET.fromstring(svg).iter(f"{_SVG}g") if one.get("class") == kind]


def _circles(svg: str) -> list[ET.Element]:
    groups = [*_groups(svg, "history"), *_groups(svg, "slice")]
    return [circle for group in groups for circle in group.iter(f"{_SVG}circle")]


class _Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_a_plot_has_the_history_and_one_slice_for_each_parameter() -> None:
    trials = [_trial(n, 1 / (n + 1), lr=10.0**-n, opt="ab"[n % 2]) for n in range(4)]
    study = _study(*trials, lr={"min": 0.001, "max": 1, "scale": "log"}, opt=["a", "b"])
    circles = _circles(svg_of(study))
    assert len(circles) == 3 * len(trials)
    across = [float(circle.attrib["cx"]) for circle in circles[4:8]]
    steps = [before - after for before, after in pairwise(across)]
    assert steps == pytest.approx([steps[0]] * 3, abs=0.2)
    assert html_of(study).count("<svg ") == 3 + 2  # parallel coordinates and a contour


def test_labels_stay_within_the_drawing() -> None:
    trials = [_trial(n, 0.1 + n, momentum=0.0123456 + n / 3) for n in range(3)]
    drawn = ET.fromstring(svg_of(_study(*trials, momentum={"min": 0, "max": 1})))
    labels = [one for one in drawn.iter() if one.tag.endswith("}text") and one.text]
    for one in labels:
        if one.attrib["text-anchor"] == "middle":
            assert float(one.attrib["x"]) + 4 * len(one.text or "") <= 720, one.text


@pytest.mark.parametrize(("objective", "rises"), [("loss:min", False), ("loss:max", True)])
def test_the_line_of_the_best_follows_the_goal(objective: str, rises: bool) -> None:
    trials = [_trial(n, value) for n, value in enumerate([2.0, 3.0, 1.0, 4.0])]
    early = _trial(4, 0.0, "EarlyStopped")
    (history,) = _groups(svg_of(_study(*trials, early, objective=objective)), "history")
    _, line = history.iter(f"{_SVG}path")
    heights = [float(point.split()[1]) for point in line.attrib["d"][1:].split("L")]
    assert heights == sorted(heights, reverse=rises)
    assert len(set(heights)) == (3 if rises else 2)


@pytest.mark.parametrize(
    ("objective", "sign", "edge"), [("loss:min", 1, "≥"), ("score:max", -1, "≤")]
)
def test_a_trial_that_diverged_does_not_flatten_the_others(
    objective: str, sign: int, edge: str
) -> None:
    good = [_trial(n, sign * (1 + n / 10)) for n in range(10)]
    study = _study(*good, _trial(10, sign * 1e12), _trial(11, -sign * 7.0), objective=objective)
    (history,) = _groups(svg_of(study), "history")
    places = [float(circle.attrib["cy"]) for circle in history.iter(f"{_SVG}circle")]
    assert abs(places[9] - places[0]) > 10
    ends = [places[10], places[11]]  # the one that diverged, and the best
    assert ends == [min(places), max(places)][::sign]
    words = [one.text or "" for one in history.iter(f"{_SVG}text")]
    assert any(text.startswith(edge) for text in words)


def test_hostile_words_stay_words() -> None:
    trial = _trial(0, 1.0, **{_HOSTILE: _HOSTILE})
    study = _study(trial, objective=f"{_HOSTILE}:min", **{_HOSTILE: [_HOSTILE]})
    assert len(_circles(svg_of(study))) == 2
    page = html_of(study)
    page.encode()
    tags = _Tags(page)
    assert "script" not in tags.found
    assert not {"src", "href", "onload"} & tags.attributes


@pytest.mark.parametrize(
    "values", [[], [None], [float("nan"), float("inf")], [1.0], [-1.7e308, 1.7e308], [5e-324, 0.0]]
)
def test_values_at_the_edge_are_drawn_or_left_out(values: list[float | None]) -> None:
    parameters: list[Any] = [10**400, True, None, [1], "x", -1.7e308]
    trials = [_trial(n, value, x=parameters[n]) for n, value in enumerate(values)]
    drawn = svg_of(_study(*trials, x={"min": 1, "max": 2, "scale": "log"}))
    finite = [value for value in values if value is not None and abs(value) < 1.8e308]
    circles = _circles(drawn)
    assert len(circles) == 2 * len(finite)
    assert all(0 <= float(circle.attrib["cy"]) <= 300 for circle in circles)


def test_a_file_of_another_kind_is_refused_before_the_server_is_asked(offline: Run) -> None:
    result = offline("hp", "plot", "rates", "-o", "rates.pdf")
    assert result.exit_code == 2
    assert "allowed is a name that ends in .html, .svg or .png" in result.stderr
    assert not Path("rates.pdf").exists()


def test_a_page_has_every_plot_and_hostile_words_stay_words() -> None:
    trials = [
        _trial(n, n / 7, "Completed", **{_HOSTILE: n / 3, "lr": n, "opt": "ab"[n % 2]})
        for n in range(12)
    ]
    del trials[3].parameters["lr"]  # a parameter that was not active
    study = _study(*trials, objective=f"{_HOSTILE}:min", **{_HOSTILE: {}, "lr": {}, "opt": []})
    measures = dict.fromkeys(
        ("fanova", "fanova_low", "fanova_high", "permutation", "permutation_low",
         "permutation_high"), 0.5
    )  # fmt: skip
    found = StudyImportance(
        study="rates", objective=_HOSTILE, trials=12, explained=0.5, interactions=0.1,
        parameters=[ParameterImportance(name=name, **measures) for name in (_HOSTILE, "opt")],
    )  # fmt: skip
    values: list[Any] = [1.0, "NaN", "Infinity", 2.0]
    curve = TrialCurve(number=0, job=_HOSTILE, state=_HOSTILE, steps=[0, 1, 2, 3], values=values)
    curves = StudyCurves(study="rates", objective=_HOSTILE, curves=[curve])
    drawn = drawn_study(study, [found], curves)
    svg = study_plots.svg_of(drawn)
    kinds = [one.get("class") for one in ET.fromstring(svg).iter(f"{_SVG}g") if one.get("class")]
    assert kinds == [
        "history",
        "importance",
        "curves",
        "parallel",
        *["contour"] * 3,
        *["slice"] * 3,
    ]
    page = study_plots.html_of(drawn)
    page.encode()
    tags = _Tags(page)
    assert "script" not in tags.found
    assert not {"src", "href", "onload"} & tags.attributes


def test_a_plot_in_the_terminal_has_a_row_for_the_best_and_the_worst() -> None:
    study = _study(*[_trial(n, 1 / (n + 1)) for n in range(5)], _trial(5, 0.5, "EarlyStopped"))
    (values,) = drawn_study(study).objectives
    lines = list(history_lines(values))
    assert lines[1].startswith("            1 │●")
    assert lines[12].startswith("          0.2 │")
    assert sum(line.count("●") for line in lines) == 5
    assert "trial 0 to 5" in lines[-1]


def _drawn() -> DrawnStudy:
    """Twelve trials: the best is number 6, and ``lr`` grows with the number."""
    trials = [
        _trial(n, abs(n - 6) + 0.5, "Completed" if n else "Failed",
               lr=10.0 ** (n - 12), opt="adam" if n % 2 else "sgd")
        for n in range(12)
    ]  # fmt: skip
    curve = TrialCurve(number=6, job="rates-hp-6", state="Completed", steps=[0, 9], values=[3, 0.5])
    curves = StudyCurves(study="rates", objective="loss", curves=[curve])
    study = _study(*trials, lr={"min": 1e-12, "max": 1.0, "scale": "log"}, opt={})
    return drawn_study(study, [], curves)


def test_a_terminal_shows_the_kinds_that_are_asked_for_in_their_order() -> None:
    titles = [lines[0] for lines in plots_of(_drawn(), ["slice", "history"])]
    assert titles == [
        "loss by lr (· not completed)",
        "loss by opt (· not completed)",
        "History of loss (─ best so far, · not completed)",
    ]
    assert list(plots_of(_drawn(), ["pareto", "importance"])) == [], "there is neither"


def test_a_slice_in_the_terminal_lies_on_the_scale_of_its_parameter() -> None:
    lines = next(plots_of(_drawn(), ["slice"]))
    assert lines[1].index("·") < lines[12].index("●") < lines[3].rindex("●")
    assert sum(line.count("●") for line in lines) == 11
    assert lines[-1].endswith("lr: 1e-12 to 0.1")


def test_a_contour_in_the_terminal_is_dark_where_trials_are_good() -> None:
    (lines,) = plots_of(_drawn(), ["contour"])
    assert lines[0] == "loss over lr and opt (█ best, ● trials)"
    sgd, adam = lines[4][15:].ljust(64), lines[9][15:].ljust(64)
    # Number 6 is the best of all, number 11 the worst of those with adam.
    assert (sgd[33], adam[62]) == ("█", " ")
    assert sum(line.count("●") for line in lines[1:]) == 11


def test_parallel_coordinates_in_the_terminal_rank_the_best_trials() -> None:
    (lines,) = plots_of(_drawn(), ["parallel"])
    assert lines[-1].split() == ["lr", "opt", "loss"]
    value_of_best = [line for line in lines[2:14] if line.rstrip().endswith("1")]
    assert value_of_best, "the best ends the line of its value"
    assert {mark for line in lines[2:14] for mark in line if mark.isdigit()} <= set("12345")


def test_curves_in_the_terminal_go_from_the_first_step_to_the_last() -> None:
    (lines,) = plots_of(_drawn(), ["curves"])
    assert lines[1].startswith("            3 │●")
    assert lines[12].startswith("          0.5 │")
    assert lines[12].endswith("●")
    assert lines[-1].endswith("step: 0 to 9")


def test_plots_of_a_terminal_take_trials_without_values_and_parameters() -> None:
    for study in (
        _study(),
        _study(_trial(0, None)),
        _study(_trial(0, 1.0)),
        _study(_trial(0, 1.0, opt=True)),
    ):
        for lines in plots_of(drawn_study(study), KINDS):
            assert all(len(line) <= 79 for line in lines[1:])


def test_a_file_may_have_some_kinds_only() -> None:
    page = study_plots.html_of(_drawn(), ["contour"])
    assert 'class="contour"' in page
    assert 'class="slice"' not in page


def test_an_unknown_kind_is_refused_before_the_server_is_asked(offline: Run) -> None:
    result = offline("hp", "plot", "rates", "--kind", "slices")
    assert result.exit_code == 2
    assert "'slices' is not one of 'pareto', 'history'" in result.stderr


def test_labels_in_the_terminal_are_whole() -> None:
    study = _study(_trial(0, -3.41803e10), _trial(1, 3.41803e10))
    lines = next(plots_of(drawn_study(study), ["history"]))
    assert [lines[row].split()[0] for row in (1, 12)] == ["3.41803e+10", "-3.41803e+10"]


def test_a_plot_is_a_png_with_words() -> None:
    pytest.importorskip("resvg_py")
    if study_images._find_family() is None:
        pytest.skip("no font is installed")
    drawn = [study_images.png_of(svg_of(_study(_trial(0, 0.5), objective=metric + ":min")))
             for metric in ("loss", "error")]  # fmt: skip
    assert all(one.startswith(b"\x89PNG\r\n\x1a\n") for one in drawn)
    assert drawn[0] != drawn[1], "they differ in words only"


def test_a_png_without_a_font_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    resvg_py = pytest.importorskip("resvg_py")
    # Where fonts are installed, one of them stands in for a family that is missing.
    without_fonts = functools.partial(resvg_py.svg_to_bytes, skip_system_fonts=True)
    monkeypatch.setattr(resvg_py, "svg_to_bytes", without_fonts)
    study_images._find_family.cache_clear()
    try:
        with pytest.raises(click.ClickException, match="needs a font"):
            study_images.png_of(svg_of(_study(_trial(0, 0.5))))
    finally:
        study_images._find_family.cache_clear()
