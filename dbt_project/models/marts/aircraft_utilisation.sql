select
    day,
    tailnum,
    sum(legs) as legs,
    round(sum(air_minutes) / 60, 2) as air_hours,
    sum(miles) as miles,
    bool_and(final) as final
from {{ ref('stg_aircraft_days') }}
where {{ in_changed_days('window_start') }}
group by day, tailnum
