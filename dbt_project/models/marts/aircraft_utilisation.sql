select
    day,
    tailnum,
    sum(legs) as legs,
    round(sum(air_minutes) / 60, 2) as air_hours,
    sum(miles) as miles,
    round(sum(unix_seconds(last_departure) - unix_seconds(window_start)) / 3600, 2) as duty_hours,
    round(sum(air_minutes) / 60 / 24, 4) as utilisation,
    bool_and(final) as final
from {{ ref('stg_aircraft_days') }}
where {{ in_changed_days('window_start') }}
group by day, tailnum
