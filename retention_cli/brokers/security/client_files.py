"""Read connection settings from existing client files: librdkafka's keys and a Java client's.

A file may have either kind, or both: keys with the same meaning have the same effect. A key that concerns the
connection and can't be translated is an error that names the key and what to write instead; a key that only tunes a
producer or a consumer is left out, and listed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from retention_cli.brokers.errors import NoClusterError, SettingsError
from retention_cli.brokers.security import aws, sasl_settings
from retention_cli.brokers.security.java_store import JavaStore, read_java_store
from retention_cli.brokers.security.sasl_settings import jaas_options
from retention_cli.brokers.security.settings import CA, MASK, UNDERSTOOD, ConnectionSettings, is_secret, read_registry
from retention_cli.core.errors import hinted
from retention_cli.core.files import read_file

_SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", aws.MECHANISM, "GSSAPI")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_UNDERSTOOD: Final = frozenset(
    {
        "bootstrap.servers",
        "metadata.broker.list",
        "client.id",
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "sasl.jaas.config",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
        "ssl.truststore.certificates",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
        *sasl_settings.UNDERSTOOD,
    }
)

_HANDLERS: Final = (sasl_settings.HANDLER, "sasl.client.callback.handler.class")
_JAAS: Final = "sasl.jaas.config"
_MECHANISM: Final = ("sasl.mechanism", "sasl.mechanisms")
_PEM_FILES: Final = "ssl.ca.location, ssl.certificate.location and ssl.key.location"
_SUBSTITUTES: Final = {
    "sasl.oauthbearer.config": sasl_settings.SUBSTITUTE,
    "sasl.login.callback.handler.class": "kretain runs no Java: write sasl.username and sasl.password",
    "sasl.client.callback.handler.class": "kretain runs no Java: write sasl.username and sasl.password",
    "sasl.login.class": "kretain runs no Java: write sasl.username and sasl.password",
    "ssl.engine.factory.class": f"kretain runs no Java: write {_PEM_FILES}",
    "ssl.provider": "kretain runs no Java: remove it",
    "ssl.keymanager.algorithm": "kretain runs no Java: remove it",
    "ssl.trustmanager.algorithm": "kretain runs no Java: remove it",
    "ssl.secure.random.implementation": "kretain runs no Java: remove it",
    "ssl.cipher.suites": "remove it: the TLS library's own list is used, for TLS 1.2 and later",
    "ssl.curves.list": "remove it: the TLS library's own list is used",
    "ssl.sigalgs.list": "remove it: the TLS library's own list is used",
    "ssl.crl.location": "revocation lists are not supported: use short-lived certificates",
    "ssl.providers": f"not supported: write {_PEM_FILES}",
    "ssl.engine.location": f"not supported: write {_PEM_FILES}",
    "security.providers": "kretain runs no Java: remove it",
    "socks5.proxy": "proxies are not supported: run kretain where the brokers can be reached",
    "bootstrap.controllers": "kretain connects to brokers: write bootstrap.servers",
    "config.providers": "kretain runs no Java: write the values themselves, or a file that your secret store renders",
}

_TLS_VERSIONS: Final = frozenset({"TLS", "TLSv1.2", "TLSv1.3"})

_LEFT_OUT: Final = re.compile(
    r"(acks|allow\.auto\.create\.topics|api\.version\..*|auto\.(commit|offset)\..*|batch\..*|broker\.(address|version)\..*"
    r"|buffer\.memory|check\.crcs|client\.(dns\.lookup|rack)|compression\..*|connections\.max\..*|debug"
    r"|default\.(api|deserialization|key|production|value)\..*|delivery\.timeout\.ms|enable\.(auto|idempotence|metrics|partition).*"
    r"|exclude\.internal\..*|fetch\..*|group\..*|heartbeat\..*|interceptor\.classes|internal\..*|isolation\.level"
    r"|key\.(de)?serializer|linger\.ms|log\..*|max\..*|message\..*|metadata\.(max|recovery|refresh).*|topic\.metadata\..*"
    r"|metric.*|partition(er|\.assignment).*|queue.*|reconnect\..*|retr(y|ies).*|receive\..*|request\..*|send\..*"
    r"|session\.timeout\..*|socket\.(?!blocking).*|sasl\.(kerberos\.(kinit|min|ticket).*|login\.(connect|read|refresh|retry).*)"
    r"|schema\..*|basic\.auth\..*|specific\..*|statistics\..*|transaction.*|value\.(de)?serializer"
    # newer clients, share groups, Streams
    r"|acceptable\..*|allow\.os\..*|application\..*|auto\.include\..*|bootstrap\.resolve\..*|buffer(ed)?\..*|built\.in\..*"
    r"|cache\..*|commit\..*|default\..*|deserialization\..*|dsl\..*|enable\.transactional\..*|ensure\..*|errors\..*"
    r"|metadata\.cluster\..*|num\..*|poll\.ms|probing\..*|processing\..*|processor\..*|production\..*|rack\..*"
    r"|repartition\..*|replication\.factor|rocksdb\..*|share\..*|state(store)?\..*|task\..*|topology\..*|upgrade\..*"
    r"|window(ed|store)?\..*"
    # serializers, and clients within other programs
    r"|auto\.register\..*|avro\..*|bearer\.auth\..*|confluent\..*|json\..*|latest\..*|normalize\..*|protobuf\..*"
    r"|rule\..*|subject\..*|use\..*|(admin|consumer|producer|(global|main|restore)\.consumer)\..*)"
)
"""Keys that clients' files often have, and that have no effect on kretain."""

