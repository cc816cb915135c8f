select
    {{ day('window_start') }} as day,
    city,
    sum(events) as orders,
    sum(total) as total
from {{ source('windows', 'orders_hourly') }}
where {{ in_changed_days('window_start') }}
group by all
