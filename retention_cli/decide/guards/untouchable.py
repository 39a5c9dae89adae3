"""G5: topics that are never trimmed, or only if an entry explicitly allows it."""

from __future__ import annotations

from retention_cli.core.model import Code, Reason, TopicFacts, Unknown
from retention_cli.policy.settings import Settings

_STREAMS = ("-changelog", "-repartition", "-subscription-registration-topic", "-subscription-response-topic")
"""How names of Kafka Streams' topics end; the last two are of a foreign-key join with a name, ``APP-JOIN-…``."""
_FOREIGN_KEY = "KTABLE-FK-JOIN-SUBSCRIPTION-"
"""In the names of the topics of any other foreign-key join, ``APP-KTABLE-FK-JOIN-SUBSCRIPTION-…-topic``."""


def untouchable(topic: TopicFacts, settings: Settings) -> Reason | Unknown | None:
    """Return why the topic is skipped, None if it may be trimmed, unknown if its cleanup policy is unknown."""
    if topic.internal:
        return Reason(Code.G5, "kretain never trims internal topics")
    if topic.name.startswith("_") and not settings.named_in_full:
        return Reason(Code.G5, "a topic whose name starts with _ is trimmed only if an entry names it in full")
    of_streams = topic.name.endswith(_STREAMS) or (_FOREIGN_KEY in topic.name and topic.name.endswith("-topic"))
    if of_streams and not settings.named_in_full:
        return Reason(Code.G5, "a Kafka Streams topic is trimmed only if an entry names it in full")
    if settings.of_audit and not settings.named_in_full:
        return Reason(Code.G5, "the topic with the copy of the audit log is trimmed only if an entry names it in full")
    if isinstance(topic.cleanup_policy, Unknown):
        return topic.cleanup_policy
    if "compact" in topic.cleanup_policy:
        if "delete" not in topic.cleanup_policy:
            return Reason(Code.G5, "cleanup.policy=compact: brokers refuse to trim it")
        if not settings.trim_compacted:
            return Reason(
                Code.G5,
                "cleanup.policy=compact,delete: a trim drops the only copy of a key; "
                "if you want that, set compacted: trim",
            )
    return None
