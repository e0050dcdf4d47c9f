"""Readies a runner for an attempt: the resident one where it fits, else a fresh one."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from redis.exceptions import RedisError

from hpq.code.command import argv, interpreter
from hpq.domain.metric_check import missing_metric
from hpq.domain.retry_policy import retry_rule
from hpq.domain.sweep import Sweep
from hpq.domain.trainer_specs import SHIPPED
from hpq.domain.trial import Claim
from hpq.search.samplers import SEED, seed_of
from hpq.settings import Settings
from hpq_worker.attempt import environment
from hpq_worker.attempt import environment as trial_environment
from hpq_worker.attempt.code import Bundles, Copy
from hpq_worker.attempt.environment import AttemptPaths
from hpq_worker.attempt.execution import Execution, Result, Signals
from hpq_worker.attempt.outcome import Halt
from hpq_worker.attempt.trust import Access
from hpq_worker.files.checkpoints import CheckpointPublisher
from hpq_worker.files.garbage import FileStoreHandle
from hpq_worker.lease.heartbeat import Heartbeat
from hpq_worker.lease.report_buffer import ReportBuffer
from hpq_worker.process import secrets
from hpq_worker.process.protocol import Run
from hpq_worker.process.secrets import Mask
from hpq_worker.runner.process import RunnerKey, RunnerProcess

log = logging.getLogger("hpq.attempt")


class AttemptRunner:
    """Runs attempts, keeping the runner of a resident trainer warm from one to the next."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        access: Access,
        beats: Heartbeat,
        signals: Signals,
        shelf: FileStoreHandle,
        bundles: Bundles,
    ) -> None:
        self._settings, self._environ, self._shelf = settings, environ, shelf
        self._access, self._beats, self._signals = access, beats, signals
        self._bundles = bundles
        self._child: RunnerProcess | None = None
        self._told = set[str]()  # sweeps of which something was said about their metric
        self._copy: Copy | None = None  # of the code that the runner has, where it is resident

    def run(self, claim: Claim, sweep: Sweep) -> Result:
        """Run one attempt to its end.

        Raises:
            OSError: this machine cannot start anything (no disk, no process).
        """
        collector, is_over = ReportBuffer(sweep.metric), False
        self._beats.begin(claim, collector)  # before the disk, which may be slow
        place = AttemptPaths.make(self._settings.home, claim)
        try:
            files = self._shelf.open()
            keeper = CheckpointPublisher(
                files,
                self._shelf.prefix,
                claim,
                place,
                collector,
                self._beats.nudge,
                self._signals,
            )
            if not keeper.restore():
                return Result(outcome=None, halt=Halt.STOPPING, keep_runner=True, is_whole=False)
            env = environment.of_runner(self._settings, sweep, self._environ)
            mask = Mask(secrets.values(self._settings, env, self._access.key))
            with trial_environment.reserved() as port:
                child, code_dir = self._ready(claim, sweep, place, env)
                run = self._describe(claim, sweep, place, env, code_dir, port)
                execution = Execution(
                    claim,
                    sweep,
                    child,
                    collector,
                    mask,
                    self._settings.grace_s,
                    lambda names: self._unreported(claim, sweep, names),
                )
                keeper.start()
                try:
                    result = execution.run(run, self._beats, self._signals)
                finally:
                    keeper.stop()
            result = self._keep(keeper, sweep, result)
            is_over = _is_over(result)
            if not (result.keep_runner and _is_resident(sweep)):
                self.close()
            return result
        except BaseException:
            self.close()
            raise
        finally:
            place.clear(keep_out=is_over)

    def _unreported(self, claim: Claim, sweep: Sweep, names: Sequence[str]) -> None:
        if sweep.metric is not None and sweep.id not in self._told:
            self._told.add(sweep.id)
            log.warning("%s %s", claim.trial, missing_metric(sweep.metric.name, names))

    def _keep(self, keeper: CheckpointPublisher, sweep: Sweep, result: Result) -> Result:
        """What an attempt left goes to the store of files before anybody hears that it is over."""
        outcome = result.outcome
        goes_back = outcome is None and result.halt is Halt.STOPPING
        if goes_back or (outcome is not None and sweep.keep):
            if result.is_whole:
                keeper.keep_last()
            with suppress(RedisError):  # then the checkpoint before it stands
                self._beats.flush()
            with suppress(OSError):
                keeper.drop_older()
        if outcome is None or not _is_over(result):
            return result
        return replace(result, outcome=replace(outcome, artifacts=keeper.artifacts()))

    def close(self) -> None:
        """End the runner, if there is one."""
        if self._child is not None:
            self._child.close()
            self._child = None
        if self._copy is not None:
            self._copy.remove()
            self._copy = None

    def _describe(
        self,
        claim: Claim,
        sweep: Sweep,
        place: AttemptPaths,
        runner: Mapping[str, str],
        code_dir: str,
        port: int,
    ) -> Run:
        launch, gpus = sweep.launch, self._settings.gpus_per_trial
        env = environment.of_group(gpus, port)
        words: tuple[str, ...] = ()
        if launch.program or launch.command:
            env = environment.of_program(runner, sweep, claim, place, gpus, port)
            words = argv(
                launch.command,
                launch.program,
                claim.params,
                environ=env,
                params_file=str(place.params),
                interpreter=interpreter(env, self._settings.python),
                out=str(place.out),
                gpus=gpus,
            )
        seed = seed_of(sweep, claim.trial.number, claim.params)
        return Run(
            trial=str(claim.trial),
            attempt=claim.attempt,
            params={SEED: seed, **claim.params} if launch.trainer in SHIPPED else claim.params,
            seed=seed,
            trainer=launch.trainer,
            argv=words,
            env=env,
            cwd=code_dir or str(place.work),
            code_dir=code_dir,
            out=str(place.out),
            checkpoint=str(place.checkpoint),
            checkpoint_s=self._settings.checkpoint_s,
            socket=place.socket,
            data=str(self._settings.data or ""),
            cache=str(self._settings.cache),
        )

    def _ready(
        self, claim: Claim, sweep: Sweep, place: AttemptPaths, env: Mapping[str, str]
    ) -> tuple[RunnerProcess, str]:
        """The runner, and the directory of the code that it runs ("": none)."""
        launch = sweep.launch
        fresh = "" if _is_resident(sweep) else f"{claim.trial}/{claim.token}"
        key = RunnerKey(
            trainer=launch.trainer,
            code=launch.code,
            code_dir=launch.code_dir,
            pass_env=launch.pass_env,
            attempt=fresh,
        )
        if self._child is not None and (self._child.key != key or self._child.status() is not None):
            self.close()
        code_dir = self._code(sweep, place)
        if self._child is None:
            # A resident runner outlives the directories of an attempt; it must not stand in them.
            self._child = RunnerProcess(key, env, code_dir or str(self._settings.home))
        return self._child, code_dir

    def _code(self, sweep: Sweep, place: AttemptPaths) -> str:
        """Where the code of a sweep lies; what came with it is copied out, for this runner."""
        launch = sweep.launch
        if not launch.bundled:
            return launch.code_dir or str(self._settings.code or "")
        if not _is_resident(sweep):
            self._bundles.copy(launch, place.code)
            return str(place.code)
        if self._copy is None:
            self._copy = self._bundles.own_copy(launch)
        return str(self._copy.path)


def _is_over(result: Result) -> bool:
    """True where an attempt has a result of its own, and is not merely given back."""
    outcome = result.outcome
    return outcome is not None and not retry_rule(outcome.failure).released


def _is_resident(sweep: Sweep) -> bool:
    return sweep.launch.trainer in SHIPPED or (sweep.launch.resident and bool(sweep.launch.trainer))
