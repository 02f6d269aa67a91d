package secret

import (
	"bytes"
	"encoding/json"
	"hash/crc32"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	// SumLength is how many of these digits a CRC-32 needs.
	SumLength = 6
)

// Sum is the checksum that a credential of cloop's ends with, of all before it.
// It finds slips and tells a credential from other texts; it keeps nobody from
// making one up.
func Sum(text string) string {
	sum := crc32.ChecksumIEEE([]byte(text))
	out := make([]byte, SumLength)
	for i := SumLength - 1; i >= 0; i-- {
		out[i] = digits[sum%uint32(len(digits))]
		sum /= uint32(len(digits))
	}
	return string(out)
}

// most matches a credential of cloop's, or most of one.
var most = regexp.MustCompile(`cloop_[a-z]+1_[0-9A-Za-z]{20}`)

// Held says whether a text, such as a name, holds a credential of cloop's or most
// of one, escaped as in a URL or not: it is to be kept and shown nowhere, and nobody
// names anything so.
func Held(text string) bool {
	return most.MatchString(text) || strings.Contains(text, "%") && most.MatchString(unescape(text))
}

// HeldIn are the places, as paths below at, where a text in a value holds a
// credential of cloop's, sorted. The value is anything that encodes as JSON. A
// place never holds one itself.
func HeldIn(at string, value any) []string {
	data, err := json.Marshal(value)
	if err != nil || !bytes.Contains(data, []byte("cloop_")) && !bytes.Contains(data, []byte("%")) {
		return nil // of what cannot be encoded nothing can be kept either
	}
	var decoded any
	if json.Unmarshal(data, &decoded) != nil {
		return nil
	}
	var places []string
	walk(at, decoded, func(at string) { places = append(places, at) })
	slices.Sort(places)
	return slices.Compact(places)
}

func walk(at string, value any, found func(at string)) {
	switch value := value.(type) {
	case string:
		if Held(value) {
			found(at)
		}
	case []any:
		for i := range value {
			walk(at+"["+strconv.Itoa(i)+"]", value[i], found)
		}
	case map[string]any:
		for key := range value {
			if Held(key) {
				found(at)
				continue
			}
			walk(at+"."+key, value[key], found)
		}
	}
}

// Whole says whether a credential ends with its checksum: no character of it is
// missing or changed.
func Whole(credential string) bool {
	at := len(credential) - SumLength
	return at > 0 && credential[at:] == Sum(credential[:at])
}
