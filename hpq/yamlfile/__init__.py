"""Read YAML files that users write: data, positions, and problems with their positions."""
