#!/bin/sh
# Makes the repository follow an alias. If a run fails, it prints the reason, and the next run tries again.
set -u
trap 'exit 0' TERM INT
while :; do
    repogen sync --alias "${SYNC_ALIAS:-champion}" --repository "${SYNC_REPOSITORY:-/models}" || true
    sleep "${SYNC_SECONDS:-60}" &
    wait $!
done
