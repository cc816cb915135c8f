{# The incremental strategy `changed_days`, beside those of dbt-spark. #}

{% macro dbt_spark_validate_get_incremental_strategy(raw_strategy, file_format) %}
  {% if raw_strategy == 'changed_days' and file_format == 'delta' %}
    {{ return(raw_strategy) }}
  {% endif %}
  {{ return(dbt_spark.dbt_spark_validate_get_incremental_strategy(raw_strategy, file_format)) }}
{% endmacro %}

{% macro dbt_spark_get_incremental_sql(
  strategy, source, target, existing, unique_key, incremental_predicates
) %}
  {% if strategy != 'changed_days' %}
    {{ return(dbt_spark.dbt_spark_get_incremental_sql(
      strategy, source, target, existing, unique_key, incremental_predicates
    )) }}
  {% endif %}
  {% set changed = run_query(
    'select days is null as whole, cast(to_json(days) as string) as days from ' ~ changes_view()
  )[0] %}
  {% set days = fromjson(changed['days'] or '[]') %}
  {% if changed['whole'] or days %}
    {% set columns = adapter.get_columns_in_relation(target) | map(attribute='quoted') | join(', ') %}
    insert into {{ target }}
    replace where {{ 'true' if changed['whole'] else "day in (date'" ~ days | join("', date'") ~ "')" }}
    select {{ columns }} from {{ source }}
  {% else %}
    select 'no day has changed'
  {% endif %}
{% endmacro %}
