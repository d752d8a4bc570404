// Package scene is the demo: one slow dependency, a service that needs it, and what
// becomes of the service without and with the stack. Its commands differ only in
// the exporters that they bring: cmd/demo has none, which keeps their modules out of
// the requirements of watertight, and cmd/demo/exporting has those of OpenTelemetry.
package scene
