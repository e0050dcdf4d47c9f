"""hpq on Kubernetes, seen from the laptop: connect, scale, drain, pods in watch, the checkup."""
