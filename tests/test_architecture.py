"""The page on architecture names every package and module, and quotes code that is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "winkel"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
QUOTED = re.findall(r"\| `([\w/]+\.py)` \| `(.+?)` \|$", PAGE, re.MULTILINE)


def test_the_map_is_the_tree():
    rows = re.findall(r"^\| `([\w/.]+)` \|", PAGE.split("## Imports")[0], re.MULTILINE)
    packages = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert set(rows) == packages | modules
    assert len(rows) == len(set(rows))


def test_quoted_code_stands_in_its_file():
    assert len(QUOTED) > 30
    counts = {
        (name, code): (PACKAGE / name).read_text().count(code.replace("\\|", "|"))
        for name, code in QUOTED
    }
    assert not {quote: count for quote, count in counts.items() if count != 1}


def test_every_line_of_algorithm_1_has_code():
    table = PAGE.split("## Algorithm 1")[1].split("## One transition")[0]
    spans = re.findall(r"^\| (\d+)(?:–(\d+))? \|", table, re.MULTILINE)
    lines = {n for low, high in spans for n in range(int(low), int(high or low) + 1)}
    assert lines == set(range(1, 27)) - {25}  # 25 and 27 only end loops


def test_other_files_named_on_the_page_exist():
    named = set(re.findall(r"`([\w/]+\.py)`", PAGE))
    folders = [PACKAGE, ROOT, *PACKAGE.iterdir()]
    lost = [name for name in named if not any((folder / name).exists() for folder in folders)]
    assert not lost


def test_names_in_sentences_stand_in_their_files():
    named = re.findall(r"`(?:\w+\.)?(\w+)` (?:in |\()`([\w/]+\.py)`", PAGE)
    assert len(named) > 5
    assert not [
        pair for pair in named if not re.search(rf"\b{pair[0]}\b", (PACKAGE / pair[1]).read_text())
    ]


def test_every_test_that_the_page_on_reliability_names_exists():
    page = (ROOT / "docs" / "reliability.md").read_text()
    faults = re.findall(r"^\| (\d+) \|", page.split("## Faults")[1], re.MULTILINE)
    assert [int(number) for number in faults] == [*range(1, 22)]
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(named) > len(faults)
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name}"
