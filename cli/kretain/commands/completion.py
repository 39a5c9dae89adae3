"""``kretain completion``."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


class Shell(StrEnum):
    """The shells that have a script."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print a shell's completion script. kretain --install-completion installs it instead.

    [bold]Examples[/bold]

      source <(kretain completion bash)

      kretain completion fish > ~/.config/fish/completions/kretain.fish
    """
    from kretain.completion.shells import SCRIPTS

    sys.stdout.write(SCRIPTS[shell].strip() + "\n")
