"""The checkpoints and artifacts that an archive does not hold."""