_TLS: Final = ("ssl.protocol", "ssl.enabled.protocols")
_PEM: Final = re.compile(r"\s*(-----BEGIN [A-Z0-9 ]+-----)([^-]*)(-----END [A-Z0-9 ]+-----)")


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting's value, and its origin (a file, ``KRETAIN_…``, a flag)."""

    value: str
    origin: str


def read_properties(path: Path) -> dict[str, Setting]:
    """Read ``key=value`` lines: a Java client's ``.properties`` or librdkafka's keys, which have the same syntax.

    A line that is not a setting may be the rest of a password whose line lacks its backslash: it is refused, and never
    quoted.

    Raises:
        SettingsError: the file can't be read, or has an invalid escape or a line that is not a setting.
    """
    import javaproperties

    parsed, line = {}, 1
    try:
        for one in javaproperties.parse(read_file(path, pipes=True).decode("utf-8-sig")):
            if isinstance(one, javaproperties.KeyValue):
                _check_key(one.key, one.value, f"{path}:{line}")
                parsed[one.key] = one.value
            line += len(one.source.splitlines())
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not a properties file: it is not UTF-8 text") from None
    except ValueError:  # the error's text quotes the value, which may be a password
        raise SettingsError(f"{path} is not a properties file: it has a \\u without four hex digits after it") from None
    return {key: Setting(value.strip(), str(path)) for key, value in parsed.items() if key}


def masked(key: str, value: str) -> str:
    """Return a setting's value for display, with secrets, values of unknown keys and userinfo masked."""
    if is_secret(key) or not _is_known(key):
        return MASK
    if key == sasl_settings.ENDPOINT:  # its query may contain a key
        value = re.sub(r"\?.*", f"?{MASK}", value, flags=re.DOTALL)
    return re.sub(r"\S*:\S*@", f"{MASK}@", value)


def _is_known(key: str) -> bool:
    return key in _UNDERSTOOD or key in _SUBSTITUTES or key in _TLS or _LEFT_OUT.fullmatch(key) is not None


def _check_key(key: str, value: str, where: str) -> None:
    if re.fullmatch(r"\[[^\]=]*\]", line := f"{key} {value}".strip()):
        raise SettingsError(f"{where}: {line} begins a section, as in an ini file: remove such lines")
    if _is_known(key) or (value and re.fullmatch(r"[a-z][a-z0-9-]*([._][a-z0-9-]+)+", key, re.IGNORECASE)):
        return
    raise SettingsError(
        f"{where}: not a setting (name=value); if it continues the line before, that line must end with a backslash"
    )


def translate(given: Mapping[str, Setting]) -> ConnectionSettings:
    """Return the connection settings that the keys specify.

    Raises:
        SettingsError: a key can't be translated, is unknown, or contradicts another.
    """
    mechanism = next((given[key].value.upper() for key in _MECHANISM if key in given), None)
    left_out = []
    for key, setting in given.items():
        if key in UNDERSTOOD:
            continue
        if key in _UNDERSTOOD:
            if setting.value.startswith("${"):
                raise SettingsError(f"{setting.origin}: {key}: {_SUBSTITUTES['config.providers']}")
            continue
        if key in _HANDLERS and _means_aws(mechanism, setting.value):
            continue
        # The class of the one way that is supported has no effect; any other is refused with the mechanism.
        refused_later = key == sasl_settings.HANDLER and mechanism == "OAUTHBEARER"
        if not refused_later and (text := _unusable(key, setting.value)) is not None:
            raise SettingsError(f"{setting.origin}: {key}: {text}")
        left_out.append(key)
    return _translate(given, tuple(sorted(left_out)))


