{#
  Which days of a mart to compute again: those of all windows that were published, published anew
  or taken back since its last build, by the change feeds of the tables that it reads.

  `find_changes` looks before a build, and keeps what it found in a view of the session with one
  row: `days`, null for all, and `read`, how far it looked. `in_changed_days` is the model's
  condition on its rows; the strategy `changed_days` puts the result in the place of all rows of
  these days, in one commit. `remember_changes` notes in the mart's properties how far it has read:
  a build that ends before that finds the same days again.
#}

{% macro day(column) -%}
  to_date(from_utc_timestamp({{ column }}, '{{ var("time_zone") }}'))
{%- endmacro %}

{% macro in_changed_days(column) -%}
  {%- if is_incremental() -%}
    {%- set days = '(select ' ~ changes_view() ~ '.days from ' ~ changes_view() ~ ')' -%}
    {#- The bounds repeat what the days say, for Delta to pass over files. -#}
    ({{ days }} is null or (
      array_contains({{ days }}, {{ day(column) }})
      and {{ column }} >= cast(date_sub(array_min({{ days }}), 1) as timestamp)
      and {{ column }} < cast(date_add(array_max({{ days }}), 2) as timestamp)
    ))
  {%- else -%}
    true
  {%- endif -%}
{%- endmacro %}

{% macro find_changes() %}
  {% if not execute %}{{ return('') }}{% endif %}
  {% set last = last_read() if is_incremental() else {} %}
  {% set code = code_of(model) %}
  {% set found = {'whole': last.get('code') != code, 'days': []} %}
  {% set read = {'code': code} %}
  {% for source in sources_of(model) %}
    {% set table = source.schema ~ '.' ~ source.identifier %}
    {% set id = run_query('describe detail ' ~ table)[0]['id'] %}
    {% set newest = versions_of(table, 1)[0] %}
    {% set known = last.get(id) %}
    {#- The time of a version tells it from another one with its number: a table that was restored
        from a backup has other versions under the same numbers. -#}
    {% if not known or known not in versions_of(table, [newest[0] - known[0] + 1, 1] | max) %}
      {% do found.update({'whole': true}) %}
    {% elif known[0] < newest[0] and not found.whole %}
      {% do found.days.extend(changed_days_of(table, source, known[0] + 1, newest[0])) %}
    {% endif %}
    {#- By the table's id, not its name: Spark hides the value of a property in which it sees a
        secret, and it sees `url` in `temperature_hourly`. -#}
    {% do read.update({id: newest}) %}
  {% endfor %}
  {% set days = "array('" ~ found.days | unique | sort | join("', '") ~ "')" if found.days else 'array()' %}
  create or replace temporary view {{ changes_view() }} as select
    cast({{ 'null' if found.whole else days }} as array<date>) as days,
    '{{ tojson(read, sort_keys=true) }}' as read
{% endmacro %}

{#- The newest versions of a table, each with its number and its time. -#}
{% macro versions_of(table, limit) %}
  {% set found = [] %}
  {% for row in run_query('describe history ' ~ table ~ ' limit ' ~ limit) %}
    {% do found.append([row['version'] | int, row['timestamp'] | string]) %}
  {% endfor %}
  {{ return(found) }}
{% endmacro %}

{% macro changed_days_of(table, source, first, newest) %}
  {% set changed %}
    select distinct cast({{ day(source.config.event_time or 'window_start') }} as string) as day
    from table_changes('{{ table }}', {{ first }}, {{ newest }})
  {% endset %}
  {{ return(run_query(changed).columns['day'].values() | list) }}
{% endmacro %}

{% macro remember_changes() %}
  {% if not execute %}{{ return('') }}{% endif %}
  {% set read = run_query('select read from ' ~ changes_view())[0]['read'] %}
  {% if fromjson(read) != last_read() %}
    alter table {{ this }} set tblproperties ('tidemark.read' = '{{ read }}')
  {% endif %}
{% endmacro %}

{% macro last_read() %}
  {% for property in run_query('show tblproperties ' ~ this) if property['key'] == 'tidemark.read' %}
    {{ return(fromjson(property['value'])) }}
  {% endfor %}
  {{ return({}) }}
{% endmacro %}

{#- The sources of a mart, through views: what it reads of another table would be as of that
    table's last build, not of this one. -#}
{% macro sources_of(node) %}
  {% set found = [] %}
  {% for id in node.depends_on.nodes %}
    {% if id in graph.sources %}
      {% do found.append(graph.sources[id]) %}
    {% elif graph.nodes[id].config.materialized in ('view', 'ephemeral') %}
      {% do found.extend(sources_of(graph.nodes[id])) %}
    {% else %}
      {{ exceptions.raise_compiler_error(
        "Mart '" ~ node.name ~ "' reads the table '" ~ graph.nodes[id].name
        ~ "': a mart that picks up changed days reads views and sources only."
      ) }}
    {% endif %}
  {% endfor %}
  {{ return(found) }}
{% endmacro %}

{#- What a mart computes: its own code, that of the views it reads, and what a day is. A change of
    it makes all days changed. -#}
{% macro code_of(node) %}
  {% set parts = [var('time_zone'), node.raw_code] %}
  {% for id in node.depends_on.nodes if id in graph.nodes %}
    {% do parts.append(code_of(graph.nodes[id])) %}
  {% endfor %}
  {{ return(local_md5(parts | join('\n'))) }}
{% endmacro %}

{% macro changes_view() %}{{ return(this.identifier ~ '__changes') }}{% endmacro %}
