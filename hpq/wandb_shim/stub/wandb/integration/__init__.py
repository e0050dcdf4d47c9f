"""Callbacks for libraries that bring none of their own."""
