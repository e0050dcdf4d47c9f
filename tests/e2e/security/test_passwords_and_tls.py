"""Servers with a password and with TLS; the password is shown nowhere."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from redis import Redis

from hpq_worker.attempt.environment import reserved_port
from tests.e2e.security.test_join import Machine, steered_anywhere
from tests.support.ids import ids, refused

PASSWORD = "s3cr3t-Passw0rd"


def use(lab, sid: str) -> None:
    lab.worker()
    lab.wait_over(sid)
    assert lab.ok("best", sid, "--yaml") == "x: 1\n"
    assert "finished" in lab.ok("watch", "--once", sid)


def test_a_password_lets_in_and_is_shown_nowhere(make_lab) -> None:
    """R11: a server with a password; argv, logs, settings and programs are searched for it."""
    lab = make_lab("--requirepass", PASSWORD, url=f"unix://:{PASSWORD}@{{socket}}")
    sid = lab.steered(2)
    lab.worker()
    lab.wait_for("began-1-1")
    lines = "\n".join(lab.processes().values())
    assert "worker" in lines and PASSWORD not in lines
    lab.go()
    use(lab, sid)
    assert PASSWORD not in lab.log() and PASSWORD not in lab.ok("doctor", "--settings")
    environ = lab.write("seen.py", "import os\nprint(dict(os.environ))\n")
    seen = lab.enqueue(f"program: {environ.name}\nmethod: grid\nparameters: {{x: {{value: 1}}}}\n")
    lab.wait_over(seen)
    assert "HPQ_TRIAL_ID" in lab.printed(seen) and PASSWORD not in lab.printed(seen)


@pytest.mark.parametrize("wrong", ["unix://:wr0ng-Passw0rd@{}", "unix://{}"])
def test_a_wrong_password_is_one_line_and_exit_code_4(make_lab, wrong) -> None:
    """Security: a wrong password, and none."""
    lab = make_lab("--requirepass", PASSWORD, url=f"unix://:{PASSWORD}@{{socket}}")
    url = wrong.format(lab.server.socket)
    done = lab.hpq("ls", HPQ_REDIS_URL=url)
    refused(done, "redis-password-refused", "HPQ_REDIS_URL", exit=4)
    assert done.stderr.count("\n") == 1
    worker = lab.worker(HPQ_REDIS_URL=url)
    assert worker.wait() == 4
    assert "redis-password-refused" in ids(lab.log()) and "Traceback" not in lab.log()
    assert "wr0ng" not in lab.log() + done.stderr


@pytest.fixture
def rotating(make_lab, tmp_path):
    """A lab that has its password from a file, and a way to change it on the server."""
    path = tmp_path / "password"
    path.write_text(PASSWORD + "\n", "utf-8")
    lab = make_lab("--requirepass", PASSWORD, url=f"unix://{{socket}}?password_file={path}")
    lab.env["HPQ_REDIS_URL"] = lab.server.url
    lab.env["HPQ_REDIS_PASSWORD_FILE"] = str(path)

    def change(new: str) -> None:
        """Set it, and cut everybody off."""
        with Redis.from_url(lab.server.url, password=path.read_text("utf-8").strip()) as admin:
            admin.config_set("requirepass", new)
            admin.client_kill_filter(_type="normal", skipme=True)

    return lab, path, change


@pytest.mark.parametrize("order", ["file first", "server first"])
def test_a_worker_goes_on_after_its_password_was_rotated(rotating, order) -> None:
    """Security: the password is changed while a trial runs, and everybody is cut off."""
    lab, path, change = rotating
    sid = lab.steered(2)
    fleet = lab.worker()
    lab.wait_for("began-1-1")
    parent = lab.parent()
    if order == "file first":
        change("n3w-Passw0rd")
        path.write_text("n3w-Passw0rd", "utf-8")
    else:
        change("n3w-Passw0rd")
        lab.wait_until(lambda: "invalid username-password" in lab.log(), "a refusal")
        path.write_text("n3w-Passw0rd", "utf-8")
    lab.go()
    lab.wait_over(sid)
    assert lab.parent() == parent and fleet.poll() is None
    shown = lab.log() + lab.ok("doctor", "--settings") + "".join(lab.processes().values())
    assert PASSWORD not in shown and "n3w-Passw0rd" not in shown and "Traceback" not in shown


def test_a_password_file_that_is_not_there_is_one_line(rotating) -> None:
    """Security: the password's file is gone."""
    lab, path, _ = rotating
    path.unlink()
    done = lab.hpq("ls")
    refused(done, "redis-password-unreadable", str(path), exit=4)
    assert done.stderr.count("\n") == 1


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


