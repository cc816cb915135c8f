"""Read credentials and a region from the files that AWS's tools share.

The clients of object stores do not read these files, or only for some addresses. So that all of
them use the same credentials, each client is opened with the options that this module returns.

| profile | credentials |
| --- | --- |
| `aws_access_key_id` and `aws_secret_access_key`, maybe `aws_session_token` | these values |
| `credential_process` | the output of the command, until shortly before it expires |
| a role, single sign-on | not read: a message says how to use `credential_process` instead |
"""

import configparser
import json
import math
import os
import shlex
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from tidemark.base.errors import DefinitionError, StoreError, describe_unknown, summarize_error
from tidemark.base.secret import secret

_CREDENTIALS_IN_ENVIRONMENT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_SKIP_SIGNATURE",
)
"""The variables that determine how requests are signed, so that no file is read."""

_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")

_KEYS = {
    "aws_access_key_id": "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "aws_session_token": "AWS_SESSION_TOKEN",
}
"""The options of a client, by the names in the files."""

_OUTPUT_KEYS = {
    "AccessKeyId": "AWS_ACCESS_KEY_ID",
    "SecretAccessKey": "AWS_SECRET_ACCESS_KEY",
    "SessionToken": "AWS_SESSION_TOKEN",
}
"""The options of a client, by the names in the output of a `credential_process`."""

_REQUIRED_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")

_UNREAD_KINDS = {
    "sso_session": "signs in with single sign-on",
    "sso_start_url": "signs in with single sign-on",
    "login_session": "signs in with `aws login`",
}
"""The settings that show how a profile without keys gets its credentials."""

_RENEWAL_SECONDS = 300.0
"""The time before the expiration of credentials at which they are read again."""

_Sections = dict[str, dict[str, str]]
"""The settings of each section of a file, or of each profile."""


class _Files(NamedTuple):
    """The files of this process, and the name of its profile.

    Args:
        is_named: true if `AWS_PROFILE` has the name. Otherwise, the profile need not exist.
    """

    credentials: Path
    config: Path
    profile: str
    is_named: bool

    def identify(self) -> tuple[object, ...]:
        """Return a value that differs if the profile may have changed."""
        return self, _identify_content(self.credentials), _identify_content(self.config)

    def describe(self) -> str:
        return f"'{self.credentials}' and '{self.config}'"


class _Options(NamedTuple):
    """The options of a client that a profile determines.

    Args:
        renew_at: the time from which they must be read again, in seconds since 1970.
    """

    values: dict[str, str]
    renew_at: float = math.inf


_known = dict[tuple[object, ...], _Options]()
"""The options that were read last, by the identity of the files."""

_lock = Lock()


def profile_options() -> dict[str, str]:
    """Return the options of a client of S3 that come from a profile, named like their variables.

    The result is empty if environment variables have credentials, or if there is no profile.

    Raises:
        StoreError: `AWS_PROFILE` names an unknown profile, or one without credentials that can be
            read, or the files or the output of the profile's command are invalid.
    """
    if any(os.environ.get(name) for name in _CREDENTIALS_IN_ENVIRONMENT):
        return {}
    files = _locate_files()
    identity = files.identify()
    with _lock:
        options = _known.get(identity)
        if options is None or time.time() >= options.renew_at:
            options = _read_options(files)
            _known.clear()
            _known[identity] = options
    values = dict(options.values)
    if any(os.environ.get(name) for name in _REGIONS):
        values.pop("AWS_REGION", None)
    return values


def _locate_files() -> _Files:
    credentials = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    config = os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config"
    profile = os.environ.get("AWS_PROFILE")
    return _Files(
        Path(os.path.expandvars(credentials)).expanduser(),
        Path(os.path.expandvars(config)).expanduser(),
        profile or "default",
        bool(profile),
    )


