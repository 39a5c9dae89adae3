"""``kretain completion``."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@app.command()
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print a shell's completion script. kretain --install-completion installs it instead.

    [bold]Examples[/bold]

      source <(kretain completion bash)

      kretain completion fish > ~/.config/fish/completions/kretain.fish
    """
    from kretain.completion.shells import SCRIPTS

    sys.stdout.write(SCRIPTS[shell].strip() + "\n")
