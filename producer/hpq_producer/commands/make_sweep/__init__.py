"""Commands that make a sweep, or try one: init, plan, enqueue, run, try, exec."""
