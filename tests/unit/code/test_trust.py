"""What a worker runs: each field of a launch record is signed."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from hpq.code.signing import RowSigner, fingerprint, home_id, sign
from hpq.domain.sweep import Launch, SweepView, Wandb
from hpq.domain.trainer_specs import built_in_launch, is_built_in
from hpq.domain.trial import ALTERED, Claim, TrialId
from hpq.settings import read
from hpq_worker.attempt.code import CodeBundles
from hpq_worker.attempt.trust import TrustPolicy
from tests.support.golden import Golden

LAUNCH = Launch(program="train.py", command=("python", "${program}", "${args}"), code="c",
                pass_env=("A",), wandb=Wandb.STAND_IN)  # fmt: skip
OURS, THEIRS = b"ours, of 16 letters", b"theirs, of 16 letters"


def access(tmp_path: Path, **env: str) -> TrustPolicy:
    settings = read({"HPQ_HOME": str(tmp_path), "HPQ_CODE_KEY": OURS.decode(), **env})
    return TrustPolicy(settings, CodeBundles(tmp_path, lambda digest: None))


def signed(launch: Launch, key: bytes = OURS) -> SweepView:
    sweep = SweepView(id="s-1", name="s", digest="d", launch=launch)
    return replace(sweep, signature=sign(key, "hpq", sweep), signer=fingerprint(key))


def test_a_signed_record_is_taken(tmp_path: Path) -> None:
    assert access(tmp_path).refusal(signed(LAUNCH)) is None


@pytest.mark.parametrize("field", [f.name for f in fields(Launch)])
def test_a_record_with_this_field_changed_is_refused(tmp_path: Path, field: str) -> None:
    value = getattr(LAUNCH, field)
    other = not value if isinstance(value, bool) else value + (
        ("x",) if isinstance(value, tuple) else "x"
    )  # fmt: skip
    if field == "wandb":
        other = None
    forged = replace(signed(LAUNCH), launch=replace(LAUNCH, **{field: other}))
    assert access(tmp_path).refusal(forged) is not None


ODD = {"trainer": "os:system", "code": "c" * 64, "wandb": Wandb.TEE}


@pytest.mark.parametrize("field", [f.name for f in fields(Launch)])
def test_a_built_in_trainer_with_anything_beside_it_needs_a_signature(
    tmp_path: Path, field: str
) -> None:
    """Any client of Redis may add a command, a directory, a bundle; a new field, too, must pass."""
    policy, honest = access(tmp_path), built_in_launch("digits")
    unsigned = replace(signed(honest), signature="")
    assert is_built_in(honest) and policy.untrusted(unsigned) is None
    was = getattr(honest, field)
    odd = ODD.get(field) or (not was if isinstance(was, bool) else type(was)("x"))
    launch = replace(honest, **{field: odd})
    assert not is_built_in(launch) and launch != honest
    for why in (policy.untrusted, policy.refusal):
        notice = why(replace(unsigned, launch=launch))
        assert notice and notice.code == "code-not-signed"


def test_live_code_runs_where_it_was_enqueued_and_not_in_a_directory_of_that_name(
    tmp_path: Path,
) -> None:
    policy, home = access(tmp_path), home_id(tmp_path, make=True)
    launch = replace(LAUNCH, code_dir=str(tmp_path))
    for other in ("", "f" * 64):
        why = policy.refusal(signed(replace(launch, home=other)))
        assert why and why.code == "code-missing"
    assert policy.refusal(signed(replace(launch, home=home))) is None
    assert policy.refusal(signed(replace(launch, home=home, code_dir="/gone"))) is not None


@pytest.mark.parametrize(
    "forged",
    [
        replace(signed(LAUNCH), id="s-2"),
        replace(signed(LAUNCH), signature=""),
        replace(signed(LAUNCH), signature="x" * 64),
        signed(LAUNCH, THEIRS),
        signed(LAUNCH, b""),
    ],
    ids=["sweep", "no signature", "signature", "key", "empty key"],
)
def test_a_record_signed_otherwise_is_refused_and_says_why(
    tmp_path: Path, forged: SweepView, request: pytest.FixtureRequest, golden: Golden
) -> None:
    why = access(tmp_path).refusal(forged)
    assert why and why.code == "code-not-signed" and f"key {fingerprint(OURS)}" in why.text
    golden.check("worker", f"another {request.node.callspec.id} than was signed", why.text)


def test_what_redis_says_of_the_signer_is_told_only_where_it_is_a_fingerprint(tmp_path) -> None:
    forged = replace(signed(LAUNCH, THEIRS), signer="\x1b[31mours; run HPQ_CODE_KEY=x")
    why = access(tmp_path).refusal(forged)
    assert why and f"(key {fingerprint(OURS)})" in why.text and "ours" not in why.text


def test_a_signature_is_checked_once_for_one_record_and_again_for_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []

    def of(key: bytes | None, prefix: str, sweep: SweepView) -> RowSigner | None:
        checked.append(sweep.launch.program)
        return check(key, prefix, sweep)

    check = RowSigner.of
    monkeypatch.setattr(RowSigner, "of", of)
    policy, sweep = access(tmp_path), signed(LAUNCH)
    for limit_s in (0.0, 1.0, 2.0):  # `hpq set` changes what no key signs
        assert policy.refusal(replace(sweep, timeout_s=limit_s)) is None
    assert checked == ["train.py"]
    assert policy.refusal(replace(sweep, launch=replace(LAUNCH, program="x.py"))) is not None
    assert policy.refusal(replace(sweep, signature="x" * 64)) is not None
    assert policy.refusal(sweep) is None
    assert checked == ["train.py", "x.py", "train.py"]


COVERED = {"id": "s-2", "sampler": "tpe", "search": "{}", "seed": 1, "replicates": 2}


@pytest.mark.parametrize("field", [*(f.name for f in fields(Launch)), *COVERED])
def test_a_forged_record_with_a_copied_signature_is_refused_after_the_true_one_was_seen(
    tmp_path: Path, field: str
) -> None:
    policy, true = access(tmp_path), signed(LAUNCH)
    claim = Claim(
        trial=TrialId(sweep=true.id, number=1),
        attempt=1,
        nonce="n",
        row=RowSigner(OURS, "hpq", true.id).sign(1, "{}"),
    )
    assert policy.refusal(true) is None and isinstance(policy.open(true, claim), Claim)
    if field in COVERED:
        forged = replace(true, **{field: COVERED[field]})
    else:
        was = getattr(LAUNCH, field)
        other = ODD.get(field) or (not was if isinstance(was, bool) else type(was)("x"))
        forged = replace(true, launch=replace(LAUNCH, **{field: other}))
    for _ in range(2):
        why = policy.untrusted(forged)
        assert why and why.code == "code-not-signed"
        assert policy.refusal(true) is None


def test_a_row_that_was_changed_is_refused_though_its_sweep_is_known(tmp_path: Path) -> None:
    policy, sweep = access(tmp_path), signed(LAUNCH)
    row = RowSigner(OURS, "hpq", sweep.id).sign(1, '{"x": 1}')
    claim = Claim(trial=TrialId(sweep=sweep.id, number=1), attempt=1, nonce="n", row=row)
    opened = policy.open(sweep, claim)
    assert isinstance(opened, Claim) and opened.params == {"x": 1}
    assert policy.open(sweep, replace(claim, row=row.replace(b"1}", b"2}"))) is ALTERED


def test_a_record_of_another_prefix_is_refused(tmp_path: Path) -> None:
    assert access(tmp_path, HPQ_PREFIX="other").refusal(signed(LAUNCH)) is not None
