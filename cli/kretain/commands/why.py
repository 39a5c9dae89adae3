"""``kretain why``."""

from __future__ import annotations

from typing import Annotated

from kretain.completion.complete import complete_codes
from kretain.config import resolve
from kretain.options.common import Common, OutputOption, argument, single_command


@single_command
def why(
    common: Common,
    code: Annotated[
        str | None,
        argument(metavar="CODE", help="A reason's code, such as F2. Default: all.", autocompletion=complete_codes),
    ] = None,
    output: OutputOption = "table",
) -> None:
    """Explain a reason code: what it means, and what to do.

    Puts your cluster's address into the commands it prints. Connects to nothing.

    Examples:
      kretain why

      kretain why F2 -b localhost:9092
    """
    from kretain.render.why import print_codes

    resolve(common, policy_counts=False)
    print_codes(code, output)
