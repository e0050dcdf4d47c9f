"""Which printed lines are metrics, and with which value."""

from __future__ import annotations

import math
import textwrap

import pytest
from pytest import approx

from hpq_worker.attempt.printed_metrics import PrintedMetrics, printed_lines

NAN = approx(math.nan, nan_ok=True)


def values(text: str, *declared: str) -> list[dict[str, float]]:
    """What the lines of a text report, in their order."""
    printed = PrintedMetrics(declared or ["loss"], {})
    return [found for line in text.split("\n") if (found := printed.parse(line))]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("val_loss=0.5", {"val_loss": 0.5}),
        ("  val/loss = 1e-3 ", {"val/loss": 1e-3}),
        ("acc=-.5", {"acc": -0.5}),
        ("loss=inf", {"loss": math.inf}),
        ("loss=nan", {"loss": NAN}),
        ("epoch=0 val loss=0.5\tval/acc = 1 lr=0.1", {"epoch": 0, "val loss": 0.5, "val/acc": 1}),
        ("loss=0.5, acc=0.2 | f1=1", {"loss": 0.5, "acc": 0.2, "f1": 1}),
        ("loss=1,002.5, acc=2", {"loss": 1002.5, "acc": 2}),
        ("\x1b[32mloss=\x1b[0m0.5 \x1b[1macc\x1b[0m=1", {"loss": 0.5, "acc": 1}),
        ("lr=0.1", {}),
        ("epoch 3: loss=0.5 acc=0.2", {}),
        ("Epoch 3 loss=0.5", {}),  # else each epoch would have a metric of its own
        ("loss=0.5 acc=high", {}),
        ("loss=1.234,56", {}),
        ("x=1.2.3", {}),
        ("x=1 2", {}),
        ("=3", {}),
        ("url=http://1", {}),
        (f"{'x' * 65}=1", {}),
    ],
)
def test_a_line_of_nothing_but_metrics_reports_each_that_is_no_parameter(
    line: str, expected: dict[str, float]
) -> None:
    assert PrintedMetrics([], {"lr": 0.1}).parse(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Epoch 8/8: 10 s - loss: 0.2 - val_loss: 0.13", ("val_loss", 0.13)),
        ("train_loss=0.12 and val_loss=0.05", ("val_loss", 0.05)),
        ("epoch 3 val_loss=0.5", ("val_loss", 0.5)),
        ("{'eval': 1, 'val_loss': 0.5}", ("val_loss", 0.5)),
        ("val_loss: 0.4, then val_loss: 0.3.", ("val_loss", 0.3)),  # the last one
        ("val_loss: 0.9\rval_loss: 0.5\r 2/2 - val_loss: 0.25\r", ("val_loss", 0.25)),
        ("val_loss: inf", ("val_loss", math.inf)),
        ("Val-Loss: 0.5", ("Val-Loss", 0.5)),  # a near miss is another metric
        ("epoch 3: validation loss=0.5", ("validation loss", 0.5)),
        ("epoch 3: loss=0.5 acc=0.2", None),
        ("train_val_loss: 0.5", None),
        ("best val_loss: 0.5", None),
        ("val_loss: 0.5 (best val_loss: 0.2)", ("val_loss", 0.5)),
        ("val_loss: 0.5, (best) val_loss: 0.2, best so far val_loss: 0.2", ("val_loss", 0.5)),
        ("lowest val_loss: 0.5, previous val_loss: 0.6, target val_loss: 0.1", None),
        ("Best: val_loss=0.2 at epoch 3", None),
        ("valid: val_loss=0.5", ("val_loss", 0.5)),
        ("Test (val_loss=0.5)", ("val_loss", 0.5)),
        ("val_loss: 0.5 | aux val_loss: 0.1", ("val_loss", 0.5)),  # of another metric
        ("cls val_loss: 0.2, box val_loss: 0.1", ("val_loss", 0.1)),
        ("val_loss：0.5", ("val_loss", 0.5)),
        ("val_loss: 3/10", None),
        ("val_loss: 10:30", None),
        ("val_loss: 2026-11-22", None),
        ("val_loss: 12s", None),
        ("val_loss is 0.5", None),
        ("val_loss: information", None),
        ("[rank1]: epoch 3 val_loss=0.5", None),
        ("epoch 3 loss=0.5 of val_loss", None),
        ("{ double val_loss = 0.5; }", None),
    ],
)
def test_a_declared_metric_counts_anywhere_on_a_line(
    line: str, expected: tuple[str, float] | None
) -> None:
    assert PrintedMetrics(["val_loss"], {}).parse(line) == (dict([expected]) if expected else {})


