#!/bin/sh
# Benchmarks the working tree beside another commit, interleaved, through benchstat.
set -eu
base=$1 bench=$2
here=$(pwd)
tree=$(mktemp -d)
trap 'git worktree remove --force "$tree/base" >/dev/null 2>&1; rm -rf "$tree"' EXIT
git worktree add --detach "$tree/base" "$base" >/dev/null
for pkg in transport cache otel; do
	(cd "$tree/base" && go test -c -o "$tree/$pkg.old" "./$pkg")
	go test -c -o "$tree/$pkg.new" "./$pkg"
	for _ in 1 2 3 4 5 6; do
		for side in old new; do
			"$tree/$pkg.$side" -test.run '^$' -test.bench "$bench" -test.benchmem -test.benchtime 0.3s >>"$tree/$side.txt"
		done
	done
done
cd "$here"
go tool -modfile=tools/go.mod benchstat "$base=$tree/old.txt" "tree=$tree/new.txt"
