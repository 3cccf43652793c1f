"""Tells a Spark master on this machine from a cluster, and refuses stores that a cluster can not reach.

Enter by ``is_local`` and ``refuse_local_files``. Nothing here needs Spark.
"""

from urllib.parse import urlsplit

from spm.errors import Refused

WITHOUT_SPARK = "no spark"  # the name of an executor that stands in for a local Spark


class ClusterUnfit(Refused):
    """The configured Spark cluster does not start, or its workers cannot run our tasks on this store."""


def is_local(master: str) -> bool:
    """Whether tasks run on this machine, so that they may open files on its disks."""
    return master.startswith("local")


def refuse_local_files(url: str, master: str) -> None:
    """Raises ``ClusterUnfit`` for a store on this machine's disk and a master on others."""
    if urlsplit(url).scheme == "lmdb" and not is_local(master):
        raise ClusterUnfit(
            "LMDB is a file of this machine, and a Spark cluster's workers may run on others",
            got=f"{master} with {url}",
            wanted="local[*] as Spark's master, or an hbase:// store",
            remedy="Set SPM_SPARK_MASTER or SPM_STORE_URL.",
        )
