"""Tell the lines in which an interpreter shows code from those that a program prints.

A traceback shows the code of its frames, and a warning the line that caused it: `loss = 0.5 * x`
there is no report. Knows the stacks of Python 3.9 to 3.14, IPython, rich, loguru and numba, its
debugger and doctest, the errors of JavaScript, Ruby, R, Rust and other compilers, and the traces of
shells and of `python -m trace`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_HEADER = "(most recent call last)"
_FRAME = re.compile(r'(?P<before>[^"]*)File "[^"]*", line(?:no)? \d+')
_REPEATED = re.compile(r"\s*\[Previous line repeated \d+ more times?\]")
_ERROR = re.compile(r"(?:(?:[\w<>]+\.)+\w+|[A-Z]\w*)(?:: .*|:?)\Z")  # the last line of a traceback
_SYNTAX_ERROR = re.compile(r"\w+Error: ")  # of a script that does not start: without a header
_PLACED_WARNING = re.compile(  # `x.py:3: UserWarning: …`, also within the line of a logger
    r"(?<!\S)\S+:\d+: (?:<class ')?(?:\w+\.)*\w*Warning\b"
)
_WARNING = re.compile(r"(?<![\w.])(?:\w+\.)*\w+Warning: ")  # by a program's own showwarning
_CATEGORY = re.compile(r"\S+(?:\.py|>):\d+: [A-Z]\w*[a-z][A-Z]\w*: ")  # no Warning in its name
_VALUE = re.compile(r"[^\W\d][\"']?\s*[=:]\s*[-+]?[\d.]")
_REPORTS = re.compile(r"\S.*[=:]\s*[-+]?[\d.]")
_OF_IPYTHON = re.compile(r"\w+\s{2,}Traceback ")
_IN_IPYTHON = re.compile(
    r"\s+\S|-+>?\s*\d+\s|(?:Cell|Input|File|<ipython-|/|~).*(?: in |, line |:\d)"
)
_IN_BOX = re.compile(r"\s*[│╭╰├|+]")
_TRACED = re.compile(r"\S+\(\d+\): ")  # train.py(8): loss = 0.5
_MESSAGE_LINES = 10  # of a warning, before its line of code
_OTHER_LINES = 5  # that other threads may print within a traceback
_ANY_INDENT = range(1, 1_000)
_WRAPPED = 8  # columns of a logger before a warning, of which rich indents each further line
_MANY = 1_000


_WHOLE = re.compile(  # lines that are code, or an error, as a whole
    "|".join(
        (
            r"\++ \S|\+[^\s\d]\S*[>:)] ",  # `set -x` in bash and zsh
            r"\$ [\w./]",  # a shell's prompt
            r"\S+: line \d+: |(?:\S*[/.])?(?:ba|da|k|z)?sh: \d+: ",  # errors of shells
            r"(?:Error in .+|(?:\d+: )?In [^(]+\(.*[),] ?) : +\S",  # of a call in R
            r".* at \S+ line \d+, near \"",  # of Perl
            r"\(node:\d+\) ",  # a warning of Node
            r"Exception in thread |Caused by: |(?:[a-z_]\w*\.)+\w*(?:Exception|Error): ",  # of Java
            r"panic: |ERROR: LoadError: |PHP [\w ]+: +|lua\S*: \S+:\d+: ",  # Go, Julia, PHP, Lua
            r"future: <\w+ ",  # a failed task of asyncio
        )
    )
)


class _Form(NamedTuple):
    """The first line of code that is shown, and at most how many of which lines after it."""

    first: re.Pattern[str]
    more: re.Pattern[str]
    at_most: int


_ANY = re.compile(r"")
_FORMS = (
    _Form(  # of R and Rust: the message on a line of its own
        re.compile(r"(?:Error in .+|(?:\d+: )?In [^(]+\(.*[),] ?) :\s*\Z|thread '.*' panicked at "),
        _ANY,
        1,
    ),
    _Form(re.compile(r"Error: unexpected "), _ANY, 2),  # a file that is not R
    _Form(  # x.js:3 of Node, of Deno; carets and an error's line follow
        re.compile(
            r"(?:(?:(?:file:/)?/.*|\S+)\.[cm]?[jt]sx?|\[(?:eval|stdin)\]|evalmachine\.<\w+>):\d+\Z"
            r"|error: Uncaught "
        ),
        _ANY,
        3,
    ),
    _Form(  # x.rb:3:in of Ruby, x.cpp:3:5: error:, x.cu(3): and x.ts:3:5 - of compilers
        re.compile(
            r"(?:\S+\.rb|-e):\d+:in "
            r"|\S+\.(?!py:)\w+(?:(?::\d+)+|\(\d+(?:,\d+)?\))(?::| -) "
            r"(?:fatal )?(?:error|warning|note|remark)\b"
        ),
        _ANY,
        1,
    ),
    _Form(  # of numba, PyYAML and Triton, until a line of carets
        re.compile(r'.*(?:"[^"]*", line \d+(?:, column \d+)?|\bat \d+:\d+):\Z'),
        re.compile(r"(?![\s│|]*[~^][\s~^]*\Z)"),
        8,
    ),
    _Form(  # of Rust's compiler
        re.compile(r"\s*--> \S+:\d+:\d+\Z"),
        re.compile(r"\s*\d*\s*[|=]|\.\.\."),
        _MANY,
    ),
    _Form(  # of pdb; what is typed at its prompt is not among what a program prints
        re.compile(r"> \S.*\(\d+\)[\w<>]+\(.*\)"),
        re.compile(r"(?:\(Pdb\) |ipdb> )?(?:-+> |\s*\d+\s)"),
        _MANY,
    ),
    _Form(re.compile(r"Failed example:\Z"), re.compile(r"\s|Expected|Got:"), _MANY),  # of doctest
)


class EchoedCode:
    """Reads the lines of one process in their order."""

    def __init__(self) -> None:
        self._is_traced = False  # by `python -m trace`
        self._end()

    def _end(self) -> None:
        self._is_active = False
        self._more: re.Pattern[str] | None = None  # begins each further line of code
        self._at_most = 0  # of these lines
        self._has_header = False  # an exception's line follows the frames
        self._frame: str | None = None  # what stands before `File` in the frame's line
        self._in_message = False  # indented lines go on with an exception's message
        self._indents: range | None = None  # of the code of a warning, one line
        self._column = 0  # of a warning that a logger wraps: lines from here on belong to it
        self._left = 0  # other lines until the stack, or the wait for that code, is over

    def _begin(self, left: int) -> None:
        self._end()
        self._is_active, self._left = True, left

    def shows(self, line: str) -> bool:
        """Return True if a line is code, or says where code stands or how it failed."""
        if not line.strip():
            self._in_message = False
            return False
        if _HEADER in line:
            self._begin_stack(line)
            return True
        if line.startswith(" --- modulename: "):
            self._is_traced = True
        if self._begins_form(line) or _WHOLE.match(line):
            return True
        if self._is_traced and _TRACED.match(line):
            return True
        if self._more and self._at_most and self._more.match(line):
            self._at_most -= 1
            return True
        if self._begins_frame(line):
            return True
        if self._is_active and self._is_source(line):  # it may name a warning itself
            return True
        is_warning = self._begins_warning(line)
        if is_warning is None:
            return self._is_active and self._goes_on(line)
        return is_warning

    def _begin_stack(self, line: str) -> None:
        ends_here = line.rstrip(" :─-╮┐+").endswith(_HEADER)  # else it is one line of JSON
        self._begin(left=_OTHER_LINES)
        self._has_header = ends_here and "Traceback" in line
        if _IN_BOX.match(line):  # of rich, or of a group of exceptions, which has no line after it
            self._more, self._at_most = _IN_BOX, _MANY
            self._has_header = "Exception Group" not in line
        elif _OF_IPYTHON.match(line):
            self._more, self._at_most = _IN_IPYTHON, _MANY

    def _begins_form(self, line: str) -> bool:
        for form in _FORMS:
            if form.first.match(line):
                self._begin(left=1)
                self._more, self._at_most = form.more, form.at_most
                return True
        return False

    def _begins_frame(self, line: str) -> bool:
        frame = _FRAME.match(line)
        if frame:
            has_header = self._has_header
            self._begin(left=_OTHER_LINES if has_header else 1)
            self._has_header, self._frame = has_header, frame["before"]
        return frame is not None

    def _begins_warning(self, line: str) -> bool | None:
        """Return True for the first line of a warning, and False if it may be a logger's."""
        warning = _PLACED_WARNING.search(line) or _CATEGORY.match(line)
        if warning:
            self._begin(left=_MESSAGE_LINES)
            self._indents = range(1, 3)  # [default0]: takes one space
        else:
            warning = _WARNING.search(line)
            if warning is None or _VALUE.search(line[: warning.start()]):
                return None
            if "Enable tracemalloc" in line:  # the second one of an unclosed file has no code
                return True
            self._begin(left=1)
            self._indents = _ANY_INDENT
        if warning.start() >= _WRAPPED:
            self._column = warning.start()
        return warning.re is not _CATEGORY

    def _is_source(self, line: str) -> bool:
        """Return True for the code of a frame, which is indented further, or of a warning."""
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

    def _goes_on(self, line: str) -> bool:
        if _REPEATED.match(line):
            return True
        if self._has_header and _ERROR.match(self._without_prefix(line)):
            self._begin(left=1)
            self._in_message = True
            return True
        if self._in_message and line[0].isspace():
            return True
        if self._frame is not None and not self._has_header and _SYNTAX_ERROR.match(line.strip()):
            self._end()
            return True
        self._left -= 1
        has_reported = self._indents is not None and _REPORTS.match(line)
        if self._left <= 0 or has_reported:
            self._end()
        return False

    def _without_prefix(self, line: str) -> str:
        """Return a line without what a logger writes before each line of a stack."""
        return line[len((self._frame or "").rstrip()) :].lstrip()


def _shape(text: str) -> str:
    """Return what the prefixes of two lines have in common: times differ, and so do arrows."""
    return re.sub(r"\d", "0", text.replace(">", " ").replace("-", " ").replace("\t", " "))
