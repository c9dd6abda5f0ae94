package check

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/strictjson"
)

// Limits of a report's shape, beside [MaxReportBytes] (DESIGN §4, "Strict
// JSON").
const (
	MaxReportDepth  = 64
	MaxReportValues = 200_000
)

// Encode returns the one canonical form of a valid request: RFC 8785, without
// a line end. Its error is [Request.Validate]'s, or matches
// [fencepost.ErrTooLarge] over [MaxRequestBytes].
func (r *Request) Encode() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return canonical("request", r, MaxRequestBytes)
}

// DecodeRequest reads one request strictly. Its error matches
// [fencepost.ErrMalformed] or [fencepost.ErrTooLarge].
func DecodeRequest(b []byte) (Request, error) {
	var r Request
	if err := decode("request", b, MaxRequestBytes, &r); err != nil {
		return Request{}, err
	}
	if err := r.Validate(); err != nil {
		return Request{}, err
	}
	return r, nil
}

// Encode returns the canonical form of a valid result, as [Request.Encode].
func (r *Result) Encode() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return canonical("result", r, MaxResultBytes)
}

// DecodeResult reads one result strictly: unknown fields, duplicate keys,
// invalid UTF-8 and bytes after the value are refused. Its error matches
// [fencepost.ErrMalformed] or [fencepost.ErrTooLarge].
func DecodeResult(b []byte) (Result, error) {
	var r Result
	if err := decode("result", b, MaxResultBytes, &r); err != nil {
		return Result{}, err
	}
	if err := r.Validate(); err != nil {
		return Result{}, err
	}
	return r, nil
}

// ValidReport checks that b is exactly one JSON value within [MaxReportBytes],
// [MaxReportDepth] and [MaxReportValues], in UTF-8 and without a duplicate key
// at any depth. Its error matches [fencepost.ErrMalformed] or
// [fencepost.ErrTooLarge].
func ValidReport(b []byte) error {
	if len(b) > MaxReportBytes {
		return fmt.Errorf("report of %d bytes, at most %d: %w", len(b), MaxReportBytes, fencepost.ErrTooLarge)
	}
	limits := strictjson.Limits{Depth: MaxReportDepth, Values: MaxReportValues, StringBytes: MaxReportBytes}
	if err := strictjson.CheckValue(b, limits); err != nil {
		return fmt.Errorf("report: %w: %w", err, fencepost.ErrMalformed)
	}
	return nil
}

func canonical(what string, v any, most int) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", what, err)
	}
	value := jsontext.Value(b)
	if err := value.Canonicalize(); err != nil {
		return nil, fmt.Errorf("encode %s: %w", what, err)
	}
	if len(value) > most {
		return nil, fmt.Errorf("%s of %d bytes, at most %d: %w", what, len(value), most, fencepost.ErrTooLarge)
	}
	return value, nil
}

// decode takes every field or none. Its error tells where the fault is and
// nothing of what stands there: the bytes come from a program that nobody
// vouched for.
func decode(what string, b []byte, most int, v any) error {
	if len(b) > most {
		return fmt.Errorf("%s of %d bytes, at most %d: %w", what, len(b), most, fencepost.ErrTooLarge)
	}
	if err := strictjson.DecodeClosed(b, strictjson.Limits{}, v); err != nil {
		return fmt.Errorf("%s: %w: %w", what, err, fencepost.ErrMalformed)
	}
	return nil
}
