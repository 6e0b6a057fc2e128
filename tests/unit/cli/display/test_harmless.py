"""What a job writes, on the terminal of somebody else."""

from __future__ import annotations

import pytest

from cloud_ml.cli.display.harmless import Harmless
from cloud_ml.cli.display.terminal import plain, printable

PASSES = [
    b"plain \xc3\xbcmlaut \xe2\x9c\x93 \xf0\x9f\x98\x80\n",
    b"\x1b[31mred\x1b[0m \x1b[1;38;5;208mmore\x1b[m",
    b"\r 10%|#   |\x1b[K\r 20%|##  |\x1b[A\n",
    b"\tindented\b\b",
]
TAKEN = {
    b"a\x1b]0;title\x07b": b"ab",
    b"a\x1b]52;c;cm0gLXJmIH4=\x1b\\b": b"ab",
    b'a\x1bP$q"p\x1b\\b': b"ab",
    b"a\x1b[6nb\x1b[cb\x1b[>cb\x1b[21tb": b"abbbb",
    b"a\x1bcb\x1b(0b\x1b[2Jb\x1b[Hb\x1b[?1049hb\x1b[?1000h": b"abbbbb",
    b"a\x0eb\x07\x00": b"ab",
    b"a\xc2\x9b6nb": b"a6nb",
    b"a\x1b[?31mb\x1b[>4;2mb": b"abb",
    b"a\x1b]0;one\x1b[31mb": b"a\x1b[31mb",
}


def shown(*chunks: bytes) -> bytes:
    return b"".join(map(Harmless().__call__, chunks))


@pytest.mark.parametrize("text", PASSES)
def test_text_colours_and_progress_pass(text: bytes) -> None:
    assert shown(text) == text


@pytest.mark.parametrize("text", TAKEN)
def test_what_the_terminal_would_obey_is_left_out(text: bytes) -> None:
    assert shown(text) == TAKEN[text]


@pytest.mark.parametrize("text", [*PASSES, *TAKEN])
def test_it_does_not_matter_where_chunks_end(text: bytes) -> None:
    one_by_one = [text[at : at + 1] for at in range(len(text))]
    assert shown(*one_by_one) == shown(text)


def test_a_string_without_an_end_takes_no_room() -> None:
    harmless = Harmless()
    assert harmless(b"\x1b]0;") + b"".join(harmless(b"x" * 1000) for _ in range(1000)) == b""
    assert len(harmless._rest) < 100
    assert harmless(b"\x07back\n") == b"back\n"


def test_names_of_others_are_one_printable_line() -> None:
    assert plain("a\u202etxt.exe\x1b[31m\x9b2J\x7f") == r"a\u202etxt.exe\x1b[31m\x9b2J\x7f"
    assert plain("two\nlines\tand\u3000wide \u6570\u636e") == "two lines and wide \u6570\u636e"


def test_text_of_several_lines_keeps_them_and_nothing_else() -> None:
    assert (
        printable("one\n\ttwo\u3000\u6570\r\u202e\x1b[H")
        == "one\n\ttwo\u3000\u6570" + r"\r\u202e\x1b[H"
    )
