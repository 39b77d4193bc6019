#!/usr/bin/env bash
# Build Penstock's image; with `driver` also that of the driver's pod, with `functions` also one of each function, as
# `faas-cli build` makes them, with `standins` also those that take the official images' names where no registry can be
# reached. BASE names the base image of all of them, KUBECTL the image with kubectl, WATCHDOG that with of-watchdog; FUNCTIONS
# some of the functions instead of all; DOCKER_BUILD_OPTIONS are handed on (`--network host`); SOURCES becomes a label.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

jars=${PENSTOCK_JARS:-.penstock/jars}
base=(${BASE:+--build-arg "BASE=$BASE"})
read -ra options <<<"${DOCKER_BUILD_OPTIONS:-}"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
[ "$revision" = unknown ] || git diff --quiet HEAD || revision+=+changes
marks=(--build-arg "REVISION=$revision" ${SOURCES:+--label "dev.penstock.sources=$SOURCES"})
contexts=$(mktemp -d)
trap 'rm -rf "$contexts"' EXIT

# (Bash 3.2, which macOS has, takes an empty array for an unset one.)
build() { docker build ${options[@]+"${options[@]}"} "$@"; }

penstock() { build ${base[@]+"${base[@]}"} -f infra/images/Dockerfile "$@"; }

# Before anything is built, which takes minutes.
require_jars() {
    [ -e "$jars/$1/.complete" ] || {
        echo "build.sh: no jars of $1 in $jars: \`infra/local/setup.sh jars $jars $1\` fetches them" >&2
        exit 2
    }
}

# A folder for a build with the jars of $1 in it.
context() {
    mkdir -p "$contexts/$1/jars"
    cp "$jars/$1"/*.jar "$contexts/$1/jars/"
}

driver() {
    context spark
    cp infra/images/driver/entrypoint pyproject.toml uv.lock "$contexts/spark/"
    local stage stages=()
    for stage in packages project; do
        penstock --target "$stage" -t "local/penstock-$stage:$version" .
        stages+=(--build-arg "$(tr a-z A-Z <<<"$stage")=local/penstock-$stage:$version")
    done
    build -f infra/images/driver/Dockerfile "${stages[@]}" "${marks[@]}" \
        ${KUBECTL:+--build-arg "KUBECTL=$KUBECTL"} -t "penstock/driver:$version" "$contexts/spark"
}

# Template and handler, laid out as faas-cli does it.
functions() {
    local name folder context
    for name in ${FUNCTIONS:-$(ls functions/handlers)}; do
        folder=functions/handlers/${name//-/_} context=$contexts/function-$name
        [ -e "$folder/handler.py" ] || { echo "build.sh: there is no function $name in functions/handlers" >&2; exit 2; }
        cp -r functions/template/python3-penstock "$context"
        cp "$folder"/*.* "$context/function/"
        build ${BASE:+--build-arg "BASE_IMAGE=$BASE"} ${WATCHDOG:+--build-arg "WATCHDOG_IMAGE=$WATCHDOG"} \
            -t "penstock/${name//_/-}:$version" "$context"
    done
}

standins() {
    context kafka
    cp -r infra/images/standins/kafka/bin "$contexts/kafka/bin"
    build ${base[@]+"${base[@]}"} -f infra/images/standins/kafka/Dockerfile -t apache/kafka:4.2.0 "$contexts/kafka"
    build ${base[@]+"${base[@]}"} -t rabbitmq:3.10.8 infra/images/standins/rabbitmq
    build ${base[@]+"${base[@]}"} -t redis:7.0.15-bookworm infra/images/standins/redis
    build ${base[@]+"${base[@]}"} -t haproxy:2.6.12 infra/images/standins/haproxy
    build ${base[@]+"${base[@]}"} -t prom/prometheus:v2.42.0 infra/images/standins/prometheus
    build -t ghcr.io/openfaas/of-watchdog:0.11.6 infra/images/standins/of-watchdog
}

for what in "$@"; do
    case $what in
        driver) require_jars spark ;;
        standins) require_jars kafka ;;
        functions) ;;
        *) echo "usage: infra/images/build.sh [driver] [standins] [functions]" >&2; exit 2 ;;
    esac
done
penstock "${marks[@]}" -t "penstock/app:$version" .
for what in "$@"; do "$what"; done
