"""Select trials: filters, order, the event stream."""
