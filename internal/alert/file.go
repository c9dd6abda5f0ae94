package alert

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/fencepost/fencepost/internal/durable"
)

// ErrCorrupt: the stored alerts don't verify. They can be moved away: alerts
// whose cause is still there are raised again.
var ErrCorrupt = errors.New("stored alerts are corrupt; move the file away")

const (
	fileName   = "alerts"
	fileHeader = "fencepost.alerts/v1 "
	headerLen  = len(fileHeader) + 2*sha256.Size + 1
	// rowBytes bounds a row as it is written; a name takes 110 of them.
	rowBytes = 320
)

// A storedAlert is a row of the file.
type storedAlert struct {
	Code    Code      `json:"code"`
	Subject Subject   `json:"subject"`
	Status  string    `json:"status"`
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until,omitzero"`
	Count   int64     `json:"count"`
}

type storedBook struct {
	Alerts []storedAlert `json:"alerts"`
}

// write replaces the file if the rows changed. The caller holds writing.
func (b *Book) write() error {
	b.mu.Lock()
	if !b.unsaved {
		b.mu.Unlock()
		return nil
	}
	rows := storedBook{Alerts: make([]storedAlert, 0, len(b.open)+len(b.resolved))}
	for _, a := range b.open {
		rows.Alerts = append(rows.Alerts, stored(a))
	}
	for _, a := range b.resolved {
		rows.Alerts = append(rows.Alerts, stored(a))
	}
	b.unsaved = false
	b.mu.Unlock()
	text, err := json.Marshal(rows)
	if err == nil {
		err = durable.WriteFile(b.fsys, fileName, sealed(append(text, '\n')))
	}
	if err != nil {
		b.mu.Lock()
		b.unsaved = true
		b.mu.Unlock()
		return fmt.Errorf("write alerts: %w", err)
	}
	return nil
}

// sealed puts the header before the rows.
func sealed(text []byte) []byte {
	sum := sha256.Sum256(text)
	return append([]byte(fileHeader+hex.EncodeToString(sum[:])+"\n"), text...)
}

func stored(a Alert) storedAlert {
	return storedAlert{Code: a.Code, Subject: a.Subject, Status: a.Status.String(), Since: a.Since, Until: a.Until, Count: a.Count}
}

// load reads the file, if there is one.
func (b *Book) load() error {
	// A book that was written under higher limits is read whole.
	const most = 2 * (100_000 + 100)
	file, err := durable.ReadFile(b.fsys, fileName, most*rowBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	alerts, err := decode(file)
	if err != nil {
		return err
	}
	for _, a := range alerts {
		if a.Status == Open {
			b.open[name{a.Code, a.Subject}] = a
			continue
		}
		b.resolved = append(b.resolved, a)
	}
	slices.SortStableFunc(b.resolved, func(a, b Alert) int { return a.Until.Compare(b.Until) })
	b.resolved = b.resolved[max(0, len(b.resolved)-b.limits.MaxOpen):]
	return nil
}

// decode reads a file. Its error matches [ErrCorrupt].
func decode(file []byte) ([]Alert, error) {
	if len(file) < headerLen || !bytes.HasPrefix(file, []byte(fileHeader)) {
		return nil, ErrCorrupt
	}
	text := file[headerLen:]
	sum := sha256.Sum256(text)
	if string(file[len(fileHeader):headerLen]) != hex.EncodeToString(sum[:])+"\n" {
		return nil, ErrCorrupt
	}
	var rows storedBook
	if err := json.Unmarshal(text, &rows, json.RejectUnknownMembers(true)); err != nil {
		return nil, ErrCorrupt
	}
	seen := map[name]bool{}
	alerts := make([]Alert, 0, len(rows.Alerts))
	for _, r := range rows.Alerts {
		a := Alert{Code: r.Code, Subject: r.Subject, Since: r.Since.UTC(), Until: r.Until.UTC(), Count: r.Count}
		switch r.Status {
		case Open.String():
			a.Status = Open
		case Resolved.String():
			a.Status = Resolved
		}
		if r.Until.IsZero() {
			a.Until = time.Time{}
		}
		key := name{a.Code, a.Subject}
		legal := a.Code.Valid() && subjectForm.MatchString(string(a.Subject)) && a.Count > 0 && !a.Since.IsZero() &&
			(a.Status == Open && a.Until.IsZero() && !seen[key] || a.Status == Resolved && !a.Until.Before(a.Since))
		if !legal {
			return nil, ErrCorrupt
		}
		seen[key] = seen[key] || a.Status == Open
		alerts = append(alerts, a)
	}
	return alerts, nil
}
