"""Playing a recording writes one file per span, in the order in which its records arrived."""

import os
import time
from pathlib import Path

import pandas as pd
import pytest

from tidemark.base.errors import DataError, DefinitionError
from tidemark.define.source import Source
from tidemark.define.watermarks import Perfect
from tidemark_streaming.connector import Excerpt
from tidemark_streaming.files.recording import ARRIVES, Recording

SOURCE = Source(
    name="letters",
    columns={"at": "TIMESTAMP", "letter": "STRING", "weight": "INT"},
    event_time="at",
    watermark=Perfect(),
)


def records() -> pd.DataFrame:
    """Return the letters a, b, c, …, written every two hours for two days; b takes nine hours to
    arrive."""
    at = pd.date_range("2013-03-01T01:00", periods=24, freq="2h", tz="UTC").to_series()
    letters = [chr(ord("a") + n) for n in range(24)]
    arrives = at + pd.to_timedelta([9 if letter == "b" else 0 for letter in letters], unit="h")
    return pd.DataFrame({"ignored": 1, "weight": 20, "letter": letters, "at": at, ARRIVES: arrives})


recording = Recording(SOURCE, records)


def landed(folder: Path, excerpt: Excerpt) -> dict[str, str]:
    """Play an excerpt and return the letters of each file, by file name and in order."""
    paths = [file.path for file in recording.write_files(folder, excerpt)]
    return {p.name: "".join(pd.read_csv(p)["letter"]) for p in paths}


def test_each_record_is_in_the_span_of_its_arrival(tmp_path: Path) -> None:
    #   01 03 05 | 07 09 11 | 13 15 17 | 19 21 23
    #   a        | b c      b is of 03:00 and arrives at 12:00, in the third span
    found = list(landed(tmp_path, Excerpt()).values())
    assert found == ["ac", "def", "bghi", "jkl", "mno", "pqr", "stu", "vwx"]
    first = min(tmp_path.iterdir())
    assert first.read_text().splitlines()[:2] == ["at,letter,weight", "2013-03-01T01:00:00Z,a,20"]
    assert first.stat().st_mtime == pd.Timestamp("2013-03-01T06:00Z").timestamp()


def test_a_record_without_an_event_time_lands_without_one(tmp_path: Path) -> None:
    without = records()
    without["at"] = without["at"].mask(without["letter"].isin(["a", "c"]))
    (first, *_) = Recording(SOURCE, lambda: without).write_files(tmp_path, Excerpt(days=1))
    assert first.path.read_text().splitlines()[1:] == [",a,20", ",c,20"]
    (span, *_) = Recording(SOURCE, lambda: without).read_spans(Excerpt(start="2013-03-01T06:00"))
    assert span.records["letter"].tolist() == ["d", "e", "f"]
    assert span.records["at"].tolist()[:2] == ["2013-03-01T07:00:00Z", "2013-03-01T09:00:00Z"]


@pytest.mark.parametrize("part", [Excerpt(), Excerpt(start="2013-03-01"), Excerpt(days=1)])
def test_an_empty_recording_has_no_spans(tmp_path: Path, part: Excerpt) -> None:
    empty = Recording(SOURCE, lambda: records()[:0])
    assert list(empty.write_files(tmp_path, part)) == []
    both = Excerpt(start="2013-03-01", end="2013-03-02")
    assert [len(span.records) for span in empty.read_spans(both)] == [0, 0, 0, 0]


def test_existing_files_are_not_written_again(tmp_path: Path) -> None:
    (first, *_) = recording.write_files(tmp_path, Excerpt(days=1))
    os.utime(first.path, (1, 1))
    numbers = [(f.number, f.total) for f in recording.write_files(tmp_path, Excerpt())]
    assert numbers == [(n, 8) for n in range(1, 9)]
    assert first.path.stat().st_mtime == 1


def test_a_span_without_arrivals_gives_a_file_without_rows(tmp_path: Path) -> None:
    found = landed(tmp_path, Excerpt(days=1, span="1 hour"))
    assert list(found.values())[:4] == ["", "a", "", ""]


def test_a_range_is_widened_to_whole_spans(tmp_path: Path) -> None:
    part = Excerpt(start="2013-03-01T07:30", end="2013-03-01T12:01", span="3 hours")
    assert landed(tmp_path, part) == {
        "letters_20130301T060000_10800s.csv": "d",
        "letters_20130301T090000_10800s.csv": "ef",
        "letters_20130301T120000_10800s.csv": "bg",
    }


def test_a_folder_accepts_files_of_one_span_length(tmp_path: Path) -> None:
    landed(tmp_path, Excerpt(days=1))
    with pytest.raises(DataError, match=r"has files of another --span, such as 'letters_2013"):
        landed(tmp_path, Excerpt(days=1, span="1 hour"))


@pytest.mark.parametrize("span", ["7 hours", "0 hours", "36 hours"])
def test_a_span_must_divide_a_day_or_be_whole_days(tmp_path: Path, span: str) -> None:
    with pytest.raises(DefinitionError, match=f"got '{span}'"):
        landed(tmp_path, Excerpt(span=span))


def test_a_speed_paces_the_files(tmp_path: Path) -> None:
    began = time.monotonic()
    part = Excerpt(days=1, speed=6 * 3600 / 0.2)
    written = [time.monotonic() - began for _ in recording.write_files(tmp_path, part)]
    # A busy machine may be slower.
    assert 0.45 < written[-1] - written[0] < 5
    with pytest.raises(DefinitionError, match="greater than zero"):
        landed(tmp_path, Excerpt(days=1, speed=0))


def test_an_unwritable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"^Folder '.*/file' can't be written: .*\.$"):
        landed(tmp_path / "file", Excerpt())
