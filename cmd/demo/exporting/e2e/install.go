package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// parts are the programs that are played with, by the packages of Debian that have
// them.
var parts = []struct{ program, pkg string }{
	{"prometheus", "prometheus"},
	{"promtool", "prometheus"},
	{"prometheus-alertmanager", "prometheus-alertmanager"},
	{"chromium", "chromium"},
}

// errMissing is that of parts that are missing and may not be installed.
var errMissing = errors.New("what it needs is missing")

// install installs the parts that are missing.
func install(ctx context.Context) error {
	programs, packages := lacking()
	if len(programs) == 0 {
		return nil
	}
	missing := strings.Join(programs, ", ")
	by := "apt-get install " + strings.Join(packages, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%w: %s; there is no apt-get here (on Debian: %s)", errMissing, missing, by)
	}
	var sudo []string
	if os.Geteuid() != 0 {
		if exec.CommandContext(ctx, "sudo", "-n", "true").Run() != nil {
			return fmt.Errorf("%w: %s; this user may not install them: %s", errMissing, missing, by)
		}
		sudo = []string{"sudo", "-n"}
	}
	fmt.Printf("e2e: installing %s\n", strings.Join(packages, ", "))
	// The packages would start their services: a program of this name forbids it. It is
	// removed whatever the end, for which apt-get is waited for.
	const forbid = `set -e
if [ ! -e /usr/sbin/policy-rc.d ]; then
	trap 'rm -f /usr/sbin/policy-rc.d' EXIT
	trap 'exit 1' HUP INT TERM
	printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
	chmod 755 /usr/sbin/policy-rc.d
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends -o DPkg::Lock::Timeout=60 "$@"
`
	args := append(sudo, "sh", "-c", forbid, "sh")
	cmd := exec.CommandContext(ctx, args[0], append(args[1:], packages...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // which an interrupt at the terminal does not reach
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 2 * time.Minute
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", by, err, tail(string(out), 20))
	}
	if programs, _ := lacking(); len(programs) > 0 {
		return fmt.Errorf("%s: done, but PATH leads to no %s", by, strings.Join(programs, ", "))
	}
	return nil
}

// lacking are the programs that are missing, and the packages that have them.
func lacking() (programs, packages []string) {
	for _, p := range parts {
		if _, err := exec.LookPath(p.program); err == nil {
			continue
		}
		programs = append(programs, p.program)
		if !slices.Contains(packages, p.pkg) {
			packages = append(packages, p.pkg)
		}
	}
	return programs, packages
}

// tail is the last lines of a text.
func tail(s string, lines int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(all[max(len(all)-lines, 0):], "\n")
}
