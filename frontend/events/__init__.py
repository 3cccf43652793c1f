"""Events of an app for those who listen: new data, alerts, runs, sources. On the event loop, no thread per listener.

1. A listener (a stream of events, or a long poll) proves its rights and joins the ``EventHub``.
2. While anybody listens, one thread per process looks once a second at what is new (``ChangeWatch``).
3. The hub numbers each event and puts it into the ring of its app; listeners take from the ring what they lack.

Several web processes need not know of each other: each looks for its own listeners. Enter by ``EventStreams``.
"""
