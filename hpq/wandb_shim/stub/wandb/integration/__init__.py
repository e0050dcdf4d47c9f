"""Callbacks for libraries that have no logger for W&B of their own."""
