"""Data that an erasure reports as out of its reach."""

from dataclasses import replace

from helpers.data.landing import SOURCE
from tidemark.base.settings import Settings
from tidemark.run.erase.erase import ErasureReport
from tidemark_streaming.home import erasure
from tidemark_streaming.home.domains import Domains

NOTHING = ErasureReport("sensors", True, None, 0, 0, 0, 0, 0)


def test_an_erasure_reports_lookup_tables_as_out_of_reach() -> None:
    no_domains = Domains({}, {}, {})
    for references, told in (((), 0), (("people", "/data/cards"), 1)):
        source = replace(SOURCE, lookups=references)
        beyond = erasure._list_notes_on_copies(
            Settings(), no_domains, erasure.ErasureRequest(source, "true"), NOTHING
        )
        joined = [each for each in beyond if "(people, /data/cards) " in each]
        assert len(joined) == told
