"""A personal key signs for its user alone, and the holder of the cluster's key verifies it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpq.code.signing import (
    RowSigner,
    is_personal,
    personal_key,
    signed,
    signing_key,
    unverified,
)
from hpq.domain.sweep import COMMON_SCHEMA, PERSONAL_SCHEMA, Launch, SweepView
from hpq.errors import SettingsError
from hpq.settings import Settings, read
from hpq.store.wire.sweep import encode_sweep

CLUSTER = b"the key of the cluster"
ANA, BEN = personal_key(CLUSTER, "ana"), personal_key(CLUSTER, "ben")
SWEEP = SweepView(
    id="s", name="s", digest="d", launch=Launch(trainer="digits"), owner="ana", priority=3
)
SIGNED, SIGN_ROW = signed(ANA, "hpq", SWEEP)


def test_the_cluster_key_verifies_what_a_user_signed_and_the_rows() -> None:
    assert SIGNED.schema == PERSONAL_SCHEMA and is_personal(ANA) and not is_personal(CLUSTER)
    assert signing_key(CLUSTER, "hpq", SIGNED) == signing_key(ANA, "hpq", SIGNED) == ANA
    for key in (CLUSTER, ANA):
        signer = RowSigner.of(key, "hpq", SIGNED)
        assert signer and signer.has_signed(1, SIGN_ROW(1, "{}"))
    assert signing_key(BEN, "hpq", SIGNED) is None
    assert signing_key(b"another cluster's key", "hpq", SIGNED) is None


FORGED = {
    "owner": {"owner": "ben"},
    "priority": {"priority": 1000},
    "schema": {"schema": COMMON_SCHEMA},
    "seed": {"seed": 1},
    "launch": {"launch": Launch(trainer="mnist")},
    "id": {"id": "t"},
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_no_key_verifies_what_was_changed_after_signing(change) -> None:
    forged = replace(SIGNED, **change)
    assert signing_key(CLUSTER, "hpq", forged) is None and signing_key(ANA, "hpq", forged) is None
    assert signing_key(CLUSTER, "other", SIGNED) is None


def test_a_personal_key_signs_for_its_user_whatever_the_sweep_says() -> None:
    sweep, _ = signed(ANA, "hpq", replace(SWEEP, owner="ben"))
    assert sweep.owner == "ana"
    forged = replace(sweep, owner="ben")
    assert signing_key(CLUSTER, "hpq", forged) is None


def test_a_sweep_of_the_cluster_key_is_signed_as_ever() -> None:
    sweep, _ = signed(CLUSTER, "hpq", SWEEP)
    assert encode_sweep(sweep)["schema"] == str(COMMON_SCHEMA)
    assert sweep.signature == "91df19571cbeb1b9f38131ec8f1492d59107e2f06a274eb6647c96ac2f90fb8b"
    for other in (replace(sweep, owner="ben"), replace(sweep, priority=9)):
        assert signing_key(CLUSTER, "hpq", other) == CLUSTER


def test_a_personal_key_fixes_the_user_and_an_incomplete_one_is_refused() -> None:
    assert read({"HPQ_CODE_KEY": ANA.decode(), "HPQ_USER": "ben"}).user == "ana"
    assert read({"HPQ_CODE_KEY": CLUSTER.decode(), "HPQ_USER": "ben"}).user == "ben"
    with pytest.raises(SettingsError, match="HPQ_CODE_KEY"):
        read({"HPQ_CODE_KEY": ANA.decode()[:-1]})


def test_only_own_sweeps_that_do_not_verify_are_worth_a_warning_to_a_user() -> None:
    ana = Settings(code_key=ANA.decode())
    assert unverified(ana, SIGNED) is None
    assert unverified(ana, replace(SIGNED, owner="ben")) is None
    notice = unverified(ana, replace(SIGNED, priority=9))
    assert notice and notice.code == "parameters-unverified"
