package transporttest

import (
	"net"
	"testing"
	"time"
)

// A lane that is served late, since the machine is busy, is as fast over all.
func TestRelayMakesUpForTheTimeThatItsMachineLost(t *testing.T) {
	const portion, every = 10, 20 * time.Millisecond
	r := &Relay{}
	start := time.Now()
	send := func(late time.Duration) (sent int, took time.Duration) {
		l := &lane{dst: &net.TCPConn{}, flow: &Flow{relay: r, portion: portion, every: every}, queue: []*piece{{at: start, data: make([]byte, 1000)}}}
		now := start
		for len(l.queue[0].data) > 0 {
			p, data, wait := l.due(now)
			if p == nil {
				now = now.Add(wait + late)
				continue
			}
			sent += len(data)
			p.data = p.data[len(data):]
		}
		return sent, now.Sub(start)
	}
	exact := every * (1000/portion - 1)
	if sent, took := send(0); sent != 1000 || took != exact {
		t.Errorf("%d bytes in %v, want %v", sent, took, exact)
	}
	if _, took := send(70 * time.Millisecond); took < exact || took > exact+70*time.Millisecond {
		t.Errorf("served late: %v, want %v and as late", took, exact)
	}
	if _, took := send(2 * catchUp); took < 10*exact {
		t.Errorf("served much too late: %v: what is due after an hour should not come at once", took)
	}
}
