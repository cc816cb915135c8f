"""`python -m benchmarks.inputs.load SERVERS TOPIC RATE SECONDS FILE`: send sales at a steady rate.

This is a separate process, so that other work does not slow it down. For each event, the file has
the time at which the event was sent (in microseconds since 1970), the shop, and the cents. Events
are in the order of the topic's one partition.
"""

import random
import sys
import time

import numpy as np
from confluent_kafka import Producer

from tidemark.base.instants import format_instant

TICK = 0.005
SHOPS = 100


def main() -> None:
    servers, topic, rate, seconds, file = sys.argv[1:]
    client = {"bootstrap.servers": servers, "queue.buffering.max.messages": 2_000_000}
    producer, chance = Producer(client | {"linger.ms": 2}), random.Random()
    sent: list[int] = []
    shops: list[int] = []
    cents: list[int] = []
    begun = time.time()
    while (now := time.time()) < begun + float(seconds):
        at = int(now * 1e6)
        head = f'{{"at":"{format_instant(at)}","shop":"shop '
        for _ in range(int((now - begun) * int(rate)) - len(sent)):
            shop, amount = int(chance.random() * SHOPS), int(chance.random() * 10_000)
            value = f'{head}{shop}","amount":{amount / 100}}}'
            while True:
                try:
                    producer.produce(topic, value)
                    break
                except BufferError:
                    producer.poll(0.1)
            sent.append(at)
            shops.append(shop)
            cents.append(amount)
        producer.poll(0)
        time.sleep(TICK)
    producer.flush()
    np.savez(file, sent=np.array(sent), shop=np.array(shops, np.int16), cents=np.array(cents))


if __name__ == "__main__":
    main()
