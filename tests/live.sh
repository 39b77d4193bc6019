#!/usr/bin/env bash
# The live tests. Most of their time is waiting: two suites run side by side, each with services of its own, and then those
# that measure, which want the machine for themselves.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

half=(tests/experiments tests/pipelines tests/producers)
log=$(mktemp)
interrupted=
trap 'rm -f "$log"' EXIT
trap 'interrupted=yes' INT TERM # a suite that is interrupted stops its services, which is waited for
failed=0

# count CODE: of a suite; 5 is one without tests.
count() { [ "$1" -eq 0 ] || [ "$1" -eq 5 ] || failed=$1; }

.venv/bin/pytest -m "live and not alone" "${half[@]}" </dev/null >"$log" 2>&1 &
beside=$!
.venv/bin/pytest -m "live and not alone" "${half[@]/#/--ignore=}"
count $?
echo "test-live: waiting for ${half[*]}, which run beside these"
while true; do
    wait "$beside"
    code=$?
    if [ "$code" -le 128 ] || ! kill -0 "$beside" 2>/dev/null; then break; fi # else it was the signal that ended waiting
done
count "$code"
cat "$log"
if [ -n "$interrupted" ] || [ "$failed" -eq 2 ]; then exit 2; fi # as pytest says that it was interrupted
.venv/bin/pytest -m "live and alone"
count $?
exit "$failed"
