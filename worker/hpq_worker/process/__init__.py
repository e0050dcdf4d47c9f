"""Processes of a worker: signals, logs, secrets, devices, messages."""
