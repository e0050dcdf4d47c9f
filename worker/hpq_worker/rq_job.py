"""The function that hpq's RQ jobs name. `hpq worker` never calls it: a ticket only wakes."""


def wake() -> None:
    """Do nothing: a stock RQ worker on hpq's queue does no harm."""
