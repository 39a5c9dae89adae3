"""What every part of a policy's schema is: a model that takes no key but its own, and no value of another type."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """A mapping of a policy file."""

    model_config = ConfigDict(extra="forbid", populate_by_name=False, strict=True)
