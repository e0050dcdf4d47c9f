"""Trials of several processes under torchrun, gloo on the CPU: the page's example, and faults."""

from __future__ import annotations

import re
import signal

import pytest

from hpq.domain.trial import FailureKind, TrialId, TrialState
from tests.support.constants import ROOT

pytest.importorskip("torch")
PAGE = ROOT / "docs" / "guides" / "multi-gpu.md"
FAULTY = """
    import os, pathlib, signal, sys, time
    here, rank, x = pathlib.Path(__file__).parent, int(os.environ["RANK"]), sys.argv[1]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit((here / f"told-{x}-{rank}").touch()))
    print(f"loss={rank}", flush=True)
    ports = os.environ["MASTER_PORT"], os.environ.get("PET_MASTER_PORT")  # torchrun's, and hpq's
    (here / f"port-{x}-{rank}").write_text(" ".join({str(port) for port in ports}))
    (here / f"began-{x}-{rank}").touch()
    while not all((here / f"began-{y}-{r}").exists() for y in "12" for r in range(4)):
        time.sleep(0.01)
    if x == "1" and rank == 2:
        raise KeyError(x)
    while True:
        time.sleep(0.01)
"""
DDP = """
    import argparse
    import torch, torch.distributed as dist, wandb
    from torch.nn.parallel import DistributedDataParallel

    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        wandb.init(project="ddp", config=args)
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    x = torch.randn(16, 2, generator=torch.Generator().manual_seed(rank))
    for epoch in range(3):
        optimizer.zero_grad()
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss := loss.detach(), op=dist.ReduceOp.SUM)
        print(f"epoch {epoch} loss {loss:.4f}", flush=True)
        if rank == 0:
            wandb.log({"loss": loss.item(), "ranks": dist.get_world_size()})
    if rank == 0:
        wandb.finish()
    dist.destroy_process_group()
"""


def of_page(language: str) -> str:
    """The only block of the page in a language."""
    (block,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    return block


def test_the_pages_trial_checkpoints_when_told_and_goes_on_with_other_ranks(lab) -> None:
    lab.env["HPQ_STORE"] = str(lab.folder / "store")
    # So that it is told in the middle: from the fourth epoch on it waits for the file.
    wait = (
        f"    while epoch > 2 and not (stop or Path({str(lab.code / 'go')!r}).exists()):\n"
        "        __import__('time').sleep(0.01)\n"
        "    loss = "
    )
    lab.write("train.py", of_page("python").replace("    loss = ", wait, 1))
    sweep = of_page("yaml").replace("[0.1, 0.03]", "[0.1]").replace("value: 20", "value: 6")
    sid = lab.enqueue(sweep)
    first = lab.worker(
        1, CUDA_VISIBLE_DEVICES="", HPQ_GPUS_PER_TRIAL="2", HPQ_QUEUE="big", HPQ_GRACE_S="60"
    )
    lab.wait_until(lambda: lab.trial(sid).step == 2, "three epochs of two ranks")
    assert len(lab.processes(r"python\S* (-u )?\S*train\.py")) == 2
    first.send_signal(signal.SIGTERM)
    lab.wait_until(lambda: first.poll() is not None, "the end of the worker")
    assert lab.trial(sid).state is TrialState.QUEUED
    (lab.code / "go").touch()
    lab.worker(1, HPQ_QUEUE="big")  # ${gpus} is 1
    lab.wait_over(sid)
    trial = lab.trial(sid)
    assert (trial.state, trial.attempt) == (TrialState.FINISHED, 2)
    history = lab.reader.trials.metric_history(TrialId(sweep=sid, number=1), "val_loss")
    assert [p.step for p in history] == [0, 1, 2, 3, 4, 5]  # once each, and none of another rank
    assert re.search(r"rank 1: .*rank 0", lab.printed(sid))


def test_a_rank_that_fails_ends_its_trial_and_a_cancel_reaches_every_rank(lab) -> None:
    lab.write(
        "faulty.py",
        FAULTY.replace("pathlib.Path(__file__).parent", f"pathlib.Path({str(lab.code)!r})"),
    )
    sid = lab.enqueue("""
        program: faulty.py
        command: ["${interpreter}", -m, torch.distributed.run, --nproc-per-node, "${gpus}", "${program}", "${x}"]
        method: grid
        metric: {name: loss, goal: minimize}
        parameters: {x: {values: [1, 2]}}
    """)  # noqa: E501
    lab.worker(
        2, CUDA_VISIBLE_DEVICES="", HPQ_GPUS_PER_TRIAL="4", HPQ_GRACE_S="60"
    )  # both at once on one machine, each with its port
    is_over = lambda: lab.trial(sid, 1).state is TrialState.FAILED  # noqa: E731
    lab.wait_until(is_over, "the end of the trial with a faulty rank")
    failure = lab.trial(sid, 1).failure
    assert failure.kind is FailureKind.USER_ERROR
    assert failure.message.startswith("rank 2: ") and "KeyError: '1'" in failure.message
    lab.ok("cancel", f"{sid}/2", "--yes")
    lab.wait_over(sid)
    assert lab.trial(sid, 2).state is TrialState.CANCELLED
    assert all((lab.code / f"told-2-{rank}").exists() for rank in range(4))
    assert not lab.processes(r"faulty\.py")
    found = {(lab.code / f"port-{x}-{rank}").read_text() for x in "12" for rank in range(4)}
    assert len(found) == 2 and all(port.isdigit() for port in found)  # one for each trial
    for number in (1, 2):  # four ranks printed it; rank 0's counts
        history = lab.reader.trials.metric_history(TrialId(sweep=sid, number=number), "loss")
        assert [(p.step, p.value) for p in history] == [(1, 0.0)]


def test_what_rank_0_logs_for_wandb_is_the_metric_of_a_distributed_model(lab) -> None:
    lab.write("ddp.py", DDP)
    sid = lab.enqueue("""
        program: ddp.py
        command: ["${interpreter}", -m, torch.distributed.run, --nproc-per-node, 2, "${program}", "${args}"]
        method: grid
        metric: {name: loss, goal: minimize}
        parameters: {lr: {values: [0.1]}}
    """)  # noqa: E501
    lab.worker()
    lab.wait_over(sid)
    trial = lab.trial(sid)
    assert trial.state is TrialState.FINISHED, lab.printed(sid)
    history = lab.reader.trials.metric_history(TrialId(sweep=sid, number=1), "loss")
    assert [p.step for p in history] == [0, 1, 2] and trial.objective == history[-1].value
    assert trial.metrics["ranks"] == 2
