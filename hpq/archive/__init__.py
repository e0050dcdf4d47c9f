"""Write a sweep into one file, restore it from that file, and move old sweeps into a file store."""
