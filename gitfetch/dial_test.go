package gitfetch

import (
	"errors"
	"testing"
)

func TestAddresses(t *testing.T) {
	t.Parallel()
	type want struct{ strict, private, plain bool }
	tests := []struct {
		host, address string
		want          want
	}{
		{"git.example", "140.82.112.3:443", want{true, true, true}},
		{"git.example", "[2606:50c0:8000::153]:443", want{true, true, true}},
		{"git.example", "127.0.0.1:443", want{false, true, true}},
		{"git.example", "[::1]:443", want{false, true, true}},
		{"git.example", "[::ffff:127.0.0.1]:443", want{false, true, true}},
		{"git.example", "10.0.0.1:443", want{false, true, false}},
		{"git.example", "172.31.255.255:443", want{false, true, false}},
		{"git.example", "192.168.1.1:443", want{false, true, false}},
		{"git.example", "100.64.0.1:443", want{false, true, false}},
		{"git.example", "[fd00::1]:443", want{false, true, false}},
		{"git.example", "[::ffff:10.0.0.1]:443", want{false, true, false}},
		// Never by name: what clouds serve their secrets on, and what is no
		// single host at all.
		{"git.example", "169.254.169.254:80", want{}},
		{"git.example", "[fe80::1%eth0]:443", want{}},
		{"git.example", "[::ffff:169.254.169.254]:443", want{}},
		{"git.example", "[64:ff9b::a9fe:a9fe]:443", want{}},
		{"git.example", "[2002:7f00:1::]:443", want{}},
		{"git.example", "0.0.0.0:443", want{}},
		{"git.example", "[::]:443", want{}},
		{"git.example", "224.0.0.1:443", want{}},
		{"git.example", "255.255.255.255:443", want{}},
		{"git.example", "[ff02::1]:443", want{}},
		{"git.example", "192.0.2.1:443", want{}},
		{"git.example", "198.18.0.1:443", want{}},
		{"git.example", "240.0.0.1:443", want{}},
		// Spelt out.
		{"127.0.0.1", "127.0.0.1:443", want{true, true, true}},
		{"169.254.169.254", "169.254.169.254:80", want{true, true, true}},
		{"::1", "[::1]:443", want{true, true, true}},
		{"localhost", "127.0.0.1:443", want{true, true, true}},
		{"git.localhost.", "127.0.0.1:443", want{true, true, true}},
		{"notlocalhost", "127.0.0.1:443", want{false, true, true}},
		// What is no address.
		{"git.example", "/run/socket", want{}},
	}
	for _, tt := range tests {
		for i, ok := range []bool{tt.want.strict, tt.want.private, tt.want.plain} {
			d := &dialer{t: &target{Request: Request{AllowPrivate: i == 1, AllowHTTP: i == 2}}}
			err := d.allow(tt.host, tt.address)
			if (err == nil) != ok || err != nil && !errors.Is(err, ErrAddress) {
				t.Errorf("%s at %s with private %v, http %v: %v", tt.host, tt.address, i == 1, i == 2, err)
			}
		}
	}
}
