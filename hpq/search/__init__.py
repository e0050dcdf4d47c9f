"""Search spaces and the choice of parameters; pure, so that producer and worker draw alike."""
