"""Searches that cannot go on, and studies that are damaged, copied or a stranger's."""

import shutil
import sqlite3
import sys

import pytest
from optuna.trial import TrialState

from search.tiny import CHUNK, FIELDS, LENGTH, RATES, population, problem
from terminal_helpers import last_line, refused
from winkel import cli
from winkel.errors import InputError
from winkel.search.problem import load_problem
from winkel.search.study import load_study, open_study

SCORES = """
calls = []

def first_fails(episodes):
    calls.append(episodes)
    return 1 / (len(calls) > 1)

def fails(episodes):
    raise ZeroDivisionError("no\\nepisode")
"""
SPACE = f"[spaces.qr_dqn]\nlearning_rate = {list(RATES)}\n"
SEA = f"deep_sea:size={LENGTH}@10"


@pytest.fixture
def failing_scores(tmp_path, monkeypatch):
    """A module of the user's, which is not imported before it is used."""
    (tmp_path / "failing_scores.py").write_text(SCORES)
    monkeypatch.syspath_prepend(tmp_path)
    yield "failing_scores"
    sys.modules.pop("failing_scores", None)


@pytest.fixture
def search(tmp_path):
    """A command that searches, with other environments or options."""
    (tmp_path / "space.toml").write_text(SPACE)
    fields = []
    for name, value in FIELDS.items():
        fields += [f"--{name.replace('_', '-')}", str(value).strip("(,)")]

    def command(*options, env=SEA):
        return [
            *("search", "--agent", "qr_dqn", "--space", tmp_path / "space.toml", *fields),
            *("--envs", env, "--chunk-steps", CHUNK, "--lanes", "2", "--trials", "2"),
            *("--out", tmp_path / "study", *options),
        ]

    return command


@pytest.mark.parametrize(
    "options", [("--trials", "0"), ("--trials", "9"), ("--lanes", "0"), ("--chunk-steps", "0")]
)
def test_impossible_options_leave_no_study_behind(search, tmp_path, capsys, options):
    assert "need " in refused(search(*options), capsys)
    assert not (tmp_path / "study").exists()


def test_a_score_that_raises_fails_its_trial_and_the_study_goes_on(tmp_path, failing_scores):
    of = problem(f"{SEA}@{failing_scores}:first_fails")
    population(tmp_path, wanted=2, of=of, lanes=1).run()
    failed, complete = load_study(tmp_path).trials()
    assert (failed.state, complete.state) == (TrialState.FAIL, TrialState.COMPLETE)
    assert failed.user_attrs["reason"] == (
        "the score failing_scores:first_fails raised ZeroDivisionError: division by zero "
        "(failing_scores.py, line 6)"
    )


def test_a_search_in_which_all_trials_failed_exits_with_1(search, failing_scores, capsys):
    command = search(env=f"{SEA}@{failing_scores}:fails")
    line = last_line(command, 1, capsys)
    assert line.startswith(
        "winkel: 2 of 2 trials failed; the first: the score failing_scores:fails raised "
        "ZeroDivisionError: no episode"
    )
    assert last_line([*command, "--resume"], 1, capsys) == line
    cli.main([*map(str, command), "--resume", "--allow-failures"])


@pytest.mark.parametrize("content", [None, b""])
def test_a_missing_or_empty_database_is_not_resumed(search, tmp_path, capsys, content):
    database = tmp_path / "study" / "study.db"
    if content is not None:
        database.parent.mkdir()
        database.write_bytes(content)
    message = refused(search("--resume"), capsys)
    assert f"{database} is missing or empty; put the file of the study there" in message
    assert database.exists() == (content is not None)
    assert content is None or database.read_bytes() == content
    for command in ("report", "apply"):
        assert "is missing or empty" in refused(["search", command, tmp_path / "study"], capsys)


def test_a_study_that_its_storage_lacks_is_not_resumed(tmp_path):
    open_study(tmp_path, None, "tiny", problem(), resume=False)
    with pytest.raises(InputError, match=r"name of a study in .*: tiny, got large"):
        open_study(tmp_path, None, "large", problem(), resume=True)
    open_study(tmp_path, None, "large", problem(), resume=False)
    with pytest.raises(InputError, match=r"name of a study in .*: tiny, large, got None"):
        load_study(tmp_path)
    assert load_study(tmp_path, name="large").study.study_name == "large"


def test_a_copied_study_has_its_own_database(tmp_path):
    original, copy = tmp_path / "original", tmp_path / "copy"
    study = open_study(original, None, "tiny", problem(), resume=False)
    shutil.copytree(original, copy)
    study.queue({"learning_rate": RATES[0]})
    assert len(load_study(original).trials()) == 1
    assert load_study(copy).trials() == []
    (copy / "study.db").unlink()
    with pytest.raises(InputError, match=rf"{copy}/study\.db is missing or empty"):
        load_study(copy)


