"""A domain for the live page: clicks from Kafka, published by a sink and by a lane."""
