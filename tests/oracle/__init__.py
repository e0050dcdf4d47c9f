"""Record the results of W&B's own package `sweeps`, with which tests compare hpq.

`make oracle` runs this package in its own environment (.oracle/) and rewrites
tests/data/oracle/*.json; the tests read those files and do not need `sweeps`. Fixed seeds make runs
reproducible.
"""
