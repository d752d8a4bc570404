package transport

// keepFailures is how many failures of a host are remembered.
const keepFailures = 32

// failures are the last ones of a host.
type failures struct {
	ring []Failure
	next int // where the next one goes, once ring is full
}

func (f *failures) add(one Failure) {
	if len(f.ring) < keepFailures {
		f.ring = append(f.ring, one)
		return
	}
	f.ring[f.next] = one
	f.next = (f.next + 1) % keepFailures
}

// all is a copy, the oldest first.
func (f *failures) all() []Failure {
	if len(f.ring) == 0 {
		return nil
	}
	all := make([]Failure, 0, len(f.ring))
	return append(append(all, f.ring[f.next:]...), f.ring[:f.next]...)
}
