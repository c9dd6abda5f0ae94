package strictjson_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/strictjson"
)

type named string

type everything struct {
	Text     string             `json:"text"`
	Named    named              `json:"named"`
	Flag     bool               `json:"flag"`
	Int      int64              `json:"int"`
	Small    int8               `json:"small"`
	Unsigned uint16             `json:"unsigned"`
	Commit   fencepost.CommitID `json:"commit"`
	When     time.Time          `json:"when"`
	Inner    struct {
		ID int64 `json:"id"`
	} `json:"inner"`
	List    []string    `json:"list"`
	Structs []inner     `json:"structs"`
	Maybe   *int64      `json:"maybe"`
	Nested  *inner      `json:"nested"`
	Left    string      `json:"left" strict:"optional"`
	Options []*named    `json:"options" strict:"optional"`
	Ignored chan string `json:"-"`
}

type inner struct {
	ID   int64 `json:"id"`
	Repo *struct {
		ID int64 `json:"id"`
	} `json:"repo"`
}

const everythingText = `{
	"text": "a\u0000\n\ud834\udd1e€", "named": "n", "flag": true, "int": -9223372036854775808,
	"small": 127, "unsigned": 65535, "commit": "ec26c3e57ca3a959ca5aad62de7213c562f8c821",
	"when": "2026-11-05T12:00:00Z", "inner": {"id": 9223372036854775807, "ID": "another key"},
	"list": ["a", "", "b"], "structs": [{"id": 1, "repo": null}, {"id": 2, "repo": {"id": 3}}, {"id": 4}],
	"maybe": null, "unknown": {"text": [1, {"int": 1.5e300}]}, "TEXT": 1, "options": [null, "x"]
}`

