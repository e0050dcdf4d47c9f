"""`hpq mcp`: a server of the Model Context Protocol, by which an agent runs and reads sweeps."""
