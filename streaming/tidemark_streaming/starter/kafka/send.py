"""Send JSON lines to the topic `orders`: `python send.py sample/orders.jsonl`."""

import sys
from pathlib import Path

import tidemark as tm
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

servers = tm.Settings().kafka_servers
admin = AdminClient({"bootstrap.servers": servers})
if "orders" not in admin.list_topics(timeout=10).topics:
    admin.create_topics([NewTopic("orders", 2)])["orders"].result()
producer = Producer({"bootstrap.servers": servers})
for file in sys.argv[1:]:
    for line in Path(file).read_text().splitlines():
        producer.produce("orders", line)
if producer.flush(30):
    sys.exit("Not everything was sent: the brokers don't answer.")
