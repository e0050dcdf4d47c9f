"""Render the Kubernetes manifests."""
