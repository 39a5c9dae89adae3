"""``kretain completion``."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from kretain.completion.quick import QuickCommand
from kretain.options.common import argument, new_app

app = new_app()


@app.command(cls=QuickCommand)
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print a shell's completion script (--install-completion installs it).

    Examples:
      source <(kretain completion bash)

      kretain completion fish > ~/.config/fish/completions/kretain.fish
    """
    from kretain.completion.shells import SCRIPTS

    sys.stdout.write(SCRIPTS[shell].strip() + "\n")
