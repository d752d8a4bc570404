#!/bin/sh
# Runs every fuzz target of the module for the time given.
set -eu
time=$1
go list -f '{{.Dir}} {{.ImportPath}}' ./... | while read -r dir pkg; do
	for target in $(grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go 2>/dev/null | sed 's/^func //' | sort -u); do
		echo "== $pkg $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$pkg" </dev/null
	done
done
