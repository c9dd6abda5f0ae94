package strictjson_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/internal/strictjson"
)

// small limits let a fuzzer reach them.
var small = strictjson.Limits{Depth: 5, Values: 40, StringBytes: 20}

// reference says what another implementation, whose decoder also refuses
// duplicate keys and text that is not UTF-8, makes of the same rules.
func reference(data []byte, l strictjson.Limits) bool {
	d := jsontext.NewDecoder(bytes.NewReader(data))
	depth, values := 0, 0
	for {
		t, err := d.ReadToken()
		if err == io.EOF {
			return values > 0 && depth == 0
		}
		if err != nil || (depth == 0 && values > 0) {
			return false
		}
		key := false
		if kind, n := d.StackIndex(d.StackDepth()); kind == '{' && t.Kind() == '"' && n%2 == 1 {
			key = true
		}
		switch t.Kind() {
		case '}', ']':
			depth--
			continue
		case '{', '[':
			if depth++; depth > l.Depth {
				return false
			}
		case '"', '0':
			if len(t.String()) > l.StringBytes {
				return false
			}
		}
		if values == 0 && t.Kind() != '{' {
			return false
		}
		if !key {
			values++
		}
		if values > l.Values {
			return false
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `{"a":1,"a":2}`, `{"a":"\ud834\udd1e"}`, `{"a":"\ud834"}`, "{\"a\":\"\xff\"}", `{"a":[1,-0.5e+1,true,false,null]}`,
		`{"a":{"a":{"a":{"a":{"a":1}}}}}`, `{"a":[[[[[]]]]]}`, `{} {}`, `[]`, `{"a":"12345678901234567890"}`, `{"a":"123456789012345678901"}`,
		`{"\u0061":1,"a":2}`, "\xef\xbb\xbf{}", `{"a":01}`, `{"":"","\"":1,"\\":2}`, `{"a":"é€𝄞"}`, `{"a":-}`, `{"a":123456789012345678901}`,
		`{"aaaaaaaabaaaaaaaa":1,"aaaaaaaacaaaaaaaa":2,"aaaaaaaabaaaaaaaa":3}`, `{"a":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := strictjson.Check(data, small)
		if want := reference(data, small); (err == nil) != want {
			t.Fatalf("%q: err = %v, the reference accepts: %v", data, err, want)
		}
		if err == nil {
			return
		}
		fault, ok := errors.AsType[*strictjson.Error](err)
		if !ok || fault.Kind == 0 || fault.Offset < 0 || fault.Offset > len(data) || fault.Field != "" {
			t.Fatalf("%q: err = %#v", data, err)
		}
	})
}

type fuzzTarget struct {
	ID    int64   `json:"id"`
	Name  *string `json:"name"`
	Flag  bool    `json:"flag" strict:"optional"`
	Inner struct {
		List []int8 `json:"list"`
		U    *uint8 `json:"u"`
	} `json:"inner"`
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"id":1,"inner":{"list":[1,-2]}}`, `{"id":1,"name":"\u00e9\n","flag":true,"inner":{"list":[],"u":255}}`, `{"id":1,"inner":{"list":[128]}}`,
		`{"id":1.0,"inner":{"list":[]}}`, `{"ID":1,"Inner":{"list":[]}}`, `{"id":1,"inner":{"list":[],"u":null,"x":{"y":[1]}},"z":0}`, `{"id":null}`,
	} {
		f.Add([]byte(seed))
	}
	decoder := strictjson.NewDecoder[fuzzTarget](small)
	closed := strictjson.NewClosedDecoder[fuzzTarget](small)
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decoder.Decode(data)
		valid := strictjson.Check(data, small) == nil
		if err != nil {
			fault, ok := errors.AsType[*strictjson.Error](err)
			if !ok || (valid && fault.Kind < strictjson.KindType) || got.Name != nil || got.Inner.List != nil {
				t.Fatalf("%q: %+v, err = %#v", data, got, err)
			}
		} else {
			var want fuzzTarget
			if err := jsonv2.Unmarshal(data, &want); err != nil || !valid {
				t.Fatalf("%q: taken, but the reference says %v, Check says %v", data, err, valid)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%q (-reference +got):\n%s", data, diff)
			}
		}
		same, closedErr := closed.Decode(data)
		var want fuzzTarget
		refErr := jsonv2.Unmarshal(data, &want, jsonv2.RejectUnknownMembers(true))
		if closedErr == nil && (err != nil || refErr != nil) {
			t.Fatalf("%q: the closed decoder takes what others don't: %v, %v", data, err, refErr)
		}
		if diff := cmp.Diff(got, same); closedErr == nil && diff != "" {
			t.Fatalf("%q (-open +closed):\n%s", data, diff)
		}
		if err == nil && closedErr != nil && refErr == nil {
			t.Fatalf("%q: no unknown key, but err = %v", data, closedErr)
		}
	})
}
