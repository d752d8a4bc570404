package policy

// Cache says how the response cache of a host is used beyond the fallback. By
// default it is a fallback only: while the origin answers, every request goes to
// the origin, and nothing that it answers is changed.
type Cache struct {
	// Off keeps nothing of this host, whatever Fallback allows. Default: false.
	Off bool

	// Fresh reuses answers as RFC 9111 has it: one that is fresh is served without
	// contact, one that is stale is validated, and what a request and an answer say
	// about it is heeded. Default: false.
	Fresh bool
}
