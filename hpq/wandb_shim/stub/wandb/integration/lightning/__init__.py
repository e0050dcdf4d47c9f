"""W&B's loggers for Lightning."""
