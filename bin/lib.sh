# shellcheck shell=sh
# Sourced by bin/start, bin/manage and bin/test: finds a Python, makes the project's own environment, installs into it.
#
# Each extra of pyproject.toml has a lock file requirements/EXTRA.txt: it is installed once, and again when this file
# changes. Nothing is written outside the environment folder (.venv, or SPM_ENVIRONMENT) and the data folder (var, or
# SPM_DATA). Needs no root.

say() { printf '%s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# The value of setting $1: from the environment, else from .env, with the quotes, comments and `export` of that format.
setting() {
  eval "value=\${$1:-}"
  dotenv=${SPM_DOTENV:-$root/.env}
  if [ -z "$value" ] && [ -f "$dotenv" ]; then
    value=$(sed -n "s/^[[:space:]]*\(export[[:space:]]\{1,\}\)\{0,1\}$1[[:space:]]*=[[:space:]]*//p" "$dotenv" | tail -n 1)
    case $value in
      \'*) value=${value#\'} value=${value%%\'*} ;;
      \"*) value=${value#\"} value=${value%%\"*} ;;
      *) value=$(printf '%s' "$value" | sed 's/^#.*//; s/[[:space:]]#.*//; s/[[:space:]]*$//') ;;
    esac
  fi
  printf '%s' "$value"
}

new_enough() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' >/dev/null 2>&1; }

