"""Render sweeps and trials as tables, bars, lines, CSV and JSON."""
