"""What is searched and how sets are chosen: pure, so that producer and worker draw alike."""
