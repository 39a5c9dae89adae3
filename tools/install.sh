#!/usr/bin/env bash
# Install Python packages into a virtual environment that may have no pip yet: tools/install.sh .venv PACKAGE ...
#
# uv does in 10 s what takes pip 40, with the time to fetch uv (18 MB). It goes into a temporary folder that is removed
# at the end, with its cache. Where uv cannot be had or fails, pip installs.
set -o pipefail

python=$1/bin/python
folder=$(mktemp -d -p "$1" .install-XXXXXX)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
shift

# Both programs' output is long, and their quiet is silent for half a minute. So: the downloads, one a line.
shown() {
    sed -uEn -e '/\.metadata /d' -e 's/^ +(Downloading|Using cached) ([^-]*)-.*(\(.*\))$/kretain:   \2 \3/p' \
        -e 's/^Downloading (.* \(.*\))$/kretain:   \1/p' -e 's/^Installing collected.*/kretain: unpacking .../p' >&2
}

with_uv() {
    local uv index="" found
    if ! uv=$(command -v uv); then
        uv=$folder/bin/uv
        found=$("${PYTHON:-python3}" -m pip install --no-deps --no-compile --no-cache-dir --progress-bar off \
            --target "$folder" uv 2>/dev/null) || return
        index=$(sed -En 's/^Looking in indexes: ([^, ]+).*/\1/p' <<<"$found")
        export UV_CACHE_DIR=$folder/cache
    fi
    env UV_SYSTEM_CERTS=1 ${index:+"UV_DEFAULT_INDEX=$index"} "$uv" pip install --python "$python" pip "$@" 2>&1 | shown
}

with_pip() {
    "$python" -m pip --version >/dev/null 2>&1 || "$python" -m ensurepip >/dev/null || return
    # Compiling the packages costs 10 s: Python does it on use.
    "$python" -m pip install --no-compile --progress-bar off "$@" | shown
}

with_uv "$@" || with_pip "$@"