def test_a_qualified_name_a_parameter_and_text_beside_whole_lines_report_nothing() -> None:
    assert not values("train loss: 0.5 val loss: 0.3")
    assert not PrintedMetrics(["loss"], {"loss": 1}).parse("with loss=1 now")
    assert not PrintedMetrics(["Loss"], {"loss": 1}).parse("with loss=1 now")
    lines = "step 1 loss=0.9\nloss=0.5 acc=1\nstep 2 loss=0.8\nloss=0.4"
    assert [found["loss"] for found in values(lines)] == [0.9, 0.5, 0.4]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("epoch 1: acc: 0.9, latency_ms: 7.0", {"acc": 0.9, "latency_ms": 7}),
        ("latency_ms=7 of top5 acc=0.8", {"latency_ms": 7, "top5 acc": 0.8}),  # and not acc
        ("acc: 0.9, top5 acc: 0.8", {"acc": 0.9, "top5 acc": 0.8}),
        ("epoch 1: acc: 0.9, latency_ms: 7ms", {"acc": 0.9}),
        ("epoch 1: Acc: 0.9", {"Acc": 0.9}),
    ],
)
def test_each_declared_metric_of_a_line_counts(line: str, expected: dict[str, float]) -> None:
    assert values(line, "acc", "latency_ms", "top5 acc") == [expected]


def test_each_declared_metric_counts_that_a_line_shows_before_and_after_a_bar_is_cleared() -> None:
    line = "50%|## | [loss=0.9]\r100%|####| [loss=0.5]\r          \rval_acc: 0.25"
    assert values(line, "loss", "val_acc") == [{"loss": 0.5, "val_acc": 0.25}]


def test_each_declared_metric_counts_inside_text_until_a_line_of_nothing_else_has_it() -> None:
    lines = "epoch 1 acc: 0.1, time: 9\nacc=0.2\nepoch 2 acc: 0.3, time: 8"
    assert values(lines, "acc", "time") == [{"acc": 0.1, "time": 9}, {"acc": 0.2}, {"time": 8}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,002.5", 1002.5),
        ("-1,234,567", -1234567),
        ("1,002e3", 1002000),
        ("1_000.5", 1000.5),
        ("1'234.5", 1234.5),
        ("1’234", 1234),
        ("1\u202f002.5", 1002.5),
        ("1\u00a0002", 1002),
        ("1 200 steps", 1),  # a space may end a number
        ("1 100%|##|", 1),
        ("1, 2", 1),
        ("5.", 5),
        ("1E+05,", 1e5),
        ("95.5%", 95.5),
        ("95.5 %", 95.5),
        ("0.5+0.01", 0.5),  # a mean and its deviation, of XGBoost
        ("0.5±0.01", 0.5),
        ("0.5 ± 0.01", 0.5),
        ("0.5 -> model.pt", 0.5),
        ("0.5 · 12 s", 0.5),
        ("0.5 - 12 s", 0.5),
        ("0.5...done", 0.5),
        ("0.5 * best", 0.5),
        ("1e−4", 1e-4),
        ("−0.5", -0.5),
        ("+0.5", 0.5),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("+Inf", math.inf),
        ("-∞", -math.inf),
        ("NaN", NAN),
        ("-nan(ind)", NAN),
        ("'0.5', 'epoch': '1.0'}", 0.5),
        ("np.float64(0.5)}", 0.5),
        ("tensor(0.5, device='cuda:0')", 0.5),
        ("Decimal('0.5')", 0.5),
    ],
)
def test_a_number_is_read_as_a_whole(text: str, expected: float) -> None:
    printed = PrintedMetrics(["loss"], {})
    assert printed.parse(f"epoch 3 loss: {text}") == {"loss": expected}
    assert printed.unread is None


