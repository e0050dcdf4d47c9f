"""The live view of `hpq watch`."""
