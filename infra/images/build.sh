#!/usr/bin/env bash
# Build Penstock's image, and with `standins` those that take the official images' names where no registry can be reached.
# BASE names the base image of all of them; DOCKER_BUILD_OPTIONS are handed on (`--network host`).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

jars=${PENSTOCK_JARS:-.penstock/jars}/kafka
base=(${BASE:+--build-arg "BASE=$BASE"})
read -ra options <<<"${DOCKER_BUILD_OPTIONS:-}"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

build() { docker build "${options[@]}" "${base[@]}" "$@"; }

build -f infra/images/Dockerfile -t "penstock/app:$version" .
[ "${1:-}" = standins ] || exit 0

[ -e "$jars/.complete" ] || { echo "build.sh: no jars of Kafka in $jars: \`make setup\` fetches them" >&2; exit 2; }
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
mkdir "$context/jars"
cp "$jars"/*.jar "$context/jars/"
cp -r infra/images/standins/kafka/bin "$context/bin"
build -f infra/images/standins/kafka/Dockerfile -t apache/kafka:4.2.0 "$context"
build -t redis:7.0.15-bookworm infra/images/standins/redis
build -t haproxy:2.6.12 infra/images/standins/haproxy
build -t prom/prometheus:v2.42.0 infra/images/standins/prometheus
