"""The commands of `hpq`; `table.py` has their modules."""
