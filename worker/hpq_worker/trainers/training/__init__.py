"""The training loop that all shipped trainers share."""
