#!/bin/sh
# Triton in explicit mode, on the models that the repository has now; later versions are loaded by `repogen deploy`. The
# control API requires the header in the secret `control_header`: KEY=VALUE, with a lowercase KEY.
set -eu
header=$(cat "${SECRETS:-/run/secrets}/control_header")
case ${header%%=*} in
"$header" | "" | *[!a-z0-9-]*) echo "control_header: write KEY=VALUE, with a KEY of a-z, 0-9 and -" >&2; exit 1 ;;
esac
apis=model-repository,logging,trace,shared-memory
exec tritonserver --model-repository="${REPOSITORY:-/models/prod}" --model-control-mode=explicit '--load-model=*' \
    --disable-auto-complete-config --exit-on-error=false --strict-readiness=false \
    --grpc-restricted-protocol="$apis:$header" --http-restricted-api="$apis:$header" "$@"
