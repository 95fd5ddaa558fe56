"""The one exception that means: the input is wrong, not the program."""


class InputError(ValueError):
    """Bad input. The message shows the value and says what would be right.

    The command line prints it as one line and exits with a non-zero status.
    """
