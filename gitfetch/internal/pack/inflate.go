package pack

import (
	"compress/flate"
	"compress/zlib"
	"errors"
	"io"
)

// An inflater reads the zlib stream of one entry after the other.
type inflater struct {
	in   *stream
	z    io.ReadCloser // nil before the first entry
	left int64         // of the declared size
}

// begin starts the stream of an entry that declares size bytes.
func (f *inflater) begin(size int64) error {
	f.left = size
	var err error
	if f.z == nil {
		f.z, err = zlib.NewReader(f.in)
	} else {
		err = f.z.(zlib.Resetter).Reset(f.in, nil)
	}
	return f.failure(err)
}

// Read gives at most the declared size. It returns [io.EOF] only after all
// of it; a stream that ends before is an error.
func (f *inflater) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > f.left {
		p = p[:f.left]
	}
	n, err := f.z.Read(p)
	f.left -= int64(n)
	if n > 0 || err == nil {
		// An end or error that came with bytes comes again without.
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		return 0, malformed("entry inflates to %d bytes less than it declares", f.left)
	}
	return 0, f.failure(err)
}

// end requires that all was read and that the zlib stream ends there, with
// the right checksum.
func (f *inflater) end() error {
	if f.left != 0 {
		return malformed("entry with %d bytes that nothing reads", f.left)
	}
	var beyond [1]byte
	switch n, err := f.z.Read(beyond[:]); {
	case n > 0:
		return malformed("entry inflates to more than it declares")
	case err == nil:
		return malformed("entry does not end")
	case !errors.Is(err, io.EOF):
		return f.failure(err)
	}
	return nil
}

func (f *inflater) failure(err error) error {
	if err == nil {
		return nil
	}
	var corrupt flate.CorruptInputError
	if errors.As(err, &corrupt) || errors.Is(err, zlib.ErrHeader) || errors.Is(err, zlib.ErrChecksum) || errors.Is(err, zlib.ErrDictionary) {
		return malformed("entry's zlib stream: %w", err)
	}
	return f.in.failure(err)
}
