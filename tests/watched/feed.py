"""The connector of the readings."""

from helpers.data.landing import SOURCE, feed
from tidemark_streaming.feed import Inlet

inlet = Inlet(source=SOURCE, feed=feed)
