#!/usr/bin/env bash
# Build Penstock's image; with `driver` also that of the driver's pod, with `standins` also those that take the official
# images' names where no registry can be reached. BASE names the base image of all of them, KUBECTL the image with kubectl;
# DOCKER_BUILD_OPTIONS are handed on (`--network host`).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

jars=${PENSTOCK_JARS:-.penstock/jars}
base=(${BASE:+--build-arg "BASE=$BASE"})
read -ra options <<<"${DOCKER_BUILD_OPTIONS:-}"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
contexts=$(mktemp -d)
trap 'rm -rf "$contexts"' EXIT

build() { docker build "${options[@]}" "$@"; }

# A folder for a build with the jars of $1 in it.
context() {
    [ -e "$jars/$1/.complete" ] || { echo "build.sh: no jars of $1 in $jars: \`make setup\` fetches them" >&2; exit 2; }
    mkdir -p "$contexts/$1/jars"
    cp "$jars/$1"/*.jar "$contexts/$1/jars/"
}

driver() {
    context spark
    cp infra/images/driver/entrypoint "$contexts/spark/"
    build "${base[@]}" -f infra/images/Dockerfile --build-arg OMIT= -t "local/penstock-whole:$version" .
    build -f infra/images/driver/Dockerfile --build-arg "APP=local/penstock-whole:$version" \
        ${KUBECTL:+--build-arg "KUBECTL=$KUBECTL"} -t "penstock/driver:$version" "$contexts/spark"
}

standins() {
    context kafka
    cp -r infra/images/standins/kafka/bin "$contexts/kafka/bin"
    build "${base[@]}" -f infra/images/standins/kafka/Dockerfile -t apache/kafka:4.2.0 "$contexts/kafka"
    build "${base[@]}" -t rabbitmq:3.10.8 infra/images/standins/rabbitmq
    build "${base[@]}" -t redis:7.0.15-bookworm infra/images/standins/redis
    build "${base[@]}" -t haproxy:2.6.12 infra/images/standins/haproxy
    build "${base[@]}" -t prom/prometheus:v2.42.0 infra/images/standins/prometheus
}

for what in "$@"; do
    case $what in
        driver | standins) ;;
        *) echo "usage: infra/images/build.sh [driver] [standins]" >&2; exit 2 ;;
    esac
done
build "${base[@]}" -f infra/images/Dockerfile -t "penstock/app:$version" .
for what in "$@"; do "$what"; done
