#!/bin/sh
# Installs all that the product needs to run, and nothing else: what the container recipe does, and any machine can.
#
#   deploy/install.sh slim     without Spark and Java: runs work in one process (SPM_SPARK_MASTER=none)
#   deploy/install.sh full     with Spark and a Java
#
# Both take the clients of RabbitMQ, HBase and PostgreSQL along, and gRPC. It writes the environment folder (SPM_ENVIRONMENT, or
# .venv) and node_modules, and makes no data folder and no secret. bin/run then needs no network.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/bin/lib.sh"

case ${1:-} in
  slim) extras="server agent amqp grpc hbase postgres" SPM_SPARK_MASTER=none ;;
  full) extras="server agent amqp grpc hbase postgres spark" SPM_SPARK_MASTER='local[*]' ;;
  *) die "Say what to install: deploy/install.sh slim, or deploy/install.sh full." ;;
esac
export SPM_SPARK_MASTER
enter_environment
# shellcheck disable=SC2086  # a list of words
need_extras $extras
"$environment/bin/python" -m spm.cli.setup --no-data
# The program's user cannot write compiled modules.
"$environment/bin/python" -m compileall -q spm ingest rollups alerts frontend