func TestDecodeTakesWhatIsThere(t *testing.T) {
	t.Parallel()
	commit, err := fencepost.ParseCommitID("ec26c3e57ca3a959ca5aad62de7213c562f8c821")
	if err != nil {
		t.Fatal(err)
	}
	x := named("x")
	want := everything{
		Text: "a\x00\n𝄞€", Named: "n", Flag: true, Int: math.MinInt64, Small: 127, Unsigned: 65535, Commit: commit,
		When: time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC), List: []string{"a", "", "b"},
		Structs: []inner{{ID: 1}, {ID: 2, Repo: &struct {
			ID int64 `json:"id"`
		}{3}}, {ID: 4}},
		Options: []*named{nil, &x},
	}
	want.Inner.ID = math.MaxInt64
	var got everything
	if err := strictjson.Decode([]byte(everythingText), strictjson.Limits{}, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Decode (-want +got):\n%s", diff)
	}
	again, err := strictjson.NewDecoder[everything](strictjson.Limits{}).Decode([]byte(everythingText))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, again); diff != "" {
		t.Errorf("Decoder (-want +got):\n%s", diff)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	type target struct {
		ID     int64               `json:"id"`
		Name   *string             `json:"name"`
		Flag   bool                `json:"flag" strict:"optional"`
		Small  int8                `json:"small" strict:"optional"`
		Count  uint8               `json:"count" strict:"optional"`
		Commit *fencepost.CommitID `json:"commit"`
		List   []struct {
			Sub struct {
				ID int64 `json:"id"`
			} `json:"sub"`
		} `json:"list" strict:"optional"`
	}
	tests := []struct {
		text  string
		want  fault
		field string
	}{
		{`{"id":1}`, fault{}, ""},
		{`{"id":-0}`, fault{}, ""},
		{`{"id":1,"name":null,"commit":null}`, fault{}, ""},
		{`{}`, fault{strictjson.KindMissing, 1}, "id"},
		{`{"ID":1}`, fault{strictjson.KindMissing, 7}, "id"},
		{`{"Id":1,"iD":2}`, fault{strictjson.KindMissing, 14}, "id"},
		{`{"i\u0064":1}`, fault{}, ""},
		{`{"id":1,"i\u0064":1}`, fault{strictjson.KindDuplicate, 8}, ""},
		{`{"id":1.0}`, fault{strictjson.KindType, 6}, "id"},
		{`{"id":1e3}`, fault{strictjson.KindType, 6}, "id"},
		{`{"id":"1"}`, fault{strictjson.KindType, 6}, "id"},
		{`{"id":null}`, fault{strictjson.KindType, 6}, "id"},
		{`{"id":[1]}`, fault{strictjson.KindType, 6}, "id"},
		{`{"id":[1,{"a":1,"a":2}]}`, fault{strictjson.KindDuplicate, 16}, "id"},
		{`{"id":9223372036854775807}`, fault{}, ""},
		{`{"id":9223372036854775808}`, fault{strictjson.KindRange, 6}, "id"},
		{`{"id":-9223372036854775809}`, fault{strictjson.KindRange, 6}, "id"},
		{`{"id":` + strings.Repeat("1", 100) + `}`, fault{strictjson.KindRange, 6}, "id"},
		{`{"id":01}`, fault{strictjson.KindSyntax, 7}, ""},
		{`{"id":x}`, fault{strictjson.KindSyntax, 6}, "id"},
		{`{"id":-}`, fault{strictjson.KindSyntax, 7}, "id"},
		{`{"id":1,"small":128}`, fault{strictjson.KindRange, 16}, "small"},
		{`{"id":1,"count":-1}`, fault{strictjson.KindRange, 16}, "count"},
		{`{"id":1,"count":256}`, fault{strictjson.KindRange, 16}, "count"},
		{`{"id":1,"count":1.5}`, fault{strictjson.KindType, 16}, "count"},
		{`{"id":1,"flag":null}`, fault{strictjson.KindType, 15}, "flag"},
		{`{"id":1,"flag":1}`, fault{strictjson.KindType, 15}, "flag"},
		{`{"id":1,"flag":"true"}`, fault{strictjson.KindType, 15}, "flag"},
		{`{"id":1,"flag":tru}`, fault{strictjson.KindSyntax, 18}, "flag"},
		{`{"id":1,"name":1}`, fault{strictjson.KindType, 15}, "name"},
		{`{"id":1,"name":nul}`, fault{strictjson.KindSyntax, 18}, "name"},
		{`{"id":1,"name":"` + "\xff" + `"}`, fault{strictjson.KindUTF8, 16}, "name"},
		{`{"id":1,"commit":"EC26"}`, fault{strictjson.KindForm, 17}, "commit"},
		{`{"id":1,"commit":1}`, fault{strictjson.KindType, 17}, "commit"},
		{`{"id":1,"list":null}`, fault{strictjson.KindType, 15}, "list"},
		{`{"id":1,"list":{}}`, fault{strictjson.KindType, 15}, "list"},
		{`{"id":1,"list":[{"sub":{"id":1}},{"sub":{"id":true}}]}`, fault{strictjson.KindType, 46}, "list.sub.id"},
		{`{"id":1,"list":[{"sub":{}}]}`, fault{strictjson.KindMissing, 24}, "list.sub.id"},
		{`{"id":1,"list":[{}]}`, fault{strictjson.KindMissing, 17}, "list.sub"},
		{`{"id":1,"list":[null]}`, fault{strictjson.KindType, 16}, "list"},
		{`{"id":1} x`, fault{strictjson.KindTrailing, 9}, ""},
		{`[{"id":1}]`, fault{strictjson.KindObject, 0}, ""},
		{`{"id":1,"other":{"x":1,"x":2}}`, fault{strictjson.KindDuplicate, 23}, ""},
	}
	decoder := strictjson.NewDecoder[target](strictjson.Limits{})
	for _, test := range tests {
		before := target{ID: 42}
		got := before
		err := strictjson.Decode([]byte(test.text), strictjson.Limits{}, &got)
		wantFault(t, test.text, err, test.want)
		if fault, ok := errors.AsType[*strictjson.Error](err); ok && fault.Field != test.field {
			t.Errorf("%q: field %q, want %q", test.text, fault.Field, test.field)
		}
		if diff := cmp.Diff(before, got); err != nil && diff != "" {
			t.Errorf("%q: an error, and still something was taken:\n%s", test.text, diff)
		}
		same, err := decoder.Decode([]byte(test.text))
		wantFault(t, test.text, err, test.want)
		if diff := cmp.Diff(target{}, same); err != nil && diff != "" {
			t.Errorf("%q: an error, and still something was returned:\n%s", test.text, diff)
		}
	}
}

func TestDecodeClosedRefusesUnknownKeys(t *testing.T) {
	t.Parallel()
	type target struct {
		ID    int64 `json:"id"`
		Inner struct {
			A string `json:"a"`
		} `json:"inner"`
	}
	decoder := strictjson.NewClosedDecoder[target](strictjson.Limits{})
	for text, want := range map[string]fault{
		`{"id":1,"inner":{"a":""}}`:          {},
		`{"id":1,"inner":{"a":""},"x":1}`:    {strictjson.KindUnknown, 25},
		`{"id":1,"inner":{"a":"","x":1}}`:    {strictjson.KindUnknown, 24},
		`{"ID":1,"id":1,"inner":{"a":""}}`:   {strictjson.KindUnknown, 1},
		`{"id":1,"inner":{"a":""},"x":}`:     {strictjson.KindUnknown, 25},
		`{"id":1,"inner":{"a":""},"id":2}`:   {strictjson.KindDuplicate, 25},
		`{"id":1,"inner":{"a":""},"":[1,2]}`: {strictjson.KindUnknown, 25},
	} {
		var v target
		wantFault(t, text, strictjson.DecodeClosed([]byte(text), strictjson.Limits{}, &v), want)
		_, err := decoder.Decode([]byte(text))
		wantFault(t, text, err, want)
	}
}

