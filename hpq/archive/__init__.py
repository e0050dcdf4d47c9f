"""Write a sweep into one file, and restore it from that file."""
