"""Why nobody takes a sweep, and what to do about it."""

from __future__ import annotations

from dataclasses import replace

from hpq.snapshot import Worker
from hpq.sweep import Launch, Sweep
from producer.look.takers import why_not_taken

SHIPPED = {"digits", "mnist"}


def _sweep(
    launch: Launch, worker_class: str = "default", signature: str = "", signer: str = ""
) -> Sweep:
    return Sweep(
        id="s-00000",
        name="s",
        digest="d",
        launch=launch,
        worker_class=worker_class,
        signature=signature,
        signer=signer,
    )


def _worker(**fields: object) -> Worker:
    base: dict[str, object] = {"name": "w1", "worker_class": "default", "takes": ("digits",)}
    return Worker(**{**base, **fields})  # type: ignore[arg-type]


DIGITS, PROGRAM = Launch(trainer="digits"), Launch(program="train.py")


def test_a_foreign_key_with_a_connection_is_mended_on_the_laptop_by_the_clusters_key() -> None:
    sweep = replace(_sweep(DIGITS), launch=Launch(program="t.py"), signature="s", signer="aaaa")
    line = why_not_taken(sweep, [_worker(key="bbbb")], SHIPPED, in_cluster=True) or ""
    assert "export HPQ_CODE_KEY=$(kubectl -n NAMESPACE get secret hpq-code-key" in line


def test_with_a_connection_the_remedy_is_the_clusters_and_no_worker_of_this_machine() -> None:
    why = why_not_taken(_sweep(DIGITS, "big"), [], SHIPPED, in_cluster=True) or ""
    assert "`hpq scale N --queue big`" in why
    why = why_not_taken(_sweep(DIGITS), [], SHIPPED, in_cluster=True) or ""
    assert why == (
        "no worker of class 'default' is alive; `hpq scale N` starts some, unless an autoscaler"
        " decides; `hpq workers` says how the pods are"
    )
    big = why_not_taken(_sweep(DIGITS, "big"), [], SHIPPED, in_cluster=True) or ""
    assert "`hpq scale N --queue big` starts some" in big


def test_no_worker_of_the_class_names_the_command_that_starts_one() -> None:
    why = why_not_taken(_sweep(DIGITS, "small"), [_worker()], SHIPPED)
    assert why == "no worker of class 'small' is alive; start one: HPQ_QUEUE=small hpq worker"
    assert (why_not_taken(_sweep(DIGITS), [], SHIPPED) or "").endswith("start one: hpq worker")


def test_a_worker_with_the_trainer_takes_it() -> None:
    assert why_not_taken(_sweep(DIGITS), [_worker()], SHIPPED) is None


def test_a_worker_without_the_trainer_does_not() -> None:
    why = why_not_taken(_sweep(DIGITS), [_worker(takes=())], SHIPPED)
    assert why and "lacks trainer 'digits'" in why


def test_a_refusal_is_told_in_the_workers_words_without_escapes() -> None:
    worker = _worker(refuses={"s-00000": "code \x1b[31mmissing"})
    assert why_not_taken(_sweep(DIGITS), [worker], SHIPPED) == "w1 leaves it: code missing"


def test_one_willing_worker_is_enough() -> None:
    workers = [_worker(refuses={"s-00000": "no"}), _worker(name="w2")]
    assert why_not_taken(_sweep(DIGITS), workers, SHIPPED) is None


def test_a_faulty_worker_takes_nothing() -> None:
    why = why_not_taken(_sweep(DIGITS), [_worker(state="faulty")], SHIPPED)
    assert why and "w1 is faulty" in why


def test_a_program_needs_a_key_or_an_allowance() -> None:
    sweep = _sweep(PROGRAM, signature="mac")
    assert why_not_taken(sweep, [_worker()], SHIPPED) is not None
    assert why_not_taken(sweep, [_worker(key="k")], SHIPPED) is None  # nobody knows whose it is
    assert why_not_taken(sweep, [_worker(takes=("allow:train.py",))], SHIPPED) is None


def test_workers_that_are_older_than_the_sweep_are_named_with_what_to_do() -> None:
    sweep = replace(_sweep(DIGITS), schema=2)
    older, newer = _worker(version="0.1.0", schema=1), _worker(name="w2", schema=2)
    line = why_not_taken(sweep, [older], SHIPPED)
    assert line is not None and "runs hpq 0.1.0, which reads sweeps up to schema 1" in line
    assert why_not_taken(sweep, [older, newer], SHIPPED) is None


def test_another_code_key_is_told_with_both_fingerprints() -> None:
    sweep = _sweep(PROGRAM, signature="mac", signer="aaaa")
    assert why_not_taken(sweep, [_worker(key="aaaa")], SHIPPED) is None
    line = why_not_taken(sweep, [_worker(key="bbbb"), _worker(name="w2", key="cccc")], SHIPPED)
    assert line is not None
    assert "signed with code key aaaa, and theirs is bbbb, cccc; start one with that" in line


def test_workers_that_are_there_for_another_sweep_are_not_called_dead() -> None:
    line = why_not_taken(_sweep(DIGITS), [_worker(only="other-11111")], SHIPPED)
    assert line == (
        "the one live worker of class 'default' is there for another sweep only"
        " (HPQ_SWEEP: other-11111); start one: hpq worker"
    )
    both = [_worker(only="other-11111"), _worker(name="w2", only="s-00000")]
    assert why_not_taken(_sweep(DIGITS), both, SHIPPED) is None
    a_jobs = _worker(name="w3", only="s-00000/7")
    assert why_not_taken(_sweep(DIGITS), [a_jobs], SHIPPED) is None
