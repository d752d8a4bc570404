// Package status shows what a [transport.Transport] is doing, to people and to
// programs: which hosts are refused, since when and why, when the next probe is
// due, and what is served instead.
//
// It has no authentication. Who may see the names of your dependencies, and who
// may refuse all calls to one of them, is for the middleware that you put before
// it:
//
//	h := status.New(rt, status.Config{})
//	mux.Handle("/status/", mine(http.StripPrefix("/status", h)))
//	mux.Handle("/control/", admins(http.StripPrefix("/control", status.Control(rt))))
//	server.RegisterOnShutdown(h.Close) // or streams keep Shutdown waiting
//
// An address to listen on does not replace it. One that only this machine or network
// reaches is also reached by the browsers on it, and by any page that they show: its
// owner lets its name resolve to that address, and is of the same origin from then on.
// Where nothing but the address protects, say by what names it is reached, and others
// are refused; addresses and localhost are taken then without being named:
//
//	h := status.New(rt, status.Config{Hosts: []string{"localhost"}})
//	c := status.Control(rt, "localhost")
//
// # Not a health check
//
// An open breaker means that a dependency is ill, and that this process copes. So
// nothing here may become a liveness or readiness probe: a process that is
// restarted since a dependency is down serves nobody, and neither do all of them
// at once. All answers are 200 whatever the state of the breakers, and none says
// whether anything is healthy.
//
// # What there is
//
//   - / is a page for whoever is on call. It is one file, needs nothing else from
//     anywhere, and is live.
//   - /hosts is the state of the hosts, a document [Hosts], those in trouble
//     first. ?state=open,half_open, ?q= (a part of the name), ?host= and ?scheme=
//     (exactly) choose among them; ?limit= (100; up to 10,000) bounds how many are
//     described.
//   - /transitions is a document [Transitions]: the last 256 changes of state of all
//     breakers, the oldest first; ?after= an ID, those since.
//   - /events is a stream of server-sent events: "transition", whose data is a
//     [Transition], as they happen; "hosts", whose data is a document [Hosts]
//     without Policy and Transitions, at first, then within a second of any change and
//     half a second of a transition, so twice a second at most; and "alive", after ten
//     seconds without either. It takes the parameters of /hosts, with a limit of up to
//     100, and resumes after the Last-Event-ID that it is given, or ?after=.
//
// All take GET and HEAD only, change nothing, and never hold up a call: the state is
// looked at twice a second at most, however many are watching. What can be done by
// hand is in a handler of its own, [Control].
//
// # The documents
//
// The types of this package are the shape of the JSON, and are for programs that
// decode it: a field has the name in JSON that it has in Go, with its unit. Fields are
// added, never renamed. Times are RFC 3339 in UTC; durations are numbers of seconds, in
// fields that end in _seconds; rates and shares are from 0 to 1. Ages are told by the clock of the process, so that the reader's does not
// matter. There is no URL but scheme, host and port in any of it, no header and no
// error text of a peer.
package status