def _identify_content(file: Path) -> tuple[int, int, int] | None:
    """Return the identity of a file's content; None if the file does not exist."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _read_options(files: _Files) -> _Options:
    in_credentials = _read_sections(files.credentials)
    in_config = _select_profiles(_read_sections(files.config))
    if files.profile not in in_credentials and files.profile not in in_config:
        if not files.is_named:
            return _Options({})
        unknown = describe_unknown("profile", files.profile, in_credentials | in_config)
        raise StoreError(f"{unknown} AWS_PROFILE names it, and the files are {files.describe()}.")
    first = in_credentials.get(files.profile, {})
    second = in_config.get(files.profile, {})
    options = _read_credentials(files, first, second)
    region = first.get("region") or second.get("region")
    if region is None:
        return options
    return options._replace(values=options.values | {"AWS_REGION": region})


def _read_credentials(files: _Files, first: dict[str, str], second: dict[str, str]) -> _Options:
    """Return the credentials of a profile, in the order in which AWS's tools look for them.

    Args:
        first, second: the profile's settings in the credentials file and in the config file.
    """
    merged = second | first
    if "role_arn" in merged:
        raise _unread_error(files, "assumes a role")
    if "aws_access_key_id" in first:
        return _Options(_select_keys(files, first))
    if "credential_process" in merged:
        return _run_process(files, merged["credential_process"])
    if "aws_access_key_id" in second:
        return _Options(_select_keys(files, second))
    for setting, kind in _UNREAD_KINDS.items():
        if setting in merged:
            raise _unread_error(files, kind)
    if files.is_named:
        raise StoreError(
            f"The profile '{files.profile}' has no credentials in {files.describe()}: add "
            "aws_access_key_id and aws_secret_access_key, or a credential_process. If the "
            "credentials are those of this machine's role, unset AWS_PROFILE, and set AWS_REGION."
        )
    # On a machine with a role, the files often have a region only.
    return _Options({})


def _select_keys(files: _Files, settings: Mapping[str, str]) -> dict[str, str]:
    if not settings.get("aws_secret_access_key"):
        raise StoreError(
            f"The profile '{files.profile}' in {files.describe()} has an aws_access_key_id, but no "
            "aws_secret_access_key: add it to the same file."
        )
    return {option: settings[name] for name, option in _KEYS.items() if settings.get(name)}


def _run_process(files: _Files, command: str) -> _Options:
    """Return the credentials that a command prints as JSON."""
    try:
        output = secret(f"command:{command}").reveal()
    except DefinitionError as error:
        raise StoreError(f"The profile '{files.profile}' gives no credentials. {error}") from None
    # The messages do not show the output, which has the secret key.
    try:
        printed = json.loads(output)
        values = {option: printed[name] for name, option in _OUTPUT_KEYS.items() if name in printed}
        expiration = printed.get("Expiration")
        expires_at = math.inf
        if expiration is not None:
            expires_at = datetime.fromisoformat(expiration).timestamp()
    except (ValueError, TypeError, AttributeError):
        values = {}
        expires_at = math.inf
    if not all(values.get(name) for name in _REQUIRED_KEYS):
        raise StoreError(
            f"The credential_process of the profile '{files.profile}' prints no credentials: it "
            "must print a JSON object with Version, AccessKeyId, and SecretAccessKey, and may add "
            f"SessionToken and Expiration, a time such as 2026-01-31T12:00:00Z. Run `{command}` "
            "yourself."
        )
    remaining = expires_at - time.time()
    if remaining <= 0:
        raise StoreError(
            f"The credential_process of the profile '{files.profile}' prints credentials that have "
            f"expired: run `{command}` yourself to find out why."
        )
    # A command may print the same credentials until they expire. Half of a short validity must
    # pass before it runs again, so that it does not run for each request.
    return _Options(values, expires_at - min(_RENEWAL_SECONDS, remaining / 2))


def _unread_error(files: _Files, kind: str) -> StoreError:
    name = shlex.quote(files.profile)
    return StoreError(
        f"The profile '{files.profile}' in {files.describe()} {kind}, which Tidemark does not "
        "read. Add a profile with `credential_process = aws configure export-credentials --profile "
        f"{name} --format process`, with the same region, and set AWS_PROFILE to its name."
    )


def _read_sections(file: Path) -> _Sections:
    """Return the settings of each section of a file; none if the file does not exist."""
    # Values may contain `%`, and no section has defaults for the others.
    parser = configparser.RawConfigParser(default_section="", strict=False)
    try:
        parser.read_string(file.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, configparser.Error) as error:
        reason = " ".join(summarize_error(error).split())
        raise StoreError(
            f"The profiles in '{file}' can't be read ({reason}): correct the file."
        ) from None
    return {section: dict(parser[section]) for section in parser.sections()}


def _select_profiles(sections: _Sections) -> _Sections:
    """Return the profiles of a config file: its sections `default` and `profile NAME`."""
    profiles = _Sections()
    for section, settings in sections.items():
        kind, _, name = section.partition(" ")
        if section == "default":
            profiles[section] = settings
        elif kind == "profile":
            profiles[name.strip().strip("\"'")] = settings
    return profiles
