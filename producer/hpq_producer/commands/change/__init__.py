"""Commands that change a sweep: pause, resume, stop, cancel, retry, set, rm."""
