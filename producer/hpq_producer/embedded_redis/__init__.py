"""Find, start and stop the private Redis server of an HPQ_HOME."""
