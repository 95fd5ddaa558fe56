"""`python -m winkel` is the command line."""

from winkel.cli import main

main()
