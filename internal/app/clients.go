package app

// clients are the clients of one provider's API, one for each identity:
// whoever has the same shares connections, and is counted as one. The zero
// value has none yet.
type clients[C interface{ Close() }] struct{ known map[string]C }

// of returns the client of an identity. It is made at its first use, and
// closed with the controller.
func (s *clients[C]) of(a *App, identity string, open func() (C, error)) (C, error) {
	if c, ok := s.known[identity]; ok {
		return c, nil
	}
	c, err := open()
	if err != nil {
		return c, err
	}
	a.opened(func() error { c.Close(); return nil })
	if s.known == nil {
		s.known = map[string]C{}
	}
	s.known[identity] = c
	return c, nil
}
