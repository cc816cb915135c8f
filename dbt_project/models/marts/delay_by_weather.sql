with departures as (
    select
        day,
        window_start,
        origin,
        sum(flights) - sum(cancelled) as departed,
        sum(cancelled) as cancelled,
        sum(delayed) as delayed,
        sum(total_delay) as total_delay
    from {{ ref('stg_departures_by_carrier') }}
    where {{ in_changed_days('window_start') }}
    group by day, window_start, origin
),

weather as (
    select * from {{ ref('stg_weather') }}
    where {{ in_changed_days('window_start') }}
)

select
    departures.day,
    departures.window_start as hour,
    departures.origin,
    case
        when weather.origin is null then 'unknown'
        when weather.visibility < 3 then 'low visibility'
        when weather.precipitation > 0 then 'wet'
        when weather.gust >= 25 then 'windy'
        else 'fair'
    end as conditions,
    departures.departed,
    departures.cancelled,
    departures.delayed,
    round(departures.total_delay / nullif(departures.departed, 0), 1) as mean_delay,
    weather.temperature,
    weather.gust,
    weather.visibility,
    weather.precipitation
from departures
left join weather
    on departures.window_start = weather.window_start
    and departures.origin = weather.origin
