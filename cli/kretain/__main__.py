"""``kretain`` and ``python -m kretain``."""

from __future__ import annotations


def main() -> None:
    """Run the command line and leave with its exit code."""
    from kretain.app import app

    app(prog_name="kretain")


if __name__ == "__main__":
    main()
