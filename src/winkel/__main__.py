"""The entry of the command line: Ctrl-C is handled before anything else is imported."""

from winkel.errors import end_at_interrupt, end_process


def main() -> None:
    """Run the command `winkel`, or `python -m winkel`."""
    end_at_interrupt()
    try:
        from winkel import cli

        cli.main()
    except KeyboardInterrupt:
        end_process()


if __name__ == "__main__":
    main()
