"""The page of results is the one that the records make."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_page_of_results_is_up_to_date(tmp_path):
    write_page = runpy.run_path(str(ROOT / "results/page.py"))["write_page"]
    made = write_page(tmp_path).read_text(encoding="utf-8")
    kept = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    assert made == kept, "python results/page.py makes another page; commit it"
