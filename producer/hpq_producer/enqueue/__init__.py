"""From a sweep's spec to trials on the queue."""