find_python() {
  for python in ${SPM_PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
    if command -v "$python" >/dev/null 2>&1 && new_enough "$python"; then return 0; fi
  done
  version=$(python3 --version 2>&1) || version="no python3"
  die "SPM needs Python 3.11, 3.12, 3.13 or 3.14, and this machine has $version. Install one, or name it in SPM_PYTHON."
}

# Sets root, data folder and environment, and exports the variables that child processes need.
enter_environment() {
  environment=${SPM_ENVIRONMENT:-$root/.venv}
  SPM_DATA=$(setting SPM_DATA)
  SPM_DATA=${SPM_DATA:-$root/var}
  case $SPM_DATA in /*) ;; *) SPM_DATA=$PWD/$SPM_DATA ;; esac
  SPM_BIND=$(setting SPM_BIND) SPM_WEB_PROCESSES=$(setting SPM_WEB_PROCESSES)
  export SPM_BIND="${SPM_BIND:-127.0.0.1}" SPM_WEB_PROCESSES="${SPM_WEB_PROCESSES:-1}"
  export SPM_DATA NUMBA_CACHE_DIR SPM_ENVIRONMENT="$environment"
  cd "$root"
  if [ -z "${NUMBA_CACHE_DIR:-}" ]; then
    version=$(kernels_version)
    NUMBA_CACHE_DIR=$SPM_DATA/kernels/$version # where bin/run compiles: in a container nobody may write elsewhere
    [ -d "$NUMBA_CACHE_DIR" ] || NUMBA_CACHE_DIR=$environment/kernels/$version
    [ -d "$NUMBA_CACHE_DIR" ] || rm -rf "$environment/kernels" # of other versions
  fi
  new_enough "$environment/bin/python" || make_environment
}

# A checksum of all kernels together: numba checks only the file of a compiled kernel, not those of the kernels it calls.
kernels_version() {
  {
    cat requirements/server.txt
    find spm ingest rollups -name '*.py' -exec grep -l njit {} + | LC_ALL=C sort | xargs cat
  } | cksum | cut -d ' ' -f 1
}

make_environment() {
  find_python
  say "· making the environment $environment ($("$python" --version))"
  # A folder that holds a broken or too old environment is emptied; one that holds anything else is not ours to empty.
  if [ -e "$environment" ] && [ ! -f "$environment/pyvenv.cfg" ]; then
    die "$environment exists and is no Python environment. Move it away, or name another folder in SPM_ENVIRONMENT."
  fi
  need_room 800
  output=$("$python" -m venv --clear "$environment" 2>&1) || {
    rm -rf "$environment"
    case $output in
      *ensurepip*) die "This Python cannot make environments. On Debian and Ubuntu: apt install python3-venv" ;;
      *) die "No environment could be made in $environment: $(printf '%s' "$output" | tail -n 1)" ;;
    esac
  }
}

# Fails when the environment's disk has less than $1 megabytes.
need_room() {
  folder=$environment
  while [ ! -d "$folder" ]; do folder=$(dirname "$folder"); done
  free=$(df -Pk "$folder" | awk 'NR == 2 { print int($4 / 1024) }')
  [ "$free" -ge "$1" ] || die "The disk of $environment is full: $free MB are free, $1 MB are needed. Make room, then try again."
}

# What the packages of these extras weigh as downloads, in megabytes, as measured in November 2026. Of Spark and of the
# tests' clients those count that the server does not have.
download_mb() {
  sum=0
  for extra in "$@"; do
    case $extra in
      server) sum=$((sum + 176)) ;;
      spark) sum=$((sum + 456)) ;;
      dev) sum=$((sum + 120)) ;;
      clients) sum=$((sum + 50)) ;;
      grpc | hbase | postgres | cli) sum=$((sum + 6)) ;;
      *) sum=$((sum + 1)) ;;
    esac
  done
  echo "$sum"
}

# Installs the extras among the arguments that are not installed as their lock files say now. With `without_bytecode` set
# the modules are compiled when they are first imported, most of them never: 40 % of the work of an installation.
need_extras() {
  wanted='' stamps="$environment/extras"
  [ ! -d "$environment/doors" ] || { rm -rf "$stamps"; mv "$environment/doors" "$stamps"; } # of 0.1.0, which ran last
  for extra in "$@"; do
    now=$(cksum <"requirements/$extra.txt")
    [ "$now" = "$(cat "$stamps/$extra" 2>/dev/null || true)" ] || wanted="$wanted $extra"
  done
  [ -n "$wanted" ] || return 0
  # shellcheck disable=SC2086  # a list of words
  say "· installing the Python packages of:$wanted (a download of $(download_mb $wanted) MB, less what pip has cached)"
  case $wanted in *spark*) need_room 2500 ;; *) need_room 800 ;; esac
  "$environment/bin/python" -m pip --version >/dev/null 2>&1 || "$environment/bin/python" -m ensurepip >/dev/null
  # shellcheck disable=SC2086  # a list of words
  install_in_halves $wanted
  mkdir -p "$stamps"
  for extra in $wanted; do cksum <"requirements/$extra.txt" >"$stamps/$extra"; done
}

# Installs these extras by two processes at once: pip uses one processor, and looks up one package after the other.
install_in_halves() {
  for half in 0 1; do half_of "$half" "$@" >"$environment/half-$half.txt"; done
  (install_half 1) &
  other=$! failed=''
  (install_half 0) || failed=1
  wait "$other" || failed=1
  [ -z "$failed" ] || exit 1 # it said why
}

install_half() {
  [ ! -s "$environment/half-$1.txt" ] ||
    run_pip "$environment/pip-$1.log" install ${without_bytecode:+--no-compile} --require-hashes --no-deps -r "$environment/half-$1.txt"
}

# The lines of half $1 (0 or 1) of the packages of these extras; a package of two extras comes once.
half_of() {
  half=$1
  shift
  for extra in "$@"; do cat "requirements/$extra.txt"; done |
    awk -v half="$half" '/^[^ #]/ { takes = !seen[$0]++ && count++ % 2 == half } takes'
}

# Runs pip, writes its log to file $1 and shows its large steps; reports a failure in one sentence.
run_pip() {
  log=$1
  shift
  { "$environment/bin/python" -m pip --disable-pip-version-check --no-input "$@" 2>&1 || echo "pip failed"; } |
    tee "$log" | while IFS= read -r line; do
      case $line in
        *Downloading*\(*MB\) | *"Building wheel"* | Installing*) say "    $(printf '%s' "$line" | cut -c1-100 | sed 's/^ *//')" ;;
      esac
    done
  [ "$(tail -n 1 "$log")" = "pip failed" ] || return 0
  case $(cat "$log") in
    *"No space left on device"*) die "The disk is full: pip could not install into $environment. Make room, then try again." ;;
    *) die "pip could not install: $(grep -i error "$log" | tail -n 1). The full log is $log" ;;
  esac
}

# Secrets, page libraries and Java: everything beside Python packages. Quick when there is nothing to do.
finish_environment() {
  [ "$(setting SPM_SPARK_MASTER)" != none ] || export SPM_SPARK_MASTER=none # needs no Java
  "$environment/bin/python" -m spm.cli.setup || exit $?
  [ ! -f "$environment/java-home" ] || JAVA_HOME=$(cat "$environment/java-home")
  export JAVA_HOME
}

# The extras that the product needs: those of the embedded default, and those of its settings.
product_extras() {
  extras="server agent spark"
  [ "$(setting SPM_SPARK_MASTER)" != none ] || extras="server agent"
  [ "$(setting SPM_TRANSPORT)" != amqp ] || extras="$extras amqp"
  case $(setting SPM_CELERY_BROKER_URL) in amqp*) extras="$extras amqp" ;; esac
  case $(setting SPM_OTLP_GRPC_PORT) in '' | 0) ;; *) extras="$extras grpc" ;; esac
  case $(setting SPM_STORE_URL) in hbase*) extras="$extras hbase" ;; esac
  case $(setting DATABASE_URL) in postgres*) extras="$extras postgres" ;; esac
  printf '%s' "$extras"
}
