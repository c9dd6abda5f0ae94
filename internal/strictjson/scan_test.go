package strictjson_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/strictjson"
)

// at is where an error must be: the text's end, if negative.
type fault struct {
	kind strictjson.Kind
	at   int
}

func wantFault(t *testing.T, text string, err error, want fault) {
	t.Helper()
	if want.kind == 0 {
		if err != nil {
			t.Errorf("%.80q: %v", text, err)
		}
		return
	}
	got, ok := errors.AsType[*strictjson.Error](err)
	if want.at < 0 {
		want.at = len(text)
	}
	if !ok || got.Kind != want.kind || got.Offset != want.at {
		t.Errorf("%.80q: err = %v, want %v at byte %d", text, err, want.kind, want.at)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text string
		want fault
	}{
		{`{}`, fault{}},
		{" \t\r\n{ \"a\" : [ 1 , 2 ] , \"b\" : { } } \n", fault{}},
		{`{"a":{"a":{"a":1}},"A":null,"":true}`, fault{}},
		{`{"a":[{"b":1},{"b":1}]}`, fault{}},
		{`{"a":[0,-0,-1,10,0.5,1.50,1e1,1E+1,1e-01,-0.0e0]}`, fault{}},
		{`{"a":"\"\\\/\b\f\n\r\t\u0000\u20ac\uD834\uDD1E é € 𝄞 \u007f"}`, fault{}},

		{``, fault{strictjson.KindTruncated, 0}},
		{`   `, fault{strictjson.KindTruncated, -1}},
		{`{`, fault{strictjson.KindTruncated, -1}},
		{`{"a`, fault{strictjson.KindTruncated, -1}},
		{`{"a"`, fault{strictjson.KindTruncated, -1}},
		{`{"a":`, fault{strictjson.KindTruncated, -1}},
		{`{"a":1`, fault{strictjson.KindTruncated, -1}},
		{`{"a":1,`, fault{strictjson.KindTruncated, -1}},
		{`{"a":[`, fault{strictjson.KindTruncated, -1}},
		{`{"a":[1,`, fault{strictjson.KindTruncated, -1}},
		{`{"a":tru`, fault{strictjson.KindTruncated, -1}},
		{`{"a":-`, fault{strictjson.KindTruncated, -1}},
		{`{"a":1.`, fault{strictjson.KindTruncated, -1}},
		{`{"a":1e`, fault{strictjson.KindTruncated, -1}},
		{`{"a":"\`, fault{strictjson.KindTruncated, 6}},
		{`{"a":"\u12`, fault{strictjson.KindTruncated, 6}},
		{`{"a":"\ud834\u12`, fault{strictjson.KindTruncated, 6}},

		{`[]`, fault{strictjson.KindObject, 0}},
		{` "a"`, fault{strictjson.KindObject, 1}},
		{`null`, fault{strictjson.KindObject, 0}},
		{"\xef\xbb\xbf{}", fault{strictjson.KindObject, 0}},

		{`{} {}`, fault{strictjson.KindTrailing, 3}},
		{`{},`, fault{strictjson.KindTrailing, 2}},
		{"{}\x00", fault{strictjson.KindTrailing, 2}},
		{"{}\v", fault{strictjson.KindTrailing, 2}},

		{`{,}`, fault{strictjson.KindSyntax, 1}},
		{`{"a":1,}`, fault{strictjson.KindSyntax, 7}},
		{`{"a":1,,"b":1}`, fault{strictjson.KindSyntax, 7}},
		{`{"a":1 "b":1}`, fault{strictjson.KindSyntax, 7}},
		{`{"a",1}`, fault{strictjson.KindSyntax, 4}},
		{`{"a":}`, fault{strictjson.KindSyntax, 5}},
		{`{a:1}`, fault{strictjson.KindSyntax, 1}},
		{`{'a':1}`, fault{strictjson.KindSyntax, 1}},
		{`{1:1}`, fault{strictjson.KindSyntax, 1}},
		{`{"a":[1,]}`, fault{strictjson.KindSyntax, 8}},
		{`{"a":[,1]}`, fault{strictjson.KindSyntax, 6}},
		{`{"a":[1}`, fault{strictjson.KindSyntax, 7}},
		{`{"a":{]}`, fault{strictjson.KindSyntax, 6}},
		{`{"a":True}`, fault{strictjson.KindSyntax, 5}},
		{`{"a":trux}`, fault{strictjson.KindSyntax, 8}},
		{`{"a":nul}`, fault{strictjson.KindSyntax, 8}},
		{`{"a":NaN}`, fault{strictjson.KindSyntax, 5}},
		{`{"a":01}`, fault{strictjson.KindSyntax, 6}},
		{`{"a":-01}`, fault{strictjson.KindSyntax, 7}},
		{`{"a":+1}`, fault{strictjson.KindSyntax, 5}},
		{`{"a":.5}`, fault{strictjson.KindSyntax, 5}},
		{`{"a":1.}`, fault{strictjson.KindSyntax, 7}},
		{`{"a":1.e1}`, fault{strictjson.KindSyntax, 7}},
		{`{"a":1e}`, fault{strictjson.KindSyntax, 7}},
		{`{"a":1e+}`, fault{strictjson.KindSyntax, 8}},
		{`{"a":0x1}`, fault{strictjson.KindSyntax, 6}},
		{`{"a":1_0}`, fault{strictjson.KindSyntax, 6}},
		{`{"a":"` + "\n" + `"}`, fault{strictjson.KindSyntax, 6}},
		{`{"a":"` + "\x00" + `"}`, fault{strictjson.KindSyntax, 6}},
		{`{"a":"1234567` + "\x1f" + `"}`, fault{strictjson.KindSyntax, 13}},
		{`{"a":"\x"}`, fault{strictjson.KindSyntax, 6}},
		{`{"a":"\U0041"}`, fault{strictjson.KindSyntax, 6}},
		{`{"a":"\u00g0"}`, fault{strictjson.KindSyntax, 6}},
		{`{"a":/**/1}`, fault{strictjson.KindSyntax, 5}},
		{"{\"a\":\xa01}", fault{strictjson.KindSyntax, 5}},

		{"{\"a\":\"\xff\"}", fault{strictjson.KindUTF8, 6}},
		{"{\"a\":\"\x80\"}", fault{strictjson.KindUTF8, 6}},
		{"{\"a\":\"12345678\xc3\"}", fault{strictjson.KindUTF8, 14}},
		{"{\"a\":\"\xc0\xaf\"}", fault{strictjson.KindUTF8, 6}},
		{"{\"a\":\"\xed\xa0\x80\"}", fault{strictjson.KindUTF8, 6}},
		{"{\"a\":\"\xf4\x90\x80\x80\"}", fault{strictjson.KindUTF8, 6}},
		{"{\"\xff\":1}", fault{strictjson.KindUTF8, 2}},

		{`{"a":"\ud834"}`, fault{strictjson.KindSurrogate, 6}},
		{`{"a":"\udd1e"}`, fault{strictjson.KindSurrogate, 6}},
		{`{"a":"\ud834x"}`, fault{strictjson.KindSurrogate, 6}},
		{`{"a":"\ud834\n\udd1e"}`, fault{strictjson.KindSurrogate, 6}},
		{`{"a":"\ud834\ud834"}`, fault{strictjson.KindSurrogate, 6}},
		{`{"a":"\udd1e\ud834"}`, fault{strictjson.KindSurrogate, 6}},
		{`{"a":"\ud834\u0041"}`, fault{strictjson.KindSurrogate, 6}},
		{`{"\ud834":1}`, fault{strictjson.KindSurrogate, 2}},

		{`{"a":1,"a":1}`, fault{strictjson.KindDuplicate, 7}},
		{`{"":1,"":1}`, fault{strictjson.KindDuplicate, 6}},
		{`{"a":1,"b":{"a":1,"c":2,"a":3}}`, fault{strictjson.KindDuplicate, 24}},
		{`{"b":[[{"a":1,"a":1}]]}`, fault{strictjson.KindDuplicate, 14}},
		{`{"a":{"a":{"b":1}},"a":1}`, fault{strictjson.KindDuplicate, 19}},
		{`{"a":1,"\u0061":1}`, fault{strictjson.KindDuplicate, 7}},
		{`{"\u0061":1,"a":1}`, fault{strictjson.KindDuplicate, 12}},
		{`{"\u0061\/":1,"\u0061/":1}`, fault{strictjson.KindDuplicate, 14}},
		{`{"𝄞":1,"\uD834\uDD1E":1}`, fault{strictjson.KindDuplicate, 10}},
		{`{"a\n":1,"a\u000a":1}`, fault{strictjson.KindDuplicate, 9}},
		{`{"a\n":1,"a\\n":1}`, fault{}},
		{"{\"\u00e9\":1,\"e\u0301\":1}", fault{}}, // composed and decomposed: two keys
	}
	for _, test := range tests {
		wantFault(t, test.text, strictjson.Check([]byte(test.text), strictjson.Limits{}), test.want)
	}
}

func TestCheckValueTakesAnyOneValue(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]fault{
		`1`: {}, `"a"`: {}, `null`: {}, ` [{},[]] `: {}, `true`: {}, `{}`: {},
		`1 2`: {strictjson.KindTrailing, 2}, ``: {strictjson.KindTruncated, 0}, `x`: {strictjson.KindSyntax, 0},
		`[{"a":1,"a":2}]`: {strictjson.KindDuplicate, 8}, `1 x`: {strictjson.KindTrailing, 2}, `01`: {strictjson.KindTrailing, 1},
	} {
		wantFault(t, text, strictjson.CheckValue([]byte(text), strictjson.Limits{}), want)
	}
}

// Each limit admits what is at it and refuses what is one over.
func TestLimits(t *testing.T) {
	t.Parallel()
	nested := func(n int) string {
		return `{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`
	}
	list := func(n int) string { return `{"a":[` + strings.Repeat("1,", n-3) + `1]}` }
	str := func(n int) string { return `{"a":"` + strings.Repeat("x", n) + `"}` }
	small := strictjson.Limits{Depth: 3, Values: 5, StringBytes: 4}
	tests := []struct {
		limits strictjson.Limits
		text   string
		want   fault
	}{
		{strictjson.Limits{}, nested(64), fault{}},
		{strictjson.Limits{}, nested(65), fault{strictjson.KindDepth, 5 + 63}},
		{strictjson.Limits{}, `{"a":` + strings.Repeat(`{"a":`, 64), fault{strictjson.KindDepth, 5 * 64}},
		{strictjson.Limits{}, list(200_000), fault{}},
		{strictjson.Limits{}, list(200_001), fault{strictjson.KindValues, 6 + 2*199_998}},
		{strictjson.Limits{}, str(1 << 20), fault{}},
		{strictjson.Limits{}, str(1<<20 + 1), fault{strictjson.KindSize, 5}},
		{small, nested(3), fault{}},
		{small, nested(4), fault{strictjson.KindDepth, 7}},
		{small, `{"a":[1,2,3]}`, fault{}},
		{small, `{"a":[1,2,3,4]}`, fault{strictjson.KindValues, 12}},
		{small, `{"a":{"b":1,"c":2,"d":3}}`, fault{}},
		{small, `{"a":{"b":1,"c":2,"d":3,"e":4}}`, fault{strictjson.KindValues, 28}},
		{small, `{"a":"1234","b":1234,"cdef":null}`, fault{}},
		{small, `{"a":"12345"}`, fault{strictjson.KindSize, 5}},
		{small, `{"a":"\u20ac\n"}`, fault{}},
		{small, `{"a":"\ud834\udd1e"}`, fault{}},
		{small, `{"a":"€€"}`, fault{strictjson.KindSize, 5}},
		{small, `{"12345":1}`, fault{strictjson.KindSize, 1}},
		{small, `{"a":12345}`, fault{strictjson.KindSize, 5}},
		{small, `{"a":1e100}`, fault{strictjson.KindSize, 5}},
	}
	for _, test := range tests {
		wantFault(t, test.text, strictjson.Check([]byte(test.text), test.limits), test.want)
	}
}

// Objects with more keys than the table in the scanner and than are compared
// one by one find a duplicate wherever it stands.
func TestDuplicatesInLargeObjects(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 127, 128, 129, 255, 256, 257, 258, 2000} {
		var b strings.Builder
		b.WriteString(`{"outer":{"key1":0},"object":{`)
		for i := range n {
			fmt.Fprintf(&b, `"key%d":{"key%d":%d},`, i, i, i)
		}
		for _, again := range []int{0, n / 2, n - 1} {
			text := b.String() + fmt.Sprintf(`"key%d":0},"key1":0}`, again)
			wantFault(t, text, strictjson.Check([]byte(text), strictjson.Limits{}), fault{strictjson.KindDuplicate, b.Len()})
		}
		text := b.String() + fmt.Sprintf(`"key%d":0},"key1":0}`, n)
		wantFault(t, text, strictjson.Check([]byte(text), strictjson.Limits{}), fault{})
	}
}

