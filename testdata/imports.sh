#!/bin/sh
# What may import what: the core never reaches OpenTelemetry, policy needs the
# standard library alone, and go.mod stays small.
set -eu
module=$(go list -m)
fail=0
bad=$(go list -deps ./policy ./cache ./transport | grep opentelemetry || true)
[ -z "$bad" ] || { echo "imports: the core reaches $bad" >&2; fail=1; }
bad=$(go list -deps ./policy | grep -E '^[^/]*\.[^/]*/' | grep -v "^$module/policy$" || true)
[ -z "$bad" ] || { echo "imports: policy imports $bad" >&2; fail=1; }
bad=$(go list -deps ./cache | grep -E '^[^/]*\.[^/]*/' | grep -v "^$module/cache$" || true)
[ -z "$bad" ] || { echo "imports: cache imports $bad" >&2; fail=1; }
direct=$(go mod edit -json | grep -c '"Path"' || true)
indirect=$(go mod edit -json | grep -c '"Indirect": true' || true)
direct=$((direct - indirect - 1))
[ "$direct" -le 9 ] || { echo "imports: go.mod has $direct direct requirements, want at most 9" >&2; fail=1; }
[ "$fail" = 0 ] && echo "imports: ok ($direct direct requirements)"
exit "$fail"
