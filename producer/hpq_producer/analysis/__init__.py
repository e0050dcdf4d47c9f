"""Compute what summaries show: scores, effects, ETA, records."""
