"""Kafka records with header names that are not UTF-8.

librdkafka can send them, but its Python client cannot.
"""

import ctypes
from collections.abc import Iterable

from confluent_kafka import cimpl

_TOPIC, _PARTITION, _VALUE, _FLAGS, _HEADER, _END = 1, 3, 4, 7, 9, 0
_COPY = 2


def send_headed(servers: str, topic: str, values: Iterable[bytes], *names: bytes) -> None:
    """Send records to partition 0, each with all these headers. Wait for acknowledgments."""
    c = _library()
    said = ctypes.create_string_buffer(512)
    conf = ctypes.c_void_p(c.rd_kafka_conf_new())
    c.rd_kafka_conf_set(conf, b"bootstrap.servers", servers.encode(), said, ctypes.c_size_t(512))
    client = ctypes.c_void_p(c.rd_kafka_new(0, conf, said, ctypes.c_size_t(512)))
    headers = [part for name in names for part in (_HEADER, name, b"1", ctypes.c_ssize_t(1))]
    try:
        for value in values:
            failed = c.rd_kafka_producev(
                client,
                *(_TOPIC, topic.encode(), _PARTITION, ctypes.c_int32(0), _FLAGS, _COPY),
                *(_VALUE, value, ctypes.c_size_t(len(value)), *headers, _END),
            )
            assert failed == 0
        assert c.rd_kafka_flush(client, 10_000) == 0
    finally:
        c.rd_kafka_destroy(client)


def _library() -> ctypes.CDLL:
    """Return the library that the Python client loaded."""
    c = ctypes.CDLL(cimpl.__file__)
    c.rd_kafka_conf_new.restype = c.rd_kafka_new.restype = ctypes.c_void_p
    return c