func TestDecodePanicsOnTypesThatNobodyCanDecodeInto(t *testing.T) {
	t.Parallel()
	type recursive struct {
		A []recursive `json:"a"`
	}
	_ = recursive{}
	for name, f := range map[string]func(){
		"no pointer":     func() { _ = strictjson.Decode(nil, strictjson.Limits{}, struct{}{}) },
		"nil pointer":    func() { _ = strictjson.Decode(nil, strictjson.Limits{}, (*inner)(nil)) },
		"nil":            func() { _ = strictjson.Decode(nil, strictjson.Limits{}, nil) },
		"pointer to int": func() { _ = strictjson.Decode(nil, strictjson.Limits{}, new(int)) },
		"int":            func() { strictjson.NewDecoder[int](strictjson.Limits{}) },
		"float": func() {
			strictjson.NewDecoder[struct {
				A float64 `json:"a"`
			}](strictjson.Limits{})
		},
		"any": func() {
			strictjson.NewDecoder[struct {
				A any `json:"a"`
			}](strictjson.Limits{})
		},
		"map": func() {
			strictjson.NewDecoder[struct {
				A map[string]string `json:"a"`
			}](strictjson.Limits{})
		},
		"no key":       func() { strictjson.NewDecoder[struct{ A int }](strictjson.Limits{}) },
		"not exported": func() { strictjson.NewDecoder[struct{ a int }](strictjson.Limits{}) },
		"unknown option": func() {
			strictjson.NewDecoder[struct {
				A int `json:"a" strict:"x"`
			}](strictjson.Limits{})
		},
		"contains itself": func() { strictjson.NewDecoder[recursive](strictjson.Limits{}) },
	} {
		func() {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "strictjson: ") {
					t.Errorf("%s: recovered %q", name, text)
				}
			}()
			f()
			t.Errorf("%s: no panic", name)
		}()
	}
}

// Raw takes a value of any type as it stands, and null as well.
func TestRawIsTheTextOfAValue(t *testing.T) {
	t.Parallel()
	type holder struct {
		Any   strictjson.Raw   `json:"any"`
		Maybe *strictjson.Raw  `json:"maybe"`
		List  []strictjson.Raw `json:"list" strict:"optional"`
	}
	raw := func(s string) *strictjson.Raw { r := strictjson.Raw(s); return &r }
	text := []byte(`{"any": {"a" : [1, "\u0041"]} , "maybe":null, "list":[ true,"x" , 1.5e3,[],null ]}`)
	var got holder
	if err := strictjson.Decode(text, strictjson.Limits{}, &got); err != nil {
		t.Fatal(err)
	}
	clear(text)
	want := holder{strictjson.Raw(`{"a" : [1, "\u0041"]}`), raw("null"), []strictjson.Raw{*raw("true"), *raw(`"x"`), *raw("1.5e3"), *raw("[]"), *raw("null")}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Decode (-want +got):\n%s", diff)
	}
	if err := strictjson.Decode([]byte(`{"any":1}`), strictjson.Limits{Values: 2}, &got); err != nil || got.Maybe != nil {
		t.Errorf("two values of two, err = %v, maybe %s", err, *got.Maybe)
	}
	for text, kind := range map[string]strictjson.Kind{
		`{}`: strictjson.KindMissing, `{"any":}`: strictjson.KindSyntax, `{"any":{"a":1,"a":2}}`: strictjson.KindDuplicate,
		`{"any":[1,2]}`: strictjson.KindValues, `{"any":[[]]}`: strictjson.KindDepth, `{"any":"\ud800"}`: strictjson.KindSurrogate, `{"any":tru}`: strictjson.KindSyntax,
	} {
		err := strictjson.Decode([]byte(text), strictjson.Limits{Values: 3, Depth: 2}, &got)
		if fault, ok := errors.AsType[*strictjson.Error](err); !ok || fault.Kind != kind {
			t.Errorf("%s: err = %v, want %s", text, err, kind)
		}
	}
}
