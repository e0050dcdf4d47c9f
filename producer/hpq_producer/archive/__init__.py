"""Archives: a sweep as one file, and back."""
