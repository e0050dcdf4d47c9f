"""Run one attempt of a trial: trust, code, environment, execution, outcome."""
