"""Whether a Spark master is this machine or a cluster of others, and what a cluster must not be asked for.

Enter by ``is_local`` and ``refuse_far_files``. Nothing here needs Spark.
"""

from urllib.parse import urlsplit

from spm.errors import Refused


class ClusterUnfit(Refused):
    """A Spark cluster that was asked for does not start, or its workers cannot run our tasks on this store."""


def is_local(master: str) -> bool:
    """Whether tasks run on this machine, so that they may open what lies on its disks."""
    return master.startswith("local")


def refuse_far_files(url: str, master: str) -> None:
    """Raise ``ClusterUnfit`` for a store on this machine's disk and a cluster of others."""
    if urlsplit(url).scheme == "lmdb" and not is_local(master):
        raise ClusterUnfit(
            "LMDB is a file of this machine, and a Spark cluster's workers may run on others",
            got=f"{master} with {url}",
            wanted="local[*] as Spark's master, or an hbase:// store",
            remedy="Set SPM_SPARK_MASTER or SPM_STORE_URL.",
        )
