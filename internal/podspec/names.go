package podspec

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// SecretPrefix begins the name of every runner's Secret. A template may not
// name such a Secret, so no committer can have a token put into a variable.
const SecretPrefix = "cloop-runner-"

const (
	anchorPrefix = "cloop-pool-"
	// digestLength of base32 characters is 50 bits: two of a million names in
	// one namespace collide with a chance below one in a thousand.
	digestLength = 10
	// A Pod's name is its host name, which may not be longer.
	maxName = validation.DNS1123LabelMaxLength
)

// PodName is the name of the Pod for a pool's mint key, legal and distinct for
// every legal pool name and key. The same key gives the same name, so whoever
// starts a runner twice finds the first Pod.
func PodName(pool, key string) string {
	return join(pool, digest("pod", pool, key), maxName)
}

// SecretName is the name of the Secret for a pool's mint key.
func SecretName(pool, key string) string {
	return SecretOf(PodName(pool, key))
}

// SecretOf is the name of the Secret of the Pod with this name.
func SecretOf(pod string) string { return SecretPrefix + pod }

// AnchorName is the name of a pool's anchor.
func AnchorName(pool string) string {
	return anchorPrefix + join(pool, digest("anchor", pool), maxName)
}

// IsAnchorName says whether a name may be an anchor's.
func IsAnchorName(name string) bool { return strings.HasPrefix(name, anchorPrefix) }

// LabelValue is the text itself where it is a legal label value, and a
// shortened and hashed form of it where it is not.
func LabelValue(text string) string {
	if len(validation.IsValidLabelValue(text)) == 0 {
		return text
	}
	return join(text, digest("label", text), validation.LabelValueMaxLength)
}

// join is a readable stem of the text and the digest, a DNS label of at most
// limit characters.
func join(text, digest string, limit int) string {
	stem := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		default:
			return '-'
		}
	}, text)
	stem = strings.TrimLeft(stem, "-")
	stem = strings.TrimRight(stem[:min(len(stem), limit-digestLength-1)], "-")
	if stem == "" {
		return digest
	}
	return stem + "-" + digest
}

// digest hashes the parts; the separator is in none of them, so that no two
// lists of parts run together.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	text := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])
	return strings.ToLower(text[:digestLength])
}
