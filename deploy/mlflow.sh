#!/bin/sh
# `mlflow server` on PostgreSQL, with proxied artifacts and basic auth. Secrets are read from files, so that neither a
# command line nor an image contains one.
set -eu
secrets=${SECRETS:-/run/secrets}

password=$(cat "$secrets/postgres_password")
case $password in
*[!A-Za-z0-9]*) echo "postgres_password: use only letters and digits, because it is part of a URI" >&2; exit 1 ;;
esac
MLFLOW_BACKEND_STORE_URI=${DATABASE_URI:-postgresql://mlflow:$password@$POSTGRES_HOST:5432/mlflow}
MLFLOW_AUTH_ADMIN_PASSWORD=$(cat "$secrets/mlflow_admin_password")
MLFLOW_FLASK_SERVER_SECRET_KEY=$(cat "$secrets/mlflow_secret_key")
MLFLOW_AUTH_CONFIG_PATH=${TMPDIR:-/tmp}/auth.ini
export MLFLOW_BACKEND_STORE_URI MLFLOW_AUTH_ADMIN_PASSWORD MLFLOW_FLASK_SERVER_SECRET_KEY MLFLOW_AUTH_CONFIG_PATH

(
    umask 077
    sed "s|@DATABASE_URI@|$MLFLOW_BACKEND_STORE_URI|" "${AUTH_TEMPLATE:-/etc/mlflow/auth.ini.in}" > "$MLFLOW_AUTH_CONFIG_PATH"
)
exec mlflow server --app-name basic-auth --host "${HOST:-0.0.0.0}" --port "${PORT:-5000}" \
    --serve-artifacts --artifacts-destination "${ARTIFACTS:-/artifacts}"
