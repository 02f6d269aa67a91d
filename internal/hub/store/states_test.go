package store_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestTheStatesPageDrawsEveryTransition(t *testing.T) {
	both(t, testTheStatesPageDrawsEveryTransition)
}

func testTheStatesPageDrawsEveryTransition(t *testing.T) {
	page, err := os.ReadFile("../../../docs/states.md")
	check(t, err)
	dir := t.TempDir()
	open(t, dir, newClock())
	rows, err := looking(t, dir).Query("SELECT kind, was, now FROM transitions")
	check(t, err)
	defer func() { _ = rows.Close() }()
	var have []string
	for rows.Next() {
		var kind, was, now string
		check(t, rows.Scan(&kind, &was, &now))
		have = append(have, kind+": "+was+" --> "+now)
	}
	check(t, rows.Err())
	var drawn []string
	arrow := regexp.MustCompile(`(?m)^\s+(\w+ --> \w+)$`)
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		kind := strings.ToLower(section[:strings.IndexByte(section, '\n')])
		for _, match := range arrow.FindAllStringSubmatch(section, -1) {
			drawn = append(drawn, kind+": "+match[1])
		}
	}
	slices.Sort(have)
	slices.Sort(drawn)
	if !slices.Equal(have, drawn) {
		t.Errorf("docs/states.md draws\n%s\nthe database has\n%s", strings.Join(drawn, "\n"), strings.Join(have, "\n"))
	}
}