def _unusable(key: str, value: str) -> str | None:
    """Return what to write in place of a key that kretain can't use or does not know; None if it may be left out."""
    if key in _SUBSTITUTES:
        return _SUBSTITUTES[key]
    if key in _TLS:
        unknown = ", ".join(sorted({one.strip() for one in value.split(",") if one.strip()} - _TLS_VERSIONS))
        return f"{unknown} is not supported; use TLSv1.2 and TLSv1.3, or remove it" if unknown else None
    if key.startswith(("sasl.oauthbearer.", "config.providers.")):
        return sasl_settings.SUBSTITUTE if key.startswith("sasl.") else _SUBSTITUTES["config.providers"]
    if _LEFT_OUT.fullmatch(key) is not None:
        return None
    similar = difflib.get_close_matches(key, sorted(_UNDERSTOOD), n=1, cutoff=0.75)
    hint = f"did you mean {similar[0]}?" if similar else "it is neither a librdkafka nor a Java client setting we know"
    return f"unknown setting; {hint}"


def _translate(given: Mapping[str, Setting], left_out: tuple[str, ...]) -> ConnectionSettings:
    def text(*keys: str) -> str | None:
        return next((given[key].value for key in keys if key in given and given[key].value), None)

    if (bootstrap := text("bootstrap.servers", "metadata.broker.list")) is None or not bootstrap.strip(" ,"):
        raise NoClusterError("no cluster given: pass -b HOST:PORT, KRETAIN_BOOTSTRAP_SERVER, --context or -c FILE")
    _check_addresses(bootstrap, next(one.origin for one in given.values() if one.value == bootstrap))
    if (protocol := (text("security.protocol") or "PLAINTEXT").upper()) not in _PROTOCOLS:
        raise SettingsError(f"security.protocol: {protocol!r} is not one of {', '.join(_PROTOCOLS)}")
    mechanism = username = password = None
    if protocol.startswith("SASL"):
        mechanism, username, password = _sasl(given, text)
    ca = certificate = key = None
    if protocol.endswith("SSL"):
        ca = _trusted(text)
        certificate, key = _own_key(text)
    oauth = None
    if mechanism == aws.MECHANISM or _means_aws(mechanism, text(*_HANDLERS) or ""):
        oauth = _aws(given, mechanism or "", protocol, bootstrap)
    elif mechanism == "OAUTHBEARER":
        oauth = _oauth(given, text, ca)
    algorithm = given.get("ssl.endpoint.identification.algorithm", Setting("https", "default")).value.lower()
    if algorithm not in ("https", "", "none"):
        raise SettingsError(f"ssl.endpoint.identification.algorithm: {algorithm!r} is neither https nor empty")
    return ConnectionSettings(
        bootstrap=bootstrap,
        protocol=protocol,
        mechanism=mechanism,
        username=username,
        password=password,
        oauth=oauth,
        kerberos=_kerberos(given, text) if mechanism == "GSSAPI" else None,
        ca_pem=ca,
        certificate_pem=certificate,
        key_pem=key,
        key_password=text("ssl.key.password") if key is not None and "ENCRYPTED" in key else None,
        verify_certificate=(text("enable.ssl.certificate.verification") or "true").lower() != "false",
        verify_hostname=algorithm == "https",
        client_id=text("client.id") or "kretain",
        registry=read_registry(text, lambda: _trusted(lambda *keys: text(*(f"{CA}{one[4:]}" for one in keys)))),
        left_out=left_out,
    )


def _check_addresses(bootstrap: str, origin: str) -> None:
    if "@" in bootstrap or "://" in bootstrap:  # never quoted: it may contain a password
        raise SettingsError(
            "bootstrap.servers: write HOST:PORT alone, without a user or a scheme; the user is sasl.username and "
            "sasl.password in a file (-c), the scheme its security.protocol"
        )
    for address in filter(None, (one.strip() for one in bootstrap.split(","))):
        host, _, port = address.rpartition(":")
        if not host or re.fullmatch(r"[0-9]{1,5}", port) is None or not 0 < int(port) < 65536:
            shown = address if len(address) <= 80 else address[:79] + "…"
            place = "-b" if origin == "flag" else f"{origin}: bootstrap.servers"
            example = "broker-1:9092" if ":" in address else f"{shown}:9092"
            raise hinted(SettingsError(f"{place}: {shown!r} is not HOST:PORT, such as {example}"), "")


def _sasl(given: Mapping[str, Setting], text: Any) -> tuple[str, str | None, str | None]:
    if (mechanism := text(*_MECHANISM)) is None:
        raise SettingsError(f"sasl.mechanism is missing: write one of {', '.join(_SASL_MECHANISMS)}")
    if (mechanism := mechanism.upper()) not in _SASL_MECHANISMS:
        raise SettingsError(
            f"sasl.mechanism: {mechanism} is not supported; use one of {', '.join(_SASL_MECHANISMS)}, or a client "
            f"certificate"
        )
    if mechanism in ("OAUTHBEARER", aws.MECHANISM, "GSSAPI"):
        return mechanism, None, None
    username, password = text("sasl.username"), text("sasl.password")
    if (options := _jaas(given, mechanism)) is not None:
        username, password = options.get("username"), options.get("password")
        if username is None or password is None:
            raise SettingsError(
                f"{given[_JAAS].origin}: {_JAAS}: username or password is missing; write sasl.username and "
                f"sasl.password instead"
            )
    if username is None or password is None:
        raise SettingsError("sasl.username and sasl.password are needed (or a Java client's sasl.jaas.config)")
    return mechanism, username, password


