"""Servers with a password and with TLS; the password is shown nowhere."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

PASSWORD = "s3cr3t-Passw0rd"


def use(lab, sid: str) -> None:
    lab.worker()
    lab.wait_over(sid)
    assert lab.ok("best", sid, "--yaml") == "x: 1\n"
    assert "finished" in lab.ok("watch", "--once", sid)


def test_a_password_lets_in_and_is_shown_nowhere(make_lab) -> None:
    lab = make_lab("--requirepass", PASSWORD, url=f"unix://:{PASSWORD}@{{socket}}")
    sid = lab.steered(2)
    lab.worker()
    lab.wait_for("began-1-1")
    lines = "\n".join(lab.processes().values())
    assert "worker" in lines and PASSWORD not in lines
    lab.go()
    use(lab, sid)
    assert PASSWORD not in lab.log() and PASSWORD not in lab.ok("config")
    environ = lab.write("seen.py", "import os\nprint(dict(os.environ))\n")
    seen = lab.enqueue(f"program: {environ.name}\nmethod: grid\nparameters: {{x: {{value: 1}}}}\n")
    lab.wait_over(seen)
    assert "HPQ_TRIAL_ID" in lab.printed(seen) and PASSWORD not in lab.printed(seen)


@pytest.mark.parametrize("wrong", ["unix://:wr0ng-Passw0rd@{}", "unix://{}"])
def test_a_wrong_password_is_one_line_and_exit_code_4(make_lab, wrong) -> None:
    lab = make_lab("--requirepass", PASSWORD, url=f"unix://:{PASSWORD}@{{socket}}")
    url = wrong.format(lab.server.socket)
    done = lab.hpq("ls", HPQ_REDIS_URL=url)
    assert done.returncode == 4 and len(done.stderr.strip().splitlines()) == 1
    assert "put the right one into HPQ_REDIS_URL" in done.stderr
    worker = lab.worker(HPQ_REDIS_URL=url)
    assert worker.wait(50) == 4
    assert "put the right one into HPQ_REDIS_URL" in lab.log() and "Traceback" not in lab.log()
    assert "wr0ng" not in lab.log() + done.stderr


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not here to make a certificate")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run([openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-keyout", str(key), "-out", str(cert)],
                   check=True, capture_output=True)  # fmt: skip
    return cert, key


def test_a_server_with_tls_and_a_ca_of_ones_own_works(
    make_lab, certificate, server_program
) -> None:
    cert, key = certificate
    probe = subprocess.run(
        [server_program, "--port", "0", "--tls-port", "0", "--tls-cert-file", str(cert), "--bad"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "tls" in probe.stdout.lower() + probe.stderr.lower():
        pytest.skip(f"{server_program} was built without TLS")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    lab = make_lab(
        "--tls-port", str(port), "--tls-cert-file", str(cert), "--tls-key-file", str(key),
        "--tls-ca-cert-file", str(cert), "--tls-auth-clients", "no", "--requirepass", PASSWORD,
        url=f"rediss://:{PASSWORD}@127.0.0.1:{port}/0?ssl_ca_certs={cert}",
    )  # fmt: skip
    lab.go()
    sid = lab.steered(2)
    use(lab, sid)
    assert PASSWORD not in lab.log()
    plain = lab.hpq("ls", HPQ_REDIS_URL=f"redis://:{PASSWORD}@127.0.0.1:{port}/0")
    unknown = lab.hpq("ls", HPQ_REDIS_URL=f"rediss://:{PASSWORD}@127.0.0.1:{port}/0")
    for done in (plain, unknown):
        assert done.returncode == 3 and len(done.stderr.strip().splitlines()) == 1, done.stderr
        assert PASSWORD not in done.stderr and "Traceback" not in done.stderr
