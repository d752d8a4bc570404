#!/bin/sh
# Runs every fuzz target of the module for the time given, and fails at the end if
# one of them failed.
#
# Some clean runs end with "context deadline exceeded" and exit code 1, when the time
# is over while a worker is busy: https://go.dev/issue/75804. That alone is no failure:
# nothing else may have been printed, and no input may have been written.
set -eu
time=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

inputs() { find "$1/testdata/fuzz" -type f 2>/dev/null | sort; }

go list -f '{{.Dir}} {{.ImportPath}}' ./... >"$tmp/packages"
failed=
while read -r dir pkg; do
	for target in $(grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go 2>/dev/null | sed 's/^func //' | sort -u); do
		echo "== $pkg $target"
		inputs "$dir" >"$tmp/before"
		rc=0
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$pkg" </dev/null >"$tmp/out" 2>&1 || rc=$?
		cat "$tmp/out"
		[ "$rc" -ne 0 ] || continue
		inputs "$dir" >"$tmp/after"
		if [ "$rc" -eq 1 ] && grep -q '^    context deadline exceeded$' "$tmp/out" && cmp -s "$tmp/before" "$tmp/after" &&
			! grep -qvE "^fuzz: elapsed: |^--- FAIL: $target \(|^    context deadline exceeded\$|^FAIL|^exit status 1\$|^\$" "$tmp/out"; then
			echo "== $target: no failure, the time was over"
			continue
		fi
		failed="$failed $target($rc)"
	done
done <"$tmp/packages"
[ -z "$failed" ] || { echo "fuzz: failed:$failed" >&2; exit 1; }
