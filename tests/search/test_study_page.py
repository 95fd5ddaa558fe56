"""The page of a study made by hand: its numbers, and what a browser makes of it."""

import numpy as np
import pytest
from optuna.trial import TrialState

from report.devtools import BROWSERS, Browser, find_browser
from search.tiny import problem, step_of
from winkel.report.study import name_step, write_study_page
from winkel.search.study import REASON, Summary, open_study

OF = problem(
    "deep_sea:size=5@10",
    "mountain_car/0@10@interactions",
    agent="pe_dqn",
    learning_rate=(1e-4, 1e-3),
    beta=(0.5, 5.0, 50.0),
)
SCORES = {(1e-4, 0.5): (4.0, -100.0), (1e-3, 0.5): (2.0, -300.0), (1e-4, 5.0): (0.0, -200.0)}
"""By hand: calibrated 1, ½, ¼ in the one and 1, ¼, ½ in the other."""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    study = open_study(folder, None, "by-hand", OF, resume=False)

    def begin(rate, beta):
        study.queue({"learning_rate": rate, "beta": beta})
        trial = study.begin_trials(1, 6)[0]
        trial.set_user_attr("updates", 100)
        return trial

    for (rate, beta), scores in SCORES.items():
        trial = begin(rate, beta)
        for environment, score in enumerate(scores):
            for milestone in range(1, 6):
                trial.report(score, step_of(environment, milestone))
        study.end(trial, TrialState.COMPLETE, 1.0)
    pruned = begin(1e-3, 5.0)
    for step in range(1, 8):
        pruned.report(-9.0, step)
    study.end(pruned, TrialState.PRUNED)
    failed = begin(1e-4, 50.0)
    failed.set_user_attr(REASON, "the loss was <nan>")
    study.end(failed, TrialState.FAIL)
    summary = Summary(study)
    return summary, write_study_page(summary, folder / "page", folder)


def test_final_scores_by_hand(study):
    summary, _ = study
    assert [one.number for one in summary.complete] == [0, 1, 2]
    np.testing.assert_allclose(summary.totals, [2.0, 0.75, 0.75])
    np.testing.assert_allclose(summary.calibrated[1], [0.5, 0.25])
    assert (summary.num_trials, len(summary.pruned), len(summary.failed)) == (5, 1, 1)
    assert summary.updates == 500


def test_where_a_trial_was_stopped(study):
    _, page = study
    assert name_step(OF.environments, 7) == "mountain_car/0 at 2T/5"
    assert name_step(OF.environments, 5) == "deep_sea:size=5 at T"
    text = page.read_text()
    assert "mountain_car/0 at 2T/5" in text
    assert "the loss was &lt;nan&gt;" in text
    assert "1 trial pruned, 1 failed." in text


def test_a_study_without_a_complete_trial_has_a_page(tmp_path):
    study = open_study(tmp_path, None, "empty", OF, resume=False)
    page = write_study_page(Summary(study), tmp_path, tmp_path)
    assert "None yet: no trial has trained in all environments." in page.read_text()


@pytest.mark.skipif(find_browser() is None, reason=f"needs a browser: {' or '.join(BROWSERS)}")
def test_a_browser_finds_nothing_wrong_and_asks_for_nothing(study, tmp_path):
    browser = Browser(find_browser(), tmp_path)
    try:
        browser.open(study[1])
        assert browser.logs == []
        outside = [url for url in browser.requests if not url.startswith("data:")]
        assert outside == [study[1].resolve().as_uri()]
        assert browser.evaluate("document.querySelectorAll('figure svg').length") == 1
        assert browser.evaluate("document.querySelectorAll('#trials tbody tr').length") == 3
    finally:
        browser.close()
