// Package token makes, recognises and hashes the hub's bearer tokens.
//
// A token is a prefix that says what it is for, 32 random bytes in base62 and a
// checksum, so that a scanner can find a leaked one and the hub can refuse a
// mistyped one without asking its database. Only Hash is ever stored. The
// package keeps nothing and does no I/O but reading randomness.
package token

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"cloop.dev/cloop/internal/secret"
)

// Kind says what a token is for; it is the token's prefix.
type Kind string

// Kinds of tokens.
const (
	// Pool is a controller's credential for one pool.
	Pool Kind = "cloop_pool1_"
	// Runner is a runner's single-use enrollment token.
	Runner Kind = "cloop_run1_"
	// Session is a runner's credential after enrollment.
	Session Kind = "cloop_ses1_"
	// Admin is the first user's token for the management API, which the hub makes
	// by itself.
	Admin Kind = "cloop_adm1_"
	// User is a person's or a CI system's token for the management API.
	User Kind = "cloop_usr1_"
)

const (
	randomBytes = 32
	// bodyLength is how many base62 digits 32 bytes need.
	bodyLength = 43
	sumLength  = secret.SumLength
	digits     = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// ErrMalformed says that a text is no token of the wanted kind: a wrong prefix,
// length, character or checksum.
var ErrMalformed = errors.New("not a token of this kind")

// New makes a token. It panics only where the system has no randomness.
func New(kind Kind) secret.String {
	var raw [randomBytes]byte
	// crypto/rand.Read never fails; it ends the program instead.
	_, _ = rand.Read(raw[:])
	body := base62(new(big.Int).SetBytes(raw[:]), bodyLength)
	return secret.New(string(kind) + body + sum(kind, body))
}

// Check says whether the text is a whole token of the kind.
func Check(kind Kind, text string) error {
	rest, found := strings.CutPrefix(text, string(kind))
	if !found || len(rest) != bodyLength+sumLength {
		return fmt.Errorf("%w: want %s and %d characters", ErrMalformed, kind, bodyLength+sumLength)
	}
	for i := range len(rest) {
		if strings.IndexByte(digits, rest[i]) < 0 {
			return fmt.Errorf("%w: character %d is not a letter or digit", ErrMalformed, len(kind)+i+1)
		}
	}
	if rest[bodyLength:] != sum(kind, rest[:bodyLength]) {
		return fmt.Errorf("%w: the checksum is wrong, so a character is missing or changed", ErrMalformed)
	}
	return nil
}

// Hash is what the hub stores instead of the token: the hex of its SHA-256. A
// token has 256 random bits, so no slow hash is needed. Tokens are found by their
// hash, so no comparison of theirs takes longer for one that is nearly right:
// whoever sends guesses cannot choose what they hash to.
func Hash(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])
}

func sum(kind Kind, body string) string { return secret.Sum(string(kind) + body) }

func base62(n *big.Int, length int) string {
	out := make([]byte, length)
	base, digit := big.NewInt(int64(len(digits))), new(big.Int)
	for i := length - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		out[i] = digits[digit.Int64()]
	}
	return string(out)
}
