"""Files of an attempt: work directory, checkpoints, artifacts."""
