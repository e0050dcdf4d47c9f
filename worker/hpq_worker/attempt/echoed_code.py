"""Tell the lines in which an interpreter shows code from those that a program prints.

A traceback shows the code of its frames, and a warning the line that caused it: `loss = 0.5 * x`
there is no report. Knows the stacks of Python 3.9 to 3.14, IPython, rich, loguru and numba, the
errors of JavaScript and Ruby, R's calls, and the traces of shells and of `python -m trace`.
"""

from __future__ import annotations

import re

_HEADER = "(most recent call last)"
_FRAME = re.compile(r'(?P<before>[^"]*)File "[^"]*", line(?:no)? \d+')
_REPEATED = re.compile(r"\s*\[Previous line repeated \d+ more times?\]")
_ERROR = re.compile(r"(?:(?:[\w<>]+\.)+\w+|[A-Z]\w*)(?:: .*|:?)\Z")  # the last line of a traceback
_SYNTAX_ERROR = re.compile(r"\w+Error: ")  # of a script that does not start: without a header
# `x.py:3: UserWarning: …`, also within the line of a logger, or what a program prints of a warning
_WARNING = re.compile(
    r"(?:(?<!\S)(?P<place>\S+:\d+: )(?:<class ')?)?"
    r"(?<![\w.])(?:\w+\.)*(?:\w+Warning\b|Warning: )"
)
_CATEGORY = re.compile(r"(?P<place>\S+(?:\.py|>):\d+: )[A-Z]\w*: ")  # without "Warning" in its name
_REPORTS = re.compile(r"\S.*[=:]\s*[-+]?[\d.]")
_SHOWN = re.compile(  # lines that are code as a whole
    r"\++ \S|\+\S+:\d+> "  # of `set -x` in bash and zsh
    r"|(?:Error in|(?:\d+: )?In) [\w.:]+\(.*\) ?:"  # of R
    r"|Exception in thread "  # of Java
)
_OF_JAVASCRIPT = re.compile(  # x.js:3 of Node, of Deno; an error's line follows
    r"(?:(?:(?:file:/)?/.*|\S+)\.[cm]?[jt]sx?|\[(?:eval|stdin)\]|evalmachine\.<\w+>):\d+\Z"
    r"|error: Uncaught "
)
_TRACED = re.compile(r"\S+\(\d+\): ")  # train.py(8): loss = 0.5
_SHOWS_NEXT = re.compile(  # x.rb:3:in of Ruby, x.cpp:3:5: error: and x.cu(3): of compilers
    r"(?:\S+\.rb|-e):\d+:in "
    r"|\S+\.(?!py:)\w+(?:(?::\d+)+|\(\d+\)): (?:fatal )?(?:error|warning|note|remark)\b"
)
_EXCERPT = re.compile(r'.*"[^"]*", line \d+(?:, column \d+)?:\Z')  # of numba and PyYAML
_MARKER = re.compile(r"[\s│|]*[~^][\s~^]*\Z")
_OF_IPYTHON = re.compile(r"\w+\s{2,}Traceback ")
_IN_IPYTHON = re.compile(
    r"\s+\S|-+>?\s*\d+\s|(?:Cell|Input|File|<ipython-|/|~).*(?: in |, line |:\d)"
)
_IN_BOX = re.compile(r"\s*[│╭╰├|+]")
# What may hold any of the above, so that other lines cost one search.
_MAY_BEGIN = re.compile(
    r'File "|\(most recent call last\)|Warning|\.py[:(]|>:\d|^\+|^ --- |^error: |:\d+(?:$|:)|\) ?:'
    r'|", line |^Exception in '
)
_MESSAGE_LINES = 10  # of a warning, before its line of code
_OTHER_LINES = 5  # that other threads may print within a traceback
_ANY_INDENT = range(1, 1_000)
_WRAPPED = 8  # columns of a logger before a warning, of which rich indents each further line


