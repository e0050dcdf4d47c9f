"""How a command reaches its Redis: the session, and the records of connections and joins."""
