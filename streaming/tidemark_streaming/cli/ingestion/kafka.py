"""`tidemark kafka up|down`: a broker for development."""

import typer

from tidemark.base.settings import Settings
from tidemark_streaming.cli.console import err, out, step

app = typer.Typer(
    no_args_is_help=True,
    help="A Kafka broker of one node on this machine, for development and tests.\n\n"
    "Example: `tidemark kafka up`",
)


@app.command("up")
def up() -> None:
    """Start the broker and wait until it responds. Its topics persist.

    Example: `tidemark kafka up`
    """
    from tidemark_streaming.kafka import broker

    settings = Settings()
    with step("Kafka broker") as work:
        broker.start(settings, work.show)
        work.note = broker.address(settings)
    out().print("`tidemark kafka down` stops the broker.")


@app.command("down")
def down() -> None:
    """Stop the broker. Its topics persist.

    Example: `tidemark kafka down`
    """
    from tidemark_streaming.kafka import broker

    process = broker.broker_process(Settings())
    if process.running() is None:
        err().print("No broker is running.")
        return
    with step("stop Kafka broker"):
        process.stop()
