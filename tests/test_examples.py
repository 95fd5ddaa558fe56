"""Examples run, with tiny settings."""

import runpy

import pytest

TINY = {
    "limit_cycles.py": (["--atoms", "5", "41"], ("K =   5: converged", "K =  41: period 3")),
    "own_environment.py": (["--digits", "3", "--episodes", "40"], ("pe_dqn opened the lock in",)),
}


def test_every_example_is_run_here(request):
    assert {p.name for p in (request.config.rootpath / "examples").glob("*.py")} == set(TINY)


@pytest.mark.parametrize("name", TINY)
def test_examples_run_and_print_what_they_promise(name, request, capsys):
    arguments, promised = TINY[name]
    runpy.run_path(str(request.config.rootpath / "examples" / name))["main"](arguments)
    printed = capsys.readouterr().out
    for line in promised:
        assert line in printed
