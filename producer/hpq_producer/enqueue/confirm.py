"""`hpq best --confirm SEEDS`: queue the best parameters again with other seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpq.access.session import Session
from hpq.code import signing
from hpq.domain.identity import ParameterSet, digest
from hpq.domain.stored_state import StoredState
from hpq.domain.sweep import Counts, SweepView
from hpq.domain.trainer_specs import built_in_launch, is_built_in
from hpq.domain.trial import TrialView
from hpq.errors import UserError
from hpq.search.replicates import SEED, replicated
from hpq.shell import shell_hint
from hpq.store.wire.fields import dumps
from hpq.store.wire.row import encode_new
from hpq_producer.enqueue.enqueue_sweep import Enqueued, create, new_id, write_rows
from hpq_views.analysis.selection import refuse_altered
from hpq_views.analysis.winner_evidence import CONFIRMS, unrepeatable
from hpq_views.text.text import clean


def refuse_unconfirmable(
    session: Session, sweep: SweepView, best: Sequence[TrialView], seeds: int
) -> None:
    """Refuse what `enqueue_confirmation` cannot queue, before any sweep of several is queued.

    Raises:
        UserError: the sweep is a confirmation, its code is not signed with this machine's key, a
            trial's parameters were changed, or it began at the checkpoint of another one.
    """
    refuse_altered(session.settings, [sweep], best)
    for trial in best:
        if why := unrepeatable(trial):
            raise UserError(f"{why}; leave such trials out: --where 'start.trial == null'")
    for first in (tag.removeprefix(CONFIRMS) for tag in sweep.tags if tag.startswith(CONFIRMS)):
        text = f"{sweep.id} already confirms {clean(first)}; for more seeds: "
        words = ["hpq", "best", first, "-n", str(len(best)), "--confirm"]
        raise UserError(text + shell_hint([*words, str(sweep.replicates + seeds)]))
    if not is_built_in(sweep.launch):
        # Otherwise what another client of Redis forged would be signed here.
        signing.RowSigner.required(session.settings, sweep)


def enqueue_confirmation(
    session: Session, sweep: SweepView, best: Sequence[TrialView], seeds: int
) -> Enqueued:
    """Queue the parameters of these trials with N seeds that the sweep has not used.

    An identical request returns the existing sweep. The caller has called `refuse_unconfirmable`.
    """
    key, prefix = signing.key_of(session.settings, make=True), session.settings.prefix
    if is_built_in(sweep.launch):  # perhaps unsigned: its trainer's name alone is copied
        sweep = replace(sweep, launch=built_in_launch(sweep.launch.trainer), bundle="")
    numbers = [trial.id.number for trial in best]
    seed = sweep.seed + sweep.replicates
    asked = digest({"confirm": sweep.digest, "trials": [*numbers], "seeds": seeds}, seed, sweep.id)
    if (existing := session.reader.sweeps.find_by_digest(asked)) is not None:
        return Enqueued(sid=existing, is_new=False, trials=len(best) * seeds)
    writer = session.writer()
    sid = new_id(session.reader, f"{sweep.name}-confirm")
    confirmation = replace(
        sweep, id=sid, name=f"{sweep.name}-confirm", digest=asked, owner=session.settings.user,
        seed=seed, replicates=seeds,
        metric=replace(sweep.metric, target=None) if sweep.metric else None,
        method="grid", sampler="", search="", run_cap=0, made={}, no_more="", early=None,
        stored=StoredState.OPEN, why=None, budget=None, bands=(), files=(),
        outside=frozenset(), counts=Counts(), tags=(CONFIRMS + sweep.id,),
    )  # fmt: skip
    confirmation, sign = signing.signed(key, prefix, confirmation)
    rows = []
    for params in (ParameterSet(trial.params) for trial in best):
        if isinstance(base := params.get(SEED), int):
            params = ParameterSet({**params, SEED: base + sweep.replicates})
        rows += [encode_new(one, i) for i, one in enumerate(replicated(params, seeds))]
    code = session.reader.sweeps.bundle(sweep.bundle)
    manifest = dumps(dict(session.reader.sweeps.manifest(sweep.launch.code))) if code else ""
    try:
        trials = write_rows(writer, sid, iter(rows), sign, lambda _: None)
        create(writer, confirmation, manifest, code, again=True, is_last=False)
    except BaseException:
        writer.discard(sid)
        raise
    return Enqueued(sid=sid, is_new=True, trials=trials)
