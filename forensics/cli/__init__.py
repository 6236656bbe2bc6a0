"""The command line: typer, one thin file per command, heavy imports inside functions."""


def main() -> None:
    """Entry of the `forensics` command."""
