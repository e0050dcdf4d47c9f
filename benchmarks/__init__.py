"""Figures of hpq beside their targets and their peers: `python -m benchmarks [NAME …]`.

Not tests: nothing here fails for being slow. Every peer runs in the same run, on the same machine
and server settings, in turn with hpq; a ratio is only ever taken within one run.
"""
