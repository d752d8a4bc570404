#!/bin/sh
# Statement coverage per package of a profile; fails below 90 %.
set -eu
awk -v least=90 'NR > 1 {
	split($1, at, ":"); sub("/[^/]*$", "", at[1]); n = at[1]
	key = $1; stmts[key] = $2; pkg[key] = n; if ($3 > 0) hit[key] = 1
} END {
	for (k in stmts) { all[pkg[k]] += stmts[k]; if (k in hit) got[pkg[k]] += stmts[k] }
	for (p in all) {
		share = 100 * got[p] / all[p]
		printf "%-55s %5.1f %%\n", p, share
		if (share < least) bad = 1
	}
	exit bad
}' "$1"
