"""What installs and verifies: manifests, checks of a machine, the audit of a sweep."""
