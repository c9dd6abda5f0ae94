package config

// A SecretTrial is one secret that a configuration refers to, as it was found.
type SecretTrial struct {
	// Path is the field that refers to it, Ref the reference as it was written.
	Path, Ref string
	// Bytes is its length; 0 where it could not be read.
	Bytes int
	// Problem says what is wrong with it, and the mend; "": nothing. It holds
	// nothing of the secret.
	Problem string
}

// TrySecrets tries each secret that a file refers to by itself, where [Load]
// refuses them all together. Its error is as [Load]'s of a file that refers to
// none.
func TrySecrets(file string, env Lookup) ([]SecretTrial, error) {
	text, err := readFile(file)
	if err != nil {
		return nil, err
	}
	v := read(file, text)
	if err := joinFaults(v.faults); err != nil {
		return nil, err
	}
	uses, databases := v.refs, v.databases
	trials := make([]SecretTrial, 0, len(uses)+len(databases))
	// One for all, so that an anchor's key that is another's is found.
	seen := newTried()
	for _, use := range uses {
		t := SecretTrial{Path: use.path, Ref: use.ref.String()}
		before := len(v.faults)
		v.trySecret(use, env, seen)
		if len(v.faults) > before {
			t.Problem = v.faults[before].Problem
		}
		if secret, err := use.ref.Resolve(env); err == nil {
			t.Bytes = secret.Len()
			secret.Zero()
		}
		trials = append(trials, t)
	}
	for _, use := range databases {
		if use.db.ref.IsZero() {
			continue
		}
		t := SecretTrial{Path: use.path, Ref: use.db.ref.String()}
		if url, err := use.db.URL(env); err != nil {
			t.Problem = err.Error()
		} else {
			t.Bytes = url.Len()
			url.Zero()
		}
		trials = append(trials, t)
	}
	return trials, nil
}
