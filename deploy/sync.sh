#!/bin/sh
# Makes the repository follow an alias, and deploys what changed. If a run fails, it prints the reason, and the next run
# tries again; a version that failed on a server is not deployed again.
set -u
trap 'exit 0' TERM INT
secret=${SECRETS:-/run/secrets}/control_header
if [ -r "$secret" ]; then
    REPOGEN_CONTROL_HEADER=$(cat "$secret")
    export REPOGEN_CONTROL_HEADER
fi
set --
for server in ${SYNC_SERVERS:-}; do
    set -- "$@" --deploy "$server"
done
while :; do
    repogen sync --alias "${SYNC_ALIAS:-champion}" --repository "${SYNC_REPOSITORY:-/models/prod}" "$@" || true
    sleep "${SYNC_SECONDS:-60}" &
    wait $!
done
