from __future__ import annotations

from collections.abc import Callable

from cloud_ml.domain.workloads.outputs import (
    JobFile,
    OutputFilter,
    OutputLimits,
    OutputSelection,
    folder_of,
)
from support.measuring import growth


def selected(bounds: OutputLimits, *files: JobFile) -> tuple[list[bytes], list[tuple[int, str]]]:
    selection = OutputSelection(bounds)
    for file in files:
        selection.add(file)
    return [file.path for file in selection.files()], list(selection.beyond.names())


def test_the_largest_are_left_out_and_told_largest_first() -> None:
    files = [JobFile(b"b", 60), JobFile(b"a", 10), JobFile(b"d", 500), JobFile(b"c", 70)]
    assert selected(OutputLimits(bytes=100), *files) == ([b"a", b"b"], [(500, "d"), (70, "c")])
    assert selected(OutputLimits(files=3), *files) == ([b"a", b"b", b"c"], [(500, "d")])
    assert selected(OutputLimits(), *files)[1] == []


def test_of_files_of_one_size_the_newest_are_kept() -> None:
    checkpoints = [JobFile(b"epoch-%d" % number, 40, modified_ns=number) for number in (2, 3, 1)]
    assert selected(OutputLimits(bytes=80), *checkpoints) == (
        [b"epoch-3", b"epoch-2"],
        [(40, "epoch-1")],
    )


def test_a_bound_is_what_may_be_reached() -> None:
    assert selected(OutputLimits(bytes=10, files=1), JobFile(b"a", 10))[1] == []


def test_only_the_largest_are_named_and_all_are_counted() -> None:
    selection = OutputSelection(OutputLimits(bytes=0))
    for number in range(1, 21):
        selection.add(JobFile(b"%d" % number, number))
    assert selection.beyond.files == 20
    assert [name for _, name in selection.beyond.names()] == ["20", "19", "18", "17", "16"]


def test_without_patterns_all_is_kept_but_what_is_ignored() -> None:
    output_filter = OutputFilter(None, ["*.tmp", "/data/", "# a comment"])
    assert output_filter.keeps("model.pt")
    assert output_filter.keeps("deep/data/x")
    assert not output_filter.keeps("a/b.tmp")
    assert not output_filter.keeps("data/x/y.csv")
    assert not output_filter.keeps(".cloudmlignore")


def test_patterns_that_were_asked_for_win_over_the_ignore_file() -> None:
    output_filter = OutputFilter(["*.tmp", "plots/"], ["*.tmp"])
    assert output_filter.keeps("a/b.tmp")
    assert output_filter.keeps("plots/loss.png")
    assert output_filter.keeps("run/plots/deep/loss.png")
    assert not output_filter.keeps("model.pt")


def test_a_folder_that_is_ignored_is_not_entered() -> None:
    output_filter = OutputFilter(None, ["/data/", "tmp", "*.log"])
    assert [
        output_filter.enters(folder)
        for folder in ("data", "x/data", "x/tmp", "x/tmp/y", "a.log", "x")
    ] == [
        False,
        True,
        False,
        False,
        False,
        True,
    ]
    assert OutputFilter(["*.pt"], ["/data/"]).enters("data")


def test_the_folders_above_a_file_are_compared_once() -> None:
    """Each file of a deep folder cost as much as the folder has levels."""

    def matching(levels: int) -> Callable[[], object]:
        folder = "/".join("d" * levels)

        def match() -> None:
            output_filter = OutputFilter([f"x{number}/" for number in range(50)])
            for number in range(100):
                output_filter.keeps(f"{folder}/{number}")

        return match

    _, power = growth(matching, 8, below=0.5)  # comparing each level again gives 1
    assert power < 0.5


def test_no_two_jobs_share_a_folder() -> None:
    assert folder_of("a", "1") == ".outputs/a-1/"
    assert folder_of("a", "u1") != folder_of("a", "u2")
