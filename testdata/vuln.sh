#!/bin/sh
# govulncheck, where its database can be reached; elsewhere it says that it could not
# run. A vulnerability that is found fails.
set -u
out=$(go tool -modfile=tools/go.mod govulncheck ./... 2>&1)
rc=$?
if [ $rc -ne 0 ] && echo "$out" | grep -q 'fetching vulnerabilities'; then
	echo "govulncheck: not run, its database cannot be reached from here"
	exit 0
fi
echo "$out" | tail -n 20
exit $rc
