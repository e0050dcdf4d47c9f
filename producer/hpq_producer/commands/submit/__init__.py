"""Commands that make a sweep: init, enqueue, run, plan."""
