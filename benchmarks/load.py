"""`python -m benchmarks.load SERVERS TOPIC RATE SECONDS FILE`: sends sales at a steady rate.

A process of its own, so that it keeps its pace. The file gets when each event was sent, in seconds
since 1970, in the order of the topic's one partition.
"""

import random
import sys
import time

import numpy as np
from confluent_kafka import Producer

from tidemark.base.instants import iso

TICK = 0.005
SHOPS = 100
SEED = 2026


def main() -> None:
    servers, topic, rate, seconds, file = sys.argv[1:]
    client = {"bootstrap.servers": servers, "queue.buffering.max.messages": 2_000_000}
    producer, chance = Producer(client | {"linger.ms": 2}), random.Random(SEED)
    sent: list[float] = []
    begun = time.time()
    while (now := time.time()) < begun + float(seconds):
        head = f'{{"at":"{iso(int(now * 1e6))}","shop":"shop '
        for _ in range(int((now - begun) * int(rate)) - len(sent)):
            amount = chance.randrange(10_000) / 100
            while True:
                try:
                    value = f'{head}{chance.randrange(SHOPS)}","amount":{amount}}}'
                    producer.produce(topic, value)
                    break
                except BufferError:
                    producer.poll(0.1)
            sent.append(now)
        producer.poll(0)
        time.sleep(TICK)
    producer.flush()
    np.save(file, np.array(sent))


if __name__ == "__main__":
    main()
