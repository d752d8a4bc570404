package transporttest

import "sync"

// script says which step a request takes.
type script struct {
	mu   sync.Mutex // guards pick
	pick func(Hit) Step
}

// Script sets what happens from now on: each request takes the next step, and
// when there are no more, the last one over and over. Without steps every request
// is answered with 200.
func (s *script) Script(steps ...Step) {
	var mu sync.Mutex
	next := 0
	s.ScriptFunc(func(Hit) Step {
		mu.Lock()
		defer mu.Unlock()
		if len(steps) == 0 {
			return Step{}
		}
		step := steps[min(next, len(steps)-1)]
		next++
		return step
	})
}

// ScriptFunc sets what happens from now on: pick chooses the step of each request,
// whose body is not read yet. Calls of pick may overlap.
func (s *script) ScriptFunc(pick func(Hit) Step) {
	s.mu.Lock()
	s.pick = pick
	s.mu.Unlock()
}

func (s *script) step(h Hit) Step {
	s.mu.Lock()
	pick := s.pick
	s.mu.Unlock()
	if pick == nil {
		return Step{}
	}
	return pick(h)
}
