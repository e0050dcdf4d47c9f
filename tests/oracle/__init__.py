"""What W&B's own package `sweeps` answers, for tests that compare hpq with it.

`make oracle` runs this package in an environment of its own (.oracle/) and rewrites
tests/data/oracle/*.json; the tests read those files and need no `sweeps`. Everything is seeded, so
that a second run changes nothing.
"""
