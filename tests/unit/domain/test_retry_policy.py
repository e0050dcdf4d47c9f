"""The rules of what is retried are whole."""

from __future__ import annotations

from hpq.domain.retry_policy import RETRY_RULES, retry_rule
from hpq.domain.trial import FailureKind


def test_every_failure_kind_has_a_rule() -> None:
    assert set(RETRY_RULES) == set(FailureKind)


def test_an_attempt_that_did_not_fail_is_not_retried() -> None:
    rule = retry_rule(None)
    assert rule.retries == 0 and not (rule.progress or rule.elsewhere or rule.released)