@pytest.mark.parametrize(
    "text",
    [
        "3,4", "0,512", "1.234,56", "1.234.567", "12,34", "1,0025", "1'23", "1_0", "1\u202f002,5",
        "1 002.5", "1 002", "12 345 678", "12ms", "3s", "1.2k", "0x1F", "1.5e", "1D+03", "3/10",
        "10:30", "2026-11-22", "0.5-0.7", "1+2j", "1.#INF", "1.5f;", "2*3", "1.5×10^-3", "0.5,-0.7",
        "'12ms'", "0.5.pt", "0.5/last.pt", "0.5-v1.pt", "2.1+cu118", "550e8400-e29b", "0.5–0.7",
        "0.5~0.7", "98 / 100", "0.5 * 2", "1.5 x 10^-3", "1.5 * 10^-3", "1.5·10⁻³", "10⁻³",
        "1.5 e-3", "0.5 -> 0.4", "0.5 → 0.4", "0.5=>0.4", "0.5 + 0.25 = 0.75",
    ],
)  # fmt: skip
def test_another_number_does_not_count_and_is_named(text: str) -> None:
    printed = PrintedMetrics(["loss"], {})
    assert not printed.parse(f"epoch 3 loss: {text}")
    assert printed.unread is not None and printed.unread[0] == f"epoch 3 loss: {text}"
    assert printed.unread[1] == ("loss", text.strip("'") + "'" * text.startswith("'"))
    printed.parse("loss: 7up")
    assert printed.unread[0] == f"epoch 3 loss: {text}", "the first one"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("\x1b[1;32mloss\x1b[0m: 0.5", 0.5),
        ("lo\x1b[38;5;9mss\x1b[m: \x1b[7m0.5\x1b[27m", 0.5),
        ("\x1b]8;;file:///loss=9\x1b\\loss\x1b]8;;\x1b\\: 0.5", 0.5),
        ("\x1b]0;loss=9\x07epoch 1 loss: 0.5", 0.5),
        ("\x1b(B\x1b[mepoch 1 loss: 0.5", 0.5),
        ("epoch\x1b[3Closs:\x1b[2C0.5", 0.5),
        ("\x1b[31m[default0]:\x1b[0mloss=0.5", 0.5),
        ("\x1b[2K\rloss=0.5", 0.5),
        ("loss=0.9\x1b[1A\x1b[2Kepoch 2 loss: 0.5\x1b[K", 0.5),
        (" 1/2 loss: 0.9\b\b\b\b\b\b\b\b 2/2 loss: 0.5", 0.5),
        (
            "50%|## | [loss=0.9]\r100%|####| [loss=0.5]\r            \r",
            0.5,
        ),  # a bar that is cleared
        ("100%|####| [loss=0.5]\rdone", 0.5),
        ("100%|####| [loss=0.5]\r        \r/a/x.py:8: UserWarning: loss=0.1", 0.5),
    ],
)
def test_what_a_terminal_does_not_show_hides_no_metric(line: str, expected: float) -> None:
    assert values(line) == [{"loss": expected}]


