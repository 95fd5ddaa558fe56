"""What commands say."""

import pytest

from winkel import cli


def refused(arguments, capsys):
    """The one line that a command ends with."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        cli.main([str(argument) for argument in arguments])
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith("winkel: error: ")
    assert message.count("\n") == 1
    assert "Traceback" not in message
    return message
