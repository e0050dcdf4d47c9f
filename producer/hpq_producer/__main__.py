"""The entry point of `hpq`, and of `python -m hpq_producer`."""

from hpq.interrupts import end_on_signals


def main() -> None:
    """Run the command line."""
    end_on_signals()
    from hpq_producer.cli import main as run  # noqa: PLC0415  it takes time

    run()


if __name__ == "__main__":
    main()