ECHOED = {
    "a warning": """
        /a/train.py:8: RuntimeWarning: divide by zero encountered in scalar divide
          loss = 0.5 / np.float64(z)
        """,
    "a warning of several lines": """
        /a/train.py:8: ConvergenceWarning: lbfgs failed to converge (status=1):
        STOP: TOTAL NO. of ITERATIONS REACHED LIMIT.

        Please also refer to the documentation:
            https://scikit-learn.org/stable/
          loss = _check(loss=0.5)
        """,
    "a warning of rank 0": """
        [default0]:/a/train.py:8: UserWarning: loss=0.5 is the first one
        [default0]:  loss = 0.5
        """,
    "a warning within a logger's line": """
        WARNING:py.warnings:/a/train.py:8: UserWarning: slow
          loss = 0.5 * f(x)

        """,
    "a warning of a class of the program's": """
        /a/train.py:8: LossAlert: too large
          loss = 0.5 * f(x)
        """,
    "a warning that rich wraps": """
        [12:00:00] WARNING  /a/very/long/name/of/a/train.py:8:  warnings.py:112
                            RuntimeWarning: divide by zero
                            encountered in scalar divide
                              loss = 0.5 *
                            f(loss=0.25)
        """,
    "a warning by the program's own showwarning": """
        RuntimeWarning: divide by zero (train.py, line 8)
            loss = 0.5 / z
        """,
    "an unclosed file": """
        /a/train.py:8: ResourceWarning: unclosed file <loss=0.5>
          loss = 0.5
        Object allocated at (most recent call last):
          File "/a/train.py", lineno 7
            loss = 0.5; open("x")
        ResourceWarning: Enable tracemalloc to get the object allocation traceback
        """,
    "a traceback of Python 3.9": """
        Traceback (most recent call last):
          File "/a/loss=0.5/train.py", line 8, in <module>
            result = dict(loss=0.5, best=int("x"))
        ValueError: loss: 0.5 is not what was expected:
          loss: 0.25
        """,
    "a traceback of Python 3.13": """
        Traceback (most recent call last):
          File "train.py", line 8, in <module>
            return work(loss=0.5, x=dict(
                   ~~~~^^^^^^^^^^^^^^^^^
                loss=0.25,
                ^^^^^^^^^^
            ))
            ^^
          File "train.py", line 3, in work
            return work(loss=0.5)
          [Previous line repeated 18 more times]
        zlib.error: loss: 0.5
        """,
    "a traceback in colours": """
        Traceback (most recent call last):
          File \x1b[35m"train.py"\x1b[0m, line \x1b[35m8\x1b[0m, in \x1b[35m<module>\x1b[0m
            loss = 0.5 + \x1b[31mint\x1b[0m("x")
        \x1b[1;35mValueError\x1b[0m: \x1b[35mloss: 0.5\x1b[0m
        """,
    "a traceback that the program indents": """
            Traceback (most recent call last):
              File "train.py", line 8, in <module>
                loss = 0.5 + int("x")
            ValueError: loss: 0.5
        done
        """,
    "a logger that writes before each line": """
        2026-11-28 10:00:01 E Traceback (most recent call last):
        2026-11-28 10:00:01 E   File "train.py", line 8, in <module>
        2026-11-28 10:00:02 E     loss = 0.5 + int("x")
        2026-11-28 10:00:02 E ValueError: loss: 0.5
        """,
    "a group of exceptions": """
          + Exception Group Traceback (most recent call last):
          |   File "train.py", line 8, in <module>
          |     loss = 0.5; check()
          | ExceptionGroup: loss: 0.5 (2 sub-exceptions)
          +-+---------------- 1 ----------------
            | Traceback (most recent call last):
            |   File "train.py", line 3, in work
            |     loss = 0.5; int("x")
            | ValueError: loss: 0.5
            +---------------- 2 ----------------
            | TypeError: loss: 0.5
            +------------------------------------
        """,
    "a stack of a logger, and one without an error": """
        WARNING:root:slow
        Stack (most recent call last):
          File "train.py", line 48, in <module>
            loss = 0.5; logging.warning("slow", stack_info=True)
          File "train.py", line 49, in <module>
            loss = 0.5; traceback.print_stack()
        """,
    "faulthandler": """
        Fatal Python error: Segmentation fault

        Current thread 0x00007f7131994e90 (most recent call first):
          File "/a/loss=0.5/train.py", line 8 in loss
        """,
    "a script that is not Python": """
          File "train.py", line 1
            loss = = 0.5; loss = 0.5
                   ^
        SyntaxError: loss: 0.5
        """,
    "torch, which says where the forward pass was": """
        /a/graph.py:823: UserWarning: Error detected in LogBackward0. Traceback of forward call:
          File "train.py", line 3, in <module>
            loss = 0.5 * torch.log(x)
         (Triggered internally at ../torch/csrc/autograd/python_anomaly_mode.cpp:122.)
        """,
    "a warning's class in code": """
        /a/train.py:8: UserWarning: slow
          warnings.warn("loss: 0.5", UserWarning)
        Traceback (most recent call last):
          File "train.py", line 8, in <module>
            warnings.warn("loss: 0.5", UserWarning)
        ValueError: loss: 0.5
        """,
    "pdb": """
        > /a/train.py(8)work()->None
        -> loss = 0.5
        (Pdb)   7  \tloss = 0.5
        > /a/train.py(8)<module>()
              7 loss = 0.5
        ----> 8 loss = 0.5; breakpoint()

        ipdb>
        """,
    "doctest": """
        File "/a/train.py", line 5, in __main__.work
        Failed example:
            print("loss: 0.5")
        Expected:
            loss: 0.5
        Got:
            loss: 0.5
        **********************************************************************
        """,
    "asyncio": """
        future: <Task finished name='Task-2' coro=<g() done> exception=ValueError('loss: 0.5')>
        """,
    "Triton": """
        triton.compiler.errors.CompilationError: at 3:11:
        def kernel(x):
            loss = 0.5
            ^
        """,
    "IPython": """
        ---------------------------------------------------------------------------
        ValueError                                Traceback (most recent call last)
        Cell In[1], line 3
              1 loss = 0.5
              2 def work():
        ----> 3     loss = 0.5 + int("x")

        File /a/train.py:1, in work(loss)
        ----> 1 loss = 0.5 + int("x")

        ValueError: loss: 0.5
        """,
    "rich": """
        ╭─────────────────── Traceback (most recent call last) ────────────────────╮
        │ /a/train.py:11 in <module>                                               │
        │    8 loss = 0.5                                                          │
        │ ❱ 11 work(loss=0.5)                                                      │
        │ ╭─────────────── locals ────────────────╮                                │
        │ │     loss = 0.5                        │                                │
        │ ╰───────────────────────────────────────╯                                │
        ╰──────────────────────────────────────────────────────────────────────────╯
        ValueError: loss: 0.5
        """,
    "loguru": """
        2026-11-28 16:26:40.637 | ERROR    | __main__:<module>:5 - it failed
        Traceback (most recent call last):

        > File "train.py", line 4, in <module>
            work(loss=0.5)
            └ <function work at 0x7f>

          File "train.py", line 3, in work
            return dict(loss=0.5, best=int("x"))
                   │    └ loss: 0.5
                   └ <class 'dict'>

        ValueError: loss: 0.5
        """,
    "numba": """
        File "train.py", line 6:
        def f(x):
            acc = 0.1
            loss = 0.5 + foo
            ^
        """,
    "Node": """
        /a/train.js:2
          loss = 0.5; f({});
                       ^

        TypeError: loss: 0.5
            at f (/a/train.js:2:28)

        Node.js v20.20.2
        """,
    "Ruby": """
        train.rb:3:in `Integer': invalid value for Integer(): "x" (ArgumentError)

          loss = 0.5 + Integer("x")
                       ^^^^^^^
        """,
    "compilers": """
        x.cpp:1:63: error: 'y' was not declared in this scope
            1 |   loss = 0.5 + y;
        x.cu(1): warning #177-D: variable "y" was declared but never referenced
          loss = 0.5 + y;
        x.ts(3,5): error TS2304: Cannot find name 'y': loss = 0.5.
        x.ts:3:5 - error TS2304: Cannot find name 'y'.

        3 loss = 0.5 + y;
          ~~~~
        error[E0425]: cannot find value `y` in this scope
         --> src/main.rs:3:16
          |
        2 |     loss = 0.5;
        3 |     loss = 0.5 + y;
          |                  ^ not found in this scope
        """,
    "shells": """
        + loss=0.5
        ++ python train.py loss=0.5
        +(run.sh:3): loss=0.5
        +run.sh:3:main: loss=0.5
        $ python train.py loss=0.5
        run.sh: line 3: loss: 0.5: command not found
        /bin/sh: 1: loss=0.5: not found
        """,
    "other interpreters": """
        (node:29352) Warning: loss: 0.5 is high
        java.lang.IllegalStateException: loss: 0.5
        Caused by: java.lang.Exception: loss: 0.5
        panic: loss: 0.5
        lua: train.lua:3: loss: 0.5
        syntax error at x.pl line 3, near "$loss = 0.5 +"
        thread 'main' panicked at src/main.rs:3:5:
        loss: 0.5 is high
        """,
    "Python's trace": """
         --- modulename: train, funcname: <module>
        train.py(8): loss = 0.5
        """,
    "R": """
        Error in log(loss = 0.5) : object 'x' not found
        In log(loss = -0.5) : NaNs produced
        Error in train(loss = 0.5, lr = 0.1, epochs = 10, batch = 32, hidden = 64,  : \n\
          unused argument (loss = 0.5)
        Error in x + (loss = 0.5) : non-numeric argument to binary operator
        Error: unexpected symbol in:
        "x = 3
        loss = 0.5 y"
        """,
}


