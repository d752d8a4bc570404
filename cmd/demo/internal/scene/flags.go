package scene

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// flags reads a command line and keeps every problem, where package flag stops
// at the first.
type flags struct {
	set      *flag.FlagSet
	problems []string
	given    map[string]string // what was given, and can be read
}

func newFlags(command string) *flags {
	f := &flags{set: flag.NewFlagSet(command, flag.ContinueOnError), given: map[string]string{}}
	f.set.SetOutput(io.Discard) // report writes
	return f
}

// problem notes what is wrong with a flag, and what would be right.
func (f *flags) problem(name, value, want string) {
	f.problems = append(f.problems, fmt.Sprintf("-%s %q: must be %s", name, value, want))
}

// value defines a flag that is read by read, which answers false for a value that
// is not what is wanted.
func (f *flags) value(name, want string, read func(string) bool) {
	f.set.Func(name, "", func(s string) error {
		if !read(s) {
			f.problem(name, s, want)
			return nil
		}
		f.given[name] = s
		return nil
	})
}

// boolean defines a flag that is on when it is given.
func (f *flags) boolean(name string, to *bool) {
	f.set.BoolFunc(name, "", func(s string) error {
		on, err := strconv.ParseBool(s)
		if err != nil {
			f.problem(name, s, "true or false, or the flag alone")
		}
		*to = on
		return nil
	})
}

// variable defines a flag for a variable of one of the types that knobs have.
func (f *flags) variable(name string, to any) {
	switch to := to.(type) {
	case *time.Duration:
		f.value(name, "a duration with a unit, such as 250ms or 3s", func(s string) (ok bool) {
			d, err := time.ParseDuration(s)
			*to = d
			return err == nil
		})
	case *int:
		f.value(name, "a whole number", func(s string) bool {
			n, err := strconv.Atoi(s)
			*to = n
			return err == nil
		})
	case *int64:
		f.value(name, "a whole number", func(s string) bool {
			n, err := strconv.ParseInt(s, 10, 64)
			*to = n
			return err == nil
		})
	case *float64:
		f.value(name, "a number", func(s string) bool {
			x, err := strconv.ParseFloat(s, 64)
			*to = x
			return err == nil
		})
	default:
		panic(fmt.Sprintf("flag %s: no such type: %T", name, to))
	}
}

// errHelp is the error of a command line that asked for help.
var errHelp = flag.ErrHelp

// parse reads the command line; what it finds wrong is in problems.
func (f *flags) parse(args []string) error {
	err := f.set.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return errHelp
	case err != nil:
		name, known := strings.CutPrefix(err.Error(), "flag provided but not defined: ")
		if !known {
			f.problems = append(f.problems, err.Error())
			break
		}
		f.problems = append(f.problems, name+": no such flag: must be one of those that "+f.set.Name()+" -h lists")
	case f.set.NArg() > 0:
		f.problems = append(f.problems, fmt.Sprintf("%q: no such argument: %s takes flags alone, see %[2]s -h", f.set.Arg(0), f.set.Name()))
	}
	return nil
}

// report writes the problems, and returns the exit code for them.
func (f *flags) report(w io.Writer) int {
	for _, p := range f.problems {
		fmt.Fprintf(w, "%s: %s\n", f.set.Name(), p)
	}
	return exitUsage
}

// address checks where to listen: on loopback, unless exposed says that others
// may come in.
func (f *flags) address(name, addr string, exposed bool) {
	host, port, err := net.SplitHostPort(addr)
	if _, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil {
		f.problem(name, addr, "host:port, such as 127.0.0.1:8080")
		return
	}
	if ip, err := netip.ParseAddr(host); exposed || host == "localhost" || err == nil && ip.Unmap().IsLoopback() {
		return
	}
	f.problem(name, addr, "a loopback address, such as 127.0.0.1:"+port+"; -expose lets others in")
}
