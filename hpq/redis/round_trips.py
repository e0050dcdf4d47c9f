"""Ask Redis several questions at once: all together take as many round trips as the longest.

A question is a generator. It yields what adds its next commands to a pipeline, receives their
answers, and returns its result. An answer may be an exception (`hpq.redis.damage.answered`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from redis import Redis

T = TypeVar("T")
AddCommands = Callable[[Any], object]
Question = Generator[AddCommands, Any, T]


def ask(redis: Redis, question: Question[T]) -> T:
    """Return the result of a question; each of its steps is one round trip."""
    answers = None
    while True:
        try:
            add = question.send(answers)
        except StopIteration as end:
            result: T = end.value
            return result
        pipe = redis.pipeline(transaction=False)
        add(pipe)
        answers = pipe.execute(raise_on_error=False)


def together(*questions: Question[Any]) -> Question[list[Any]]:
    """Ask several questions in the same steps; return their results in this order."""
    results: dict[int, Any] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(questions)))
    while answers:
        asked: dict[int, AddCommands] = {}
        for place, given in answers.items():
            try:
                asked[place] = questions[place].send(given)
            except StopIteration as end:
                results[place] = end.value
        sizes: list[int] = []
        found = iter((yield partial(_add_all, asked.values(), sizes)) if asked else ())
        answers = {
            place: list(islice(found, size)) for place, size in zip(asked, sizes, strict=True)
        }
    return [results[place] for place in range(len(questions))]


def _add_all(every: Iterable[AddCommands], sizes: list[int], pipe: Any) -> None:
    """Add the commands of each step; append how many each has added."""
    for add in every:
        before = len(pipe)
        add(pipe)
        sizes.append(len(pipe) - before)
