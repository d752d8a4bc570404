package scene

import page "github.com/watertight-go/watertight/transport/status"

// servePage serves the status page of the stack, on a free loopback port.
func (r *rig) servePage() (err error) {
	h := page.New(r.stack, page.Config{Name: "the demo's assembler"})
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
