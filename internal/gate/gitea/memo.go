package gitea

import "sync"

// maxRemembered bounds what a memo holds; when there is more it begins anew.
const maxRemembered = 4096

// A memo remembers what can't change, so that it is asked for once. The zero
// value remembers nothing yet. It is safe for concurrent use.
type memo[K comparable, V any] struct {
	mu sync.Mutex
	of map[K]V // guarded by mu
}

func (m *memo[K, V]) known(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok := m.of[key]
	return value, ok
}

func (m *memo[K, V]) add(key K, value V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil || len(m.of) >= maxRemembered {
		m.of = map[K]V{}
	}
	m.of[key] = value
}
