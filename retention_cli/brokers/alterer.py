"""The only object that can change a topic's settings. Only ``protect`` creates one; a dry run never does."""

from __future__ import annotations

from typing import Any, Final

from kafka.protocol.admin import IncrementalAlterConfigsRequest

from retention_cli.brokers.errors import RequestFailedError
from retention_cli.brokers.reader import ClusterReader
from retention_cli.brokers.wire.connections import LEFT_OUT, error_named

_Request: Final[Any] = type("IncrementalAlterConfigsRequest", (IncrementalAlterConfigsRequest,), {}, init=False)
"""The client's class, with room for when it is too late to send it (:mod:`.wire.frames`)."""
_TOPIC: Final = 2
_SET, _DELETE = 0, 1


class ConfigAlterer:
    """Sends IncrementalAlterConfigs, one setting of one topic at a time. It never repeats a request.

    Raises:
        MissingApiError: the cluster does not offer it.
    """

    def __init__(self, reader: ClusterReader) -> None:
        reader.check_offers({44: "IncrementalAlterConfigs"}, "no setting can be changed")
        self._wire = reader.wire
        self._clock = reader.clock

    def alter(self, topic: str, key: str, value: str | None, good_until: float) -> RequestFailedError | None:
        """Set a topic's setting, or remove the topic's own value (None); return why it failed, None if it did not.

        After an error that no broker returned, whether it was changed is unknown. After ``good_until``, by the clock's
        time since boot, the request is not sent any more.
        """
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        config = resource.AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
        request = _Request(
            resources=[resource(resource_type=_TOPIC, resource_name=topic, configs=[config])], validate_only=False
        )
        request.too_late = lambda: self._clock.since_boot() > good_until
        try:
            reply = self._wire.run(self._wire.ask, request, self._wire.brokers()[0])
        except RequestFailedError as error:
            return error
        answers = (error_named(one.error_code, one.error_message, needs="ALTER_CONFIGS") for one in reply.responses)
        return next(answers, LEFT_OUT)
