#!/bin/sh
# Makes the repository follow an alias. A run that fails changes nothing, says why, and is followed by the next.
set -u
trap 'exit 0' TERM INT
while :; do
    repogen sync --alias "${SYNC_ALIAS:-champion}" --repository "${SYNC_REPOSITORY:-/models}" || true
    sleep "${SYNC_SECONDS:-60}" &
    wait $!
done
