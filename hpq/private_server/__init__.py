"""The private Redis server of `hpq run` and of one machine, under HPQ_HOME."""
