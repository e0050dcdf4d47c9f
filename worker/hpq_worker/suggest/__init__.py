"""The suggester of adaptive sweeps: a process beside a worker that generates parameter sets."""