def _aws(given: Mapping[str, Setting], mechanism: str, protocol: str, bootstrap: str) -> sasl_settings.OAuthSettings:
    if protocol != "SASL_SSL":  # who reads a signature could use it for a quarter of an hour
        raise SettingsError("security.protocol: AWS credentials are used with SASL_SSL only: write that")
    return sasl_settings.OAuthSettings(aws=aws.read_aws(bootstrap, _jaas(given, mechanism) or {}))


def _kerberos(given: Mapping[str, Setting], text: Any) -> sasl_settings.KerberosSettings:
    options = _jaas(given, "GSSAPI")
    return sasl_settings.read_kerberos(text, options, None if options is None else given[_JAAS].origin)


def _oauth(given: Mapping[str, Setting], text: Any, ca: str | None) -> sasl_settings.OAuthSettings:
    own, location = text("https.ca.pem"), text("https.ca.location")
    if own is None and location is not None and location != "probe":
        own = _pem_file(location, "https.ca.location")
    return sasl_settings.read_oauth(text, _jaas(given, "OAUTHBEARER") or {}, own, ca)


def _jaas(given: Mapping[str, Setting], mechanism: str) -> dict[str, str] | None:
    found = given.get(_JAAS)
    return jaas_options(found.value, mechanism, found.origin) if found is not None and found.value else None


def _means_aws(mechanism: str | None, handler: str) -> bool:
    return (mechanism, handler.rpartition(".")[2]) in aws.HANDLERS


def _pem_file(path: str, setting: str) -> str:
    try:
        content = read_file(Path(path), pipes=True).decode("utf-8-sig")
    except OSError as error:
        raise SettingsError(f"{setting}: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{setting}: {path} is not PEM text") from None
    if "-----BEGIN" not in content:
        raise SettingsError(f"{setting}: {path} is not PEM text")
    return _in_lines(content)


def _in_lines(pem: str) -> str:
    """Return PEM as TLS libraries read it. Java also takes it on one line, or with blanks where lines end."""

    def block(found: re.Match[str]) -> str:
        begin, body, end = found.groups()
        if ":" in body:  # headers of an old encrypted key: their lines count
            return found[0]
        text = "".join(body.split())
        return "\n".join(["", begin, *(text[at : at + 64] for at in range(0, len(text), 64)), end, ""])

    return _PEM.sub(block, pem).lstrip()


def _store(text: Any, kind: str) -> JavaStore | None:
    setting = f"ssl.{kind}store.location"
    if (location := text(setting)) is None:
        return None
    if (text(f"ssl.{kind}store.type") or "").upper() == "PEM":
        pem = _pem_file(location, setting)
        return JavaStore(certificates=pem, key=pem, chain=pem)  # TLS libraries take what they look for
    return read_java_store(Path(location), text(f"ssl.{kind}store.password"), text("ssl.key.password"), setting)


def _trusted(text: Any) -> str | None:
    if (pem := text("ssl.ca.pem", "ssl.truststore.certificates")) is not None:
        return _in_lines(pem)
    if (location := text("ssl.ca.location")) is not None and location != "probe":
        return _pem_file(location, "ssl.ca.location")
    if (store := _store(text, "trust")) is None:
        return None
    if not store.certificates:
        raise SettingsError(f"ssl.truststore.location: {text('ssl.truststore.location')} holds no trusted certificate")
    return store.certificates


def _own_key(text: Any) -> tuple[str | None, str | None]:
    chain, key = text("ssl.certificate.pem", "ssl.keystore.certificate.chain"), text("ssl.key.pem", "ssl.keystore.key")
    chain, key = (one if one is None else _in_lines(one) for one in (chain, key))
    if chain is None and (location := text("ssl.certificate.location")) is not None:
        chain = _pem_file(location, "ssl.certificate.location")
    if key is None and (location := text("ssl.key.location")) is not None:
        key = _pem_file(location, "ssl.key.location")
    if chain is None and key is None and (store := _store(text, "key")) is not None:
        if store.key is None:
            raise SettingsError(f"ssl.keystore.location: {text('ssl.keystore.location')} holds no private key")
        return store.chain, store.key
    if (chain is None) != (key is None):
        raise SettingsError("a client certificate needs both: ssl.certificate.location and ssl.key.location")
    return chain, key
