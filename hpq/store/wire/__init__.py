"""Encode and decode what Redis holds."""
