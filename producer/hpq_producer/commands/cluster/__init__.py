"""Commands for a Kubernetes cluster: scale, drain, connect, manifests."""
