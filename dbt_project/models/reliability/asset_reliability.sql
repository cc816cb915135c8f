{#- A few counts for each asset and day: read whole, so that it tells what holds now. The
    assets are those of models/sources.yml. -#}
{% set assets = env_var('TIDEMARK_WINDOWS').split(',') %}
{% set needed = ['window_start', 'final', 'events', 'late_events', 'revision'] %}

with published as (
    {% for asset in assets if there(source('windows', asset)) %}
    {% do demand_columns(source('windows', asset), needed) %}
    {% if not loop.first %}union all{% endif %}
    select
        '{{ asset }}' as asset,
        {{ day('window_start') }} as day,
        count(*) as windows,
        count_if(not final) as open_windows,
        sum(events) as events,
        sum(late_events) as late_events,
        count_if(revision > 0) as revised_windows,
        sum(revision) as revisions
    from {{ source('windows', asset) }}
    group by all
    {% endfor %}
),

lost as (
    select null as asset, null as day, cast(0 as bigint) as lost_events where false
    {% for asset in assets if there(source('kept', asset ~ '_late_loss')) %}
    union all
    select '{{ asset }}', {{ day('window_start') }}, sum(lost_events)
    from {{ source('kept', asset ~ '_late_loss') }}
    group by all
    {% endfor %}
),

quarantine as (
    select null as asset, null as day, cast(0 as bigint) as quarantined, cast(0 as bigint) as discarded
    where false
    {% for asset in assets if there(source('kept', asset ~ '_quarantine')) %}
    union all
    select
        '{{ asset }}',
        {{ day('window_start') }},
        count_if(quarantine_status = 'quarantined'),
        count_if(quarantine_status = 'discarded')
    from {{ source('kept', asset ~ '_quarantine') }}
    group by all
    {% endfor %}
)

select
    asset,
    day,
    coalesce(published.windows, 0) as windows,
    coalesce(published.open_windows, 0) as open_windows,
    coalesce(published.events, 0) as events,
    coalesce(published.late_events, 0) as late_events,
    coalesce(published.revised_windows, 0) as revised_windows,
    coalesce(published.revisions, 0) as revisions,
    coalesce(lost.lost_events, 0) as lost_events,
    round(coalesce(lost.lost_events, 0)
        / (coalesce(lost.lost_events, 0) + nullif(coalesce(published.events, 0), 0)), 6) as lost_share,
    coalesce(quarantine.quarantined, 0) as quarantined,
    coalesce(quarantine.discarded, 0) as discarded
from published
full outer join lost using (asset, day)
full outer join quarantine using (asset, day)
