select
    day,
    origin,
    carrier,
    sum(flights) as flights,
    sum(cancelled) as cancelled,
    sum(flights) - sum(cancelled) as departed,
    sum(delayed) as delayed,
    round(1 - sum(delayed) / nullif(sum(flights) - sum(cancelled), 0), 4) as on_time_share,
    round(sum(total_delay) / nullif(sum(flights) - sum(cancelled), 0), 1) as mean_delay,
    sum(late_events) as late_events,
    bool_and(final) as final
from {{ ref('stg_departures_by_carrier') }}
where {{ in_changed_days('window_start') }}
group by day, origin, carrier
