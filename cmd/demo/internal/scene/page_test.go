package scene

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestTheStacksRunSaysWhereItsStatusPageIs(t *testing.T) {
	var out bytes.Buffer
	r, err := newRig(small(), &view{out: &out}, true, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.tellAddresses()
	m := regexp.MustCompile(`status page:    (http://127\.0\.0\.1:\d+/)\n`).FindStringSubmatch(out.String())
	if m == nil || strings.Contains(out.String(), "metrics") {
		t.Fatal(out.String())
	}
	page, err := http.Get(m[1])
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(page.Body)
	page.Body.Close()
	if page.StatusCode != http.StatusOK || !strings.HasPrefix(page.Header.Get("Content-Type"), "text/html") || !bytes.Contains(body, []byte("watertight")) {
		t.Errorf("%s %s", page.Status, body)
	}

	// It calls the dependencies by their names.
	if mission, err := http.Get("http://" + r.service.server.host + "/mission"); err != nil || mission.StatusCode != http.StatusOK {
		t.Fatal(mission, err)
	}
	hosts, err := http.Get(m[1] + "hosts")
	if err != nil {
		t.Fatal(err)
	}
	body, _ = io.ReadAll(hosts.Body)
	hosts.Body.Close()
	for _, name := range names {
		if !bytes.Contains(body, []byte(`"host":"`+name+`:80"`)) {
			t.Errorf("%s is missing in %s", name, body)
		}
	}

	// Whoever watches does not hold up the end of the run.
	events, err := http.Get(m[1] + "events")
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	start := time.Now()
	r.close()
	if took := time.Since(start); took > 900*time.Millisecond {
		t.Errorf("took %v to stop", took)
	}
}
