package config

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost"
)

// minAppKeyBits is the least size of an App key; GitHub issues 2048.
const minAppKeyBits = 2048

// ErrAppKey is matched by every error of [ParseAppKey].
var ErrAppKey = errors.New("not a usable App key")

// ParseAppKey reads an RSA private key of 2048 bits or more from one PEM
// block, PKCS#1 or PKCS#8. Its error matches [ErrAppKey] and holds nothing of
// the key.
func ParseAppKey(secret fencepost.Secret) (*rsa.PrivateKey, error) {
	block, rest := pem.Decode(secret.Reveal())
	if block == nil {
		return nil, appKeyError("there is no PEM block in it; use the .pem file that GitHub gave for the App")
	}
	defer clear(block.Bytes)
	if next, _ := pem.Decode(rest); next != nil {
		clear(next.Bytes)
		return nil, appKeyError("there is more than one PEM block in it; keep the key alone")
	}
	var key any
	var err error
	switch block.Type {
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "ENCRYPTED PRIVATE KEY":
		return nil, appKeyError("it is encrypted; decrypt it with `openssl pkey`")
	default:
		return nil, appKeyError("its PEM block is no private key; use the .pem file that GitHub gave for the App")
	}
	if err != nil {
		return nil, appKeyError("its PEM block is damaged")
	}
	private, ok := key.(*rsa.PrivateKey)
	if !ok {
		return nil, appKeyError("it is not an RSA key, which RS256 needs")
	}
	if private.N.BitLen() < minAppKeyBits {
		return nil, appKeyError(fmt.Sprintf("it has %d bits, and must have %d or more", private.N.BitLen(), minAppKeyBits))
	}
	return private, nil
}

func appKeyError(text string) error {
	return &secretError{text: text, causes: []error{ErrAppKey}}
}
