import pytest

from winkel import cli


def test_a_figure_leaves_pictures_and_the_arrays_behind_them(tmp_path, capsys):
    cli.main(["figure", "operator", "--out", str(tmp_path)])
    assert {p.name for p in tmp_path.iterdir()} == {"operator.npz", "operator.png", "operator.pdf"}
    printed = capsys.readouterr().out
    assert "wrote" in printed


def test_a_figure_is_redrawn_from_its_arrays(tmp_path):
    cli.main(["figure", "operator", "--out", str(tmp_path / "a"), "--formats", "png"])
    data = tmp_path / "a" / "operator.npz"
    out = tmp_path / "b"
    cli.main(["figure", "operator", "--data", str(data), "--out", str(out), "--formats", "png"])
    assert {p.name for p in out.iterdir()} == {"operator.png"}
    assert (out / "operator.png").read_bytes() == (tmp_path / "a" / "operator.png").read_bytes()


def test_lists_name_every_entry(capsys):
    cli.main(["list", "projections"])
    printed = capsys.readouterr().out
    for name in ("categorical", "quantile", "expectile"):
        assert name in printed
    cli.main(["--version"])
    assert capsys.readouterr().out.startswith("winkel 0")


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["figure", "operator", "--data", "absent.npz"], "no such file: absent.npz"),
        (["figure", "operator", "--data", "pyproject.toml"], "pyproject.toml is not a readable"),
        (["figure", "operator", "--out", "pyproject.toml"], "the file pyproject.toml"),
        (["figure", "operator", "--formats"], "at least one format"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_two(arguments, shown, capsys, monkeypatch, request):
    monkeypatch.chdir(request.config.rootpath)
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith("winkel: error: ")
    assert message.count("\n") == 1
    assert shown in message


def test_unknown_names_list_the_known_ones(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["figure", "nonsense"])
    assert stop.value.code == 2
    printed = capsys.readouterr().err
    assert "nonsense" in printed
    assert "operator" in printed
