{% test one_row_per(model, columns) %}
select {{ columns | join(', ') }}, count(*) as rows_of_it
from {{ model }}
group by {{ columns | join(', ') }}
having count(*) > 1
{% endtest %}
