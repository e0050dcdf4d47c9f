"""The commands of `hpq`, one small module a group; `producer.cli` knows which is where."""
