"""Measure the quality of search methods and the cost of their suggestions."""
