"""A domain for the live page: clicks that come by Kafka, and go out again in windows and a lane."""
