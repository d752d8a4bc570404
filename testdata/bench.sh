#!/bin/sh
# Benchmarks the working tree beside another commit, interleaved, through benchstat: of a
# machine that does nothing else.
set -eu
base=$1 bench=$2
here=$(pwd)
tree=$(mktemp -d)
trap 'git worktree remove --force "$tree/base" >/dev/null 2>&1; rm -rf "$tree"' EXIT
git worktree add --quiet --detach "$tree/base" "$base"
packages=
for pkg in transport cache otel; do
	if ! [ -d "$tree/base/$pkg" ]; then
		echo "bench: $base has no $pkg" >&2
		continue
	fi
	echo "bench: building $pkg, here and at $base" >&2
	(cd "$tree/base" && go test -c -o "$tree/$pkg.old" "./$pkg")
	go test -c -o "$tree/$pkg.new" "./$pkg"
	if "$tree/$pkg.new" -test.list "${bench%%/*}" | grep -q '^Benchmark'; then
		packages="$packages $pkg"
	fi
done
if [ -z "$packages" ]; then
	echo "bench: no benchmark matches BENCH='$bench'" >&2
	exit 1
fi
touch "$tree/old.txt" "$tree/new.txt"
for round in 1 2 3 4 5 6; do
	echo "bench: round $round of 6" >&2
	for pkg in $packages; do
		for side in old new; do
			"$tree/$pkg.$side" -test.run '^$' -test.bench "$bench" -test.benchmem -test.benchtime 0.3s >>"$tree/$side.txt"
		done
	done
done
cd "$here"
if ! grep -q '^Benchmark' "$tree/new.txt"; then
	echo "bench: no benchmark matches BENCH='$bench'" >&2
	exit 1
fi
go tool -modfile=tools/go.mod benchstat "$base=$tree/old.txt" "tree=$tree/new.txt"
