select
    window_start,
    origin,
    temperature,
    gust,
    visibility,
    precipitation
from {{ source('windows', 'temperature_hourly') }}
