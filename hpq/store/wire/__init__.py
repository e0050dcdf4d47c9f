"""The only place where bytes of Redis become objects, and objects what Redis holds."""
