#!/usr/bin/env bash
# What the local world needs of the machine. `setup.sh base` installs git, make and Python's venv where they are missing
# (Debian, Ubuntu), `setup.sh system` Java, Maven, Redis, RabbitMQ, Prometheus and HAProxy, `setup.sh node` what `.ci/node`
# needs, `setup.sh browser` Chromium for the tests of the report's pages; `setup.sh jars FOLDER [NAME …]` fetches the jars of kafka and spark (its Kafka connector), or those named, into FOLDER,
# with Maven in a container where this machine has none.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
policy=/usr/sbin/policy-rc.d
forbidden=

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 2; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

missing_base() {
    command -v git >/dev/null || echo git
    command -v make >/dev/null || echo make
    python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || echo python3-venv
}

missing_system() {
    command -v java >/dev/null || echo java
    command -v mvn >/dev/null || echo maven
    command -v redis-server >/dev/null || echo redis-server
    [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || echo rabbitmq-server
    command -v prometheus >/dev/null || echo prometheus
    [ -x /usr/sbin/haproxy ] || command -v haproxy >/dev/null || echo haproxy
}

missing_browser() {
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || echo chromium
}

missing_node() {
    command -v containerd >/dev/null || echo containerd
    command -v runc >/dev/null || echo runc
    [ -x /usr/lib/cni/bridge ] || echo containernetworking-plugins
    command -v iptables >/dev/null || echo iptables
    [ -x /bin/busybox ] || echo busybox-static
    command -v zstd >/dev/null || echo zstd
    command -v openssl >/dev/null || echo openssl
    command -v ip >/dev/null || echo iproute2
    command -v dockerd >/dev/null || echo docker.io
    command -v debootstrap >/dev/null || echo debootstrap
}

# Debian starts what it installs as system services; while this policy is in place it does not. The machine's own policy,
# if it has one, waits beside it; one of ours that a killed setup left is not taken for it.
forbid_services() {
    forbidden=yes
    if [ -e "$policy" ] && ! grep -q penstock "$policy"; then as_root mv "$policy" "$policy.before-penstock"; fi
    printf '#!/bin/sh\n# Temporary, by setup.sh of penstock.\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
}

restore_services() {
    if [ -z "$forbidden" ]; then return; fi
    as_root rm -f "$policy"
    if [ -e "$policy.before-penstock" ]; then as_root mv "$policy.before-penstock" "$policy"; fi
}

apt() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600 "$@" </dev/null
}

# The lock on the package lists knows no time-out of its own.
update_lists() {
    local attempt
    for attempt in $(seq 1 60); do
        if apt update >"$log" 2>&1; then return; fi
        grep -q 'Could not get lock' "$log" || break
        if [ "$attempt" -eq 1 ]; then say "another apt is at work, waiting for it"; fi
        sleep 5
    done
    tail -n 20 "$log" >&2
    die "apt-get update failed, see above"
}

# Kafka 4.2 and Spark 4.0 both run on Java 17 and 21; which of them there is depends on the release.
java_package() {
    local package
    for package in openjdk-17-jre-headless openjdk-21-jre-headless; do
        if LC_ALL=C apt-cache policy "$package" | grep -q 'Candidate: [0-9]'; then echo "$package"; return; fi
    done
    die "neither openjdk-17 nor openjdk-21 is in this release: install Java 17 or 21 yourself, then run this again"
}

# provide NAME: install what missing_NAME lists.
provide() {
    local missing packages
    missing=$("missing_$1" | tr '\n' ' ')
    if [ -z "$missing" ]; then return; fi
    command -v apt-get >/dev/null || die "missing: ${missing}(there is no apt-get: install them, then run this again)"
    if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
        die "missing: ${missing}(neither root nor sudo: have them installed, then run this again)"
    fi
    say "installing $missing"
    log=$(mktemp)
    trap 'restore_services; rm -f "$log"' EXIT
    update_lists
    packages=$missing
    case "$missing" in java\ *) packages=${missing/java /$(java_package) } ;; esac
    forbid_services
    # shellcheck disable=SC2086  # one word a package
    apt install -y --no-install-recommends $packages >"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        die "apt-get install $packages failed, see above"
    }
    missing=$("missing_$1" | tr '\n' ' ')
    [ -z "$missing" ] || die "installed, but still not to be found: $missing"
}

# maven FILE GOAL OPTIONS: in a container where there is no mvn; pom and folder of the jars are mounted where they are, with
# the label that SELinux (Fedora) asks for.
maven() {
    local file=$1
    shift
    if command -v mvn >/dev/null; then
        mvn --batch-mode --quiet --file "$file" "$@"
    else
        docker run --rm --user "$(id -u):$(id -g)" --env HOME=/tmp --volume "$here/jars:$here/jars:ro,z" \
            --volume "$target:$target:z" "${MAVEN_IMAGE:-maven:3.9-eclipse-temurin-17}" \
            mvn --batch-mode --quiet -Dmaven.repo.local=/tmp/repository --file "$file" "$@"
    fi
}

jars() {
    local target what staging
    if ! command -v docker >/dev/null; then
        command -v java >/dev/null || die "no java on PATH: install Java 17 or 21 (Debian: openjdk-17-jre-headless)"
        command -v mvn >/dev/null || die "no mvn on PATH: install Maven (Debian: maven), or Docker"
    fi
    mkdir -p "$1"
    target=$(cd "$1" && pwd)
    shift
    [ $# -gt 0 ] || set -- kafka spark
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    for what in "$@"; do
        if [ "$target/$what/.complete" -nt "$here/jars/$what/pom.xml" ]; then continue; fi
        say "fetching the jars of $what"
        staging=$(mktemp -d "$target/.$what.XXXXXX")
        maven "$here/jars/$what/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
            -DincludeScope=runtime -DoutputDirectory="$staging" >"$log" 2>&1 </dev/null || {
            rm -rf "$staging"
            tail -n 20 "$log" >&2
            die "Maven could not fetch the jars of $what, see above"
        }
        touch "$staging/.complete"
        rm -rf "${target:?}/$what"
        mv "$staging" "$target/$what"
    done
}

case "${1:-}" in
    base | system | node | browser) provide "$1" ;;
    jars) shift && jars "${@:?usage: setup.sh jars FOLDER [NAME …]}" ;;
    *) die "usage: setup.sh base | setup.sh system | setup.sh node | setup.sh browser | setup.sh jars FOLDER [NAME …]" ;;
esac
