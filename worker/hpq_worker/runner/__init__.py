"""The child process that runs training code."""
