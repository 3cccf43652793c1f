"""Real servers for tests and for development: HBase with its Thrift gateway, and RabbitMQ.

Each runs as a private instance on 127.0.0.1, with ports of its own and everything it writes in one folder; nothing here
ever touches a server of the system. Enter by ``hbase.HBase`` and ``rabbitmq.RabbitMQ`` (``start``, ``stop``, ``kill``),
by the fixtures in ``fixtures``, or by ``bin/stack``. ``prepare`` fetches what they need.
"""
