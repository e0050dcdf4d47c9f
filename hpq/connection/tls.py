"""TLS to the server: the files that a rediss:// URL names, and what its errors mean."""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from hpq.errors import SettingsError

CA, CERTIFICATE, KEY = "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"
OPTIONS = f"{CA}, {CERTIFICATE} and {KEY}"

UNTRUSTED = "the server's certificate is not trusted here"
ANOTHER_HOST = "the server's certificate is for another host"
_ITS_HOST = f"{ANOTHER_HOST}; use the name that it is made for in HPQ_REDIS_URL"
_OURS = f"…?{CERTIFICATE}=/path/client.pem&{KEY}=/path/client.key"
# What OpenSSL says of a certificate; each is an outright refusal, and verification stays on.
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
        "the server wants a certificate of its clients; name one in HPQ_REDIS_URL:"
        f" {_OURS}, or set tls-auth-clients no there",
    ),
    ("alert unknown ca", f"the server does not trust our certificate; name another: {_OURS}"),
)
# What a plain port does with TLS, and a TLS port with plain text; and a server that hangs up before
# its alert was read.
_APART = (
    (
        "rediss:",
        ("Timeout", "wrong version", "record layer"),
        "does this port speak TLS? (redis:// is without)",
    ),
    ("redis:", ("reset by", "closed by server"), "does this port speak TLS? then write rediss://"),
    (
        "rediss:",
        ("EOF occurred", "reset by", "Broken pipe", "closed by server"),
        f"does it want a certificate of its clients? {_OURS}",
    ),
)


def why_refused(error: Exception) -> str:
    """What an error of a connection says of certificates; "" where it is about something else."""
    return next((meaning for sign, meaning in _UNTRUSTED if sign in str(error)), "")


def hint(error: Exception, url: str) -> str:
    """A question to ask where TLS may have met none; "" where nothing looks like it."""
    for scheme, signs, question in _APART:
        if url.startswith(scheme) and any(sign in str(error) for sign in signs):
            return f"; {question}"
    return ""


def check_files(url: str) -> None:
    """Read the files that a rediss:// URL names, as the first connection will.

    Raises:
        SettingsError: one is not there or cannot be used (names it).
    """
    if not url.startswith("rediss:"):
        return
    told = {name: values[-1] for name, values in parse_qs(urlsplit(url).query).items()}
    for name in (CA, CERTIFICATE, KEY):
        if name in told:
            _read(name, told[name])
    context = ssl.create_default_context()
    try:
        if CA in told:
            context.load_verify_locations(told[CA])
    except ssl.SSLError:
        raise _useless(CA, told[CA], "it holds no certificate in PEM") from None
    try:
        if CERTIFICATE in told:
            password = told.get("ssl_password", "")  # else OpenSSL asks on the terminal
            context.load_cert_chain(told[CERTIFICATE], told.get(KEY), lambda: password)
    except ssl.SSLError:
        what = "it is no certificate in PEM with its key"
        raise _useless(CERTIFICATE, told[CERTIFICATE], what) from None


def _read(name: str, path: str) -> None:
    try:
        Path(path).read_bytes()
    except OSError as error:
        raise _useless(name, path, str(error.strerror)) from None


def _useless(name: str, path: str, why: str) -> SettingsError:
    return SettingsError(f"HPQ_REDIS_URL: {name}={path}: {why}", code="tls-file-unreadable")
