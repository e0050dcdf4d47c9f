"""The expression of `--where`: which trials or sweeps it picks, and if they have its names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hpq.domain.expression import Expression, InvalidExpression, Lookup, quote_hint
from hpq.domain.trial import Json, TrialState
from hpq.errors import UserError
from hpq.yamlfile.problems import nearest
from hpq_views.text.text import first_of

_SHOWN = 12  # names in a message


@dataclass(slots=True)
class Filter:
    """A test, its names that had a value so far, and all names that a trial may have."""

    test: Expression
    seen_names: set[str] = field(default_factory=set)
    seen_states: set[Json] = field(default_factory=set)
    known_names: dict[str, None] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> Filter:
        """Parse an expression.

        Raises:
            UserError: the text is invalid; the message names the invalid part.
        """
        try:
            return cls(Expression.test(text))
        except InvalidExpression as error:
            raise UserError(f"--where: {error}", code="expression-invalid") from None

    def asks_for(self, name: str) -> bool:
        """Return True if the expression has a name."""
        return any(one.text == name for one in self.test.names)

    def matches(self, lookup: Lookup) -> bool:
        """Return True if the expression holds for these values."""

        def recorded(name: str) -> Json:
            value: Json = lookup(name)
            if value is not None:
                self.seen_names.add(name)
            if name == "state" and isinstance(value, str):
                self.seen_states.add(value)
            return value

        return self.test.of(recorded) is True

    def check_names(
        self,
        known: Iterable[str] = (),
        what: str = "trial",
        states: Sequence[str] = tuple(TrialState),
    ) -> None:
        """Check the names after the last of what is filtered, against `known_names` and these.

        Raises:
            UserError: no trial has a value of one name, or `state` is compared with a word that is
                none of the states; the message lists what is known.
        """
        self.known_names |= dict.fromkeys(known)
        there = self.seen_names | self.known_names.keys()
        names = [one for name in self.test.names for one in name.among(there)]
        unknown = [one.text for one in names if one.text not in there and not one.may_be_text]
        if unknown:
            hint = quote_hint(self.test.text, self.known_names)
            hint = hint or nearest(unknown[0], self.known_names)
            hint = hint or f"; known names: {first_of([*self.known_names], _SHOWN)}"
            text = f"--where: no {what} has {unknown[0]!r}{hint}"
            raise UserError(text, code="filter-name-unknown")
        if not self.seen_states <= {*states}:  # a parameter has this name
            return
        for name, word in self.test.equals:
            if name == "state" and word and word not in states:
                hint = nearest(word, states) or f"; its states: {', '.join(states)}"
                text = f"--where: {word!r} is no state of a {what}{hint}"
                raise UserError(text, code="expression-invalid")
