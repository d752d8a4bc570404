package scene

import (
	"net"
	"net/http"

	page "github.com/watertight-go/watertight/transport/status"
)

// mountPage adds the status page of the stack, and its control by hand, to mux. They are
// reached under the name in addr too, and under no other but localhost.
func (r *rig) mountPage(mux *http.ServeMux, addr string) {
	name, _, _ := net.SplitHostPort(addr)
	hosts := []string{"localhost", name}
	r.mounted = page.New(r.stack, page.Config{Name: "the demo's assembler", Hosts: hosts})
	mux.Handle("GET /page/", http.StripPrefix("/page", r.mounted))
	control := http.StripPrefix("/control", page.Control(r.stack, hosts...))
	mux.Handle("POST /control/{action}", control)
	mux.Handle("POST /control/{action}/{host}", control)
}

// servePage serves the status page of the stack, on a free loopback port.
func (r *rig) servePage() (err error) {
	h := page.New(r.stack, page.Config{Name: "the demo's assembler", Hosts: []string{"localhost"}})
	if r.page, err = listen(h); err == nil {
		r.page.RegisterOnShutdown(h.Close) // Shutdown would wait for its streams
	}
	return err
}

// tellAddresses says where the run can be watched.
func (r *rig) tellAddresses() {
	if r.page != nil {
		r.view.note("status page:    http://%s/", r.page.host)
	}
	r.export.tell(r.view)
}