// A key of an object that has ended is none of the object around it.
func TestKeysOfInnerObjectsAreTheirOwn(t *testing.T) {
	t.Parallel()
	for _, n := range []int{10, 250, 1000} {
		var keys strings.Builder
		for i := range n {
			fmt.Fprintf(&keys, `,"key%d":0`, i)
		}
		text := fmt.Sprintf(`{"a":{"x":0%s},"b":[{"x":0%s}],"x":0%s}`, &keys, &keys, &keys)
		wantFault(t, text, strictjson.Check([]byte(text), strictjson.Limits{}), fault{})
	}
}

// Keys may be chosen so that the cheap fingerprint tells none apart: the
// middle of a long key is not in it.
func TestKeysOfOneFingerprint(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteByte('{')
	for i := range 300 {
		fmt.Fprintf(&b, `"01234567%04d89abcdef":0,`, i)
	}
	text := b.String() + `"last":0}`
	wantFault(t, text, strictjson.Check([]byte(text), strictjson.Limits{}), fault{})
	text = b.String() + `"01234567010089abcdef":0}`
	wantFault(t, text, strictjson.Check([]byte(text), strictjson.Limits{}), fault{strictjson.KindDuplicate, b.Len()})
}

func TestErrorsHoldNothingOfTheText(t *testing.T) {
	t.Parallel()
	const canary = "canary"
	type closed struct {
		A string `json:"a"`
	}
	for _, text := range []string{
		`{"canary":1,"canary":1}`, `{"a":canary}`, `{"a":"canary` + "\xff" + `"}`, `{"a":"canary\ud800"}`, `canary`, `{}canary`, `{"canary":1}`, `{"a":1,"canary":2}`,
	} {
		var v closed
		err := strictjson.DecodeClosed([]byte(text), strictjson.Limits{}, &v)
		if err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%q: err = %v", text, err)
		}
	}
}
