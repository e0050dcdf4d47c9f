"""Read, cache, batch and augment the data sets of the trainers."""
