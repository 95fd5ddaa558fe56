"""The entry of the command line: Ctrl-C is handled before anything else is imported."""

import signal


def main() -> None:
    """Run the command `winkel`, or `python -m winkel`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # until it is handled
    from winkel.errors import end_at_interrupt, end_process

    end_at_interrupt()
    try:
        from winkel import cli

        cli.main()
    except KeyboardInterrupt:
        end_process()


if __name__ == "__main__":
    main()
