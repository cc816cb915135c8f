"""The command line, run in the tests' own process."""

from typer.testing import CliRunner, Result

from tidemark_streaming.cli import app


def call(*arguments: str) -> Result:
    """Run a command; a fault of Tidemark's own is raised here, as no user should meet one."""
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
