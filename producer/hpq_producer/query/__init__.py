"""Select and sort trials; follow the event stream."""
