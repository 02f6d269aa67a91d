package hub_test

import (
	"slices"
	"testing"

	"cloop.dev/cloop/internal/hub"
)

func TestMemoryIsGivenBackOnceAfterManyStreamsCameOrWent(t *testing.T) {
	for name, test := range map[string]struct {
		open []int64
		want []int // indexes at which it is
	}{
		"few streams":             {[]int64{0, 10, 400, 400, 0, 0}, nil},
		"many at once":            {[]int64{0, 5000, 5000, 5000}, []int{2}},
		"not while more come":     {[]int64{1000, 2000, 3000, 3000, 3010}, []int{3}},
		"when they are gone, too": {[]int64{5000, 5000, 100, 90, 90}, []int{1, 3}},
		"as they change slowly":   {[]int64{600, 600, 640, 680, 1090, 1100, 1110}, []int{1, 5}},
	} {
		var got []int
		due := hub.TidyDue()
		for i, open := range test.open {
			if due(open) {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: at %v, want %v", name, got, test.want)
		}
	}
}
