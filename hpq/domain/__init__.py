"""The words of a sweep: sweep, trial, attempt, their states and rules, without Redis."""
