"""A program that records the first and the last moment of its trial."""

import sys

from stamps import note  # type: ignore[import-not-found]  # beside it in the sweep's code

values = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])
note(int(values["number"]), values["file"])
print("loss=0")
