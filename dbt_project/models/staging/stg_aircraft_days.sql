select
    {{ day('window_start') }} as day,
    window_start,
    -- A session ends one gap, six hours, after its last departure.
    window_end - interval 6 hours as last_departure,
    tailnum,
    legs,
    air_minutes,
    miles,
    final
from {{ source('windows', 'aircraft_days') }}
