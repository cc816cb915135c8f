select
    {{ day('window_start') }} as day,
    window_start,
    origin,
    carrier,
    flights,
    cancelled,
    delayed,
    total_delay,
    late_events,
    final
from {{ source('windows', 'departures_by_carrier') }}
