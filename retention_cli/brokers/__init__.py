"""The only package that talks to Kafka. Sentinels such as −1 don't leave it, and no request is silently repeated.

kafka-python sends the requests: it exposes each partition's own error, leader epochs, stable offsets and share and
streams groups, and its cost grows only with the response. confluent-kafka reads records.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from typing import Any

_TOLD = frozenset({"__all__", "__author__", "__copyright__", "__license__", "__title__", "__version__"})
"""What a package says of itself, for whoever uses it beside kretain's API."""


def _without_its_clients(package: str) -> None:
    """Let ``import kafka.net`` and the like leave out what ``kafka/__init__.py`` imports besides.

    These are its admin client, consumer and producer, a fifth of what starting a plan takes, and unused here. Who asks
    the package for one of its names gets all of it.
    """
    spec = None if package in sys.modules else find_spec(package)
    if spec is None or spec.loader is None:
        return
    module, loader = module_from_spec(spec), spec.loader

    def whole(name: str) -> Any:
        asked_by_python = name.startswith("__") and name not in _TOLD
        if asked_by_python or find_spec(f"{package}.{name}") is not None:  # a submodule that is not imported yet
            raise AttributeError(name)
        del module.__getattr__
        loader.exec_module(module)
        return getattr(module, name)

    module.__getattr__ = whole  # type: ignore[method-assign]
    sys.modules[package] = module


_without_its_clients("kafka")
