package faults_test

import (
	"fmt"
	"net/http"
	"time"
)

// A cell of the matrix is one call, one fault, and the point at which it strikes
// the first attempt. Unless the fault lasts, later attempts find a healthy network,
// so that whether a call is repeated shows in how it ends.
type cell struct {
	point   point
	fault   fault
	proto   proto
	request request
	lasting bool
}

func (c cell) String() string {
	name := fmt.Sprintf("%s/%s/%s/%s", c.point, c.fault, c.proto, c.request)
	if c.lasting {
		name += "/lasting"
	}
	return name
}

// cells are all there could be.
func cells() (all []cell) {
	for _, lasting := range []bool{false, true} {
		for _, p := range points {
			for _, f := range faults {
				for _, pr := range protos {
					for _, q := range requests {
						all = append(all, cell{p, f, pr, q, lasting})
					}
				}
			}
		}
	}
	return all
}

// point is how far a call has come when the fault strikes.
type point string

const (
	connecting  point = "connect"
	handshaking point = "TLS"
	tunnelling  point = "CONNECT"     // the exchange with a proxy
	writing     point = "write"       // part of the request body has arrived
	awaiting    point = "header wait" // the request has arrived
	receiving   point = "body"        // half of the response body has arrived
	idling      point = "idle"        // before the call, on the connection that it would use
	reusing     point = "idle, used"  // on such a connection, before the request has arrived
)

var points = []point{connecting, handshaking, tunnelling, writing, awaiting, receiving, idling, reusing}

// fault is what the network does.
type fault string

const (
	late      fault = "delay"    // within all limits
	tooLate   fault = "too late" // a delay beyond them
	blackHole fault = "black hole"
	fin       fault = "FIN"
	rst       fault = "RST"
	garbage   fault = "garbage"
)

var faults = []fault{late, tooLate, blackHole, fin, rst, garbage}

// proto is what is spoken.
type proto string

const (
	plain     proto = "http/1.1"
	encrypted proto = "https/1.1"
	h2        proto = "h2"
)

var protos = []proto{plain, encrypted, h2}

// request is what is asked. Where its body is written when the fault strikes, it
// is large, and else small.
type request string

const (
	get         request = "GET"
	post        request = "POST" // with GetBody, as http.NewRequest gives it
	putAgain    request = "PUT+GetBody"
	putStreamed request = "PUT-streamed" // without GetBody
)

var requests = []request{get, post, putAgain, putStreamed}

func (r request) method() string {
	switch r {
	case get:
		return http.MethodGet
	case post:
		return http.MethodPost
	}
	return http.MethodPut
}

const (
	limit   = 600 * time.Millisecond // of each phase
	attempt = 6 * limit              // Timeout.Attempt
	short   = limit / 8              // a delay within limits
	long    = 20 * limit             // a delay beyond all of them

	small      = 1 << 10
	large      = 3 << 20   // more than all buffers on the way, and than twice the window of an HTTP/2 server
	replayBody = 64 << 10  // between the two
	arrived    = 128 << 10 // of a large one when the fault strikes, more than that
)

func (c cell) bodySize() int {
	switch {
	case c.request == get:
		return 0
	case c.point == writing:
		return large
	}
	return small
}

// skipped says why there is no such cell; empty if there is one.
func (c cell) skipped() string {
	switch {
	case c.lasting && c.fault == late:
		return "what is within limits the first time is so the second time"
	case c.lasting && !c.unsent():
		return "a fault that lasts strikes the second attempt at an earlier point, which has cells of its own"
	case c.point == connecting && (c.fault == fin || c.fault == garbage):
		return "who has no connection gets no FIN, and no bytes"
	case c.point == handshaking && c.proto == plain:
		return "http has no handshake"
	case c.point == tunnelling && c.proto == plain:
		return "http goes through a proxy without CONNECT"
	case c.point == writing && c.request == get:
		return "a request without a body is written at once"
	case c.point == reusing && (c.fault == late || c.fault == tooLate || c.fault == blackHole):
		return "the same as while it was idle: silence is noticed only by those who wait"
	}
	return ""
}
