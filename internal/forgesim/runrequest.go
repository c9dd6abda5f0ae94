package forgesim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"
	"unicode/utf8"
)

// Bounds of a Check Run's parts, in characters or items.
const (
	maxOutputText     = 65_535
	maxAnnotations    = 50
	maxAnnotationText = 64 << 10
	maxAnnotationName = 255
	maxActions        = 3
	maxActionLabel    = 20
	maxActionText     = 40
)

// A runRequest is the body that creates or changes a Check Run. Absent fields
// are nil.
type runRequest struct {
	Name        *string        `json:"name"`
	HeadSHA     *string        `json:"head_sha"`
	DetailsURL  *string        `json:"details_url"`
	ExternalID  *string        `json:"external_id"`
	Status      *string        `json:"status"`
	StartedAt   *string        `json:"started_at"`
	Conclusion  *string        `json:"conclusion"`
	CompletedAt *string        `json:"completed_at"`
	Output      *outputRequest `json:"output"`
	Actions     []action       `json:"actions"`
}

type outputRequest struct {
	Title       *string      `json:"title"`
	Summary     *string      `json:"summary"`
	Text        *string      `json:"text"`
	Annotations []annotation `json:"annotations"`
}

// An annotation is a remark on lines of a file, as it was sent.
type annotation struct {
	Path        string  `json:"path"`
	StartLine   int     `json:"start_line"`
	EndLine     int     `json:"end_line"`
	StartColumn *int    `json:"start_column"`
	EndColumn   *int    `json:"end_column"`
	Level       string  `json:"annotation_level"`
	Message     string  `json:"message"`
	Title       *string `json:"title"`
	RawDetails  *string `json:"raw_details"`
}

type action struct {
	Label       string `json:"label"`
	Description string `json:"description"`
	Identifier  string `json:"identifier"`
}

// errRunRequest carries the entries of a 422.
type errRunRequest struct{ faults []object }

func (e *errRunRequest) Error() string { return fmt.Sprintf("%d faults in a check run", len(e.faults)) }

// parseRun reads a body; a fault in it is an *errRunRequest.
func parseRun(body []byte) (runRequest, error) {
	var in runRequest
	if err := json.Unmarshal(body, &in); err != nil {
		if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return in, &errRunRequest{[]object{wrong("CheckRun", kind.Field, "invalid", "is of another type")}}
		}
		return in, err
	}
	if faults := in.faults(); len(faults) > 0 {
		return in, &errRunRequest{faults}
	}
	return in, nil
}

// faults lists what GitHub's rules have against a request.
func (in runRequest) faults() []object {
	var faults []object
	bad := func(field, message string) {
		faults = append(faults, wrong("CheckRun", field, "invalid", message))
	}
	if in.Status != nil && !slices.Contains([]string{"queued", "in_progress", "completed"}, *in.Status) {
		bad("status", "is none that an App can set")
	}
	if in.Conclusion != nil && !slices.Contains(conclusions(), *in.Conclusion) {
		bad("conclusion", "is none that an App can set")
	}
	completed := in.CompletedAt != nil || in.Status != nil && *in.Status == "completed"
	if completed && in.Conclusion == nil {
		faults = append(faults, wrong("CheckRun", "conclusion", "missing_field", "is needed by a completed run"))
	}
	for field, text := range map[string]*string{"started_at": in.StartedAt, "completed_at": in.CompletedAt} {
		if _, ok := moment(text); !ok {
			bad(field, "is no RFC 3339 time")
		}
	}
	if in.DetailsURL != nil {
		if u, err := url.Parse(*in.DetailsURL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			bad("details_url", "is no URL of http or https")
		}
	}
	faults = append(faults, in.Output.faults()...)
	if len(in.Actions) > maxActions {
		bad("actions", "are too many")
	}
	for _, a := range in.Actions {
		if longer(a.Label, maxActionLabel) || longer(a.Description, maxActionText) || longer(a.Identifier, maxActionLabel) ||
			a.Label == "" || a.Description == "" || a.Identifier == "" {
			bad("actions", "have a text that is missing or too long")
		}
	}
	return faults
}

func (out *outputRequest) faults() []object {
	if out == nil {
		return nil
	}
	var faults []object
	bad := func(field, message string) {
		faults = append(faults, wrong("CheckRun", "output."+field, "invalid", message))
	}
	if out.Title == nil || *out.Title == "" {
		faults = append(faults, wrong("CheckRun", "output.title", "missing_field", "is needed by an output"))
	}
	if out.Summary == nil {
		faults = append(faults, wrong("CheckRun", "output.summary", "missing_field", "is needed by an output"))
	} else if longer(*out.Summary, maxOutputText) {
		bad("summary", "is too long")
	}
	if out.Text != nil && longer(*out.Text, maxOutputText) {
		bad("text", "is too long")
	}
	if len(out.Annotations) > maxAnnotations {
		bad("annotations", "are too many")
	}
	for _, a := range out.Annotations {
		if why := a.fault(); why != "" {
			bad("annotations", why)
		}
	}
	return faults
}

func (a annotation) fault() string {
	switch {
	case a.Path == "" || a.Message == "":
		return "have no path or no message"
	case a.StartLine < 1 || a.EndLine < a.StartLine:
		return "have lines that are no range"
	case !slices.Contains([]string{"notice", "warning", "failure"}, a.Level):
		return "have an unknown annotation_level"
	case (a.StartColumn != nil || a.EndColumn != nil) && a.StartLine != a.EndLine:
		return "have columns across lines"
	case len(a.Message) > maxAnnotationText || a.RawDetails != nil && len(*a.RawDetails) > maxAnnotationText:
		return "have a text of over 64 KB"
	case a.Title != nil && longer(*a.Title, maxAnnotationName):
		return "have a title that is too long"
	}
	return ""
}

func longer(s string, characters int) bool { return utf8.RuneCountInString(s) > characters }

// conclusions are those that an App can set.
func conclusions() []string {
	return []string{"action_required", "cancelled", "failure", "neutral", "success", "skipped", "timed_out"}
}

// moment reads an optional time; absent is the zero time.
func moment(text *string) (time.Time, bool) {
	if text == nil {
		return time.Time{}, true
	}
	t, err := time.Parse(time.RFC3339, *text)
	return t, err == nil
}

// apply changes a run as a valid request says.
func (in runRequest) apply(run *checkRun, now time.Time) {
	set := func(field, value *string) {
		if value != nil {
			*field = *value
		}
	}
	set(&run.Name, in.Name)
	set(&run.ExternalID, in.ExternalID)
	set(&run.DetailsURL, in.DetailsURL)
	set(&run.Status, in.Status)
	if in.StartedAt != nil {
		run.StartedAt, _ = moment(in.StartedAt)
	}
	if in.Conclusion != nil {
		run.Status, run.Conclusion, run.CompletedAt = "completed", *in.Conclusion, now
		if in.CompletedAt != nil {
			run.CompletedAt, _ = moment(in.CompletedAt)
		}
	} else if run.Status != "completed" {
		run.Conclusion, run.CompletedAt = "", time.Time{}
	}
	if out := in.Output; out != nil {
		run.output = true
		set(&run.Title, out.Title)
		set(&run.Summary, out.Summary)
		set(&run.Text, out.Text)
		run.annotations = append(run.annotations, out.Annotations...)
		run.Annotations = len(run.annotations)
	}
}
