"""Frames that Spark's jobs are made of: each function selects its columns at entry and exit, and its schema is tested.

Enter by ``one_each``, a frame of tasks with a partition for each. No store is read here, and no sample is seen.
"""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

TASKS = "task binary"


def one_each(session: SparkSession, tasks: Sequence[bytes]) -> DataFrame:
    """``TASKS`` with a row per partition. From Arrow, since plain rows would start a Python daemon of their own."""
    places = session.range(0, len(tasks), 1, max(1, len(tasks))).select(F.col("id").alias("number"))
    table = {"number": pa.array(range(len(tasks)), pa.int64()), "task": pa.array(tasks, pa.binary())}
    numbered = session.createDataFrame(pa.table(table))
    return places.join(F.broadcast(numbered), on="number", how="inner").select("task")
