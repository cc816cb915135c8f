"""Send lines of JSON to the topic `orders`: `python send.py sample/orders.jsonl`."""

import sys
from pathlib import Path

from confluent_kafka import Producer
from tidemark.settings import Settings

producer = Producer({"bootstrap.servers": Settings().kafka_servers})
for file in sys.argv[1:]:
    for line in Path(file).read_text().splitlines():
        producer.produce("orders", line)
producer.flush()
