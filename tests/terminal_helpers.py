"""What commands say."""

import pytest

from winkel import cli


def last_line(arguments, status, capsys):
    """The one line that a command ends with, beside its exit status."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        cli.main([str(argument) for argument in arguments])
    message = capsys.readouterr().err
    assert stop.value.code == status, message
    assert message.startswith("winkel: ")
    assert message.count("\n") == 1
    assert "Traceback" not in message
    return message


def refused(arguments, capsys):
    """The one line that names what is wrong with the input."""
    message = last_line(arguments, 2, capsys)
    assert message.startswith("winkel: error: ")
    return message