@pytest.mark.parametrize("shown", ECHOED.values(), ids=ECHOED)
def test_what_an_interpreter_shows_of_code_is_no_report(shown: str) -> None:
    text = textwrap.dedent(shown).lstrip("\n")
    assert values(text) == []
    around = f"epoch 1 loss: 0.75\n{text}epoch 2 loss: 0.625\n  loss: 0.125\n"
    assert [found["loss"] for found in values(around)] == [0.75, 0.625, 0.125]
    assert not any("0.5" in line and "loss" in line for line in printed_lines(text))
    prefixed = "".join(f"[rank0]: {line}" for line in text.splitlines(keepends=True))
    assert values(prefixed) == []


@pytest.mark.parametrize(
    "text",
    [
        "I1128 16:26:40.637000 140 train.py:42] epoch 1 loss: 0.5",
        "train.py:42: Epoch: 3, loss: 0.5",
        "[Warning] loss: 0.5",
        "Warning: low memory\n  loss: 0.5",
        "train.py:42: INFO: epoch 1\n  loss: 0.5",
        "epoch 1 loss: 0.5 (ConvergenceWarning: not converged)",
        "epoch 1 loss: 0.5 with 3 x ConvergenceWarning",
        'x.py:3: UserWarning: hm\n  warnings.warn("hm", UserWarning)\n  loss: 0.5',
        "+0.1 loss: 0.5",
        "WARNING: loss: 0.5",
        "train.py:42\nloss: 0.5",
        "epoch:3\nloss: 0.5",
        "Traceback printed\n  loss: 0.5",
        "| epoch 1 | loss: 0.5 |",
        "1 | loss: 0.5",
        "train.py(8): loss: 0.5",
        ">>> loss: 0.5",  # of `python -i`, which shows its prompt and no code
        "- loss: 0.5",
        "> loss: 0.5",
        "┌ Info: epoch 1\n│   loss = 0.5\n└ @ Main train.jl:3",
        "Saved to x.pt, line 3\n    loss: 0.5",
    ],
)
def test_text_that_resembles_code_is_a_report(text: str) -> None:
    assert values(text) == [{"loss": 0.5}]
