package secret

import "hash/crc32"

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

// Whole says whether a credential ends with its checksum: no character of it is
// missing or changed.
func Whole(credential string) bool {
	at := len(credential) - SumLength
	return at > 0 && credential[at:] == Sum(credential[:at])
}
