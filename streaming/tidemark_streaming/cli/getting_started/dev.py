"""`tidemark dev`: services for development on this machine."""

import typer

from tidemark.base.settings import Settings
from tidemark_streaming.cli.console import message_console, report_step, result_console

app = typer.Typer(
    no_args_is_help=True,
    help="Start and stop services for development and tests on this machine."
    "\n\nExample: `tidemark dev kafka up`",
)
kafka = typer.Typer(
    no_args_is_help=True,
    help="Start and stop a Kafka broker of one node.\n\nExample: `tidemark dev kafka up`",
)
app.add_typer(kafka, name="kafka")


@kafka.command("up")
def start_broker() -> None:
    """Start the broker and wait until it responds. Its topics persist.

    Example: `tidemark dev kafka up`
    """
    from tidemark_streaming.kafka import broker

    settings = Settings()
    with report_step("Kafka broker") as work:
        broker.start_broker(settings, work.show_activity)
        work.note = broker.broker_address(settings)
    result_console().print("`tidemark dev kafka down` stops the broker.")


@kafka.command("down")
def stop_broker() -> None:
    """Stop the broker. Its topics persist.

    Example: `tidemark dev kafka down`
    """
    from tidemark_streaming.kafka import broker

    process = broker.broker_process(Settings())
    if process.find_running() is None:
        message_console().print("No broker is running.")
        return
    with report_step("stop Kafka broker"):
        process.stop()
