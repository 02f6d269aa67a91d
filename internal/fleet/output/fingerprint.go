package output

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"cloop.dev/cloop/schemas"
)

var numbers = regexp.MustCompile(`[0-9]+`)

// fingerprints tell problems apart and know one again in the next commit, by
// which forges say which are new. No line counts, nor a number in a message,
// which may be one, nor the place in a list, nor the namespace, which the first
// overlay gives to what is wrong with a base. Problems that are equal then are
// told apart by their order.
func fingerprints(problems []schemas.Problem) []string {
	prints := make([]string, len(problems))
	seen := map[string]int{}
	for i := range problems {
		p := &problems[i]
		key := strings.Join([]string{p.Rule, p.File, withoutNamespace(p.Object),
			numbers.ReplaceAllString(p.Path, "#"), numbers.ReplaceAllString(p.Message, "#")}, "\x00")
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d", key, seen[key]))
		seen[key]++
		prints[i] = hex.EncodeToString(sum[:16])
	}
	return prints
}

// withoutNamespace is the kind and name of "Kind namespace/name".
func withoutNamespace(object string) string {
	kind, name, _ := strings.Cut(object, " ")
	if _, after, ok := strings.Cut(name, "/"); ok {
		name = after
	}
	return kind + " " + name
}
