"""Open object stores with the same credentials in each client, obstore and delta-rs.

Both clients read the same environment variables. What else determines their credentials is passed
to both as options.
"""

from deltalake import DeltaTable

from tidemark.store.committers.aws_files import profile_options


def client_options(address: str) -> dict[str, str]:
    """Return the options with which a client opens an address, in addition to the environment.

    Credentials may expire, so a client that is opened later needs the options of that time.

    Raises:
        StoreError: the profile of `s3://` and `s3a://` has no credentials that can be read.
    """
    if address.startswith(("s3://", "s3a://")):
        return profile_options()
    return {}


def open_delta_table(address: str, version: int | None = None) -> DeltaTable:
    """Open the Delta table at a path or an address.

    Args:
        version: the version to open; the newest one by default.
    """
    return DeltaTable(address, version, storage_options=client_options(address))
