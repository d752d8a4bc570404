package scene

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
)

func TestDurationsAreShort(t *testing.T) {
	for _, tt := range []struct {
		d    time.Duration
		want string
	}{
		{0, "0 ms"}, {30 * time.Millisecond, "30 ms"}, {2381 * time.Millisecond, "2.38 s"}, {12340 * time.Millisecond, "12.3 s"}, {-time.Second, "-1.00 s"},
	} {
		if got := short(tt.d); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.d, got, tt.want)
		}
	}
	for _, tt := range []struct {
		least, most time.Duration
		want        string
	}{
		{0, 3300 * time.Millisecond, "<= 3.3 s"},
		{2 * time.Second, 3 * time.Second, "2 to 3 s"},
		{200 * time.Millisecond, 300 * time.Millisecond, "200 to 300 ms"},
		{900 * time.Millisecond, 1140 * time.Millisecond, "0.9 to 1.14 s"},
	} {
		if got := span(tt.least, tt.most); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestThePictureShowsWorkersOverTime(t *testing.T) {
	r := record{start: at(0), injected: at(2), lifted: at(6), step: 250 * time.Millisecond,
		samples: []int{2, 2, 1, 2, 2, 2, 2, 2, 50, 50, 100, 100, 150, 200, 200, 200, 200, 200}}
	want := strings.Join([]string{
		"  200 ┤      ███",
		"      │      ███",
		"      │     ████",
		"    0 ┤▁▁▁▁█████",
		"           └ fault └ lifted",
		"",
	}, "\n")
	if got := r.picture(look{unicode: true}, 200); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	ascii := r.picture(look{}, 200)
	for _, c := range ascii {
		if c > 126 {
			t.Fatalf("%q in\n%s", c, ascii)
		}
	}
}

func TestTheTableIsSideBySideAndNarrow(t *testing.T) {
	s := scene()
	bad := goodBare()
	bad.peak = 12
	for _, l := range []look{{unicode: true}, {}} {
		got := table(l, claims(s, bad, goodStack()))
		lines := strings.Split(strings.TrimSpace(got), "\n")
		if len(lines) != len(rows)+2 {
			t.Errorf("%d lines:\n%s", len(lines), got)
		}
		for _, line := range lines {
			if n := len([]rune(line)); n > 90 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
		ok, no := "ok", "NO"
		if l.unicode {
			ok, no = "✓", "✗"
		}
		if strings.Count(got, ok) != 20 || strings.Count(got, no) != 1 {
			t.Errorf("one claim of 21 does not hold:\n%s", got)
		}
	}
}

func TestTheLookFollowsTheEnvironment(t *testing.T) {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG", "NO_COLOR"} {
		t.Setenv(name, "")
	}
	t.Setenv("TERM", "xterm")
	device, err := os.Open(os.DevNull) // a character device, as a terminal is
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	if l := lookOf(&bytes.Buffer{}); l.terminal || l.colour || !l.unicode {
		t.Errorf("buffer: %+v", l)
	}
	if l := lookOf(device); !l.terminal || !l.colour || l.red("x") == "x" {
		t.Errorf("terminal: %+v", l)
	}
	t.Setenv("NO_COLOR", "1")
	if l := lookOf(device); !l.terminal || l.colour || l.red("x") != "x" {
		t.Errorf("NO_COLOR: %+v", l)
	}
	t.Setenv("TERM", "dumb")
	if l := lookOf(device); l.terminal {
		t.Errorf("TERM=dumb: %+v", l)
	}
	t.Setenv("LANG", "de_DE.ISO-8859-1")
	if l := lookOf(device); l.unicode {
		t.Errorf("LANG: %+v", l)
	}
	t.Setenv("LC_ALL", "en_GB.utf8")
	if l := lookOf(device); !l.unicode {
		t.Errorf("LC_ALL: %+v", l)
	}
}

func TestALiveLineGivesWayToNotes(t *testing.T) {
	var out bytes.Buffer
	v := &view{out: &out, look: look{terminal: true, unicode: true}}
	v.renew("one")
	v.renew("two")
	v.note("it %s", "happens")
	v.renew("three")
	v.end()
	if want := "\r\x1b[Kone\r\x1b[Ktwo\r\x1b[K  ▸ it happens\n\r\x1b[Kthree\n"; out.String() != want {
		t.Errorf("%q", &out)
	}
	out.Reset()
	v = &view{out: &out}
	v.renew("one")
	v.note("two")
	if want := "one\n  > two\n"; out.String() != want {
		t.Errorf("%q", &out)
	}
	(&view{}).note("nothing is shown")
}
