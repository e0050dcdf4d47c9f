"""The user's code: its manifest, bundle, signature and command line."""
