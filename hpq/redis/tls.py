"""TLS to the server: check the files that a rediss:// URL names, and explain TLS errors."""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import parse_qs

from hpq.errors import SettingsError
from hpq.notice import Notice
from hpq.redis.credentials import parse

CA = "ssl_ca_certs"
CERTIFICATE = "ssl_certfile"
KEY = "ssl_keyfile"
OPTIONS = f"{CA}, {CERTIFICATE} and {KEY}"

UNVERIFIED = Notice(
    "redis-tls-unverified",
    "HPQ_REDIS_URL turns off the check of the server's certificate: any machine on the way can read"
    f" and change what hpq stores; remove ssl_cert_reqs, and name the CA with {CA}=/path/ca.pem",
)
UNTRUSTED = "the server's certificate is not trusted here"
ANOTHER_HOST = "the server's certificate is for another host"
_ITS_HOST = f"{ANOTHER_HOST}; use the certificate's host name in HPQ_REDIS_URL"
_OURS = f"…?{CERTIFICATE}=/path/client.pem&{KEY}=/path/client.key"
# OpenSSL's texts about certificates; each is an outright refusal, and verification stays on.
_UNTRUSTED = (
    ("ostname mismatch", _ITS_HOST),
    ("IP address mismatch", _ITS_HOST),
    ("certificate has expired", "the server's certificate has expired; renew it on the server"),
    (
        "certificate verify failed",
        f"{UNTRUSTED}; name its CA in HPQ_REDIS_URL: …?{CA}=/path/ca.pem",
    ),
    (
        "certificate required",
        "the server requires a client certificate; name one in HPQ_REDIS_URL:"
        f" {_OURS}, or set tls-auth-clients no on the server",
    ),
    ("alert unknown ca", f"the server rejects this client certificate; name another: {_OURS}"),
)
# Errors of a plain port that receives TLS, of a TLS port that receives plain text, and of a server
# that disconnects before its alert was read.
_APART = (
    (
        "rediss:",
        ("Timeout", "wrong version", "record layer"),
        "does this port use TLS? (redis:// does not)",
    ),
    ("redis:", ("reset by", "closed by server"), "does this port use TLS? then write rediss://"),
    (
        "rediss:",
        ("EOF occurred", "reset by", "Broken pipe", "closed by server"),
        f"does the server require a client certificate? {_OURS}",
    ),
)


def why_refused(error: Exception) -> str:
    """Explain a connection error about certificates; "" for any other error."""
    return next((meaning for sign, meaning in _UNTRUSTED if sign in str(error)), "")


def hint(error: Exception, url: str) -> str:
    """Return a question if perhaps only one side uses TLS; "" for any other error."""
    for scheme, signs, question in _APART:
        if url.startswith(scheme) and any(sign in str(error) for sign in signs):
            return f"; {question}"
    return ""


def is_unverified(url: str) -> bool:
    """True if the options of a rediss:// URL turn off the check of the server's certificate."""
    options = parse_qs(parse(url).query) if url.startswith("rediss:") else {}
    checks = options.get("ssl_cert_reqs", ["required"])[-1], *options.get("ssl_check_hostname", [])
    return checks[0].lower() != "required" or checks[-1].lower() in ("0", "f", "false", "n", "no")


def check_files(url: str) -> None:
    """Read the files that a rediss:// URL names, as the first connection will.

    Raises:
        SettingsError: a file is missing or unusable (names it).
    """
    if not url.startswith("rediss:"):
        return
    options = {name: values[-1] for name, values in parse_qs(parse(url).query).items()}
    for name in (CA, CERTIFICATE, KEY):
        if name in options:
            _read(name, options[name])
    context = ssl.create_default_context()
    try:
        if CA in options:
            context.load_verify_locations(options[CA])
    except ssl.SSLError:
        raise _unusable(CA, options[CA], "the file holds no certificate in PEM") from None
    try:
        if CERTIFICATE in options:
            password = options.get("ssl_password", "")  # else OpenSSL asks on the terminal
            context.load_cert_chain(options[CERTIFICATE], options.get(KEY), lambda: password)
    except ssl.SSLError:
        why = "the file is not a certificate in PEM with its key"
        raise _unusable(CERTIFICATE, options[CERTIFICATE], why) from None


def _read(name: str, path: str) -> None:
    try:
        Path(path).read_bytes()
    except OSError as error:
        raise _unusable(name, path, str(error.strerror)) from None


def _unusable(name: str, path: str, why: str) -> SettingsError:
    return SettingsError(f"HPQ_REDIS_URL: {name}={path}: {why}", code="tls-file-unreadable")
