"""Read a Java client's ``sasl.jaas.config``: one login module and its options. Errors never quote the line."""

from __future__ import annotations

import re

from retention_cli.brokers.errors import SettingsError

_MODULES = {
    "PLAIN": "PlainLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
    "AWS_MSK_IAM": "IAMLoginModule",
    "GSSAPI": "Krb5LoginModule",
}
_SCRAM = "ScramLoginModule"
_INSTEAD = {
    "OAUTHBEARER": "write sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret instead",
    "AWS_MSK_IAM": "take it out: AWS's default credentials are used",
    "GSSAPI": "write sasl.kerberos.keytab and sasl.kerberos.principal instead",
}


def jaas_options(text: str, mechanism: str, origin: str) -> dict[str, str]:
    """Return the options of ``…PlainLoginModule required username="…" password="…";``, for a SASL mechanism.

    Raises:
        SettingsError: it names no login module, or not that of the mechanism.
    """
    module, rest = (*text.split(None, 1), "", "")[:2]
    where = f"{origin}: sasl.jaas.config"
    instead = _INSTEAD.get(mechanism, "write sasl.username and sasl.password instead")
    if re.fullmatch(r"[\w.$]*LoginModule", module) is None:  # not quoted: it may be the password
        raise SettingsError(f"{where}: it names no login module; {instead}")
    name = module.rpartition(".")[2]
    if name not in (_SCRAM, *_MODULES.values()):
        raise SettingsError(f"{where}: {name} is not supported; {instead}")
    if name != (wanted := _MODULES.get(mechanism, _SCRAM)):
        raise SettingsError(f"{where}: {name} does not fit sasl.mechanism={mechanism}, which wants {wanted}")
    return {
        match[1]: next(
            match[n] if n == 4 else re.sub(r"\\(.)", r"\1", match[n]) for n in (2, 3, 4) if match[n] is not None
        )
        for match in re.finditer(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""", rest)
    }