@pytest.fixture
def tls_lab(make_lab, certificate, server_program):
    """A lab whose server speaks TLS only, with a password; and the port."""
    cert, key = certificate
    probe = subprocess.run(
        [server_program, "--port", "0", "--tls-port", "0", "--tls-cert-file", str(cert), "--bad"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "tls" in probe.stdout.lower() + probe.stderr.lower():
        pytest.skip(f"{server_program} was built without TLS")
    with reserved_port() as port:  # which no other process of this machine gets
        lab = make_lab(
            "--tls-port", str(port), "--tls-cert-file", str(cert), "--tls-key-file", str(key),
            "--tls-ca-cert-file", str(cert), "--tls-auth-clients", "no", "--requirepass", PASSWORD,
            url=f"rediss://:{PASSWORD}@127.0.0.1:{port}/0?ssl_ca_certs={cert}",
        )  # fmt: skip
        yield lab, port, cert


def test_a_server_with_tls_and_a_ca_of_ones_own_works(tls_lab) -> None:
    lab, _, _ = tls_lab
    lab.go()
    use(lab, lab.steered(2))
    assert PASSWORD not in lab.log()


def test_a_machine_joins_over_tls_without_a_file_of_the_ca_of_its_own(tls_lab) -> None:
    lab, _, cert = tls_lab
    second = Machine(steered_anywhere(lab), "bob")
    token = second.token()
    second.join(token)
    sid = lab.steered(1)
    lab.go()
    lab.wait_over(sid)
    assert {t.host for t in lab.reader.trials.all(sid)} == {"bob"}
    assert sid in second.ok("ls") and PASSWORD not in lab.log()
    ca = second.home / "join" / "ssl_ca_certs"
    assert ca.stat().st_mode & 0o077 == 0 and ca.read_text() == cert.read_text()
    assert str(cert) not in second.ok("doctor", "--settings", "--json") + lab.log()
    assert "stopped 1 `hpq worker`" in second.hpq("leave").stderr
    assert not (second.home / "join").exists()


@pytest.mark.parametrize("off", ["ssl_cert_reqs=none", "ssl_check_hostname=false"])
def test_a_check_that_is_turned_off_is_told_by_every_command(tls_lab, off) -> None:
    lab, port, cert = tls_lab
    url = f"rediss://:{PASSWORD}@127.0.0.1:{port}/0?ssl_ca_certs={cert}&{off}"
    sid = lab.steered(1)
    for words in (("ls",), ("show", sid), ("pause", sid)):
        assert ids(lab.hpq(*words, HPQ_REDIS_URL=url).stderr).count("redis-tls-unverified") == 1
        assert "redis-tls-unverified" not in ids(lab.hpq(*words).stderr)
    lab.worker(HPQ_REDIS_URL=url)
    lab.wait_until(lambda: "redis-tls-unverified" in ids(lab.log()), "the worker's warning")


CA = "rediss://:{password}@127.0.0.1:{port}/0?ssl_ca_certs={cert}"


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("redis://:{password}@127.0.0.1:{port}/0", 3, "rediss://"),
        ("rediss://:{password}@127.0.0.1:{port}/0", 3, "ssl_ca_certs"),
        (CA.replace("127.0.0.1", "localhost"), 3, "localhost"),
        (f"{CA}.not", 2, "ssl_ca_certs={cert}.not: "),
        (CA.replace("{cert}", __file__), 2, f"ssl_ca_certs={__file__}: "),
        (f"{CA}&ssl_certfile={{cert}}", 2, "ssl_certfile={cert}: "),
        (CA.replace("certs", "cert"), 2, "'ssl_ca_cert'"),
    ],
    ids=["without TLS", "a CA that nobody knows", "another host", "no file", "no CA", "no key",
         "no option"],
)  # fmt: skip
def test_a_server_that_cannot_be_verified_is_refused_with_the_remedy(
    tls_lab, url, code, said
) -> None:
    """Security: TLS with an unknown CA, for another host, no TLS to a TLS port, and wrong files."""
    lab, port, cert = tls_lab
    known = {"password": PASSWORD, "port": port, "cert": cert}
    done = lab.hpq("ls", HPQ_REDIS_URL=url.format(**known))
    assert done.returncode == code and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert said.format(**known) in done.stderr, done.stderr
    assert PASSWORD not in done.stderr and "Traceback" not in done.stderr


def test_a_server_that_wants_certificates_of_its_clients_gets_them(tls_lab, certificate) -> None:
    """Security: TLS on both sides, and a client that has no certificate."""
    lab, _, cert = tls_lab
    lab.redis.config_set("tls-auth-clients", "yes")
    done = lab.hpq("ls")
    # The server may hang up before its alert is read; both answers name what is missing.
    assert done.returncode == 3 and ids(done.stderr)[-1] in ("redis-tls", "redis-unreachable")
    assert "ssl_certfile" in done.stderr
    url = f"{lab.env['HPQ_REDIS_URL']}&ssl_certfile={cert}&ssl_keyfile={certificate[1]}"
    assert lab.hpq("ls", HPQ_REDIS_URL=url).returncode == 0
