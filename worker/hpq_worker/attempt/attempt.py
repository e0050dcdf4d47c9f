"""Runs one attempt: prepares the runner (resident or fresh), executes, publishes its files."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from redis.exceptions import RedisError

from hpq.code.command import argv, interpreter
from hpq.domain.attempt import Outcome
from hpq.domain.retry_policy import retry_rule
from hpq.domain.sweep import FUNCTION, Launch, RunnableSweep, Wandb
from hpq.domain.trainer_specs import BUILT_IN
from hpq.domain.trial import Claim, Failure, FailureKind
from hpq.notice import plural, tagged
from hpq.search.replicates import SEED, seed_of
from hpq_worker.attempt import environment
from hpq_worker.attempt.code import Place
from hpq_worker.attempt.execution import Execution
from hpq_worker.attempt.outcome import Result
from hpq_worker.attempt.parts import AttemptParts
from hpq_worker.attempt.report_socket import ReportSocket
from hpq_worker.files.checkpoints import CheckpointPublisher
from hpq_worker.files.history_file import HistoryFile
from hpq_worker.files.overwrites import Overwrites
from hpq_worker.files.workdir import AttemptPaths, full_disk, overfilled
from hpq_worker.lease.report_buffer import ReportBuffer
from hpq_worker.process import secrets
from hpq_worker.process.logs import TrialOutput
from hpq_worker.process.protocol import Halt, RunRequest
from hpq_worker.process.secrets import Mask
from hpq_worker.process.watchdog import CallThread
from hpq_worker.runner.agent_caller import Caller
from hpq_worker.runner.runner_process import RunnerKey, RunnerProcess

log = logging.getLogger("hpq.attempt")


class AttemptRunner:
    """Runs attempts, and keeps the runner of a resident trainer for the next one."""

    def __init__(self, parts: AttemptParts) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._heartbeat = parts.heartbeat
        self._runner: RunnerProcess | None = None
        self._thread = CallThread("files", parts.progress)
        self._warned = set[str]()  # sweeps and files that a warning named
        self._overwrites = Overwrites(self._settings.work_root)
        self._surroundings = lru_cache(1)(self._surroundings_of)  # of the trials of one sweep
        store = self._settings.store
        on_disk = [Path(store).expanduser()] if store and "://" not in store else []
        self._disks = (self._settings.work_root, *on_disk)

    def run(self, claim: Claim, sweep: RunnableSweep) -> Result:
        """Run one attempt to its end.

        Raises:
            OSError: this machine cannot start a process, or its disk is full.
        """
        if full := full_disk(*self._disks):
            raise OSError(full)
        if self._parts.caller is not None:  # it calls a function in place of a program, too
            function = Launch(trainer=FUNCTION, wandb=Wandb.STAND_IN)
            sweep = replace(sweep, launch=function)
        kind, is_over = self._parts.terminal or ReportBuffer, False
        reports = kind(sweep.metric, sweep.further_metrics)
        if self._settings.log_trials and self._parts.terminal is None:
            reports.echo = TrialOutput(claim.trial).add
        self._heartbeat.begin(claim, reports)  # before the disk, which may be slow
        launch = sweep.launch
        uses_all = launch.is_function or not launch.trainer or self._parts.terminal is not None
        root, checkpoint = self._settings.work_root, self._parts.checkpoint
        paths = AttemptPaths.create(root, claim, checkpoint, make=uses_all)
        try:
            publisher = self._publisher(claim, paths, reports)
            if not publisher.restore():
                return Result(outcome=None, halt=Halt.STOPPING, keep_runner=True, is_whole=False)
            if sweep.history and self._parts.terminal is None:
                history = HistoryFile(paths.out)
                reports.keep, reports.forget = history.add, history.rewind
            result = self._execute(claim, sweep, paths, reports, publisher)
            if result.halt is Halt.STOPPING and result.outcome is None:  # before files are removed
                full = overfilled(self._settings.home, paths.work, self._settings.cache_bytes)
                result = replace(result, overfilled=full)
            if self._parts.terminal is None:
                result = self._publish_rest(publisher, sweep, result)
            is_over = _is_over(result)
            self._release(sweep, keep_runner=result.keep_runner)
            return result
        except BaseException:
            self.close()
            raise
        finally:
            reports.echo(b"\n")  # ends the last line
            paths.remove(keep_out=is_over)

    def _publisher(
        self, claim: Claim, paths: AttemptPaths, reports: ReportBuffer
    ) -> CheckpointPublisher:
        files = self._parts.files
        return CheckpointPublisher(
            files.open(),
            files.prefix,
            claim,
            paths,
            reports,
            self._heartbeat.notify,
            self._parts.signals,
            self._thread,
            self._settings.checkpoint_quiet_s,
        )

    def _execute(
        self,
        claim: Claim,
        sweep: RunnableSweep,
        paths: AttemptPaths,
        reports: ReportBuffer,
        publisher: CheckpointPublisher,
    ) -> Result:
        has_data = self._settings.data.exists()
        env, hidden = self._surroundings(sweep.launch.pass_env, self._parts.trust.key, has_data)
        opened = closing(ReportSocket(paths.socket)) if paths.socket else nullcontext()
        with environment.reserved_port() as port, opened as socket:
            runner, place = self._ready(claim, sweep, paths, env)
            resumed = {"HPQ_RESUMED_STEP": str(reports.step)} if reports.names else {}
            run = self._describe(claim, sweep, paths, {**env, **resumed}, place, port)
            execution = Execution(
                claim,
                sweep,
                runner,
                self._parts.usage.begin(runner.pid, sweep.idle_below),
                reports,
                socket,
                Mask(hidden),
                self._settings.grace_s,
                self._parts.progress,
                lambda text: self._warn(claim, text),
                partial(self._parts.alert, sweep, claim.trial),
            )
            self._overwrites.begin(sweep.id)
            publisher.start(execution.read_arrived)
            try:
                result = execution.run(run, self._heartbeat, self._parts.signals)
            finally:
                self._parts.usage.end()
                publisher.stop()
        has_failed = result.outcome is not None and result.outcome.failure is not None
        trees = [place.tree.path] if place.tree else []
        removed = paths.removed(*trees) if has_failed else ""
        try:
            note = place.close(paths.out)
        except OSError as error:  # the result counts all the same
            note = f"cannot move the files that were written beside the code to HPQ_OUT: {error}"
        self._warn_of_overwrites(claim, place, reports)
        if note:
            reports.log(f"hpq: {note}\n".encode())
        return replace(result, outcome=self._judge(sweep, place, result.outcome, removed))

    def _surroundings_of(
        self, pass_env: tuple[str, ...], key: bytes | None, _has_data: bool
    ) -> tuple[Mapping[str, str], Sequence[bytes]]:
        """Return the environment of runners, and the secrets to mask in their output."""
        env = environment.runner_environment(self._settings, pass_env, self._parts.environ)
        return env, secrets.secret_values(self._settings, env, key)

    def _judge(
        self, sweep: RunnableSweep, place: Place, outcome: Outcome | None, removed: str
    ) -> Outcome | None:
        """Blame this machine for a failure if its disk is full or a directory was removed."""
        if outcome is None or outcome.failure is None:
            return self._parts.bundles.judge(sweep, outcome)
        failure = place.as_enqueued(outcome.failure)
        fault, folder = full_disk(self._settings.work_root), sweep.launch.code_dir
        if removed:
            fault = f"another process removed directories in {os.path.dirname(removed)}"
        if self._parts.bundles.works_in(sweep.launch) and not os.path.isdir(folder):
            fault = f"the code's directory {folder} is gone"
        if not fault:
            return self._parts.bundles.judge(sweep, replace(outcome, failure=failure))
        text = f"{fault}; {failure.message}"
        failure = Failure(kind=FailureKind.WORKER_FAULT, message=text, fingerprint=fault)
        return replace(outcome, failure=failure)

    def _warn(self, claim: Claim, text: str) -> None:
        if claim.trial.sweep not in self._warned:
            self._warned.add(claim.trial.sweep)
            log.warning("%s: %s", claim.trial, text)

    def _warn_of_overwrites(self, claim: Claim, place: Place, reports: ReportBuffer) -> None:
        number = claim.trial.number
        found = self._overwrites.end(number, place.shared) if place.shared else {}
        files = [path for path in found if place.words((path,)) == (path,)]  # but the user's code
        if not files:
            return
        rest = len(files) - 1
        more = f" and {rest} more {plural(rest, 'file')}" if rest else ""
        seen = f"seen in #{found[files[0]]} and #{number}"
        text = f"trials write the same file {files[0]}{more} ({seen}); write to $HPQ_OUT instead"
        line = tagged(text, "file-overwritten")
        reports.log(f"hpq: {line}\n".encode())
        if files[0] not in self._warned:
            self._warned.add(files[0])
            log.warning("%s: %s", claim.trial, line)

    def _publish_rest(
        self, publisher: CheckpointPublisher, sweep: RunnableSweep, result: Result
    ) -> Result:
        """Publish the last checkpoint and the artifacts, before the commit names them."""
        outcome = result.outcome
        is_released = outcome is None and result.halt is Halt.STOPPING
        if is_released or (outcome is not None and sweep.keep):
            if result.is_whole and (outcome is None or outcome.failure is None):
                publisher.publish_last()
            with suppress(RedisError):  # then the checkpoint before it remains the last
                self._heartbeat.flush()
            with suppress(OSError):
                publisher.remove_older()
        if outcome is None or not _is_over(result):
            return result
        needs_checkpoint = outcome.failure is not None or sweep.keep is not None
        outcome = publisher.publish_artifacts(outcome, needs_checkpoint=needs_checkpoint)
        return replace(result, outcome=outcome)

    def _release(self, sweep: RunnableSweep, *, keep_runner: bool) -> None:
        """Remove what does not outlive an attempt: the copy of a program's code, or all."""
        if not (keep_runner and _is_resident(sweep)):
            self.close()
        elif not sweep.launch.trainer:
            self._parts.bundles.close()

    def close(self) -> None:
        """End the runner, if there is one, and then remove the copy of the code."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None
        self._parts.bundles.close()

    def _describe(
        self,
        claim: Claim,
        sweep: RunnableSweep,
        paths: AttemptPaths,
        runner_env: Mapping[str, str],
        place: Place,
        port: int,
    ) -> RunRequest:
        launch, gpus = sweep.launch, self._settings.gpus_per_trial
        seed = seed_of(sweep, claim.trial.number, claim.params)
        env = environment.group_environment(gpus, port)
        if launch.is_function:
            env = environment.trial_environment(sweep, claim, paths, seed)
        command: tuple[str, ...] = ()
        if launch.program or launch.command:
            runner_env = place.environment(runner_env, self._python(sweep, runner_env))
            env = environment.program_environment(
                runner_env, sweep, claim, paths, seed=seed, gpus=gpus, port=port
            )
            command = argv(
                place.words(launch.command),
                place.words((launch.program,))[0],
                claim.params,
                environ=env,
                params_file=str(paths.params),
                interpreter=interpreter(env, self._settings.python),
                out=str(paths.out),
                gpus=gpus,
            )
        return RunRequest(
            trial=str(claim.trial),
            attempt=claim.attempt,
            params={SEED: seed, **claim.params} if launch.trainer in BUILT_IN else claim.params,
            seed=seed,
            trainer=launch.trainer,
            argv=command,
            preload=launch.preload,
            env=env,
            cwd=place.cwd or str(paths.work),
            code_dir=place.code_dir,
            out=str(paths.out),
            checkpoint=str(paths.checkpoint),
            checkpoint_s=self._settings.checkpoint_s,
            data=str(self._settings.data.absolute()),
            cache=str(self._settings.cache),
            in_terminal=self._parts.terminal is not None,
        )

    def _ready(
        self, claim: Claim, sweep: RunnableSweep, paths: AttemptPaths, env: Mapping[str, str]
    ) -> tuple[RunnerProcess | Caller, Place]:
        """Return the runner, and where the attempt runs."""
        if self._parts.caller is not None:
            return self._parts.caller, Place()
        launch = sweep.launch
        attempt = "" if _is_resident(sweep) else f"{claim.trial}/{claim.token}"
        key = RunnerKey(
            trainer=launch.trainer,
            code=launch.code,
            code_dir=launch.code_dir,
            owner="" if launch.trainer in BUILT_IN else sweep.owner,
            pass_env=launch.pass_env,
            attempt=attempt,
        )
        if self._runner is not None and (
            self._runner.key != key or self._runner.status() is not None
        ):
            self.close()
        place = self._place(sweep.launch)
        if self._runner is None:
            # A resident runner outlives the attempt's directories: it must not work in one.
            cwd = place.cwd or str(self._settings.home)
            env = place.environment(env, self._python(sweep, env))
            if launch.trainer in BUILT_IN:
                env = {**environment.KEEP_FREED_MEMORY, **env}
            self._runner = RunnerProcess(key, env, cwd, self._parts.terminal is not None)
        return self._runner, place

    def _python(self, sweep: RunnableSweep, env: Mapping[str, str]) -> str:
        return sys.executable if sweep.launch.trainer else interpreter(env, self._settings.python)

    def _place(self, launch: Launch) -> Place:
        """Return where an attempt runs."""
        if launch.bundled:
            return Place.in_tree(launch, self._parts.bundles.tree(launch))
        folder = launch.code_dir or str(self._settings.code or "")
        if self._parts.terminal:
            return Place(cwd=folder, code_dir=folder)
        return Place.live(launch, folder)


def _is_over(result: Result) -> bool:
    """True if the attempt has a result, and is not released to the queue."""
    outcome = result.outcome
    return outcome is not None and not retry_rule(outcome.failure).released


def _is_resident(sweep: RunnableSweep) -> bool:
    """True if the runner stays for the next trial.

    A trainer function leaves modules, memory and threads in it. A program leaves processes only,
    and the runner finds all of them on Linux.
    """
    launch = sweep.launch
    if launch.trainer:
        return launch.resident or launch.trainer in BUILT_IN
    return bool(launch.preload) or sys.platform == "linux"
