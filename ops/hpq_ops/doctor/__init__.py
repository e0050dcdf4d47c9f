"""The checks of `hpq doctor`."""
