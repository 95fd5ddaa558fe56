"""Examples run, with tiny settings."""

import importlib

import pytest

TINY = {
    "bonus_in_your_loop.py": (
        ["--size", "3", "--episodes", "30", "--seeds", "1"],
        ("epsilon, seed 0: treasure in", "bonus, seed 0: treasure in"),
    ),
    "limit_cycles.py": (["--atoms", "5", "41"], ("K =   5: converged", "K =  41: period 3")),
    "own_jax_environment.py": (
        ["--digits", "3", "--episodes", "40", "--seeds", "2"],
        ("pe_dqn opened the lock in",),
    ),
    "own_agent.py": (["--episodes", "20"], ("of the last 100 balls",)),
    "own_projection.py": (["10"], ("of 10 episodes",)),
    "own_environment.py": (["--digits", "3", "--episodes", "40"], ("pe_dqn opened the lock in",)),
}


def test_every_example_is_run_here(request):
    assert {p.name for p in (request.config.rootpath / "examples").glob("*.py")} == set(TINY)


@pytest.mark.parametrize("name", TINY)
def test_examples_run_and_print_what_they_promise(name, request, capsys, monkeypatch):
    arguments, promised = TINY[name]
    monkeypatch.syspath_prepend(str(request.config.rootpath))
    importlib.import_module(f"examples.{name.removesuffix('.py')}").main(arguments)
    printed = capsys.readouterr().out
    for line in promised:
        assert line in printed
