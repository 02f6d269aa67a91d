package schemas

import (
	"fmt"
	"unicode/utf8"

	yamlv3 "go.yaml.in/yaml/v3"
)

// lfsPointer begins what Git LFS commits in place of a file.
const lfsPointer = "version https://git-lfs.github.com/spec/"

// syntaxOf is what a YAML parser refuses. It reads ahead, and refuses bytes that
// are no text long before it says where: those are looked for.
func syntaxOf(file string, data []byte, err error) *Problem {
	if at, message, hint := noText(data); message != "" {
		problem := syntaxAt(&at, file, message, hint)
		return &problem
	}
	line, message := yamlError(err, 0)
	problem := syntaxAt(&yamlv3.Node{Line: brokenLine(data, line)}, file, message, "correct it here; what comes after this line was not read")
	return &problem
}

// noText finds the first byte that may not be in YAML, and says what to do about
// it; message is empty where there is none.
func noText(data []byte) (at yamlv3.Node, message, hint string) {
	at = yamlv3.Node{Line: 1, Column: 1}
	for i := 0; i < len(data); {
		char, size := utf8.DecodeRune(data[i:])
		switch {
		case char == utf8.RuneError && size == 1:
			return at, fmt.Sprintf("the byte 0x%02x is not UTF-8", data[i]), "save the file as UTF-8"
		case !printed(char):
			return at, fmt.Sprintf("the character %U may not be in YAML", char), fmt.Sprintf(`remove it, or write it as "\u%04x" within double quotes`, char)
		case char == '\n' || char == '\r' && (i+1 == len(data) || data[i+1] != '\n'):
			at.Line, at.Column = at.Line+1, 1
		default:
			at.Column++
		}
		i += size
	}
	return at, "", ""
}

// printed says whether YAML takes a character as it is.
func printed(char rune) bool {
	switch {
	case char == '\t', char == '\n', char == '\r', char == 0x85:
		return true
	case char < 0x20, char >= 0x7f && char < 0xa0, char == 0xfffe, char == 0xffff:
		return false
	}
	return true
}
