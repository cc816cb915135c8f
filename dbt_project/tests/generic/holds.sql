{% test holds(model, condition) %}
select * from {{ model }} where not coalesce({{ condition }}, false)
{% endtest %}