class EchoedCode:
    """Reads the lines of one process in their order."""

    def __init__(self) -> None:
        self._is_traced = False  # by `python -m trace`
        self._end()

    def _end(self) -> None:
        self._is_active = False
        self._has_header = False  # an exception's line follows the frames
        self._frame: str | None = None  # what stands before `File` in the frame's line
        self._box: re.Pattern[str] | None = None  # begins each line of this stack
        self._in_message = False  # indented lines go on with an exception's message
        self._is_excerpt = False  # until a blank line, or one of carets
        self._shows_next = False
        self._indents: range | None = None  # of the code of a warning, one line
        self._column = 0  # of a warning that a logger wraps: lines from here on belong to it
        self._left = 0  # other lines until the stack, or the wait for that code, is over

    def _begin(self, left: int) -> None:
        self._end()
        self._is_active, self._left = True, left

    def shows(self, line: str) -> bool:
        """Return True if a line is code, or says where code stands or how it failed."""
        if not self._is_active and not _MAY_BEGIN.search(line):
            return False
        if _HEADER in line:
            self._begin_stack(line)
            return True
        if self._box and self._box.match(line):
            return True
        is_code = self._begins(line)
        return self._is_active and self._goes_on(line) if is_code is None else is_code

    def _begin_stack(self, line: str) -> None:
        ends_here = line.rstrip(" :─-╮┐+").endswith(_HEADER)  # else it is one line of JSON
        self._begin(left=_OTHER_LINES)
        self._has_header = ends_here and "Traceback" in line
        if _IN_BOX.match(line):  # of rich, or of a group of exceptions, which has no line after it
            self._box = _IN_BOX
            self._has_header = "Exception Group" not in line
        elif _OF_IPYTHON.match(line):
            self._box = _IN_IPYTHON

    def _begins(self, line: str) -> bool | None:
        """Return whether a line that code may follow is code itself; None for other lines."""
        if frame := _FRAME.match(line):
            has_header = self._has_header
            self._begin(left=_OTHER_LINES if has_header else 1)
            self._has_header, self._frame = has_header, frame["before"]
            self._is_excerpt = _EXCERPT.match(line) is not None
        elif warning := (_WARNING.search(line) or _CATEGORY.match(line)):
            self._begin_warning(line, warning)
            return warning.re is _WARNING  # else it may be a line of a logger
        elif _EXCERPT.match(line):
            self._begin(left=1)
            self._is_excerpt = True
        elif error := (_OF_JAVASCRIPT.match(line) or _SHOWS_NEXT.match(line)):
            self._begin(left=2)
            self._shows_next = True
            self._has_header = error.re is _OF_JAVASCRIPT
        elif line.startswith(" --- modulename: "):
            self._is_traced = True
        elif not (_SHOWN.match(line) or (self._is_traced and _TRACED.match(line))):
            return None
        return True

    def _begin_warning(self, line: str, warning: re.Match[str]) -> None:
        if "Enable tracemalloc" in line:  # the second warning of an unclosed file has no code
            return
        has_place = warning["place"] is not None
        self._begin(left=_MESSAGE_LINES if has_place else 1)
        self._indents = range(1, 3) if has_place else _ANY_INDENT  # [default0]: takes one space
        if warning.start() >= _WRAPPED:
            self._column = warning.start()

    def _goes_on(self, line: str) -> bool:
        text = line.strip()
        if not text:
            self._in_message = self._is_excerpt = False
            return False
        if self._is_excerpt:
            self._is_excerpt = _MARKER.match(line) is None
            return True
        if self._is_source(line) or _REPEATED.match(line):
            return True
        if self._has_header and _ERROR.match(self._without_prefix(line)):
            self._begin(left=1)
            self._in_message = True
            return True
        if self._in_message and line[0].isspace():
            return True
        if self._frame is not None and not self._has_header and _SYNTAX_ERROR.match(text):
            self._end()
            return True
        self._left -= 1
        has_reported = self._indents is not None and _REPORTS.match(line)
        if self._left <= 0 or has_reported:
            self._end()
        return False

    def _is_source(self, line: str) -> bool:
        """Return True for the code of a frame, which is indented further, or of a warning."""
        if self._shows_next:
            self._shows_next = False
            return True
        if self._frame is not None:
            at = len(self._frame)
            return _shape(line[:at]) == _shape(self._frame) and _shape(line[at : at + 1]) == " "
        indent = len(line) - len(line.lstrip())
        if self._column and indent >= self._column:
            return True
        if self._indents is None or indent not in self._indents:
            return False
        self._end()
        return True

    def _without_prefix(self, line: str) -> str:
        """Return a line without what a logger writes before each line of a stack."""
        return line[len((self._frame or "").rstrip()) :].lstrip()


def _shape(text: str) -> str:
    """Return what the prefixes of two lines have in common: times differ, and so do arrows."""
    return re.sub(r"\d", "0", text.replace(">", " ").replace("-", " ").replace("\t", " "))
