select
    {{ day('window_start') }} as day,
    window_start,
    tailnum,
    legs,
    air_minutes,
    miles,
    final
from {{ source('windows', 'aircraft_days') }}
