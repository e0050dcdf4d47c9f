"""A sweep's trials in the files of other tools."""
