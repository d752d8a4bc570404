package transport

// ForgetLatencies gives back the latencies of all hosts, as a sweep does those of idle
// ones.
func ForgetLatencies(t *Transport) {
	for h := range t.hosts.all() {
		h.giveBackLatency()
	}
}
