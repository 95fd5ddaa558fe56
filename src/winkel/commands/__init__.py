"""The subcommands of `winkel`: one file each, a dataclass of arguments with `run`."""