@pytest.mark.parametrize("name", ["a?b", "a%20b", "a{b}", "a#b c"])
def test_any_name_of_a_folder_is_that_of_its_database(tmp_path, name):
    open_study(tmp_path / name, None, "tiny", problem(), resume=False)
    assert (tmp_path / name / "study.db").stat().st_size
    assert load_study(tmp_path / name).trials() == []
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("damage", ["no database", "cut", "no studies"])
def test_a_damaged_database_is_one_line(tmp_path, damage):
    open_study(tmp_path, None, "tiny", problem(), resume=False)
    database = tmp_path / "study.db"
    if damage == "no database":
        database.write_bytes(b"nothing" * 1000)
    elif damage == "cut":
        database.write_bytes(database.read_bytes()[:9000])
    else:
        with sqlite3.connect(database) as connection:
            connection.execute("DROP TABLE studies")
    with pytest.raises(InputError, match=f"{database}") as error:
        load_study(tmp_path)
    assert "\n" not in str(error.value)


def test_a_database_of_another_optuna_is_one_line(tmp_path):
    open_study(tmp_path, None, "tiny", problem(), resume=False)
    with sqlite3.connect(tmp_path / "study.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v99.0.0.a'")
    with pytest.raises(InputError, match=r"cannot use the storage .* no longer compatible"):
        load_study(tmp_path)


@pytest.mark.parametrize(
    "changed",
    [
        {"agent": "dqn"},
        {"agent": 'x"\nfields.y = 1'},
        {"parameters": {"learning_rate\n": 1}},
        {"parameters": {"learning_rate": "no distribution"}},
        {"environments": [["deep_sea/0"] * 9]},
        {"environments": None},
        {"parameters": []},
    ],
)
def test_a_study_with_another_description_is_one_line(tmp_path, changed):
    study = open_study(tmp_path, None, "tiny", problem(num_atoms=(5, 7)), resume=False)
    study.study.set_user_attr("winkel", study.problem.describe() | changed)
    with pytest.raises(InputError, match="is not of winkel search") as error:
        load_study(tmp_path)
    assert "\n" not in str(error.value)


def test_a_study_of_other_software_is_one_line(tmp_path):
    study = open_study(tmp_path, None, "tiny", problem(), resume=False)
    study.study.set_user_attr("winkel", 3)
    with pytest.raises(InputError, match="is not of winkel search"):
        load_study(tmp_path)
    with pytest.raises(InputError, match="is another search: agent is 'missing' there"):
        open_study(tmp_path, None, "tiny", problem(), resume=True)


def test_no_study_decides_which_code_is_imported(
    tmp_path, failing_scores, search, capsys, monkeypatch
):
    """Not by its description: it is read as text, and resumed only by a command that names it."""
    monkeypatch.setenv("WINKEL_PRESETS", str(tmp_path / "presets"))
    population(tmp_path / "study", wanted=1).run()
    study = load_study(tmp_path / "study").study
    described = study.user_attrs["winkel"]
    for place, name in ((0, "failing_scores:fails"), (3, "failing_scores:fails")):
        entry = [*described["environments"][0]]
        entry[place] = name
        study.set_user_attr("winkel", described | {"environments": [entry]})
        cli.main(["search", "report", str(tmp_path / "study")])
        cli.main(["search", "apply", str(tmp_path / "study"), "--name", f"mine-{place}"])
        message = refused(search("--resume", "--name", "tiny"), capsys)
        assert "is another search: environments is" in message
    assert "failing_scores" not in sys.modules


@pytest.mark.parametrize(
    "entry",
    [
        'id = "failing_scores:fails"\nepisodes = 10',
        'id = "dm:failing_scores:fails"\nsteps = 10',
        'id = "gym:failing_scores:Sea-v0"\nsteps = 10',
        'id = "failing_scores:fails:cmd=ls"\nepisodes = 10',
        f'id = "deep_sea:size={LENGTH}"\nepisodes = 10\nscore = "failing_scores:fails"',
    ],
)
def test_no_space_decides_which_code_is_imported(tmp_path, failing_scores, entry):
    path = tmp_path / "space.toml"
    path.write_text(f"[[environments]]\n{entry}\n{SPACE}")
    with pytest.raises(InputError, match=r"names code, which runs only if you name it: --envs"):
        load_problem(str(path), "qr_dqn").check(1)
    assert "failing_scores" not in sys.modules
    typed = [f"{SEA}@failing_scores:fails"]
    load_problem(str(path), "qr_dqn", typed).check(1)
    assert "failing_scores" in sys.modules
