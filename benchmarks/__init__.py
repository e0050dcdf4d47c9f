"""Measure hpq against its targets and its peers: `python -m benchmarks [NAME …]`.

These are not tests: no slow result fails. Each peer runs in turn with hpq, on the same machine and
server settings; ratios compare values of one run only.
"""
