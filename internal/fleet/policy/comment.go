package policy

import (
	"bytes"
	"regexp"
	"strings"
	"unicode/utf8"

	"cloop.dev/cloop/schemas"
)

// marker begins a comment that turns a rule off.
const marker = "cloop:ignore"

// ignoring is such a comment: the marker, the rule, the reason.
var ignoring = regexp.MustCompile(`(?:^|[ \t])#[ \t]*` + marker + `(?:[ \t]+([^\s:]+):?)?(?:[ \t]+(.*))?$`)

// maxComments bounds how many comments of a file count: finding what each means
// may go over the whole of it.
const maxComments = 100

// Comments reads the comments of a source file that turn rules off:
//
//	# cloop:ignore RULE reason
//
// A comment counts for the field or entry that it stands behind or above, with
// all that lies below that, and above the first line of a document for the whole
// document. The text need not be YAML: lines and indentation are all that is
// looked at, so that a comment counts in an inline patch too.
func Comments(file string, data []byte) (ignores []*Ignore, problems []schemas.Problem) {
	if !bytes.Contains(data, []byte(marker)) {
		return nil, nil
	}
	lines := hideTexts(file, linesOf(data))
	for i, line := range lines {
		if !strings.Contains(line, marker) {
			continue
		}
		match := ignoring.FindStringSubmatchIndex(line)
		if match == nil {
			continue
		}
		before, _, _ := strings.Cut(line[match[0]:], marker)
		at := place{file, i + 1, utf8.RuneCountInString(line[:match[0]]) + utf8.RuneCountInString(before) + 1}
		if len(ignores)+len(problems) == maxComments {
			return ignores, append(problems, at.problem("", "more comments of this kind than are read of one file", "turn the rule off for the file in .cloop/config.yaml"))
		}
		rule, reason := group(line, match, 1), strings.TrimSpace(group(line, match, 2))
		switch {
		case rule == "":
			problems = append(problems, at.problem("", marker+" names no rule", "write # "+marker+" RULE reason"))
			continue
		case reason == "":
			problems = append(problems, at.problem("", marker+" "+quoted(rule)+" has no reason", "write # "+marker+" RULE reason: whoever reviews the change reads it"))
			continue
		}
		ignore := &Ignore{Rule: rule, Reason: reason, Comment: true, File: file, Line: at.line, Column: at.column}
		ignore.from, ignore.to = extent(lines, i)
		ignores = append(ignores, ignore)
	}
	return ignores, problems
}

func group(line string, match []int, n int) string {
	if match[2*n] < 0 {
		return ""
	}
	return line[match[2*n]:match[2*n+1]]
}

// extent is what a comment on a line means, in lines from 1; to is below from
// where that is nothing.
func extent(lines []string, comment int) (from, to int) {
	subject := comment
	if blank(lines[comment]) {
		first := firstOfDocument(lines, comment)
		if subject = following(lines, comment, first); subject < 0 {
			return 1, 0
		}
		if first {
			return subject + 1, endOfDocument(lines, subject)
		}
	}
	subject = operationOf(lines, subject)
	return subject + 1, endOfNode(lines, subject)
}

// operationOf is where the operation of a JSON patch begins that a line has a field
// of, the line itself where it has none: what the operation writes is found at the
// operation, so a comment on its value counts for all of it.
func operationOf(lines []string, line int) int {
	indent, entry := indentation(lines[line])
	if key, _ := keyOf(lines[line], indent); entry || !operationFields[key] {
		return line
	}
	for i := line - 1; i >= 0 && !separator(lines[i]); i-- {
		own, dash := indentation(lines[i])
		if blank(lines[i]) || own >= indent {
			continue
		}
		if _, at := keyOf(lines[i], own); dash && at == indent && isOperation(lines, i, indent) {
			return i
		}
		break
	}
	return line
}

var operationFields = map[string]bool{"op": true, "path": true, "from": true, "value": true}

// isOperation says whether an entry of a list has the fields that every operation
// has, at an indentation.
func isOperation(lines []string, entry, indent int) bool {
	has := map[string]bool{}
	for i := entry; i < endOfNode(lines, entry); i++ {
		own, _ := indentation(lines[i])
		if key, at := keyOf(lines[i], own); at == indent && !blank(lines[i]) {
			has[key] = true
		}
	}
	return has["op"] && has["path"]
}

// keyOf is the key that a line with an indentation begins with, behind the dash of
// an entry, and where it stands.
func keyOf(line string, indent int) (key string, at int) {
	at = indent
	if rest := line[indent:]; strings.HasPrefix(rest, "- ") {
		at = len(line) - len(strings.TrimLeft(rest[1:], " "))
	}
	key, _, _ = strings.Cut(line[at:], ":")
	return strings.TrimSpace(key), at
}

// firstOfDocument says whether a line has nothing of its document before it.
func firstOfDocument(lines []string, line int) bool {
	for i := line - 1; i >= 0; i-- {
		if separator(lines[i]) {
			return true
		}
		if !blank(lines[i]) {
			return false
		}
	}
	return true
}

// following is the next line that says something, -1 where the document ends
// before it. Separators count for nothing where first is true.
func following(lines []string, line int, first bool) int {
	for i := line + 1; i < len(lines); i++ {
		switch {
		case separator(lines[i]) && first, blank(lines[i]):
		case separator(lines[i]):
			return -1
		default:
			return i
		}
	}
	return -1
}

func endOfDocument(lines []string, line int) int {
	for i := line + 1; i < len(lines); i++ {
		if separator(lines[i]) {
			return i
		}
	}
	return len(lines)
}

// endOfNode is the last line of the field or entry that begins on a line.
func endOfNode(lines []string, line int) int {
	indent, entry := indentation(lines[line])
	end := line + 1
	for i := line + 1; i < len(lines) && !separator(lines[i]); i++ {
		if blank(lines[i]) {
			continue
		}
		// The entries of a list may stand below its key without indentation.
		if own, dash := indentation(lines[i]); own < indent || own == indent && (entry || !dash) {
			break
		}
		end = i + 1
	}
	return end
}

func indentation(line string) (columns int, entry bool) {
	text := strings.TrimLeft(line, " ")
	return len(line) - len(text), text == "-" || strings.HasPrefix(text, "- ")
}

// blank lines say nothing: they are empty, or a comment.
func blank(line string) bool {
	text := strings.TrimLeft(line, " \t")
	return text == "" || text[0] == '#'
}

// separator says whether a line begins or ends a document.
func separator(line string) bool {
	rest, ok := strings.CutPrefix(line, "---")
	if !ok {
		rest, ok = strings.CutPrefix(line, "...")
	}
	return ok && (rest == "" || rest[0] == ' ' || rest[0] == '\t')
}
