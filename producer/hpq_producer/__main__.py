"""The entry point of `hpq`, and of `python -m hpq_producer`."""

import gc

from hpq.interrupts import end_on_signals


def main() -> None:
    """Run the command line."""
    end_on_signals()
    # What imports create stays to the end. Searches of it for garbage, 100 on the way and three as
    # Python exits, took a third of the CPU time of `hpq ls`.
    gc.set_threshold(100_000)
    from hpq_producer.cli import main as run  # noqa: PLC0415  it takes time

    run()


if __name__ == "__main__":
    main()
