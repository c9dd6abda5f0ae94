package runner

import "context"

// OpenPlain opens a runner as on a host without namespaces.
func OpenPlain(ctx context.Context, cfg Config) (*Runner, error) {
	cfg.Sandbox = BestEffort
	r, err := Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	b := r.backend.(*linuxBackend)
	n := b.nursery
	n.makers.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.spare != nil {
		if err := n.spare.discard(); err != nil {
			return nil, err
		}
		n.spare = nil
	}
	b.namespaced, n.attr, n.early = false, plain, false
	return r, nil
}
