"""The cluster's API: its objects, pods, and the way to its Redis."""
