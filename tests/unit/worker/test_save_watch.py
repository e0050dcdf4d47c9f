"""When a save of training code has ended, by what a worker sees four times a second. No clock."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from hpq_worker.files.save_watch import Entry, SaveWatch

QUIET_S, LOOK_S = 10.0, 0.25
# What training code does: when, and "write NAME", "grow NAME", "replace NAME", "remove NAME" or
# "report"; it writes in place, or replaces a file by renaming another one.
Act = tuple[float, str]


def wholes(
    acts: Iterable[Act], until: float, kept: str = ""
) -> list[tuple[float, dict[str, float]]]:
    """The states that count as whole: when, and when each of their files was written last.

    `kept` is the file of the checkpoint from which the trial has resumed.
    """
    disk, inodes = dict[str, Entry](), itertools.count(1)
    if kept:
        disk[kept] = Entry(kept, 100, 0, next(inodes))
    watch = SaveWatch(QUIET_S, tuple(disk.values()))
    found, seen = list[tuple[float, dict[str, float]]](), tuple(disk.values())
    reports, rest = 0, sorted(acts)
    for look in range(int(until / LOOK_S)):
        now = look * LOOK_S
        while rest and rest[0][0] <= now:
            when, act = rest.pop(0)
            verb, _, name = act.partition(" ")
            old = disk.pop(name, Entry(name, 100, 0, next(inodes)))
            if verb == "report":
                reports += 1
            elif verb != "remove":
                size = old.size + 100 if verb == "grow" else old.size
                inode = next(inodes) if verb == "replace" else old.inode
                disk[name] = Entry(name, size, round(when * 1e9), inode)
        last, seen = seen, tuple(sorted(disk.values()))
        watch.add(seen, reports, now)
        state = {one.name: one.mtime_ns / 1e9 for one in seen if not one.is_draft}
        if seen == last and state and watch.is_whole(now) and state not in [s for _, s in found]:
            found.append((now, state))
    return found


def every(period: float, count: int, *acts: Act) -> list[Act]:
    """The same acts again and again."""
    return [(n * period + at, act.replace("#", str(n))) for n in range(count) for at, act in acts]


SHARDS = [(4.0 * n, f"write step-3/{n}.bin") for n in range(6)]


@pytest.mark.parametrize(
    ("acts", "names", "soonest", "latest"),
    [
        ([(0, "write step-3/a.bin"), (9, "write step-3/b.json")], {"a.bin", "b.json"}, 19, 20),
        ([(0, "write a.bin"), (9, "write b.json")], {"a.bin", "b.json"}, 19, 20),
        ([(0, "replace a.bin"), (9, "replace b.json")], {"a.bin", "b.json"}, 19, 20),
        (SHARDS, {f"{n}.bin" for n in range(6)}, 40, 41),  # it took 20 s: as long is waited
        # A library that writes a large file under a hidden name, beside one that is done.
        (
            [(0, "write config.json"), *every(1, 25, (0, "grow .tmpX")), (25, "remove .tmpX"),
             (25, "write model.safetensors")],
            {"config.json", "model.safetensors"}, 35, 51,
        ),
        # A large file that grows for longer than the quiet time is not saved twice.
        ([*every(0.25, 60, (0, "grow a.bin")), (19, "write b.json")], {"a.bin", "b.json"}, 29, 40),
    ],
)  # fmt: skip
def test_a_save_of_several_files_counts_as_whole_when_none_has_changed_for_long(
    acts, names, soonest, latest
) -> None:
    (one,) = wholes(acts, 60)
    when, state = one
    assert {name.rpartition("/")[2] for name in state} == names
    assert soonest <= when <= latest


@pytest.mark.parametrize("verb", ["write", "replace"])
def test_a_file_that_is_saved_again_and_again_is_a_checkpoint_by_itself(verb) -> None:
    found = wholes(every(3, 9, (0, f"{verb} last.pt")), 30)
    assert [state["last.pt"] for _, state in found] == [3.0 * n for n in range(1, 9)]
    assert all(when - state["last.pt"] <= 2 * LOOK_S for when, state in found)


def test_a_file_from_which_a_trial_resumed_is_a_checkpoint_by_itself() -> None:
    ((when, state),) = wholes([(3, "replace last.pt")], 5, kept="last.pt")[1:]
    assert state == {"last.pt": 3} and when < 4


def test_several_files_again_are_no_checkpoint_before_the_last_of_them() -> None:
    """A directory had one file alone; then a second one comes with each save."""
    acts = [(0, "replace a.bin"), (3, "replace a.bin"), (20, "replace a.bin"), (25, "write b.json")]
    acts += [(60, "replace a.bin"), (69, "write b.json")]
    found = [state for _, state in wholes(acts, 90)]
    assert found[-2:] == [{"a.bin": 20, "b.json": 25}, {"a.bin": 60, "b.json": 69}]
    assert {"a.bin": 60, "b.json": 25} not in found


@pytest.mark.parametrize(
    "save",
    [
        # Hugging Face's Trainer, which keeps the last checkpoint only
        [(0, "write checkpoint-#/model"), (0.5, "write checkpoint-#/state"),
         (0.5, "remove checkpoint-@/model"), (0.5, "remove checkpoint-@/state")],
        # Keras's BackupAndRestore
        [(0, "write latest.weights.h5"), (1, "write training_metadata.json")],
        # A saver in another thread, while the trial trains and reports
        [(0, "write a"), (0.5, "report"), (1, "write b"), (1.5, "report"), (2, "write c")],
    ],
)  # fmt: skip
def test_saves_in_quick_succession_are_whole_in_the_longest_pauses_between_reports(save) -> None:
    acts = every(5, 60, *save, (4, "report"))
    numbered = [(at, act.replace("@", str(int(at / 5) - 1))) for at, act in acts]
    found = wholes(numbered, 300)
    assert len(found) >= 5
    for when, state in found:
        save_at = 5 * (when // 5)
        assert all(save_at <= at <= when for at in state.values()), (when, state)
        assert len(state) == len([act for _, act in save if act.startswith("write")])


def test_saves_in_quick_succession_of_a_trial_that_never_reports_are_never_whole() -> None:
    assert wholes(every(5, 60, (0, "write a"), (3, "write b")), 300) == []
