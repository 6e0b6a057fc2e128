"""What users read is plain English: phrases that readers stumbled over do not come back, and
sentences stay short.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "src/cloud_ml"
PHRASES = (
    r"its log, its findings",
    r"which a service then answers from",
    r"Say what this machine offers",
    r"whom the server takes",
    r"changed where options say",
    r"(End|Cancel) jobs wherever they stand",
    r"go behind `?--",
    r"leaves? (it )?no doubt",
    r"\bMend\b",
    r"if a package brings it",
    r"; it goes on\b(?! as| at| in| while)",
    r"do not tell what they take",
    r"wants? a token",
    r"\bis no (valid )?JSON\b",
    r"\bis a owner\b",
    r"\bwho may not manage\b",
    r"Fence jobs in|jobs fenced in|fence jobs",
    r"^#+ Words$",
    r"What is not good yet",
    r"\bmade anew\b|\blist anew\b",
    r"no old one goes before",
    r"asked twice happens once",
    r"\bWho serves knows\b",
    r"\bthe own (key|one)s?\b",
    r"nobody is told\b",
    r"\btold again\b",
    r"Conditions hold together",
    r"Another form than the usual",
)
"""Regular expressions, with a space for any white space. Each has a plain phrase that says the
same.
"""
LONGEST_WORDS = 20
LONG_SENTENCES = {
    "CHANGELOG.md": 8,
    "CONTRIBUTING.md": 1,
    "README.md": 2,
    "SECURITY.md": 0,
    "docs/architecture.md": 10,
    "docs/dependencies.md": 3,
    "docs/performance.md": 3,
    "docs/security.md": 2,
    "docs/explanation": 3,
    "docs/howto": 1,
    "docs/reference": 1.5,
    "docs/index.md": 0,
    "docs/tutorial.md": 0,
}
"""The percentage of sentences of a page, or of the pages of a folder, that may be longer. A
number here only falls.
"""
SPELLED_OUT = 52
"""Words of the longest sentence of all."""


def pages() -> list[Path]:
    generated = ROOT / "docs/_build"
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(page for page in found if not page.is_relative_to(generated))


def holds(phrase: str, text: str) -> bool:
    """Whether a text has a phrase, on one line or broken over several."""
    return re.search(phrase.replace(" ", r"\s+"), text, re.IGNORECASE | re.MULTILINE) is not None


def texts(source: str) -> Iterator[str]:
    """Strings of a module that may reach users, with ``…`` for what is filled in: not its
    docstrings.
    """
    tree = ast.parse(source)
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values
            )
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            yield node.value


def docstrings(source: str) -> Iterator[str]:
    """What a module says of its functions, classes and values."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.value.value


@pytest.mark.parametrize("phrase", PHRASES)
def test_no_page_has_a_phrase_that_readers_stumbled_over(phrase: str) -> None:
    found = [page.name for page in pages() if holds(phrase, page.read_text())]
    assert not found


def _is_shown(path: Path) -> bool:
    """Whether docstrings of a module are shown: as help, as the page of settings, or in the
    OpenAPI document.
    """
    return path.is_relative_to(SOURCES / "cli") or path.parent.name == "settings"


def test_no_message_and_no_help_has_one() -> None:
    found: list[str] = []
    anything = re.compile("|".join(PHRASES).replace(" ", r"\s+"), re.IGNORECASE | re.MULTILINE)
    perhaps = re.compile("|".join(PHRASES).replace(" ", r"[\s\"f]+"), re.IGNORECASE | re.MULTILINE)
    for path in sorted(SOURCES.rglob("*.py")):
        source = path.read_text()
        if not perhaps.search(source):  # most modules: they need not be parsed
            continue
        shown = [*texts(source), *(docstrings(source) if _is_shown(path) else ())]
        found += [f"{path.name}: {text[:80]}" for text in shown if anything.search(text)]
    assert not found


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ('note(f"{name} is still {phase}; it goes on")', True),
        ('raise Invalid("Mend what it "\n    "names")', True),
        ('def f():\n    """Mend it."""', False),
        ('note("it goes on as before")', False),
    ],
)
def test_messages_are_found_in_a_source(source: str, *, says: bool) -> None:
    assert any(holds(phrase, text) for phrase in PHRASES for text in texts(source)) == says


# ---- the length of sentences

_CODE_BLOCK = re.compile(r"^ *(```|~~~).*?^ *\1", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"([-*]|\d+\.) ")
_END = re.compile(r"(?<=[.!?:;])[)\"*]*\s+|\s+·\s+|\s+—\s+")


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs, items of lists and cells of tables, each on one line; no code and no headings."""
    block: list[str] = []
    for raw in [
        *_CODE_BLOCK.sub("\n\n", re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)).splitlines(),
        "",
    ]:
        line = raw.strip()
        item, row = _ITEM.match(line), line.startswith("|")
        if (not line or line.startswith("#") or item or row) and block:
            yield " ".join(block)
            block = []
        if row:
            yield from (cell.strip() for cell in re.split(r"(?<!\\)\|", line) if cell.strip())
        elif line and not line.startswith("#"):
            block.append(line[item.end() :] if item else line)


def lengths(text: str) -> Iterator[int]:
    """The number of words of each sentence, code and addresses of links counting as one or none."""
    for paragraph in paragraphs(text):
        plain = re.sub(r"`[^`]*`", "code", re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", paragraph))
        for sentence in _END.split(plain):
            yield sum(re.search(r"\w", word) is not None for word in sentence.split())


def long_sentences(name: str) -> float:
    chosen = [page for page in pages() if page == ROOT / name or page.parent == ROOT / name]
    found = [words > LONGEST_WORDS for page in chosen for words in lengths(page.read_text())]
    return 100 * sum(found) / len(found)


@pytest.mark.parametrize("name", LONG_SENTENCES)
def test_sentences_are_short(name: str) -> None:
    assert long_sentences(name) <= LONG_SENTENCES[name], (
        "sentences of more than 20 words were added: make two of each"
    )


def test_no_page_escapes_the_bound() -> None:
    bound = {
        page for page in pages() for name in LONG_SENTENCES if ROOT / name in (page, page.parent)
    }
    decisions = {page for page in pages() if page.parent.name == "decisions"}
    assert set(pages()) - bound - decisions == set()


def test_no_sentence_is_a_paragraph() -> None:
    longest = {page.name: max(lengths(page.read_text()), default=0) for page in pages()}
    assert {name: words for name, words in longest.items() if words > SPELLED_OUT} == {}


def test_words_of_sentences_are_counted() -> None:
    text = "# No\n\nOne two `a b`.\nThree [four five](six) seven. Eight\n\n- Nine ten\n| a b | c |\n```\nno no\n```\n"
    assert list(lengths(text)) == [3, 4, 1, 2, 2, 1]
